//! Extraction of entities and relations from text: one key from the client to the cache.

mod extractor;
mod graph;
mod ontology;
mod params;

pub use extractor::{Answer, Ask, Asked, Extractor, Trouble};
pub use graph::{Entity, Found, Graph, Mention, Place, Relation, Said};
pub use ontology::{Class, Individual, Ontology, Property};
pub use params::Params;
