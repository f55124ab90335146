//! Measures the quality of the built-in extractor on texts that were labelled by hand, without a
//! threshold.
//!
//! An entity is right if its class and its name are, a relation if its property and both names are.
//! The snapshot lists missed and invented items, so that every change of quality is visible.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::expect_file;
use hapax_extract::{Builtin, ChunkGraph, Graph, Ontology, PropertyScope, chunks, merge};
use serde::Deserialize;

#[derive(Deserialize)]
struct Labelled {
    text: String,
    entities: BTreeSet<String>,
    relations: BTreeSet<(String, String, String)>,
}

fn extract(ontology: &Arc<Ontology>, text: &str) -> Graph {
    let (builtin, scope) = (Builtin::new(), PropertyScope::new(ontology));
    let chunks = chunks(text, 2000);
    let find = |text: &str| {
        let mentions = builtin.mentions(ontology, text).expect("mentions");
        let properties = scope.between(&mentions);
        let statements =
            builtin.statements(ontology, text, &mentions, &properties).expect("relations");
        ChunkGraph { mentions, statements }
    };
    let found: Vec<ChunkGraph> = chunks.iter().map(|chunk| find(chunk.text)).collect();
    merge(&chunks, &found, ontology)
}

fn local(iri: &str) -> &str {
    iri.trim_start_matches("ex:")
}

#[derive(Default)]
struct Score {
    right: usize,
    found: usize,
    expected: usize,
}

impl Score {
    fn count<T: Ord + std::fmt::Debug>(
        &mut self,
        found: &BTreeSet<T>,
        expected: &BTreeSet<T>,
        report: &mut String,
    ) {
        self.right += found.intersection(expected).count();
        self.found += found.len();
        self.expected += expected.len();
        for missed in expected.difference(found) {
            let _ = writeln!(report, "  missed  {missed:?}");
        }
        for wrong in found.difference(expected) {
            let _ = writeln!(report, "  made up {wrong:?}");
        }
    }

    fn summary(&self) -> String {
        let share = |of: usize| self.right as f64 / of.max(1) as f64;
        let (precision, recall) = (share(self.found), share(self.expected));
        format!(
            "precision {precision:.3} ({}/{}), recall {recall:.3} ({}/{})",
            self.right, self.found, self.right, self.expected
        )
    }
}

/// Proves X-9.
#[test]
fn the_quality_on_the_labelled_sample_is_what_it_was() {
    let ontology = include_str!("../sample/ontology.json");
    let ontology: Arc<Ontology> = Arc::new(serde_json::from_str(ontology).expect("an ontology"));
    let labelled = include_str!("../sample/labelled.json");
    let labelled: Vec<Labelled> = serde_json::from_str(labelled).expect("labels");
    let (mut entities, mut relations) = (Score::default(), Score::default());
    let mut report = String::new();
    for Labelled { text, entities: things, relations: labels } in labelled {
        let graph = extract(&ontology, &text);
        let name = |id: &str| {
            let named = graph.entities.iter().find(|entity| entity.id == id);
            named.expect("an entity").name.clone()
        };
        let found = graph.entities.iter();
        let found = found.map(|one| format!("{}: {}", local(&one.class), one.name)).collect();
        let stated = graph
            .relations
            .iter()
            .map(|one| (name(&one.subject), local(&one.predicate).to_owned(), name(&one.object)));
        let mut lines = String::new();
        entities.count(&found, &things, &mut lines);
        relations.count(&stated.collect(), &labels, &mut lines);
        if !lines.is_empty() {
            let _ = write!(report, "\n{text}\n{lines}");
        }
    }
    let summary =
        format!("entities:  {}\nrelations: {}\n", entities.summary(), relations.summary());
    println!("{summary}");
    expect_file!["../sample/quality.txt"].assert_eq(&format!("{summary}{report}"));
}
