//! Extraction on real ledgers, in a file and in a database: one key, one execution, one result.

mod caching;
mod changing;
mod failing;
mod looking;
mod reading;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hapax::Hapax;
use hapax::json::Json;
use hapax_extract::{
    Answer, Answered, Builtin, ChunkRequest, Class, Extract, ExtractionRequest, Extractor,
    Individual, Mention, Ontology, Property, Settings, Statement,
};
use hapax_testkit::Postgres;
use tokio::sync::Notify;

const IRI: &str = "https://example.org/rivers";

/// Longer than any wait should take, so that reaching it is a failure.
const LONG: Duration = Duration::from_secs(60);

/// A ledger, and a way to read its tables from outside.
pub struct Ledger {
    place: String,
    directory: tempfile::TempDir,
    server: Option<Postgres>,
}

impl Ledger {
    fn in_a_file() -> Arc<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("hapax.db").display().to_string();
        Arc::new(Self { place, directory, server: None })
    }

    fn in_a_database() -> Arc<Self> {
        let (server, directory) = (Postgres::start(), tempfile::tempdir().expect("a directory"));
        Arc::new(Self { place: server.url("postgres"), directory, server: Some(server) })
    }

    /// Opens the ledger as another process would.
    async fn node(&self) -> Hapax {
        let key = self.directory.path().join("key");
        Hapax::builder().signing_key(key).open(&self.place).await.expect("a ledger")
    }

    async fn extract(&self, by: &Arc<Probe>) -> Extract {
        Extract::new(self.node().await, by.clone(), Settings::default())
    }

    /// The rows of a query, a line each, columns divided by `|`.
    fn sql(&self, sql: &str) -> String {
        match &self.server {
            Some(server) => server.sql("postgres", &format!("SET search_path = hapax; {sql}")),
            None => {
                let db = rusqlite::Connection::open(&self.place).expect("the file");
                let mut statement = db.prepare(sql).expect("a statement");
                let columns = statement.column_count();
                let rows = statement.query_map([], |row| {
                    let text = |at: usize| -> rusqlite::Result<String> {
                        Ok(match row.get_ref(at)? {
                            rusqlite::types::ValueRef::Null => String::new(),
                            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                            rusqlite::types::ValueRef::Real(number) => number.to_string(),
                            rusqlite::types::ValueRef::Text(text)
                            | rusqlite::types::ValueRef::Blob(text) => {
                                String::from_utf8_lossy(text).into_owned()
                            }
                        })
                    };
                    let texts: Result<Vec<_>, _> = (0..columns).map(text).collect();
                    texts.map(|texts| texts.join("|"))
                });
                let rows: Result<Vec<_>, _> = rows.expect("rows").collect();
                rows.expect("rows").join("\n")
            }
        }
    }
}

