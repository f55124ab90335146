//! The inbox of a receiver that keeps its data in SQLite.

use std::time::Duration;

use hapax_core::inbox::{InboxError, Receipt, check};
use rusqlite::{Connection, Transaction, params};

/// The table, for the receiver's own migrations. Times are in seconds since 1970.
pub const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS hapax_inbox (
    source      TEXT NOT NULL,
    id          TEXT NOT NULL,
    received_at INTEGER NOT NULL DEFAULT (unixepoch()),
    PRIMARY KEY (source, id)
) WITHOUT ROWID, STRICT;
CREATE INDEX IF NOT EXISTS hapax_inbox_age ON hapax_inbox (received_at);
";

/// Receives an event in your transaction: if that is rolled back, it was not received.
pub fn receive_in(
    tx: &Transaction<'_>,
    source: &str,
    id: &str,
) -> Result<Receipt, InboxError<rusqlite::Error>> {
    check(source, id)?;
    let sql = "INSERT INTO hapax_inbox (source, id) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    match tx.prepare_cached(sql)?.execute([source, id])? {
        0 => Ok(Receipt::Again),
        _ => Ok(Receipt::First),
    }
}

/// Forgets ids that were received longer ago than this, ten thousand at a time; returns how many.
/// Keep them for longer than the sender may send again.
pub fn forget(connection: &Connection, older_than: Duration) -> Result<usize, rusqlite::Error> {
    let sql = "DELETE FROM hapax_inbox WHERE (source, id) IN
                   (SELECT source, id FROM hapax_inbox
                     WHERE received_at < unixepoch() - ?1 LIMIT 10000)";
    connection.execute(sql, params![older_than.as_secs().min(i64::MAX as u64) as i64])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves O-5: once in the receiver's own transaction, and not at all if that is rolled back.
    #[test]
    fn an_event_is_received_once() {
        let mut database = Connection::open_in_memory().unwrap();
        database.execute_batch(SCHEMA).unwrap();
        database.execute_batch("CREATE TABLE paid (id TEXT)").unwrap();
        let mut receive = |source: &str, keep: bool| {
            let tx = database.transaction().unwrap();
            let receipt = receive_in(&tx, source, "evt").unwrap();
            if receipt == Receipt::First {
                tx.execute("INSERT INTO paid VALUES ('evt')", []).unwrap();
            }
            if keep {
                tx.commit().unwrap();
            }
            receipt
        };
        assert_eq!(receive("shop", false), Receipt::First);
        assert_eq!(receive("shop", true), Receipt::First, "it was rolled back");
        assert_eq!(receive("shop", true), Receipt::Again);
        assert_eq!(receive("bank", true), Receipt::First, "another source, another event");
        let paid: u32 =
            database.query_one("SELECT count(*) FROM paid", [], |row| row.get(0)).unwrap();
        assert_eq!(paid, 2);
    }

    #[test]
    fn old_ids_are_forgotten_and_young_ones_kept() {
        let mut database = Connection::open_in_memory().unwrap();
        database.execute_batch(SCHEMA).unwrap();
        let old = "INSERT INTO hapax_inbox VALUES ('shop', 'old', unixepoch() - 100)";
        database.execute(old, []).unwrap();
        let tx = database.transaction().unwrap();
        receive_in(&tx, "shop", "young").unwrap();
        tx.commit().unwrap();
        assert_eq!(forget(&database, Duration::from_secs(50)).unwrap(), 1);
        assert_eq!(forget(&database, Duration::from_secs(50)).unwrap(), 0);
    }

    #[test]
    fn an_ambiguous_source_or_id_is_refused() {
        let mut database = Connection::open_in_memory().unwrap();
        let tx = database.transaction().unwrap();
        for (source, id) in [("", "a"), ("a", ""), ("a", "a\0"), ("a", &*"a".repeat(256))] {
            assert!(matches!(receive_in(&tx, source, id), Err(InboxError::Id)), "{id:?}");
        }
    }
}
