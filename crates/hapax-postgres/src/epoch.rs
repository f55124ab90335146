//! Epochs as rows.

use hapax_core::epoch::{Bound, Domain};
use hapax_core::name::{Name, Namespace};
use hapax_store::{EpochTxn, EpochView, Limits, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::{Link, Param};
use crate::effect::EffectRowKey;
use crate::error::PgFailure;
use crate::journal;
use crate::txn::PgTxn;

impl EpochView for PgTxn<'_> {
    fn epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, StoreError> {
        let epoch = self.try_epoch(namespace, domain);
        self.keep_failure(epoch)
    }

    fn epochs(&mut self, namespace: &Namespace) -> Result<Vec<Bound>, StoreError> {
        let found = self.namespaces.find(self.link, namespace);
        match self.keep_failure(found)? {
            Some(id) => self.keep_failure(all(self.link, id)),
            None => Ok(Vec::new()),
        }
    }
}

impl EpochTxn for PgTxn<'_> {
    fn put_epoch(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<(), StoreError> {
        let id = self.namespace(namespace);
        let id = self.keep_failure(id)?;
        self.keep_failure(put(self.link, id, epoch))
    }

    fn bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, StoreError> {
        let bound = self.try_bound(namespace, epoch);
        self.keep_failure(bound)
    }
}

/// The primary key of `hapax.epoch`: the number of a namespace, and a domain.
pub(crate) type EpochRowKey = (i32, Domain);

impl PgTxn<'_> {
    /// Holds the epochs that a batch claims in, and takes the epoch that one of its commands ends,
    /// before anything else is locked.
    pub(crate) fn preload_epochs(
        &mut self,
        mut claimed: Vec<EpochRowKey>,
        ended: Option<EpochRowKey>,
    ) -> Result<(), PgFailure> {
        claimed.sort_unstable();
        claimed.dedup();
        if !claimed.is_empty() {
            let epochs = hold(self.link, &claimed)?;
            self.epochs.extend(claimed.into_iter().zip(epochs));
        }
        if let Some(row_key) = ended {
            let epoch = take(self.link, &row_key)?;
            self.epochs.insert(row_key, epoch);
        }
        Ok(())
    }

    fn try_epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, PgFailure> {
        let Some(id) = self.namespaces.find(self.link, namespace)? else { return Ok(0) };
        let row_key = (id, domain.clone());
        if let Some(epoch) = self.epochs.get(&row_key) {
            return Ok(*epoch);
        }
        let epoch = load(self.link, &row_key)?;
        self.epochs.insert(row_key, epoch);
        Ok(epoch)
    }

    fn try_bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, PgFailure> {
        let row_keys = bound(self.link, self.namespace(namespace)?, epoch)?;
        self.load_effects(&row_keys)?;
        self.entry_numbers.extend(journal::take_entry_numbers(self.link, row_keys.len() + 2)?);
        let name = |(_, key): EffectRowKey| Name { namespace: namespace.clone(), key };
        Ok(row_keys.into_iter().map(name).collect())
    }
}

/// The last committed epoch of a domain.
fn load(link: &Link, (namespace, domain): &EpochRowKey) -> Result<u64, PgFailure> {
    let rows = link.query(
        "SELECT epoch FROM hapax.epoch WHERE namespace = $1 AND domain = $2",
        &[(namespace, Type::INT4), (&domain.as_str(), Type::TEXT)],
    )?;
    Ok(rows.first().map(|row| row.try_get::<_, i64>(0)).transpose()?.unwrap_or_default() as u64)
}

/// The epochs of these domains, in the order of the table's key. No transition ends one of them
/// before this transaction ends.
fn hold(link: &Link, row_keys: &[EpochRowKey]) -> Result<Vec<u64>, PgFailure> {
    let namespaces: Vec<i32> = row_keys.iter().map(|(namespace, _)| *namespace).collect();
    let domains: Vec<&str> = row_keys.iter().map(|(_, domain)| domain.as_str()).collect();
    let rows = link.query(
        "SELECT hapax.epoch_now(u.namespace, u.domain)
         FROM unnest($1::int[], $2::text[]) AS u (namespace, domain)",
        &[(&namespaces, Type::INT4_ARRAY), (&domains, Type::TEXT_ARRAY)],
    )?;
    rows.iter().map(|row| Ok(row.try_get::<_, i64>(0)? as u64)).collect()
}

/// The epoch that a domain is about to leave. Waits for every transaction that holds it.
fn take(link: &Link, row_key: &EpochRowKey) -> Result<u64, PgFailure> {
    let params: [Param<'_>; 2] = [(&row_key.0, Type::INT4), (&row_key.1.as_str(), Type::TEXT)];
    link.query("SELECT pg_advisory_xact_lock(1751216248, hapax.epoch_lock($1, $2))", &params)?;
    link.execute(
        "INSERT INTO hapax.epoch (namespace, domain, epoch) SELECT $1, $2, 0
         WHERE (SELECT count(*) FROM hapax.epoch WHERE namespace = $1) < 10000
         ON CONFLICT DO NOTHING",
        &params,
    )?;
    let rows = link.query(
        "SELECT epoch FROM hapax.epoch WHERE namespace = $1 AND domain = $2 FOR UPDATE",
        &params,
    )?;
    let full = || StoreError::Invalid(format!("there are {} domains", Limits::DOMAINS));
    Ok(rows.first().ok_or_else(full)?.try_get::<_, i64>(0)? as u64)
}

fn all(link: &Link, namespace: i32) -> Result<Vec<Bound>, PgFailure> {
    let sql = "SELECT domain, epoch FROM hapax.epoch WHERE namespace = $1 AND epoch > 0
               ORDER BY domain";
    let rows = link.query(sql, &[(&namespace, Type::INT4)])?;
    rows.iter().filter_map(|row| read(row).transpose()).collect()
}

/// The domain and epoch of a row, which is an effect's or a domain's own.
pub(crate) fn read(row: &Row) -> Result<Option<Bound>, PgFailure> {
    let Some(domain) = row.try_get::<_, Option<&str>>("domain")? else { return Ok(None) };
    let domain = Domain::new(domain).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(Some(Bound { domain, epoch: row.try_get::<_, i64>("epoch")? as u64 }))
}

fn put(link: &Link, namespace: i32, epoch: &Bound) -> Result<(), PgFailure> {
    link.execute(
        "UPDATE hapax.epoch SET epoch = $3 WHERE namespace = $1 AND domain = $2",
        &[
            (&namespace, Type::INT4),
            (&epoch.domain.as_str(), Type::TEXT),
            (&(epoch.epoch as i64), Type::INT8),
        ],
    )?;
    Ok(())
}

/// The row keys of the effects that the end of this epoch voids.
fn bound(link: &Link, namespace: i32, epoch: &Bound) -> Result<Vec<EffectRowKey>, PgFailure> {
    let rows = link.query(
        "SELECT namespace, key FROM hapax.effect
         WHERE voidable = $2 AND namespace = $1 AND epoch = $3 ORDER BY key",
        &[
            (&namespace, Type::INT4),
            (&epoch.domain.as_str(), Type::TEXT),
            (&(epoch.epoch as i64), Type::INT8),
        ],
    )?;
    rows.iter().map(crate::effect::row_key).collect()
}
