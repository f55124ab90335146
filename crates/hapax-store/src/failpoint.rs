//! Places where a harness may make things go wrong.
//!
//! Without the feature `proof`, which no shipped build enables, they are empty.

use crate::error::StoreError;

macro_rules! points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// A place where things can be made to go wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Point {
            $($(#[$doc])* $point,)*
        }

        impl Point {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$point,)*];

            /// Its name on a command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }
        }
    };
}

points! {
    /// A claim is about to be asked for.
    ClaimAsk = "claim.ask",
    /// A claim was granted, and its handler does not know yet.
    ClaimAnswered = "claim.answered",
    /// The handler is about to begin.
    RunBegin = "run.begin",
    /// The handler is done.
    RunEnd = "run.end",
    /// A settle is about to be asked for.
    SettleAsk = "settle.ask",
    /// A settle was recorded, and its caller does not know yet.
    SettleAnswered = "settle.answered",
    /// A renewal is about to be asked for.
    RenewAsk = "renew.ask",
    /// A lease was renewed, and its holder does not know yet.
    RenewAnswered = "renew.answered",
    /// A reconciler has looked, and its finding is not reported yet.
    ReconcileLooked = "reconcile.looked",
    /// A seal was planned and is not written yet.
    SealPlanned = "seal.planned",
    /// The expiry pass is about to begin.
    ExpireAsk = "expire.ask",
    /// The sweep is about to begin.
    SweepAsk = "sweep.ask",
    /// Everything was loaded for a change and nothing is written.
    ChangeJudged = "change.judged",
    /// The journal has its entry, and the record is not written yet.
    ChangeJournalled = "change.journalled",
    /// The record is written, and its lock is still held.
    ChangeRecorded = "change.recorded",
    /// SQLite: a transaction is about to begin.
    SqliteBegin = "sqlite.begin",
    /// SQLite: everything is written and not committed.
    SqliteCommit = "sqlite.commit",
    /// SQLite: everything is committed, and no caller has its answer yet.
    SqliteCommitted = "sqlite.committed",
    /// PostgreSQL: a quick statement is about to be sent.
    QuickSend = "quick.send",
    /// PostgreSQL: a quick statement has committed, and its caller has no answer yet.
    QuickSent = "quick.sent",
    /// PostgreSQL: a transaction is about to begin.
    PostgresBegin = "postgres.begin",
    /// PostgreSQL: everything is written and not committed.
    PostgresCommit = "postgres.commit",
    /// PostgreSQL: everything is committed, and no caller has its answer yet.
    PostgresCommitted = "postgres.committed",
}

/// A harness's action at a point: nothing, wait, end the process, or return an error.
#[cfg(feature = "proof")]
type Hook = Box<dyn Fn(Point) -> Result<(), StoreError> + Send + Sync>;

#[cfg(feature = "proof")]
static HOOK: std::sync::OnceLock<Hook> = std::sync::OnceLock::new();

/// Calls this hook at every point, from now on. Only the first call counts.
#[cfg(feature = "proof")]
pub fn hook(hook: impl Fn(Point) -> Result<(), StoreError> + Send + Sync + 'static) {
    let _ = HOOK.set(Box::new(hook));
}

/// Passes a point.
#[cfg(feature = "proof")]
pub fn pass(point: Point) -> Result<(), StoreError> {
    HOOK.get().map_or(Ok(()), |hook| hook(point))
}

/// Passes a point.
#[cfg(not(feature = "proof"))]
pub const fn pass(_: Point) -> Result<(), StoreError> {
    Ok(())
}
