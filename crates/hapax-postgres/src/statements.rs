//! The statements that write effects, put together from texts that exist once.
//!
//! ```text
//!  a statement of ours    {insert} {grantable} {succeed} {unchanged}
//!  a migration            the same, and {quick}: a whole statement as the body of a function
//! ```
//!
//! So a column of `hapax.effect` is listed in one place, the columns of
//! [`effect`](crate::effect), for every statement and function that inserts an effect.

use std::sync::LazyLock;

use hapax_core::planted::{Bug, planted};

use crate::effect;

/// Records a success, with the outcome and the expiry of `s`.
const SUCCEED: &str = "UPDATE hapax.effect e
    SET state = 1, updated = $1, entry = hapax.next_entry(), lease = NULL, watch = NULL, at_ms = NULL,
        outcome = s.outcome, expires = s.expires
    FROM";

/// The effect runs, and has the version that the caller knows.
const UNCHANGED: &str =
    "e.namespace = s.namespace AND e.key = s.key AND e.entry = s.entry AND e.state = 0";

/// The condition without the version, which the harness plants as a bug.
const UNCONDITIONAL: &str = "e.namespace = s.namespace AND e.key = s.key";

/// The key of the claim `c` is free, and its lease is in force.
const GRANTABLE: &str = "(SELECT e.entry FROM hapax.effect e
            WHERE e.namespace = c.namespace AND e.key = c.key) IS NULL
        AND EXISTS (SELECT 1 FROM hapax.lease l WHERE l.id = c.lease AND NOT l.dead)";

const QUICK: &str = include_str!("sql/quick.sql");

/// The statements of the quick step.
pub(crate) struct Statements {
    /// A batch without locks and journal notes.
    pub(crate) batch: String,
    /// One claim.
    pub(crate) claim: String,
    /// One success.
    pub(crate) settle: String,
}

impl Statements {
    pub(crate) fn get() -> &'static Self {
        static STATEMENTS: LazyLock<Statements> = LazyLock::new(|| Statements::with(UNCHANGED));
        static PLANTED: LazyLock<Statements> = LazyLock::new(|| Statements::with(UNCONDITIONAL));
        if planted(Bug::QuickUnconditional) { &PLANTED } else { &STATEMENTS }
    }

    fn with(unchanged: &str) -> Self {
        Self {
            batch: fill(QUICK, unchanged),
            claim: fill(include_str!("sql/claim_one.sql"), unchanged),
            settle: fill(include_str!("sql/settle_one.sql"), unchanged),
        }
    }
}

/// A migration with the texts that its functions share with statements.
pub(crate) fn filled(migration: &str) -> String {
    let planted = planted(Bug::QuickUnconditional);
    fill(migration, if planted { UNCONDITIONAL } else { UNCHANGED })
}

fn fill(text: &str, unchanged: &str) -> String {
    text.replace("{quick}", QUICK.trim_end())
        .replace("{insert}", &effect::INSERT_CLAIM)
        .replace("{grantable}", GRANTABLE)
        .replace("{succeed}", SUCCEED)
        .replace("{unchanged}", unchanged)
}
