//! Lineage delivered over HTTP to endpoints of OpenLineage and Cypher: the requests, and the
//! effects of the answers.

use super::LedgerDir;
use super::pipeline::operation;
use super::receiver::{Receiver, Request};

const OK: (&str, &str) = ("200 OK", r#"{"results":[],"errors":[]}"#);

/// Sends lineage to this sink and to no other.
fn configure(dir: &LedgerDir, sink: &str) {
    let config = format!(
        "[sinks.lineage]\n{sink}\nallow_private = true\nattempts = 3\nbackoff = \"10ms\"\n\
         max_backoff = \"20ms\"\n\n[[routes]]\nevent = \"lineage\"\nsinks = [\"lineage\"]\n"
    );
    std::fs::write(dir.path("hapax.toml"), config).expect("a file");
    dir.hapax(&["outbox", "configure"]).exits(0);
}

fn publish(dir: &LedgerDir, version: &str) {
    let file = format!("{version}.json");
    let write = format!("echo '{{}}' > {file}");
    let more = ["--output", &file, "--", "sh", "-c", &write];
    dir.hapax(&operation("flow", version, &more)).exits(0);
}

/// Everything that was delivered so far, one line each, as it is written anew from the journal.
fn rebuilt(dir: &LedgerDir, file: &str) -> Vec<String> {
    dir.hapax(&["lineage", "export", "--to", "rebuilt"]).exits(0);
    dir.read(&format!("rebuilt/{file}")).lines().map(str::to_owned).collect()
}

fn bodies(got: &[Request]) -> Vec<String> {
    got.iter().map(Request::text).collect()
}

fn ids(got: &[Request]) -> Vec<&str> {
    got.iter().filter_map(|request| request.header("webhook-id")).collect()
}

/// A sink of lineage, as an endpoint sees it.
struct Endpoint {
    path: &'static str,
    authorization: &'static str,
    /// The settings of the sink, apart from its URL.
    settings: &'static str,
    /// The file that an export of the same writes.
    file: &'static str,
    /// Answers after which the delivery is retried.
    heals: [(&'static str, &'static str); 2],
}

impl Endpoint {
    fn sink(&self, receiver: &Receiver) -> String {
        format!("url = \"{}\"\n{}", receiver.url(self.path), self.settings)
    }

    fn gets_each_moment(&self) {
        let dir = LedgerDir::new();
        let [first, second] = self.heals;
        let receiver = Receiver::start(&[first, second, OK]);
        configure(&dir, &self.sink(&receiver));
        publish(&dir, "v1");
        publish(&dir, "v2");
        dir.hapax(&["outbox", "dispatch", "--until-idle"]).exits(0).says("4 delivered, 0 failed");
        let got = receiver.got();
        for request in &got {
            assert_eq!(request.path, self.path);
            assert_eq!(request.header("content-type"), Some("application/json"));
            assert_eq!(request.header("authorization"), Some(self.authorization));
        }
        let id = ids(&got)[0];
        assert_eq!(ids(&got)[..3], [id; 3], "twice in vain, and the same each time");
        assert_eq!(bodies(&got[..1]), bodies(&got[2..3]));
        assert_eq!(
            bodies(&got[2..]),
            rebuilt(&dir, self.file),
            "the delivered events are those of the journal, byte for byte and in order"
        );
        let listed = dir.hapax(&["outbox", "list", "--json"]).exits(0).out;
        assert!(ids(&got).iter().all(|id| listed.contains(id)), "by the ids of the outbox");
    }

    /// A delivery that can never be accepted is tried once, stays failed, and is sent under the
    /// same id when a person redrives it.
    fn refuses_for_good(&self) {
        let dir = LedgerDir::new();
        let receiver = Receiver::start(&[("422 Unprocessable", ""), OK]);
        configure(&dir, &self.sink(&receiver));
        publish(&dir, "v1");
        dir.hapax(&["outbox", "dispatch", "--until-idle"]).exits(78);
        let failed = dir.hapax(&["outbox", "list", "--status", "failed", "--json"]).exits(0);
        let failed = failed.json();
        assert_eq!(failed["attempt"], 1, "{failed}");
        assert!(
            failed["last_error"].as_str().is_some_and(|error| error.contains("422")),
            "{failed}"
        );
        dir.hapax(&["outbox", "redrive"]).exits(0).prints("1 will be tried again.\n");
        dir.hapax(&["outbox", "dispatch", "--until-idle"]).exits(0);
        let got = receiver.got();
        let refused = got.iter().filter(|request| request.body == got[0].body);
        let refused: Vec<_> = refused.cloned().collect();
        assert_eq!(ids(&refused), [failed["outbox_id"].as_str().expect("an id"); 2]);
        let mut delivered = bodies(&got[1..]);
        let mut journal = rebuilt(&dir, self.file);
        delivered.sort();
        journal.sort();
        assert_eq!(delivered, journal);
    }
}

const OPENLINEAGE: Endpoint = Endpoint {
    path: "/api/v1/lineage",
    authorization: "Bearer s3cret",
    settings: "kind = \"openlineage\"\ntoken = \"s3cret\"",
    file: "openlineage.jsonl",
    heals: [("500 Oops", ""), ("429 Slow\r\nretry-after: 0", "")],
};

/// A graph reports a failure in the body of a success.
const GRAPH: Endpoint = Endpoint {
    path: "/db/neo4j/tx/commit",
    authorization: "Basic bmVvNGo6czNjcmV0",
    settings: "kind = \"graph\"\nuser = \"neo4j\"\npassword = \"s3cret\"",
    file: "cypher.jsonl",
    heals: [
        ("500 Oops", ""),
        (
            "200 OK",
            r#"{"results":[],"errors":[{"code":"Neo.TransientError.Transaction.Outdated"}]}"#,
        ),
    ],
};

/// Proves O-8 and P-11: each moment is delivered once and in order, and retried under the same id.
#[test]
fn an_openlineage_endpoint_receives_each_moment() {
    OPENLINEAGE.gets_each_moment();
}

/// Proves O-6 for OpenLineage.
#[test]
fn an_event_that_an_openlineage_endpoint_refuses_is_not_retried() {
    OPENLINEAGE.refuses_for_good();
}

/// Proves O-8 and P-12: the statements of each moment in one transaction, in order.
#[test]
fn a_graph_receives_each_moment() {
    GRAPH.gets_each_moment();
}

/// Proves O-6 for graphs.
#[test]
fn an_event_that_a_graph_refuses_is_not_retried() {
    GRAPH.refuses_for_good();
}
