//! Merges the findings of all chunks into one graph of the whole text, with the place of each
//! finding.

use std::collections::{BTreeMap, BTreeSet};

use crate::chunk::{Chunk, floor};
use crate::graph::{ChunkGraph, Entity, Graph, Relation, Span};
use crate::ontology::Ontology;
use crate::resolve::resolve;

/// Merges what was found in each chunk. The same chunks with the same findings make the same graph.
/// A finding that points outside its chunk counts up to the chunk's end; a relation between
/// mentions that are not there is skipped.
pub fn merge(chunks: &[Chunk<'_>], found: &[ChunkGraph], ontology: &Ontology) -> Graph {
    let resolved = resolve(found, ontology);
    let mut entities: Vec<Gathered> = resolved.things.iter().map(|_| Gathered::default()).collect();
    let mut relations: BTreeMap<(usize, &str, usize), BTreeSet<Span>> = BTreeMap::new();
    let mut characters = 0;
    for ((chunk, found), of) in chunks.iter().zip(found).zip(&resolved.of) {
        let ruler = Ruler::new(chunk, found, characters);
        for (mention, &thing) in found.mentions.iter().zip(of) {
            let gathered = &mut entities[thing];
            gathered.places.insert(ruler.place(mention.start, mention.end));
            gathered.forms.insert(ruler.slice(mention.start, mention.end));
        }
        for statement in &found.statements {
            let (Some(&subject), Some(&object)) =
                (of.get(statement.subject), of.get(statement.object))
            else {
                continue;
            };
            let places = relations.entry((subject, &statement.property, object)).or_default();
            places.insert(ruler.place(statement.start, statement.end));
        }
        characters = ruler.end;
    }
    let id = |thing: usize| resolved.things[thing].id.clone();
    let relation =
        |((subject, predicate, object), places): ((usize, &str, usize), BTreeSet<_>)| Relation {
            subject: id(subject),
            predicate: predicate.to_owned(),
            object: id(object),
            mentions: places.into_iter().collect(),
        };
    // Things are in the order of their ids, and so are these.
    let relations = relations.into_iter().map(relation).collect();
    let entity = |(thing, gathered): (crate::resolve::Thing, Gathered<'_>)| Entity {
        id: thing.id,
        class: thing.class,
        name: thing.name,
        forms: gathered.forms.into_iter().map(str::to_owned).collect(),
        mentions: gathered.places.into_iter().collect(),
    };
    Graph { entities: resolved.things.into_iter().zip(entities).map(entity).collect(), relations }
}

/// The written forms and the places of one thing.
#[derive(Default)]
struct Gathered<'a> {
    forms: BTreeSet<&'a str>,
    places: BTreeSet<Span>,
}

/// Converts byte offsets in one chunk to character offsets in the whole text.
struct Ruler<'a> {
    chunk: Chunk<'a>,
    start: usize,
    end: usize,
    /// The offsets of the findings, in bytes and in characters. Empty for ASCII, where each byte is
    /// a character.
    known: Vec<(usize, usize)>,
}

impl<'a> Ruler<'a> {
    fn new(chunk: &Chunk<'a>, found: &ChunkGraph, start: usize) -> Self {
        let text = chunk.text;
        if text.is_ascii() {
            return Self { chunk: *chunk, start, end: start + text.len(), known: Vec::new() };
        }
        let mentions = found.mentions.iter().flat_map(|mention| [mention.start, mention.end]);
        let statements =
            found.statements.iter().flat_map(|statement| [statement.start, statement.end]);
        let mut offsets: Vec<usize> =
            mentions.chain(statements).map(|at| floor(text, at)).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let (mut bytes, mut characters) = (0, start);
        let mut known = Vec::with_capacity(offsets.len());
        for offset in offsets {
            characters += text[bytes..offset].chars().count();
            bytes = offset;
            known.push((bytes, characters));
        }
        let end = characters + text[bytes..].chars().count();
        Self { chunk: *chunk, start, end, known }
    }

    fn place(&self, start: usize, end: usize) -> Span {
        let start = self.character(start);
        Span { chunk: self.chunk.index, start, end: self.character(end).max(start) }
    }

