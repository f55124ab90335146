//! Leases and the pulse as rows.

use std::collections::BTreeMap;

use hapax_core::lease::{GAPS, Lease, LeaseId, Pulse};
use hapax_core::time::LeaseInstant;
use hapax_store::{LeaseTxn, LeaseView, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::clock::ERA;
use crate::connect::Link;
use crate::effect::bytes;
use crate::error::PgFailure;
use crate::txn::{Access, PgTxn};

impl LeaseView for PgTxn<'_> {
    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        let written = self.staged.leases.get(&id).or_else(|| self.written.leases.get(&id));
        if let Some(lease) = written {
            return Ok(Some(lease.clone()));
        }
        let lease = self.load_lease(id);
        self.keep_failure(lease)
    }

    fn leases(&mut self) -> Result<Vec<Lease>, StoreError> {
        let live = self.keep_failure(live(self.link))?;
        let mut leases: BTreeMap<_, _> = live.into_iter().map(|lease| (lease.id, lease)).collect();
        for writes in [&self.written, &self.staged] {
            leases.extend(writes.leases.iter().map(|(id, lease)| (*id, lease.clone())));
        }
        Ok(leases.into_values().filter(|lease| !lease.dead).collect())
    }

    fn is_gone(&mut self, _: &Lease) -> bool {
        false
    }

    fn pulse(&mut self) -> Result<Pulse, StoreError> {
        let known = self.staged.pulse.or(self.written.pulse).or(self.loaded.pulse);
        if let Some(pulse) = known {
            return Ok(pulse);
        }
        let pulse = self.keep_failure(pulse(self.link))?;
        self.loaded.pulse = Some(pulse);
        Ok(pulse)
    }

    fn notice(&mut self) -> Result<u64, StoreError> {
        self.keep_failure(notice(self.link))
    }
}

impl LeaseTxn for PgTxn<'_> {
    fn put_lease(&mut self, lease: &Lease) -> Result<(), StoreError> {
        self.staged.leases.insert(lease.id, lease.clone());
        Ok(())
    }

    fn drop_lease(&mut self, id: LeaseId) -> Result<(), StoreError> {
        self.keep_failure(end(self.link, id))
    }

    fn put_pulse(&mut self, pulse: &Pulse) -> Result<(), StoreError> {
        self.staged.pulse = Some(*pulse);
        Ok(())
    }

    fn raise_notice(&mut self) -> Result<u64, StoreError> {
        self.keep_failure(raise_notice(self.link))
    }
}

impl PgTxn<'_> {
    fn load_lease(&mut self, id: LeaseId) -> Result<Option<Lease>, PgFailure> {
        if let Some(lease) = self.loaded.leases.get(&id) {
            return Ok(lease.clone());
        }
        let mut lease = load(self.link, id, self.access == Access::WriteLeases)?;
        let seems_lapsed =
            lease.as_ref().is_some_and(|l| !l.dead && l.until.reached(self.now.lease));
        if seems_lapsed && self.access == Access::Write {
            lease = load(self.link, id, true)?;
        }
        self.loaded.leases.insert(id, lease.clone());
        Ok(lease)
    }
}

macro_rules! select {
    () => {
        "SELECT id, term_ms, until_ms, dead, holder, seen FROM hapax.lease WHERE id = $1"
    };
}

/// A lease; under its row's lock if the caller is about to write it.
fn load(link: &Link, id: LeaseId, lock: bool) -> Result<Option<Lease>, PgFailure> {
    let sql = if lock { concat!(select!(), " FOR UPDATE") } else { select!() };
    let rows = link.query_prepared((sql, &[(&&id.as_bytes()[..], Type::BYTEA)]))?;
    first(&rows)
}

/// The statement that finds a lease by its id, for a round trip shared with another statement.
pub(crate) const FIND: &str = select!();

pub(crate) fn first(rows: &[Row]) -> Result<Option<Lease>, PgFailure> {
    rows.first().map(read).transpose()
}

