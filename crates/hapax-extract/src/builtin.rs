//! The built-in extractor finds the things that the ontology names, by labels, synonyms and simple
//! English patterns. It calls no service, and the same text always has the same answer.
//!
//!   ontology ──once──▶ lexicon        text ──lexicon──▶ mentions ──lexicon──▶ relations
//!
//! It never guesses a class: it takes a name that the ontology does not have only beside the name
//! of a class.

mod inflect;
mod lexicon;
mod mentions;
mod named;
mod phrase;
mod relations;
mod word;

use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use crate::extractor::{Answer, Answered, ChunkRequest, Extractor, ExtractorError};
use crate::graph::{Mention, Statement};
use crate::ontology::{Ontology, Property};
use lexicon::Lexicon;

/// How many compiled ontologies are cached.
const KEPT: usize = 16;

/// Finds entities and relations by the labels and synonyms of the ontology.
#[derive(Debug, Default)]
pub struct Builtin {
    /// The most recently used comes first.
    kept: Mutex<Vec<CompiledOntology>>,
}

/// A compiled ontology. It holds its source, so that no other ontology can be allocated at that
/// address.
#[derive(Debug, Clone)]
struct CompiledOntology {
    ontology: Arc<Ontology>,
    lexicon: Arc<Lexicon>,
}

impl Builtin {
    /// An extractor that has not seen any ontology.
    pub fn new() -> Self {
        Self::default()
    }

    /// Compiles an ontology ahead of its use. A later call with this very ontology is matched by
    /// its address; an equal copy has to be compared in full.
    pub fn learn(&self, ontology: &Arc<Ontology>) -> Result<(), ExtractorError> {
        if !self.knows(ontology) {
            self.keep(Arc::clone(ontology))?;
        }
        Ok(())
    }

    /// The entities that the chunk mentions, in the order of the text.
    pub fn mentions(
        &self,
        ontology: &Ontology,
        chunk: &str,
    ) -> Result<Vec<Mention>, ExtractorError> {
        Ok(mentions::mentions(&*self.lexicon(ontology)?, chunk))
    }

    /// The relations that the chunk states by these properties between these mentions, in the order
    /// of the text.
    pub fn statements(
        &self,
        ontology: &Ontology,
        chunk: &str,
        mentions: &[Mention],
        properties: &[&Property],
    ) -> Result<Vec<Statement>, ExtractorError> {
        if mentions.len() < 2 || properties.is_empty() {
            return Ok(Vec::new());
        }
        Ok(relations::statements(&*self.lexicon(ontology)?, chunk, mentions, properties))
    }

    fn lexicon(&self, ontology: &Ontology) -> Result<Arc<Lexicon>, ExtractorError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |one: &CompiledOntology| std::ptr::eq(Arc::as_ptr(&one.ontology), ontology);
        let known = kept.iter().position(same);
        if let Some(at) = known.or_else(|| kept.iter().position(|one| *one.ontology == *ontology)) {
            kept[..=at].rotate_right(1);
            return Ok(Arc::clone(&kept[0].lexicon));
        }
        drop(kept);
        self.keep(Arc::new(ontology.clone()))
    }

    fn knows(&self, ontology: &Arc<Ontology>) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().any(|one| Arc::ptr_eq(&one.ontology, ontology))
    }

    fn keep(&self, ontology: Arc<Ontology>) -> Result<Arc<Lexicon>, ExtractorError> {
        let lexicon =
            Lexicon::new(&ontology).map_err(|error| ExtractorError::Never(error.to_string()))?;
        let lexicon = Arc::new(lexicon);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(0, CompiledOntology { ontology, lexicon: Arc::clone(&lexicon) });
        kept.truncate(KEPT);
        Ok(lexicon)
    }
}

impl Extractor for Builtin {
    fn identity(&self) -> String {
        "builtin.1".to_owned()
    }

    fn prepare(&self, ontology: &Arc<Ontology>) -> Result<(), ExtractorError> {
        self.learn(ontology)
    }

    fn is_cheap(&self) -> bool {
        true
    }

    fn entities<'a>(&'a self, request: ChunkRequest<'a>) -> Answer<'a, Vec<Mention>> {
        Box::pin(ready(self.mentions(request.ontology, request.chunk).map(free)))
    }

    fn relations<'a>(
        &'a self,
        request: ChunkRequest<'a>,
        mentions: &'a [Mention],
        properties: &'a [&'a Property],
    ) -> Answer<'a, Vec<Statement>> {
        Box::pin(ready(
            self.statements(request.ontology, request.chunk, mentions, properties).map(free),
        ))
    }
}

/// An answer that cost nothing.
fn free<T: Default>(found: T) -> Answered<T> {
    Answered { found, ..Answered::default() }
}
