//! Epochs.

use hapax_core::epoch::{Bound, Domain};
use hapax_core::name::{Name, Namespace};
use hapax_store::{EpochTxn, EpochView, StoreError};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::OrStoreError;
use crate::query::{rows, run};
use crate::txn::SqliteTxn;

impl EpochView for SqliteTxn<'_> {
    fn epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, StoreError> {
        match self.namespace(namespace)? {
            Some(namespace) => load(self.db, namespace, domain),
            None => Ok(0),
        }
    }

    fn epochs(&mut self, namespace: &Namespace) -> Result<Vec<Bound>, StoreError> {
        match self.namespace(namespace)? {
            Some(namespace) => all(self.db, namespace),
            None => Ok(Vec::new()),
        }
    }
}

impl EpochTxn for SqliteTxn<'_> {
    fn put_epoch(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(namespace)?;
        put(self.db, namespace, epoch)
    }

    fn bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(Vec::new()) };
        self.effect_names(
            "SELECT namespace, key FROM effect
             WHERE voidable = ?2 AND voidable IS NOT NULL AND namespace = ?1 AND epoch = ?3",
            params![namespace, epoch.domain.as_str(), epoch.epoch as i64],
        )
    }
}

fn load(db: &Connection, namespace: i64, domain: &Domain) -> Result<u64, StoreError> {
    let epoch: Option<i64> = db
        .prepare_cached("SELECT epoch FROM epoch WHERE namespace = ?1 AND domain = ?2")
        .or_store_error()?
        .query_row(params![namespace, domain.as_str()], |row| row.get(0))
        .optional()
        .or_store_error()?;
    Ok(epoch.unwrap_or_default() as u64)
}

fn all(db: &Connection, namespace: i64) -> Result<Vec<Bound>, StoreError> {
    let sql = "SELECT domain, epoch FROM epoch WHERE namespace = ?1 ORDER BY domain";
    let all = rows(db, sql, [namespace], |row| Ok((row.get(0)?, row.get(1)?)))?;
    all.into_iter().map(|(domain, epoch)| read(domain, epoch)).collect()
}

fn put(db: &Connection, namespace: i64, epoch: &Bound) -> Result<(), StoreError> {
    run(
        db,
        "INSERT INTO epoch (namespace, domain, epoch) VALUES (?1, ?2, ?3)
         ON CONFLICT (namespace, domain) DO UPDATE SET epoch = excluded.epoch",
        params![namespace, epoch.domain.as_str(), epoch.epoch as i64],
    )?;
    Ok(())
}

/// An epoch as its columns have it.
pub(crate) fn read(domain: String, epoch: i64) -> Result<Bound, StoreError> {
    let domain = Domain::new(&domain).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(Bound { domain, epoch: epoch as u64 })
}
