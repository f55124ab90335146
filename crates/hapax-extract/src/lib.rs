//! Extraction of entities and relations from text: one key from the client to the cache.

mod attention;
mod builtin;
mod chunk;
mod error;
mod extractor;
mod graph;
mod identity;
mod kinds;
mod manage;
mod merge;
mod meters;
mod ontologies;
mod ontology;
#[cfg(feature = "openai")]
pub mod openai;
mod params;
pub mod rdf;
mod resolve;
mod result;
mod scope;
mod sentence;
mod service;
mod shadow;
mod workflow;

pub use builtin::Builtin;
pub use chunk::{Chunk, chunks};
pub use error::Error;
pub use extractor::{Answer, Answered, Bill, ChunkRequest, Extractor, ExtractorError};
pub use graph::{ChunkGraph, Entity, Graph, Mention, Relation, Span, Statement};
pub use identity::Identity;
pub use manage::{LookupExplanation, NearestResult, OntologyEntry, Stats, VersionChange};
pub use merge::merge;
pub use meters::{Count, Meters, Stopwatch};
pub use ontologies::Known;
pub use ontology::error::{OntologyError, Position};
pub use ontology::{Class, Individual, Ontology, Property, limits};
pub use params::{ExtraParams, Params, ParamsError, ParamsProblem};
pub use resolve::{Resolved, Thing, entity_id, resolve};
pub use scope::PropertyScope;
pub use service::{Extract, Extracted, ExtractionRequest, MaintenanceReport, Settings};
pub use shadow::Differences;
pub use workflow::{ExtractionUsage, Progress};
