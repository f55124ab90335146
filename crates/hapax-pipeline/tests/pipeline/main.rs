//! Operations on real ledgers, in a file and in a database: the lifecycle, locks, guards, retries,
//! masking, lineage, replay.

mod exact;
mod guards;
mod lifecycle;
mod locks;
mod masking;
mod projection;
mod replay;
mod retries;
mod undo;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hapax::{Dataset, Entry, Hapax, Retries, Safety};
use hapax_pipeline::{
    Artifact, Error, Finished, Fold, Moment, Operation, OperationBuilder, Pipeline, Work,
    WorkError, WorkResult,
};
use hapax_testkit::Postgres;

/// A ledger, and a way to look at what it wrote from outside.
pub struct Ledger {
    hapax: Hapax,
    directory: tempfile::TempDir,
    server: Option<Postgres>,
}

type Case = fn(Arc<Ledger>) -> Pin<Box<dyn Future<Output = ()>>>;

async fn in_a_file(case: Case) {
    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    case(Arc::new(Ledger { hapax, directory, server: None })).await;
}

async fn in_a_database(case: Case) {
    let (server, directory) = (Postgres::start(), tempfile::tempdir().expect("a directory"));
    let builder = Hapax::builder().signing_key(directory.path().join("key"));
    let hapax = builder.open(server.url("postgres")).await.expect("a ledger");
    case(Arc::new(Ledger { hapax, directory, server: Some(server) })).await;
}

/// Each case on both kinds of ledger.
macro_rules! on_both {
    ($($name:ident)*) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_sqlite() {
                crate::in_a_file(|ledger| Box::pin(super::cases::$name(ledger))).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_postgresql() {
                crate::in_a_database(|ledger| Box::pin(super::cases::$name(ledger))).await;
            }
        })*
    };
}
pub(crate) use on_both;

impl Ledger {
    fn pipeline(&self) -> Pipeline {
        Pipeline::new(self.hapax.clone())
    }

    async fn declare(&self, name: &str, dataset: Dataset) {
        self.hapax.datasets().declare(name, Some(dataset)).await.expect("declared");
    }

    async fn journal(&self) -> Vec<Entry> {
        self.hapax.journal().entries(0, 1_000_000).await.expect("a journal")
    }

    async fn moments(&self) -> Vec<Moment> {
        let mut fold = Fold::default();
        self.journal().await.iter().filter_map(|entry| fold.push(entry)).collect()
    }

    /// The changes of runs in the journal, a word each.
    async fn run_changes(&self) -> Vec<&'static str> {
        self.moments().await.iter().map(Moment::word).collect()
    }

    /// Every byte that the ledger has written, as far as it is text.
    fn bytes(&self) -> String {
        match &self.server {
            Some(server) => server.dump("postgres"),
            None => {
                let files = std::fs::read_dir(self.directory.path()).expect("a directory");
                let read = |file: std::fs::DirEntry| std::fs::read(file.path()).unwrap_or_default();
                let bytes: Vec<u8> = files.flatten().flat_map(read).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
        }
    }

    /// The rows of a query as lines, with bars between columns.
    fn query(&self, sql: &str) -> Vec<String> {
        match &self.server {
            Some(server) => server.sql("postgres", sql).lines().map(str::to_owned).collect(),
            None => {
                let db = self.hapax.connection().expect("a connection");
                let mut statement = db.prepare(&sql.replace("hapax.", "")).expect("a statement");
                let columns = statement.column_count();
                let rows = statement.query_map([], |row| {
                    let cell = |n| {
                        Ok::<_, rusqlite::Error>(
                            row.get::<_, Option<String>>(n)?.unwrap_or_default(),
                        )
                    };
                    Ok((0..columns).map(cell).collect::<Result<Vec<_>, _>>()?.join("|"))
                });
                rows.expect("rows").collect::<Result<_, _>>().expect("rows")
            }
        }
    }
}

/// An operation on a dataset, the nth.
fn operation(dataset: &str, nth: usize) -> Operation {
    Operation {
        pipeline_id: "hydrology".into(),
        task_id: "load".into(),
        dataset_id: dataset.into(),
        operation_type: "append".into(),
        version: format!("v{nth}"),
        checksum_in: "sha256:5f2b".into(),
        params_hash: "sha256:9c41".into(),
        timestamp_bucket: "2026-11-16T00:00:00Z".into(),
        ..Operation::default()
    }
}

fn output(dataset: &str) -> Artifact {
    Artifact {
        dataset: dataset.into(),
        version: "v1".into(),
        checksum: "sha256:9393aa".into(),
        uri: "flow.csv".into(),
        size: Some(7),
        ..Artifact::default()
    }
}

/// Counts how often work was done.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs the operation with work that succeeds, and counts it.
async fn done(builder: OperationBuilder<'_>, count: &Count) -> Result<Finished, Error> {
    builder
        .run(|_| async {
            count.add();
            Ok::<_, WorkError>(WorkResult::new("7 rows"))
        })
        .await
}

fn transactional(builder: OperationBuilder<'_>) -> OperationBuilder<'_> {
    builder.with(|effect| effect.safety(Safety::Transactional))
}
