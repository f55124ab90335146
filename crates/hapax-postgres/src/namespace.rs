//! Namespaces as numbers. They are few and never change, so each is looked up once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use hapax_core::name::Namespace;
use hapax_store::StoreError;
use tokio_postgres::types::Type;

use crate::connect::Link;
use crate::error::PgFailure;
use crate::txn::PgTxn;

#[derive(Default)]
pub(crate) struct Namespaces {
    known: Mutex<HashMap<Namespace, i32>>,
}

impl Namespaces {
    /// The number of a namespace, if it was looked up before.
    pub(crate) fn known(&self, name: &Namespace) -> Option<i32> {
        self.lock().get(name).copied()
    }

    /// The number of a namespace, if it has one.
    pub(crate) fn find(&self, link: &Link, name: &Namespace) -> Result<Option<i32>, PgFailure> {
        if let Some(id) = self.known(name) {
            return Ok(Some(id));
        }
        let sql = "SELECT id FROM hapax.namespace WHERE name = $1";
        let rows = link.query(sql, &[(&name.as_str(), Type::TEXT)])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let id = row.try_get(0)?;
        self.lock().insert(name.clone(), id);
        Ok(Some(id))
    }

    /// The number of a namespace, which gets one if it has none. In a transaction of its own, so
    /// that the number stays even if the work that needed it fails.
    pub(crate) fn find_or_insert(&self, link: &Link, name: &Namespace) -> Result<i32, PgFailure> {
        if let Some(id) = self.find(link, name)? {
            return Ok(id);
        }
        link.execute(
            "INSERT INTO hapax.namespace (name) VALUES ($1) ON CONFLICT DO NOTHING",
            &[(&name.as_str(), Type::TEXT)],
        )?;
        let id = self.find(link, name)?;
        id.ok_or_else(|| StoreError::Corrupt(format!("no namespace {name}")).into())
    }

    /// The name of a number.
    pub(crate) fn name(&self, link: &Link, id: i32) -> Result<Namespace, PgFailure> {
        if let Some((name, _)) = self.lock().iter().find(|(_, known)| **known == id) {
            return Ok(name.clone());
        }
        let row =
            link.one("SELECT name FROM hapax.namespace WHERE id = $1", &[(&id, Type::INT4)])?;
        let name = Namespace::new(row.try_get(0)?)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.lock().insert(name.clone(), id);
        Ok(name)
    }

    /// All names.
    pub(crate) fn all(&self, link: &Link) -> Result<Vec<Namespace>, PgFailure> {
        let rows = link.query_prepared(("SELECT name FROM hapax.namespace ORDER BY name", &[]))?;
        rows.iter()
            .map(|row| {
                let name = Namespace::new(row.try_get(0)?);
                name.map_err(|error| StoreError::Corrupt(error.to_string()).into())
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Namespace, i32>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl PgTxn<'_> {
    /// The number of a namespace for a write; it was given before the transaction.
    pub(crate) fn namespace(&self, namespace: &Namespace) -> Result<i32, PgFailure> {
        let id = self.namespaces.find(self.link, namespace)?;
        id.ok_or_else(|| StoreError::Corrupt(format!("no namespace {namespace}")).into())
    }
}