    fn character(&self, byte: usize) -> usize {
        let byte = floor(self.chunk.text, byte);
        match self.known.binary_search_by_key(&byte, |&(byte, _)| byte) {
            Ok(at) => self.known[at].1,
            Err(_) => self.start + byte,
        }
    }

    fn slice(&self, start: usize, end: usize) -> &'a str {
        let text = self.chunk.text;
        let start = floor(text, start);
        &text[start..floor(text, end).max(start)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::chunks;
    use crate::graph::{Mention, Statement};

    const TEXT: &str = "Élan is a river.\nThe Élan meets Łódź.\nŁódź is old.\n";

    /// The findings of a chunk in which every `Élan` is a river, every `Łódź` a city, and they
    /// meet.
    fn find(chunk: &str) -> ChunkGraph {
        let mut mentions = Vec::new();
        for (class, name) in [("river", "Élan"), ("city", "Łódź")] {
            for (start, written) in chunk.match_indices(name) {
                let (class, name) = (class.to_owned(), name.to_owned());
                let end = start + written.len();
                mentions.push(Mention { class, individual: None, name, start, end });
            }
        }
        let meets = "Élan meets Łódź";
        let number = |at: usize, end: bool| {
            let edge = |mention: &Mention| if end { mention.end } else { mention.start };
            mentions.iter().position(|mention| edge(mention) == at).expect("a mention")
        };
        let statements = chunk.match_indices(meets).map(|(start, _)| {
            let end = start + meets.len();
            let (subject, object) = (number(start, false), number(end, true));
            Statement { subject, property: "meets".to_owned(), object, start, end }
        });
        let statements = statements.collect();
        ChunkGraph { mentions, statements }
    }

    fn merged(size: usize) -> Graph {
        let chunks = chunks(TEXT, size);
        let found: Vec<ChunkGraph> = chunks.iter().map(|chunk| find(chunk.text)).collect();
        merge(&chunks, &found, &Ontology::default())
    }

    fn written(place: &Span) -> String {
        TEXT.chars().skip(place.start).take(place.end - place.start).collect()
    }

    /// Proves X-8.
    #[test]
    fn every_entity_and_relation_says_where_it_stands_in_characters_of_the_text() {
        for size in [22, 40, 100] {
            let graph = merged(size);
            assert_eq!(graph.entities.len(), 2);
            for entity in &graph.entities {
                assert_eq!(entity.mentions.len(), 2);
                assert!(entity.mentions.iter().all(|place| written(place) == entity.name));
                assert_eq!(entity.forms, [entity.name.as_str()]);
            }
            let [relation] = graph.relations.as_slice() else { panic!("{graph:?}") };
            assert_eq!(written(&relation.mentions[0]), "Élan meets Łódź");
        }
    }

    #[test]
    fn every_place_names_its_chunk() {
        let chunks = chunks(TEXT, 20);
        for entity in merged(20).entities {
            for place in entity.mentions {
                assert!(chunks[place.chunk].text.contains(&entity.name));
            }
        }
    }

    #[test]
    fn entities_come_by_id_and_relations_by_their_ends_each_once() {
        let chunks = chunks(TEXT, 100);
        let mut found = find(chunks[0].text);
        found.statements.extend(found.statements.clone());
        found.mentions.extend(found.mentions.clone());
        let graph = merge(&chunks, &[found], &Ontology::default());
        assert_eq!(graph, merged(100));
        assert!(graph.entities.is_sorted_by_key(|entity| entity.id.clone()));
    }

    #[test]
    fn a_finding_that_points_nowhere_is_cut_or_left_out() {
        let chunks = chunks(TEXT, 100);
        let mut found = find(chunks[0].text);
        found.mentions[0].start = 1;
        found.mentions[1].end = 10_000;
        found.statements[0].object = 77;
        let graph = merge(&chunks, &[found], &Ontology::default());
        assert!(graph.relations.is_empty());
        let ends = graph.entities.iter().flat_map(|entity| &entity.mentions).map(|place| place.end);
        assert_eq!(ends.max(), Some(TEXT.chars().count()));
    }
}
