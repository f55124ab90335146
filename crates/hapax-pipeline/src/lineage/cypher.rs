//! Writes to a property graph, in Cypher.
//!
//! Every moment has the same statements, in this order: dataset, activity, attribute, actor,
//! document, each group with its relations. Each statement merges, so writing twice is writing
//! once. Neither an activity nor a version goes back to an earlier entry of the journal. The text
//! of a statement is constant; the values of a run are parameters.

use hapax::json::Json;

use super::{Edition, count, documents, fields, governance, made, names, owner, reason, state};
use crate::run::{Moment, RunChange};
use hapax::document::Object;

/// A statement and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// The text, the same for every run.
    pub text: &'static str,
    /// The parameters, an object.
    pub parameters: Json,
}

const DATASET: &str = "\
UNWIND $datasets AS dataset
MERGE (d:Dataset {id: dataset.id})
SET d.name = dataset.name";

const VERSION: &str = "\
UNWIND $versions AS version
MERGE (d:Dataset {id: version.dataset})
MERGE (v:Version {id: version.id})
MERGE (v)-[:VERSION_OF]->(d)
WITH v, version WHERE coalesce(v.entry, 0) <= $entry
SET v += version.properties, v.entry = $entry";

const ACTIVITY: &str = "\
MERGE (a:Activity {id: $id})
WITH a WHERE coalesce(a.entry, 0) <= $entry
SET a += $properties";

const USED: &str = "\
UNWIND $used AS used
MERGE (a:Activity {id: $id})
MERGE (u:Version {id: used})
MERGE (a)-[:USED]->(u)";

const GENERATED: &str = "\
UNWIND $generated AS generated
MERGE (a:Activity {id: $id})
MERGE (v:Version {id: generated})
MERGE (v)-[:GENERATED_BY]->(a)";

const DERIVED: &str = "\
UNWIND $generated AS generated
UNWIND $used AS used
MERGE (v:Version {id: generated})
MERGE (u:Version {id: used})
MERGE (v)-[:DERIVED_FROM]->(u)";

const ATTRIBUTE: &str = "\
UNWIND $attributes AS attribute
MERGE (a:Activity {id: $id})
MERGE (t:Attribute {id: attribute.id})
SET t.name = attribute.name, t.value = attribute.value
MERGE (a)-[:HAS_ATTRIBUTE]->(t)";

const ACTOR: &str = "\
UNWIND $actors AS actor
MERGE (a:Activity {id: $id})
MERGE (p:Actor {id: actor.id})
SET p.name = actor.name
MERGE (a)-[:ASSOCIATED_WITH]->(p)";

const ATTRIBUTED: &str = "\
UNWIND $actors AS actor
UNWIND actor.generated AS generated
MERGE (p:Actor {id: actor.id})
MERGE (v:Version {id: generated})
MERGE (v)-[:ATTRIBUTED_TO]->(p)";

const DOCUMENT: &str = "\
UNWIND $documents AS document
MERGE (a:Activity {id: $id})
MERGE (d:Document {id: document.id})
SET d.kind = document.kind
MERGE (d)-[:DESCRIBES]->(a)";

/// The statements of this moment: dataset, activity, attribute, actor, document.
pub fn statements(moment: &Moment) -> Vec<Statement> {
    let editions = made(moment).unwrap_or_default();
    let inputs = &moment.run.about.operation.inputs;
    let id = || ("id", Json::text(&names::run(&moment.run)));
    let used = || ("used", texts(inputs.iter().map(names::source)));
    let generated = || ("generated", texts(editions.iter().map(Edition::name)));
    let actors = actors(moment, &editions);
    let entry = || ("entry", count(moment.mark.entry));
    let statement = |text, parameters| Statement { text, parameters };
    vec![
        statement(DATASET, Json::object([("datasets", datasets(moment, &editions))])),
        statement(VERSION, Json::object([entry(), ("versions", versions(moment, &editions))])),
        statement(ACTIVITY, Json::object([id(), entry(), ("properties", activity(moment))])),
        statement(USED, Json::object([id(), used()])),
        statement(GENERATED, Json::object([id(), generated()])),
        statement(DERIVED, Json::object([generated(), used()])),
        statement(ATTRIBUTE, Json::object([id(), ("attributes", attributes(moment))])),
        statement(ACTOR, Json::object([id(), ("actors", actors.clone())])),
        statement(ATTRIBUTED, Json::object([("actors", actors)])),
        statement(DOCUMENT, Json::object([id(), ("documents", documents_of(moment))])),
    ]
}

