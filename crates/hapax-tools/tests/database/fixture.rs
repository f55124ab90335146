//! Ledgers in a file and on a server, and scripts that run on them.

use std::sync::Arc;
use std::time::Duration;

use hapax::Hapax;
use hapax::json::Json;
use hapax_items::{Action, Class, Error, FailureBudget, Items, Settings, Tool, ToolError};
use hapax_tools::{Database, Kv, Sql};

/// A ledger with `sql` and `kv` in its own database.
pub(crate) struct Fixture {
    pub(crate) items: Items,
    sql: Arc<dyn Tool>,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    File(tempfile::TempDir),
    #[cfg(feature = "postgres")]
    Server(hapax_testkit::Postgres),
}

/// The role that scripts run as.
#[cfg(feature = "postgres")]
pub(crate) const ROLE: &str = "scripts";

/// A role with a schema of its own, which cannot take another role.
#[cfg(feature = "postgres")]
pub(crate) const SETUP: &str = "
    CREATE ROLE scripts;
    CREATE SCHEMA AUTHORIZATION scripts;
    REVOKE EXECUTE ON FUNCTION set_config FROM PUBLIC;";

impl Fixture {
    pub(crate) async fn file() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let hapax = Hapax::builder().background(false).open(directory.path().join("hapax.db"));
        let hapax = hapax.await.expect("a ledger");
        let database = Database::of(&hapax, None).expect("a database");
        let sql = Sql::new("sql", database.clone(), None).expect("a tool");
        Self::new(hapax, database, sql, Kind::File(directory))
    }

    #[cfg(feature = "postgres")]
    pub(crate) async fn server() -> Self {
        let server = hapax_testkit::Postgres::start();
        server.sql("postgres", SETUP);
        Self::on(server).await
    }

    /// On a server that is set up in another way.
    #[cfg(feature = "postgres")]
    pub(crate) async fn on(server: hapax_testkit::Postgres) -> Self {
        let url = server.url("postgres");
        let hapax = Hapax::builder().background(false).open(&url).await.expect("a ledger");
        // To tell its connections from the ledger's.
        let url = format!("{url}?application_name=tools");
        let database = Database::of(&hapax, Some(&url)).expect("a database");
        let sql = Sql::new("sql", database.clone(), Some(ROLE.into())).expect("a tool");
        Self::new(hapax, database, sql, Kind::Server(server))
    }

    fn new(hapax: Hapax, database: Database, sql: Sql, kind: Kind) -> Self {
        let retries = hapax::Backoff { base_ms: 1, cap_ms: 1, attempts: 2 };
        let budget = FailureBudget { retries, ..FailureBudget::default() };
        let tool_timeout = Duration::from_secs(20);
        let settings = Settings { budget, tool_timeout, ..Settings::new("books") };
        let kv = Kv::new("kv", database.clone(), hapax.namespace().clone());
        let other = Kv::new("other", database, hapax.namespace().clone());
        let sql: Arc<dyn Tool> = sql.into();
        let tools = vec![sql.clone(), kv.into(), other.into()];
        let items = Items::new(hapax, tools, vec![settings]).expect("set up");
        Self { items, sql, kind }
    }

    /// A ledger of each kind that is available here.
    pub(crate) async fn all() -> Vec<Self> {
        vec![
            Self::file().await,
            #[cfg(feature = "postgres")]
            Self::server().await,
        ]
    }

    /// Publishes a script and drives it to its end.
    pub(crate) async fn drive(&self, script: &str) -> Result<usize, Error> {
        self.items.publish("books", script, "ada").await?;
        self.items.drive("books", None).await.map(|ran| ran.items)
    }

    /// Runs the body of one item.
    pub(crate) async fn item(&self, id: &str, body: &str) -> Result<usize, Error> {
        let script = format!(
            r#"await withItem("{id}", "Item", async (ctx) => {{
                if (ctx.item.isDone) return;
                {body}
            }});"#
        );
        self.drive(&script).await
    }

    /// Runs one statement for an item of its own.
    pub(crate) async fn execute(&self, id: &str, sql: &str) -> Result<usize, Error> {
        self.item(id, &format!("await sql.execute({});", change(id, &[sql]))).await
    }

    /// Sends a query without a script.
    pub(crate) async fn query(&self, sql: &str) -> Result<Json, ToolError> {
        self.sql.read("query", &Json::object([("sql", Json::text(sql))])).await
    }

    /// Decides try-again, as a person who has looked.
    pub(crate) async fn try_again(&self) {
        let escalation = self.items.escalations(None, 1).await.expect("escalations").remove(0);
        let (key, judged) = (escalation.key, escalation.judged);
        let person = ("ada", "it is mended");
        let acted = self.items.act(key, judged, Action::TryAgain, None, person).await;
        acted.expect("it can be tried again");
    }

    /// The first column of the first row, seen from outside of hapax.
    pub(crate) fn look(&self, sql: &str) -> String {
        match &self.kind {
            Kind::File(directory) => {
                let db = rusqlite::Connection::open(directory.path().join("hapax.db"));
                let db = db.expect("a connection");
                let value = db.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0));
                match value.expect("a row") {
                    rusqlite::types::Value::Integer(number) => number.to_string(),
                    rusqlite::types::Value::Text(text) => text,
                    other => format!("{other:?}"),
                }
            }
            #[cfg(feature = "postgres")]
            Kind::Server(server) => {
                server.sql("postgres", &format!("SET search_path = scripts, public; {sql}"))
            }
        }
    }

    /// The log of the last run.
    pub(crate) async fn log(&self) -> String {
        let runs = self.items.runs("books", None, 1).await.expect("runs");
        runs.first().map(|run| run.log.join("\n")).unwrap_or_default()
    }
}

/// The arguments of `sql.execute`.
pub(crate) fn change(id: &str, statements: &[&str]) -> String {
    let statements: Vec<String> =
        statements.iter().map(|sql| format!("{{ sql: {} }}", quoted(sql))).collect();
    format!("{{ id: {}, statements: [{}] }}", quoted(id), statements.join(", "))
}

/// A text as scripts write it.
pub(crate) fn quoted(text: &str) -> String {
    hapax::document::print(&hapax::json::Json::text(text))
}

/// How a run failed: class and message.
pub(crate) fn failed(result: Result<usize, Error>) -> (Class, String) {
    match result {
        Err(Error::Failed { failure, .. }) => (failure.class, failure.message),
        other => panic!("{other:?}"),
    }
}
