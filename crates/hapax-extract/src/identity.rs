//! What makes two requests the same: one key from the client to the cache.

use hapax::json::Json;
use hapax::key::extraction::{Components, Extraction};
use hapax::{Fingerprint, Key, KeyError};

use crate::ontologies::Known;
use crate::params::Params;

/// How texts are cut and graphs put together: another one gives other results.
const WORKFLOW: &str = "workflow.1";

/// What a request is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The key by the formula that clients know, and the parts it is made of.
    pub components: Components,
    /// Everything that changes the answer, untruncated: what was asked, what was left to us, and who
    /// answers. Compared on every hit, because the formula contains a hash of 64 bits.
    pub fingerprint: Fingerprint,
}

impl Identity {
    /// The identity of a request to an extractor that calls itself so. `asked` are the parameters as they were sent, which the formula
    /// wants; `params` are those that count.
    pub(crate) fn of(
        text: &str,
        known: &Known,
        asked: &Json,
        params: &Params,
        extractor: &str,
    ) -> Result<Self, KeyError> {
        let ontology_id = known.ontology.id.as_str();
        let ontology_version = known.version.as_str();
        let components =
            Extraction { text, ontology_id, ontology_version, params: asked }.derive()?;
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

    /// The key of the ledger where another request has taken the first one: the two collide in the
    /// formula, and only there.
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
