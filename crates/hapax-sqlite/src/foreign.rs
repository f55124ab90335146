//! Claims and settles in a transaction that the caller owns.
//!
//! The caller's connection writes rows of hapax, so it must keep the promises of hapax: the same file
//! and no other, every commit synced, and no checkpoint of its own making.

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Ask, Report, Settled, Verdict};
use hapax_core::name::Name;
use hapax_store::StoreError;
use hapax_store::effect::{self, DependsOn};
use hapax_store::outbox::Attachments;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior};

use crate::connection::{self, number};
use crate::connection_cache::ConnectionCache;
use crate::error::OrStoreError;
use crate::store::{Shared, SqliteStore};
use crate::txn::SqliteTxn;

impl SqliteStore {
    /// A connection to the ledger's file that may take part: use it for your own tables.
    pub fn connection(&self) -> Result<Connection, StoreError> {
        let mut db = Connection::open(&self.shared.path).or_store_error()?;
        connection::configure(&db, 8 * 1024)?;
        // A transaction that reads first cannot write after another connection has written.
        db.set_transaction_behavior(TransactionBehavior::Immediate);
        Ok(db)
    }

    /// Judges a claim inside the caller's transaction.
    pub fn claim_in(
        &self,
        tx: &Transaction<'_>,
        name: &Name,
        ask: &Ask,
    ) -> Result<Verdict, StoreError> {
        check(&self.shared, tx)?;
        let mut cache = ConnectionCache::default();
        let mut txn = SqliteTxn::new(tx, &self.shared.context, &mut cache);
        txn.read_clock()?;
        effect::claim(&mut txn, name, ask, DependsOn::Transaction)
    }

    /// Settles inside the caller's transaction. An attempt that was overtaken or voided, or whose
    /// settle was recorded before, rolls that transaction back: the caller's writes are undone, and
    /// its commit fails.
    pub fn settle_in(
        &self,
        tx: &Transaction<'_>,
        name: &Name,
        by: (AttemptId, Fence),
        report: &Report,
        attachments: &Attachments,
    ) -> Result<Settled, StoreError> {
        check(&self.shared, tx)?;
        tx.execute_batch("SAVEPOINT hapax_settle").or_store_error()?;
        let mut cache = ConnectionCache::default();
        let mut txn = SqliteTxn::new(tx, &self.shared.context, &mut cache);
        let clock = txn.read_clock();
        let settled =
            clock.and_then(|()| effect::settle_in(&mut txn, name, by, report, attachments));
        let end = match &settled {
            Ok(Settled::Recorded | Settled::Repeated) => "RELEASE hapax_settle",
            Ok(Settled::Fenced(_) | Settled::Outdated(_)) => "ROLLBACK",
            Err(StoreError::AlreadyRecorded(_)) => "ROLLBACK",
            Err(_) => "ROLLBACK TO hapax_settle; RELEASE hapax_settle",
        };
        // An error that ended the caller's transaction has ended the savepoint, too.
        let ended = tx.execute_batch(end).or_store_error();
        settled.and_then(|settled| ended.map(|()| settled))
    }
}

/// Refuses a connection that would break a promise, and says which. An accepted one holds the write
/// lock.
fn check(shared: &Shared, db: &Connection) -> Result<(), StoreError> {
    if let Some(error) = shared.stopped() {
        return Err(error);
    }
    let refuse = |why: String| Err(StoreError::Connection(why));
    let same = db
        .path()
        .and_then(|path| std::fs::canonicalize(path).ok())
        .is_some_and(|path| path == shared.path);
    if !same {
        return refuse(format!("its file is not the ledger's, {}", shared.path.display()));
    }
    // Takes the write lock before anything is read: a transaction cannot write after another
    // connection has changed the data that it read.
    db.execute("UPDATE guard SET id = id WHERE 0", []).or_store_error()?;
    let attached: Option<String> = db
        .query_row(
            "SELECT name FROM pragma_database_list WHERE name NOT IN ('main', 'temp') LIMIT 1",
            [],
            |row| row.get(0),
        )
        .optional()
        .or_store_error()?;
    if let Some(name) = attached {
        return refuse(format!(
            "`{name}` is attached, and a commit across two files is not atomic"
        ));
    }
    if number(db, "synchronous")? < 2 {
        return refuse("synchronous is below FULL, and a power cut would lose the commit".into());
    }
    if number(db, "wal_autocheckpoint")? != 0 {
        return refuse("wal_autocheckpoint is on; set it to 0, the ledger checkpoints".into());
    }
    Ok(())
}
