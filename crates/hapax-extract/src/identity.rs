//! The identity of a request: one key from the client to the cache.

use hapax::json::Json;
use hapax::key::extraction::{Components, Extraction};
use hapax::{Fingerprint, Key, KeyError};

use crate::ontologies::Known;
use crate::params::Params;

/// The version of chunking and merging. Another version gives other results.
const WORKFLOW: &str = "workflow.1";

/// The identity of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The key by the formula that clients know, and the parts that it is made of.
    pub components: Components,
    /// Everything that changes the answer, untruncated: the request, the defaults and the
    /// extractor. Compared on every hit, because the formula contains a hash of 64 bits.
    pub fingerprint: Fingerprint,
}

impl Identity {
    /// The identity of a request. `given` are the parameters as the client sent them, for the
    /// formula; `params` are those that count, and `extractor` is the extractor's own identity, for
    /// the fingerprint.
    pub(crate) fn of(
        text: &str,
        known: &Known,
        given: &Json,
        params: &Params,
        extractor: &str,
    ) -> Result<Self, KeyError> {
        let ontology_id = known.ontology.id.as_str();
        let ontology_version = known.version.as_str();
        let components =
            Extraction { text, ontology_id, ontology_version, params: given }.derive()?;
        let fingerprint = Fingerprint::of_parts(&[
            WORKFLOW.as_bytes(),
            components.normalized_text.as_bytes(),
            ontology_id.as_bytes(),
            ontology_version.as_bytes(),
            params.form().as_bytes(),
            extractor.as_bytes(),
        ]);
        Ok(Self { components, fingerprint })
    }

    /// The key in the ledger if another request holds the first one. The two requests collide in
    /// the formula, and only there.
    pub(crate) fn second_key(&self) -> Result<Key, KeyError> {
        Key::derive(
            "extraction.collided.v1",
            &[
                ("key", &self.components.key.as_bytes()[..]),
                ("fingerprint", &self.fingerprint.as_bytes()[..]),
            ],
        )
    }
}
