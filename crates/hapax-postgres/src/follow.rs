//! Follows new records, although transactions commit in another order than they began.

use hapax_core::outbox::Record;
use hapax_store::outbox::FollowCursor;
use tokio_postgres::types::Type;

use crate::error::PgFailure;
use crate::outbox::record;
use crate::txn::PgTxn;

/// How far below the newest number a new cursor begins. If an open transaction took its number earlier and
/// commits later, the cursor does not follow its records.
const LOOKBACK: u64 = 10_000;
/// How many numbers one call reads at most.
const MAX_NUMBERS: usize = 20_000;

impl PgTxn<'_> {
    /// The newest number, the oldest open transaction, and this transaction. Its id is higher than
    /// that of any transaction that has taken a number: those got their ids when they locked their
    /// effects.
    fn outbox_state(&self) -> Result<(u64, u64, u64), PgFailure> {
        // The sequence first: a transaction that has taken a number by now has a lower id than
        // ours.
        let sql = "SELECT last_value - (NOT is_called)::int FROM hapax.outbox_seq";
        let row = self.link.one(sql, &[])?;
        let last = row.try_get::<_, i64>(0)? as u64;
        let row = self.link.one(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
                    pg_current_xact_id()::text::bigint",
            &[],
        )?;
        Ok((last, row.try_get::<_, i64>(0)? as u64, row.try_get::<_, i64>(1)? as u64))
    }

    /// The visible numbers above `floor`.
    fn visible_numbers(&self, floor: u64) -> Result<Vec<u64>, PgFailure> {
        let sql = "SELECT seq FROM hapax.outbox_record WHERE seq > $1 ORDER BY seq LIMIT $2";
        let (floor, most) = (floor as i64, MAX_NUMBERS as i64);
        let rows = self.link.query_prepared((sql, &[(&floor, Type::INT8), (&most, Type::INT8)]))?;
        rows.iter().map(|row| Ok(row.try_get::<_, i64>(0)? as u64)).collect()
    }

    pub(crate) fn try_follow_cursor(&self) -> Result<FollowCursor, PgFailure> {
        let (last, ..) = self.outbox_state()?;
        let floor = last.saturating_sub(LOOKBACK);
        Ok(FollowCursor {
            floor,
            horizon: None,
            seen: self.visible_numbers(floor)?.into_iter().collect(),
        })
    }

    pub(crate) fn try_records_after(
        &self,
        mut cursor: FollowCursor,
        limit: usize,
    ) -> Result<(Vec<Record>, FollowCursor), PgFailure> {
        let (last, oldest, this) = self.outbox_state()?;
        let mut new = self.visible_numbers(cursor.floor)?;
        // Records beyond the limit stay above the floor for the next call.
        let last_read = new.get(MAX_NUMBERS - 1).copied().unwrap_or(u64::MAX);
        new.retain(|seq| !cursor.seen.contains(seq));
        let most = new.get(limit).map_or(last_read, |seq| seq - 1);
        new.truncate(limit);
        let wanted: Vec<i64> = new.iter().map(|seq| *seq as i64).collect();
        let sql = concat!(
            "SELECT ",
            record!(),
            " FROM hapax.outbox_record e WHERE e.seq = ANY ($1) ORDER BY e.seq"
        );
        let records = match wanted.is_empty() {
            true => Vec::new(),
            false => {
                let rows = self.link.query_prepared((sql, &[(&wanted, Type::INT8_ARRAY)]))?;
                rows.iter().map(|row| self.record(row)).collect::<Result<_, _>>()?
            }
        };
        cursor.seen.extend(new);
        match cursor.horizon {
            Some((before, last)) if oldest >= before => {
                cursor.floor = cursor.floor.max(last.min(most));
                cursor.seen = cursor.seen.split_off(&(cursor.floor + 1));
                cursor.horizon = None;
            }
            Some(_) => {}
            None => cursor.horizon = Some((this, last)),
        }
        Ok((records, cursor))
    }
}
