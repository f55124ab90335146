//! Leases and the pulse as rows.

use hapax_core::lease::{GAPS, Lease, LeaseId, Pulse};
use hapax_core::time::LeaseInstant;
use hapax_store::{LeaseTxn, LeaseView, StoreError};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::error::OrStoreError;
use crate::txn::SqliteTxn;

impl LeaseView for SqliteTxn<'_> {
    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        self.cache.lease(id)
    }

    fn leases(&mut self) -> Result<Vec<Lease>, StoreError> {
        live(self.db)
    }

    fn is_gone(&mut self, lease: &Lease) -> bool {
        self.context.liveness.is_gone(lease.id)
    }

    fn pulse(&mut self) -> Result<Pulse, StoreError> {
        pulse(self.db)
    }

    fn notice(&mut self) -> Result<u64, StoreError> {
        self.db
            .prepare_cached("SELECT notice FROM self")
            .or_store_error()?
            .query_row([], |row| row.get::<_, i64>(0))
            .map(|notice| notice as u64)
            .or_store_error()
    }
}

impl LeaseTxn for SqliteTxn<'_> {
    fn put_lease(&mut self, lease: &Lease) -> Result<(), StoreError> {
        self.cache.drop_lease();
        put(self.db, lease)?;
        if lease.dead && self.context.liveness.is_gone(lease.id) {
            self.context.liveness.remove(lease.id);
        }
        Ok(())
    }

    fn drop_lease(&mut self, id: LeaseId) -> Result<(), StoreError> {
        self.cache.drop_lease();
        end(self.db, id)?;
        self.context.liveness.remove(id);
        Ok(())
    }

    fn put_pulse(&mut self, pulse: &Pulse) -> Result<(), StoreError> {
        put_pulse(self.db, pulse)
    }

    fn raise_notice(&mut self) -> Result<u64, StoreError> {
        self.db.execute("UPDATE self SET notice = notice + 1", []).or_store_error()?;
        self.notice()
    }
}

macro_rules! columns {
    () => {
        "id, term_ms, until_era, until_ms, dead, holder, seen"
    };
}

pub(crate) fn load(db: &Connection, id: LeaseId) -> Result<Option<Lease>, StoreError> {
    db.prepare_cached(concat!("SELECT ", columns!(), " FROM lease WHERE id = ?1"))
        .or_store_error()?
        .query_row([id.as_bytes()], read)
        .optional()
        .or_store_error()
}

/// The leases that are not dead.
fn live(db: &Connection) -> Result<Vec<Lease>, StoreError> {
    db.prepare_cached(concat!("SELECT ", columns!(), " FROM lease WHERE dead = 0"))
        .or_store_error()?
        .query_map([], read)
        .or_store_error()?
        .collect::<rusqlite::Result<_>>()
        .or_store_error()
}

fn read(row: &Row<'_>) -> rusqlite::Result<Lease> {
    Ok(Lease {
        id: LeaseId::from_bytes(row.get(0)?),
        term_ms: row.get::<_, i64>(1)? as u64,
        until: LeaseInstant { era: row.get::<_, i64>(2)? as u64, ms: row.get::<_, i64>(3)? as u64 },
        dead: row.get(4)?,
        holder: row.get(5)?,
        seen: row.get::<_, i64>(6)? as u64,
    })
}

fn put(db: &Connection, lease: &Lease) -> Result<(), StoreError> {
    db.prepare_cached(concat!(
        "INSERT INTO lease (",
        columns!(),
        ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT DO UPDATE SET until_era = ?3, until_ms = ?4, dead = ?5, seen = ?7"
    ))
    .or_store_error()?
    .execute(params![
        lease.id.as_bytes(),
        lease.term_ms as i64,
        lease.until.era as i64,
        lease.until.ms as i64,
        lease.dead,
        lease.holder,
        lease.seen as i64,
    ])
    .or_store_error()?;
    Ok(())
}

/// Marks a lease dead, so that the effects that depend on it can be found, and removes it once
/// there are none. A caller treats a lease that is not there as dead.
fn end(db: &Connection, id: LeaseId) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE lease SET dead = 1 WHERE id = ?1")
        .or_store_error()?
        .execute([id.as_bytes()])
        .or_store_error()?;
    sweep(db)
}

/// Ends all leases.
pub(crate) fn end_all(db: &Connection) -> Result<(), StoreError> {
    db.execute("UPDATE lease SET dead = 1 WHERE dead = 0", []).or_store_error()?;
    Ok(())
}

/// Removes dead leases that no running, non-transactional effect depends on.
pub(crate) fn sweep(db: &Connection) -> Result<(), StoreError> {
    db.prepare_cached(
        "DELETE FROM lease WHERE dead = 1 AND NOT EXISTS
             (SELECT 1 FROM effect WHERE lease = lease.id AND safety <> 0)",
    )
    .or_store_error()?
    .execute([])
    .or_store_error()?;
    Ok(())
}

fn pulse(db: &Connection) -> Result<Pulse, StoreError> {
    db.prepare_cached("SELECT pulse_era, pulse_last, pulse_gaps FROM self")
        .or_store_error()?
        .query_row([], |row| {
            let last = LeaseInstant {
                era: row.get::<_, i64>(0)? as u64,
                ms: row.get::<_, i64>(1)? as u64,
            };
            let mut gaps = [0; GAPS];
            let stored: [u8; 8 * GAPS] = row.get(2)?;
            for (gap, bytes) in gaps.iter_mut().zip(stored.as_chunks().0) {
                *gap = u64::from_be_bytes(*bytes);
            }
            Ok(Pulse { last, gaps })
        })
        .or_store_error()
}

fn put_pulse(db: &Connection, pulse: &Pulse) -> Result<(), StoreError> {
    let gaps: Vec<u8> = pulse.gaps.iter().flat_map(|gap| gap.to_be_bytes()).collect();
    db.prepare_cached("UPDATE self SET pulse_era = ?1, pulse_last = ?2, pulse_gaps = ?3")
        .or_store_error()?
        .execute(params![pulse.last.era as i64, pulse.last.ms as i64, gaps])
        .or_store_error()?;
    Ok(())
}