impl Ledger {
    /// The key of the result that first requested a chunk, chunk by chunk.
    async fn first_requested_by(&self) -> Vec<String> {
        let entries = self.node().await.journal().entries(0, 10_000).await.expect("the journal");
        let grants = entries.into_iter().filter(|entry| entry.event == hapax::EntryKind::Granted);
        let notes = grants.filter_map(|grant| {
            let note = serde_json::from_str::<serde_json::Value>(grant.note.as_deref()?);
            note.ok().filter(|note| note["kind"] == "extraction.part.v1")
        });
        notes.map(|note| note["idempotencyKey"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

type Case = fn(Arc<Ledger>) -> Pin<Box<dyn Future<Output = ()>>>;

async fn run(ledger: Arc<Ledger>, case: Case) {
    tokio::time::timeout(LONG, case(ledger)).await.expect("no caller waits for ever");
}

/// Each case on both kinds of ledger.
macro_rules! on_both {
    ($($name:ident)*) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_sqlite() {
                let ledger = crate::Ledger::in_a_file();
                crate::run(ledger, |ledger| Box::pin(super::cases::$name(ledger))).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_postgresql() {
                let ledger = crate::Ledger::in_a_database();
                crate::run(ledger, |ledger| Box::pin(super::cases::$name(ledger))).await;
            }
        })*
    };
}
pub(crate) use on_both;

/// The built-in extractor, with a count of its calls, and a way to make it fail.
#[derive(Default)]
struct Probe {
    builtin: Builtin,
    calls: AtomicUsize,
    /// How many more questions fail.
    failing: AtomicUsize,
    /// How many more answers have nothing but two discarded entities.
    discarding: AtomicUsize,
    panics: bool,
    /// Whether it waits before it answers.
    gate: Option<Gate>,
}

#[derive(Default)]
struct Gate {
    arrived: Notify,
    go: Notify,
}

impl Probe {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn gated() -> Arc<Self> {
        Arc::new(Self { gate: Some(Gate::default()), ..Self::default() })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    async fn arrived(&self) {
        self.gate.as_ref().expect("a gate").arrived.notified().await;
    }

    fn go(&self) {
        self.gate.as_ref().expect("a gate").go.notify_one();
    }
}

impl Extractor for Probe {
    fn identity(&self) -> String {
        "probe.1".into()
    }

    fn prepare(&self, ontology: &Arc<Ontology>) -> Result<(), hapax_extract::ExtractorError> {
        self.builtin.learn(ontology)
    }

    fn is_cheap(&self) -> bool {
        true
    }

    fn entities<'a>(&'a self, request: ChunkRequest<'a>) -> Answer<'a, Vec<Mention>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::SeqCst);
            if let Some(gate) = &self.gate {
                gate.arrived.notify_one();
                gate.go.notified().await;
            }
            let one_of = |counter: &AtomicUsize| {
                let less = |count: usize| count.checked_sub(1);
                counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
            };
            match one_of(&self.failing) {
                Ok(_) if self.panics => panic!("out of ink"),
                Ok(_) => Err(hapax_extract::ExtractorError::Later {
                    reason: "the model is down".into(),
                    after: Some(Duration::from_secs(7)),
                }),
                Err(_) if one_of(&self.discarding).is_ok() => {
                    Ok(Answered { discarded: 2, ..Answered::default() })
                }
                Err(_) => self.builtin.entities(request).await,
            }
        })
    }

    fn relations<'a>(
        &'a self,
        request: ChunkRequest<'a>,
        mentions: &'a [Mention],
        properties: &'a [&'a Property],
    ) -> Answer<'a, Vec<Statement>> {
        self.builtin.relations(request, mentions, properties)
    }
}

/// Rivers and the cities they flow through, under this id.
fn rivers(id: &str) -> Ontology {
    let iri = |name: &str| format!("{IRI}#{name}");
    let named = |name: &str, class: &str| Individual {
        id: iri(name),
        label: Some(name.to_owned()),
        types: vec![iri(class)],
        ..Individual::default()
    };
    Ontology {
        id: id.to_owned(),
        classes: ["River", "City"]
            .map(|name| Class {
                id: iri(name),
                label: Some(name.to_lowercase()),
                ..Class::default()
            })
            .to_vec(),
        properties: vec![Property {
            id: iri("flowsThrough"),
            label: Some("flows through".into()),
            domain: vec![iri("River")],
            range: vec![iri("City")],
            ..Property::default()
        }],
        individuals: vec![
            named("Danube", "River"),
            named("Vienna", "City"),
            named("Seine", "River"),
        ],
        ..Ontology::default()
    }
}

async fn keep(extract: &Extract) {
    extract.put_ontology(&rivers(IRI), None, "ada").await.expect("it is kept");
}

fn request(text: &str) -> ExtractionRequest {
    ExtractionRequest::new(text, IRI)
}

fn with(text: &str, params: &str) -> ExtractionRequest {
    ExtractionRequest { params: Json::parse(params.as_bytes()).expect("JSON"), ..request(text) }
}

/// A document of about a megabyte, each paragraph different.
fn large() -> Vec<String> {
    (0..4_000)
        .map(|n| {
            let (a, b) = (n * 7919 % 9973, n * 104_729 % 99_991);
            format!(
                "In year {a} the Danube rose by {b} inches, and paragraph {n} of the chronicle \
                 says so. The Danube flows through Vienna, where keeper {b} read the gauge {n} \
                 times and wrote down what station {a} had told him before the water fell again."
            )
        })
        .collect()
}
