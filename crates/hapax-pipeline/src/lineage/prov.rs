//! PROV-O of a run that succeeded: its activity, its agent, its inputs and its outputs.

use hapax::json::Json;

use super::graph::{Graph, TYPE, Term};
use super::{Completed, documents, names};

/// As JSON-LD.
pub fn json_ld(done: &Completed<'_>) -> Json {
    graph(done).json_ld()
}

/// As Turtle. The statements are those of [`json_ld`].
pub fn turtle(done: &Completed<'_>) -> String {
    graph(done).turtle()
}

fn graph(done: &Completed<'_>) -> Graph {
    let mut graph = Graph::default();
    graph.say(&names::prov(done.run), TYPE, Term::Word("prov:Bundle"));
    activity(&mut graph, done);
    inputs(&mut graph, done);
    outputs(&mut graph, done);
    graph
}

fn activity(graph: &mut Graph, done: &Completed<'_>) {
    let (run, operation) = (done.run, &done.run.about.operation);
    let activity = names::run(run);
    let label = format!("{}.{}", operation.pipeline_id, operation.task_id);
    let sovereign = run.about.terms.sovereign.to_string();
    graph.say(&activity, TYPE, Term::Word("prov:Activity"));
    graph.say(&activity, "rdfs:label", Term::Text(label));
    graph.say(&activity, "prov:startedAtTime", Term::time(run.started.at));
    graph.say(&activity, "prov:endedAtTime", Term::time(done.end.at));
    graph.say(&activity, "hapax:operation", Term::Iri(names::operation(&run.key)));
    graph.say(&activity, "hapax:sovereigntyEvent", Term::Typed(sovereign, "xsd:boolean"));
    graph.documents(&activity, &documents(run, done.end, Some(&done.editions())));
    if let Some(agent) = graph.agent(run, &operation.dataset_id) {
        graph.say(&activity, "prov:wasAssociatedWith", agent);
    }
}

fn inputs(graph: &mut Graph, done: &Completed<'_>) {
    for source in &done.run.about.operation.inputs {
        let entity = names::source(source);
        graph.say(&names::run(done.run), "prov:used", Term::Iri(entity.clone()));
        describe(graph, &entity, &source.name, source.checksum.as_deref(), source.uri.as_deref());
    }
}

fn outputs(graph: &mut Graph, done: &Completed<'_>) {
    for edition in done.editions() {
        let entity = edition.name();
        for artifact in &edition.artifacts {
            let (checksum, uri) = (artifact.checksum.as_str(), artifact.uri.as_str());
            describe(graph, &entity, edition.dataset, Some(checksum), Some(uri));
        }
        graph.say(&entity, "hapax:version", Term::text(edition.version));
        graph.say(&entity, "prov:generatedAtTime", Term::time(done.end.at));
        graph.say(&entity, "prov:wasGeneratedBy", Term::Iri(names::run(done.run)));
        for source in &done.run.about.operation.inputs {
            graph.say(&entity, "prov:wasDerivedFrom", Term::Iri(names::source(source)));
        }
        if let Some(agent) = graph.agent(done.run, edition.dataset) {
            graph.say(&entity, "prov:wasAttributedTo", agent);
        }
    }
}

fn describe(
    graph: &mut Graph,
    entity: &str,
    dataset: &str,
    checksum: Option<&str>,
    uri: Option<&str>,
) {
    graph.say(entity, TYPE, Term::Word("prov:Entity"));
    graph.say(entity, "prov:specializationOf", Term::Iri(names::dataset(dataset)));
    if let Some(checksum) = checksum {
        graph.say(entity, "hapax:checksum", Term::text(checksum));
    }
    if let Some(uri) = uri {
        graph.say(entity, "prov:atLocation", Term::Iri(names::location(uri)));
    }
}
