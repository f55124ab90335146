//! A replay with another payload, by the built-in tools for files, SQL and values.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hapax::Hapax;
use hapax::json::Json;
use hapax_items::{
    Action, Class, Difference, Error, ItemState, Items, MutationState, Settings, Tool,
};
use hapax_tools::{Database, FileSettings, FileTool, Kv, Sql};

/// Calls of a tool with the same identity: as it was applied, and as it is requested again.
struct Change {
    tool: Arc<dyn Tool>,
    operation: &'static str,
    applied: &'static str,
    equivalent: &'static str,
    minor: &'static str,
    significant: &'static str,
}

impl Change {
    /// A script with one item that logs the result of the call.
    fn script(&self, arguments: &str, end: &str) -> String {
        let (tool, operation) = (self.tool.name(), self.operation);
        format!(
            r#"await withItem("{tool}", "Item", async (ctx) => {{
                if (ctx.item.isDone) return;
                console.log(JSON.stringify(await {tool}.{operation}({arguments})));
                {end}
            }});"#
        )
    }

    fn degree(&self, requested: &str) -> Difference {
        let plan = |arguments| self.tool.plan(self.operation, &json(arguments)).expect("a plan");
        let (recorded, requested) = (plan(self.applied), plan(requested));
        self.tool.compare_payload(self.operation, &recorded.payload, &requested.payload)
    }
}

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).expect("JSON")
}

/// A ledger in a file, with tools that write beside it and in it.
async fn built_in(directory: &Path) -> (Items, [Arc<dyn Tool>; 3]) {
    let hapax = Hapax::open(directory.join("hapax.db")).await.expect("a ledger");
    let database = Database::of(&hapax, None).expect("a database");
    let name = "file".into();
    let file = FileTool::new(FileSettings { name, ..FileSettings::new(directory) });
    let sql = Sql::new("sql", database.clone(), None).expect("a tool");
    let kv = Kv::new("kv", database, hapax.namespace().clone());
    let tools: [Arc<dyn Tool>; 3] = [Arc::new(file.expect("a tool")), sql.into(), kv.into()];
    let settings = Settings { tool_timeout: Duration::from_secs(20), ..Settings::new("letters") };
    (Items::new(hapax, tools.to_vec(), vec![settings]).expect("set up"), tools)
}

/// Publishes a script and drives it.
async fn drive(items: &Items, script: &str) -> Result<usize, Error> {
    items.publish("letters", script, "ada").await?;
    items.drive("letters", None).await.map(|ran| ran.items)
}

/// How a run failed: class, next step, message.
fn failed(result: Result<usize, Error>) -> (Class, String, String) {
    match result {
        Err(Error::Failed { failure, .. }) => (failure.class, failure.next, failure.message),
        other => panic!("{other:?}"),
    }
}

/// The log of the last run.
async fn log_of(items: &Items) -> String {
    items.runs("letters", None, 1).await.expect("runs").remove(0).log.join("\n")
}

/// Proves I-6: a replay with an equivalent or a minor difference goes on with the recorded result,
/// a significant one goes to a person, and nothing is applied again.
#[tokio::test]
async fn a_replay_goes_on_unless_the_difference_is_significant() {
    let directory = tempfile::tempdir().unwrap();
    let (items, [file, sql, kv]) = built_in(directory.path()).await;
    let table = r#"await withItem("table", "Table", async () => {
        await sql.execute({ id: "table", statements: [{ sql: "CREATE TABLE t (a TEXT)" }] });
    });"#;
    drive(&items, table).await.unwrap();
    let changes = [
        Change {
            tool: file,
            operation: "write",
            applied: r#"{"path": "a", "content": "a\nb\n"}"#,
            equivalent: r#"{"path": "a", "content": "a \r\nb"}"#,
            minor: r#"{"path": "a", "content": "a\n\nb\n"}"#,
            significant: r#"{"path": "a", "content": "a\n b\n"}"#,
        },
        Change {
            tool: sql,
            operation: "execute",
            applied: r#"{"id": "a", "statements": [
                {"sql": "INSERT INTO t VALUES (?1)", "params": ["x"]}]}"#,
            equivalent: r#"{"id": "a", "statements": [
                {"sql": "INSERT INTO t\n  VALUES (?1)", "params": ["x"]}]}"#,
            minor: r#"{"id": "a", "statements": [
                {"sql": "insert into T values (?1); -- one row", "params": ["x"]}]}"#,
            significant: r#"{"id": "a", "statements": [
                {"sql": "INSERT INTO t VALUES (?1)", "params": ["X"]}]}"#,
        },
        Change {
            tool: kv.clone(),
            operation: "set",
            applied: r#"{"key": "a", "value": {"n": 1, "m": null}}"#,
            equivalent: r#"{"key": "a", "value": {"m": null, "n": 1.0}}"#,
            minor: r#"{"key": "a", "value": {"n": 1}}"#,
            significant: r#"{"key": "a", "value": {"n": 1, "m": 0}}"#,
        },
    ];
    for change in changes {
        let Change { tool, applied, equivalent, minor, significant, .. } = &change;
        let (id, stop) = (tool.name(), r#"throw new Error("stop");"#);
        let try_again = async || {
            let key = items.show("letters", id).await.unwrap().key;
            let open = items.escalation(key).await.unwrap();
            let person = ("ada", "it is mended");
            items.act(key, open.judged, Action::TryAgain, None, person).await.unwrap();
        };
        failed(drive(&items, &change.script(applied, stop)).await);
        let result = log_of(&items).await;
        assert_ne!(result, "", "{id}");
        for (requested, degree) in
            [(equivalent, Difference::Equivalent), (minor, Difference::Minor)]
        {
            assert_eq!(change.degree(requested), degree, "{requested}");
            try_again().await;
            let (class, _, message) = failed(drive(&items, &change.script(requested, stop)).await);
            assert!(class == Class::Logic && message.contains("stop"), "{requested}: {message}");
            assert_eq!(log_of(&items).await, result, "{requested}");
        }
        assert_eq!(change.degree(significant), Difference::Significant);
        try_again().await;
        let (class, next, message) = failed(drive(&items, &change.script(significant, "")).await);
        assert_eq!((class, next.as_str()), (Class::Precondition, "escalate"), "{message}");
        assert_eq!(log_of(&items).await, "", "{id} got no result");
        let item = items.show("letters", id).await.unwrap();
        assert_eq!(item.state, ItemState::NeedsAttention, "{id}");
        let mutations = items.mutations(item.key, 1).await.unwrap();
        let states: Vec<_> = mutations.iter().map(|each| (each.state, each.attempts)).collect();
        assert_eq!(states, [(MutationState::Applied, 1)], "{id}");
    }
    assert_eq!(std::fs::read(directory.path().join("a")).unwrap(), b"a\nb\n");
    let db = rusqlite::Connection::open(directory.path().join("hapax.db")).unwrap();
    let rows = db.query_row("SELECT group_concat(a) FROM t", [], |row| row.get::<_, String>(0));
    assert_eq!(rows.unwrap(), "x");
    let value = kv.read("get", &json(r#"{"key": "a"}"#)).await.unwrap();
    assert_eq!(hapax::document::print(&value), r#"{"m":null,"n":1}"#);
}
