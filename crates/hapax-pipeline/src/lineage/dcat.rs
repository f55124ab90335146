//! DCAT 3: each version that a run made is a dataset, each artifact of it a distribution.

use hapax::json::Json;

use super::graph::{Graph, TYPE, Term};
use super::{Completed, Edition, documents, names};
use crate::run::Artifact;

/// The outputs of a run that succeeded, as JSON-LD.
pub fn json_ld(done: &Completed<'_>) -> Json {
    let mut graph = Graph::default();
    for edition in done.editions() {
        dataset(&mut graph, done, &edition);
        for (nth, artifact) in edition.artifacts.iter().enumerate() {
            distribution(&mut graph, &edition, nth + 1, artifact);
        }
    }
    graph.json_ld()
}

fn dataset(graph: &mut Graph, done: &Completed<'_>, edition: &Edition<'_>) {
    let dataset = edition.name();
    graph.say(&dataset, TYPE, Term::Word("dcat:Dataset"));
    graph.say(&dataset, "dcterms:title", Term::text(edition.dataset));
    graph.say(&dataset, "dcterms:identifier", Term::text(&dataset));
    graph.say(&dataset, "dcterms:issued", Term::time(done.end.at));
    graph.say(&dataset, "dcat:version", Term::text(edition.version));
    graph.say(&dataset, "dcat:isVersionOf", Term::Iri(names::dataset(edition.dataset)));
    graph.say(&dataset, "prov:wasGeneratedBy", Term::Iri(names::run(done.run)));
    let documents = documents(done.run, done.end, Some(std::slice::from_ref(edition)));
    graph.documents(&dataset, &documents);
    if let Some(agent) = graph.agent(done.run, edition.dataset) {
        graph.say(&dataset, "dcterms:publisher", agent);
    }
}

fn distribution(graph: &mut Graph, edition: &Edition<'_>, nth: usize, artifact: &Artifact) {
    let dataset = edition.name();
    let distribution = format!("{dataset}#{nth}");
    let location = Term::Iri(names::location(&artifact.uri));
    graph.say(&dataset, "dcat:distribution", Term::Iri(distribution.clone()));
    graph.say(&distribution, TYPE, Term::Word("dcat:Distribution"));
    graph.say(&distribution, "dcat:accessURL", location.clone());
    graph.say(&distribution, "dcat:downloadURL", location);
    if let Some(size) = artifact.size {
        let size = Term::Typed(size.to_string(), "xsd:nonNegativeInteger");
        graph.say(&distribution, "dcat:byteSize", size);
    }
    if let Some(media_type) = &artifact.media_type {
        let registered = format!("https://www.iana.org/assignments/media-types/{media_type}");
        graph.say(&distribution, "dcat:mediaType", Term::Iri(names::location(&registered)));
    }
    if let Some(hex) = names::sha256(&artifact.checksum) {
        let checksum = format!("urn:hapax:checksum:sha256:{hex}");
        graph.say(&distribution, "spdx:checksum", Term::Iri(checksum.clone()));
        graph.say(&checksum, TYPE, Term::Word("spdx:Checksum"));
        graph.say(&checksum, "spdx:algorithm", Term::Word("spdx:checksumAlgorithm_sha256"));
        graph.say(&checksum, "spdx:checksumValue", Term::Typed(hex, "xsd:hexBinary"));
    }
}
