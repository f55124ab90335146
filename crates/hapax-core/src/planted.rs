//! Bugs that a harness plants on purpose, to show that it would catch them.
//!
//! Without the feature `proof`, which no shipped build enables, no bug can be planted, and
//! `planted` is a constant `false`.

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal,)*) => {
        /// A bug that can be planted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)*];

            /// Its name on a command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }
        }
    };
}

bugs! {
    /// A settle is accepted from any attempt.
    StaleSettle = "stale-settle",
    /// A settle is accepted from an attempt whatever fence it was granted with.
    FenceUnnamed = "fence-unnamed",
    /// A settle that was recorded before is answered as success in a caller's own transaction.
    RepeatedSettleCommits = "repeated-settle-commits",
    /// A person's decision counts for a state that the command itself has just brought about.
    UnseenReset = "unseen-reset",
    /// A lease that was taken over is renewed.
    DeadLeaseRenewed = "dead-lease-renewed",
    /// A recorded outcome is replayed before the payloads are compared.
    ReplayBeforeConflict = "replay-before-conflict",
    /// Opaque work whose holder vanished is granted again.
    OpaqueAgain = "opaque-again",
    /// A reconciler's "no" counts before the settling time is over.
    NoAtOnce = "no-at-once",
    /// A holder works on although its lease may have lapsed.
    HolderWorksOn = "holder-works-on",
    /// The watchdog of a program that `hapax run` started is given no limit on the program's work.
    WatchdogWaits = "watchdog-waits",
    /// The pulse that lets a lease lapse is judged by the shortest term that a lease can have.
    ShortestTermForAll = "shortest-term-for-all",
    /// The fields of a key are joined by colons.
    ColonJoin = "colon-join",
    /// A proof's root is not compared with the signed one.
    RootUnchecked = "root-unchecked",
    /// A lock is taken from a lapsed effect that may still settle.
    LockWithoutExpiry = "lock-without-expiry",
    /// A stall of the store counts against the holders that wait for it.
    StallKills = "stall-kills",
    /// A lapse is not journalled.
    Unjournalled = "unjournalled",
    /// SQLite does not sync its log at each commit.
    SyncNormal = "sync-normal",
    /// SQLite's writer answers before it commits.
    AnswerBeforeCommit = "answer-before-commit",
    /// A SQLite connection uses its cached rows although another one has written.
    StaleRows = "stale-rows",
    /// A SQLite file accepts a second row of one key.
    KeysUnguarded = "keys-unguarded",
    /// A SQLite connection uses its cache although an older copy was restored.
    AnchorUnchecked = "anchor-unchecked",
    /// A panic while a store writes leaves its transaction open, and its commands unanswered.
    PanicEscapes = "panic-escapes",
    /// The writes of a failed command stay in its batch.
    HalfCommand = "half-command",
    /// PostgreSQL's quick settle does not ask whether the row has changed.
    QuickUnconditional = "quick-unconditional",
    /// PostgreSQL's sessions commit as the server's configuration says at that moment.
    CommitFollowsReload = "commit-follows-reload",
    /// A grant that surfaces after its caller has given up is kept.
    OrphanKept = "orphan-kept",
    /// PostgreSQL's sealer takes entries above the newest leaf, and none below.
    IdCursor = "id-cursor",
    /// A commit whose reply was lost is taken for done.
    LostCommitIsDone = "lost-commit-is-done",
    /// The work is done although the store cannot be reached.
    FailOpen = "fail-open",
    /// The outcome is recorded before the work is done.
    SettleBeforeRun = "settle-before-run",
    /// Work that may have happened is reported as not done.
    AmbiguousIsFailure = "ambiguous-is-failure",
    /// Other callers in the process get an outcome that is not recorded yet.
    RememberBeforeSettle = "remember-before-settle",
    /// A leader that ends without a result is still waited for.
    LeaderStays = "leader-stays",
    /// A reset does not wait for nodes that cache outcomes.
    ResetUnawaited = "reset-unawaited",
    /// A reader of the outbox never goes back for records that were committed late.
    PassedOver = "passed-over",
    /// A delivery is written off before it is sent.
    MarkedBeforeSent = "marked-before-sent",
}

#[cfg(feature = "proof")]
static PLANTED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(usize::MAX);

/// Plants a bug in this process, in place of any other.
#[cfg(feature = "proof")]
pub fn plant(bug: Bug) {
    PLANTED.store(bug as usize, std::sync::atomic::Ordering::SeqCst);
}

/// Whether a bug is planted.
#[cfg(feature = "proof")]
pub fn planted(bug: Bug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as usize
}

/// Whether a bug is planted.
#[cfg(not(feature = "proof"))]
pub const fn planted(_: Bug) -> bool {
    false
}