/// The leases that are not dead.
fn live(link: &Link) -> Result<Vec<Lease>, PgFailure> {
    let sql = "SELECT id, term_ms, until_ms, dead, holder, seen FROM hapax.lease WHERE NOT dead";
    link.query(sql, &[])?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Lease, PgFailure> {
    Ok(Lease {
        id: LeaseId::from_bytes(bytes(row, "id")?),
        term_ms: row.try_get::<_, i64>("term_ms")? as u64,
        until: LeaseInstant { era: ERA, ms: row.try_get::<_, i64>("until_ms")? as u64 },
        dead: row.try_get("dead")?,
        holder: row.try_get("holder")?,
        seen: row.try_get::<_, i64>("seen")? as u64,
    })
}

pub(crate) fn put(link: &Link, lease: &Lease) -> Result<(), PgFailure> {
    link.execute(
        "INSERT INTO hapax.lease (id, term_ms, until_ms, dead, holder, seen)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (id) DO UPDATE SET until_ms = $3, dead = $4, seen = $6",
        &[
            (&&lease.id.as_bytes()[..], Type::BYTEA),
            (&(lease.term_ms as i64), Type::INT8),
            (&(lease.until.ms as i64), Type::INT8),
            (&lease.dead, Type::BOOL),
            (&lease.holder, Type::TEXT),
            (&(lease.seen as i64), Type::INT8),
        ],
    )?;
    Ok(())
}

/// Marks a lease as dead, so that the effects that depend on it can be found, and deletes it once there
/// are none. A missing lease counts as dead.
fn end(link: &Link, id: LeaseId) -> Result<(), PgFailure> {
    let id = &id.as_bytes()[..];
    link.execute("UPDATE hapax.lease SET dead = true WHERE id = $1", &[(&id, Type::BYTEA)])?;
    sweep(link)
}

/// Removes dead leases that no running, non-transactional effect depends on.
pub(crate) fn sweep(link: &Link) -> Result<(), PgFailure> {
    link.execute(
        "DELETE FROM hapax.lease WHERE id IN (
             SELECT id FROM hapax.lease l WHERE dead
                 AND NOT EXISTS (SELECT 1 FROM hapax.effect e WHERE e.watch = l.id)
             ORDER BY id FOR UPDATE SKIP LOCKED)",
        &[],
    )?;
    Ok(())
}

/// The timeline that this server writes. Each failover or restore begins another one.
const TIMELINE: &str = "left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// The pulse, if it is of this timeline.
fn pulse(link: &Link) -> Result<Pulse, PgFailure> {
    let sql = format!("SELECT pulse_last, pulse_gaps FROM hapax.self WHERE timeline = {TIMELINE}");
    let rows = link.query(&sql, &[])?;
    let Some(row) = rows.first() else { return Ok(Pulse::default()) };
    let last = LeaseInstant { era: ERA, ms: row.try_get::<_, i64>(0)? as u64 };
    let mut gaps = [0; GAPS];
    for (gap, stored) in gaps.iter_mut().zip(row.try_get::<_, Vec<i64>>(1)?) {
        *gap = stored as u64;
    }
    Ok(Pulse { last, gaps })
}

/// Whether the stored pulse counts: it is of this timeline, and not of a clock that was ahead and has
/// been set right, as [`Pulse::beat`] judges it.
const SAME_CLOCK: &str =
    "timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8) AND pulse_last <= $1 + 60000";

/// Writes the pulse. Other transactions beat too: the newest beat counts, and the newest gap of each
/// length.
pub(crate) fn put_pulse(link: &Link, pulse: &Pulse) -> Result<(), PgFailure> {
    let sql = format!(
        "UPDATE hapax.self SET
             pulse_last = CASE WHEN {SAME_CLOCK} THEN greatest(pulse_last, $1) ELSE $1 END,
             pulse_gaps = CASE WHEN {SAME_CLOCK} THEN hapax.newest(pulse_gaps, $2) ELSE $2 END,
             timeline = {TIMELINE}"
    );
    let gaps: Vec<i64> = pulse.gaps.iter().map(|gap| *gap as i64).collect();
    link.execute(&sql, &[(&(pulse.last.ms as i64), Type::INT8), (&gaps, Type::INT8_ARRAY)])?;
    Ok(())
}

/// The newest notice.
fn notice(link: &Link) -> Result<u64, PgFailure> {
    let row = link.one("SELECT notice FROM hapax.self", &[])?;
    Ok(row.try_get::<_, i64>(0)? as u64)
}

fn raise_notice(link: &Link) -> Result<u64, PgFailure> {
    let row = link.one("UPDATE hapax.self SET notice = notice + 1 RETURNING notice", &[])?;
    Ok(row.try_get::<_, i64>(0)? as u64)
}
