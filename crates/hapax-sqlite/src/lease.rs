//! Leases and the pulse as rows.

use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::time::LeaseInstant;
use hapax_store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::error::OrStoreError;

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

/// All that are not dead.
pub(crate) fn live(db: &Connection) -> Result<Vec<Lease>, StoreError> {
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

pub(crate) fn put(db: &Connection, lease: &Lease) -> Result<(), StoreError> {
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

/// Dead first, so that what hangs on it can be found; gone once nothing does. To whoever
/// asks, a lease that is not there is dead.
pub(crate) fn end(db: &Connection, id: LeaseId) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE lease SET dead = 1 WHERE id = ?1")
        .or_store_error()?
        .execute([id.as_bytes()])
        .or_store_error()?;
    sweep(db)
}

/// Removes dead leases on which nothing hangs.
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

pub(crate) fn pulse(db: &Connection) -> Result<Pulse, StoreError> {
    db.prepare_cached("SELECT pulse_era, pulse_last, pulse_since FROM self")
        .or_store_error()?
        .query_row([], |row| {
            let era = row.get::<_, i64>(0)? as u64;
            let instant = |ms: i64| LeaseInstant { era, ms: ms as u64 };
            Ok(Pulse { last: instant(row.get(1)?), since: instant(row.get(2)?) })
        })
        .or_store_error()
}

pub(crate) fn put_pulse(db: &Connection, pulse: &Pulse) -> Result<(), StoreError> {
    let (last, since) = (pulse.last, pulse.since);
    db.prepare_cached("UPDATE self SET pulse_era = ?1, pulse_last = ?2, pulse_since = ?3")
        .or_store_error()?
        .execute(params![last.era as i64, last.ms as i64, since.ms as i64])
        .or_store_error()?;
    Ok(())
}