/// The body of a request to Neo4j's transactional HTTP endpoint.
pub fn transaction(statements: &[Statement]) -> Json {
    let one = |statement: &Statement| {
        Json::object([
            ("statement", Json::text(statement.text)),
            ("parameters", statement.parameters.clone()),
        ])
    };
    Json::object([("statements", Json::Array(statements.iter().map(one).collect()))])
}

fn datasets(moment: &Moment, editions: &[Edition<'_>]) -> Json {
    let operation = &moment.run.about.operation;
    let mut named = vec![operation.dataset_id.as_str()];
    named.extend(operation.inputs.iter().map(|source| source.name.as_str()));
    named.extend(editions.iter().map(|edition| edition.dataset));
    let dataset = |name: &&str| {
        Json::object([("id", Json::text(&names::dataset(name))), ("name", Json::text(name))])
    };
    Json::Array(named.iter().map(dataset).collect())
}

fn versions(moment: &Moment, editions: &[Edition<'_>]) -> Json {
    let version = |id: String, dataset: &str, properties: Object| {
        let version = Object::default().text("id", id.as_str());
        let version = version.text("dataset", names::dataset(dataset).as_str());
        version.with("properties", properties.json()).json()
    };
    let read = moment.run.about.operation.inputs.iter().map(|source| {
        let properties = Object::default()
            .list("checksums", source.checksum.iter().map(|checksum| Json::text(checksum)))
            .list("uris", source.uri.iter().map(|uri| Json::text(uri)));
        version(names::source(source), &source.name, properties)
    });
    let written = editions.iter().map(|edition| {
        let artifacts = &edition.artifacts;
        let properties = Object::default()
            .text("version", edition.version)
            .list("checksums", artifacts.iter().map(|artifact| Json::text(&artifact.checksum)))
            .list("uris", artifacts.iter().map(|artifact| Json::text(&artifact.uri)));
        version(edition.name(), edition.dataset, properties)
    });
    Json::Array(read.chain(written).collect())
}

/// A property that does not apply, or no longer does, is null: the graph then removes it.
fn activity(moment: &Moment) -> Json {
    let (run, operation) = (&moment.run, &moment.run.about.operation);
    let over = !matches!(moment.change, RunChange::Start | RunChange::Running { .. });
    let ended = over.then(|| Json::text(&names::time(moment.mark.at)));
    Object::default()
        .text("name", format!("{}.{}", operation.pipeline_id, operation.task_id).as_str())
        .text("namespace", run.namespace.as_str())
        .text("operation", names::operation(&run.key).as_str())
        .text("state", state(&moment.change))
        .with("reason", reason(&moment.change).map_or(Json::Null, Json::text))
        .with("entry", count(moment.mark.entry))
        .text("started_at", names::time(run.started.at).as_str())
        .with("ended_at", ended.unwrap_or(Json::Null))
        .json()
}

fn attributes(moment: &Moment) -> Json {
    let Json::Object(members) = governance(fields(&moment.run), &moment.run).json() else {
        return Json::Array(Vec::new());
    };
    let attribute = |(name, value): (String, Json)| {
        let id = format!("{}#{name}", names::run(&moment.run));
        Json::object([("id", Json::text(&id)), ("name", Json::text(&name)), ("value", value)])
    };
    Json::Array(members.into_iter().map(attribute).collect())
}

fn actors(moment: &Moment, editions: &[Edition<'_>]) -> Json {
    let dataset = &moment.run.about.operation.dataset_id;
    let own = editions.iter().filter(|edition| edition.dataset == dataset);
    let actor = owner(&moment.run, dataset).map(|owner| {
        Json::object([
            ("id", Json::text(&names::agent(owner))),
            ("name", Json::text(owner)),
            ("generated", texts(own.map(Edition::name))),
        ])
    });
    Json::Array(actor.into_iter().collect())
}

fn documents_of(moment: &Moment) -> Json {
    let documents = documents(&moment.run, moment.mark, made(moment).as_deref());
    let document = |(kind, name): &(&str, String)| {
        Json::object([("id", Json::text(name)), ("kind", Json::text(kind))])
    };
    Json::Array(documents.iter().map(document).collect())
}

fn texts(items: impl IntoIterator<Item = String>) -> Json {
    Json::Array(items.into_iter().map(Json::String).collect())
}
