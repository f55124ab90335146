//! The ledger's file: connections that are kept open, each used by one thread at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hapax::document::print;
use hapax::json::Json;
use hapax::{Claim, Hapax};
use hapax_items::ToolError;
use rusqlite::limits::Limit;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::fault::Fault as _;
use super::fence::{self, Scope};

/// How long a script's statements may take. No other connection writes to the file meanwhile, the
/// ledger's included.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How many connections are kept.
const KEPT: usize = 4;

/// How many bytes a text, a blob or a row may have.
const LONGEST: i32 = 16 * 1024 * 1024;

/// How many steps of SQLite's machine there are between two looks at the clock.
const STEPS: i32 = 10_000;

/// A ledger's file. Cheap to clone.
#[derive(Clone)]
pub(crate) struct File {
    hapax: Hapax,
    idle: Arc<Mutex<Vec<Link>>>,
}

/// A connection, and the watch over it.
struct Link {
    db: Connection,
    watch: Watch,
}

#[derive(Clone)]
struct Watch(Arc<Mutex<Watched>>);

struct Watched {
    scope: Scope,
    /// Whether the set of tables may have changed.
    schema: bool,
    until: Instant,
    /// Set when the caller no longer waits.
    abandoned: Arc<AtomicBool>,
}

impl File {
    pub(crate) fn of(hapax: &Hapax) -> Result<Self, hapax::Error> {
        // Fails at once if there is no file.
        drop(hapax.connection()?);
        Ok(Self { hapax: hapax.clone(), idle: Arc::default() })
    }

    /// Does the work and settles the claim with its result, in one transaction.
    pub(crate) async fn settle(
        &self,
        claim: &Claim,
        scope: Scope,
        work: impl FnOnce(&Transaction<'_>) -> Result<Json, ToolError> + Send + 'static,
    ) -> Result<Json, ToolError> {
        let claim = claim.clone();
        self.run(move |link, abandoned| {
            let behavior = TransactionBehavior::Immediate;
            let tx =
                link.db.transaction_with_behavior(behavior).map_err(rusqlite::Error::tool_error)?;
            let result = link.watch.during(scope, abandoned, || work(&tx))?;
            if link.watch.take_schema() {
                fence::check_references(&tx)?;
            }
            // OR ROLLBACK ends a transaction without asking for permission.
            if tx.is_autocommit() {
                return Err(ToolError::logic("the statements ended their transaction"));
            }
            claim.settle_in(&tx, print(&result).as_str()).map_err(hapax::Error::tool_error)?;
            tx.commit().map_err(rusqlite::Error::tool_error)?;
            Ok(result)
        })
        .await
    }

    /// Does work that changes nothing.
    pub(crate) async fn read(
        &self,
        scope: Scope,
        work: impl FnOnce(&Transaction<'_>) -> Result<Json, ToolError> + Send + 'static,
    ) -> Result<Json, ToolError> {
        self.run(move |link, abandoned| {
            let behavior = TransactionBehavior::Deferred;
            let tx =
                link.db.transaction_with_behavior(behavior).map_err(rusqlite::Error::tool_error)?;
            link.watch.during(scope, abandoned, || work(&tx))
        })
        .await
    }

    /// Runs the work on a thread that may block. If the caller stops waiting, the work stops at its
    /// next step.
    async fn run(
        &self,
        work: impl FnOnce(&mut Link, Arc<AtomicBool>) -> Result<Json, ToolError> + Send + 'static,
    ) -> Result<Json, ToolError> {
        let waiting = AnswerInterest(Arc::default());
        let (file, abandoned) = (self.clone(), waiting.0.clone());
        let done = tokio::task::spawn_blocking(move || {
            let mut link = file.link()?;
            let result = work(&mut link, abandoned);
            file.keep(link);
            result
        });
        let done = done.await;
        drop(waiting);
        done.unwrap_or_else(|error| Err(ToolError::transient(format!("the statements: {error}"))))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self) -> Result<Link, ToolError> {
        if let Some(link) = self.idle().pop() {
            return Ok(link);
        }
        let db = self.hapax.connection().map_err(hapax::Error::tool_error)?;
        Link::watched(db).map_err(rusqlite::Error::tool_error)
    }

    fn keep(&self, link: Link) {
        let mut idle = self.idle();
        if link.db.is_autocommit() && idle.len() < KEPT {
            idle.push(link);
        }
    }
}

impl Link {
    fn watched(mut db: Connection) -> rusqlite::Result<Self> {
        let watch = Watch::new();
        let (authorizer, passed) = (watch.clone(), watch.clone());
        db.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
        db.authorizer(Some(move |context: rusqlite::hooks::AuthContext<'_>| {
            let mut watched = authorizer.lock();
            watched.schema |= fence::is_schema(&context.action);
            fence::permits(watched.scope, context)
        }))?;
        db.progress_handler(STEPS, Some(move || passed.lock().is_over()))?;
        Ok(Self { db, watch })
    }
}

impl Watch {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Watched {
            scope: Scope::Ours,
            schema: false,
            until: Instant::now(),
            abandoned: Arc::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work within a scope, and always leaves the scope after it.
    fn during<T>(
        &self,
        scope: Scope,
        abandoned: Arc<AtomicBool>,
        work: impl FnOnce() -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        if abandoned.load(Ordering::Acquire) {
            return Err(ToolError::transient("no caller waits for it any more"));
        }
        let until = Instant::now() + TIME_LIMIT;
        *self.lock() = Watched { scope, schema: false, until, abandoned };
        let _back = Back(self);
        work()
    }

    fn take_schema(&self) -> bool {
        std::mem::take(&mut self.lock().schema)
    }
}

impl Watched {
    /// Whether a script's statement is to be interrupted. hapax's own statements never are.
    fn is_over(&self) -> bool {
        self.scope != Scope::Ours
            && (self.abandoned.load(Ordering::Acquire) || Instant::now() > self.until)
    }
}

/// Takes a connection back from a script, also where the work panics.
struct Back<'a>(&'a Watch);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.lock().scope = Scope::Ours;
    }
}

/// The caller waits for an answer as long as this exists.
struct AnswerInterest(Arc<AtomicBool>);

impl Drop for AnswerInterest {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_items::Class;

    const ENDLESS: &str =
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT max(n) FROM n";

    /// A statement that takes too long, or whose caller no longer waits, is interrupted.
    #[test]
    fn a_statement_of_a_script_comes_to_an_end() {
        let link = Link::watched(Connection::open_in_memory().unwrap()).unwrap();
        let (now, late) = (Instant::now(), Instant::now() + TIME_LIMIT);
        for (until, abandoned) in [(now, false), (late, true)] {
            let abandoned = Arc::new(AtomicBool::new(abandoned));
            let scope = Scope::Reading;
            *link.watch.lock() = Watched { scope, schema: false, until, abandoned };
            let broken = link.db.query_row(ENDLESS, [], |_| Ok(())).unwrap_err().tool_error();
            assert_eq!(broken.class, Class::Transient, "{broken}");
        }
        let abandoned = Arc::new(AtomicBool::new(true));
        let never =
            link.watch.during(Scope::Reading, abandoned, || -> Result<(), _> { panic!("runs") });
        assert_eq!(never.unwrap_err().class, Class::Transient);
        let large = link.db.query_row("SELECT length(randomblob(999999999))", [], |_| Ok(()));
        assert_eq!(large.unwrap_err().tool_error().class, Class::Logic);
    }
}
