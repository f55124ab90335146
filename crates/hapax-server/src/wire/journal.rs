//! The journal and its proofs.

use data_encoding::{BASE64, HEXLOWER};
use hapax::{Verified, Verifier};
use serde::Serialize;
use utoipa::ToSchema;

use super::effect::StateNames;
use super::time;

/// One entry of the journal.
#[derive(Debug, Serialize, ToSchema)]
pub struct Entry {
    /// The number of the entry in the store; it only grows.
    pub entry: u64,
    /// The time, by the store's clock.
    pub at: String,
    /// The namespace of the effect.
    pub namespace: String,
    /// The key of the effect.
    pub key: String,
    /// The event.
    #[schema(value_type = Events)]
    pub event: &'static str,
    /// The state after it.
    #[schema(value_type = StateNames)]
    pub state: &'static str,
    /// The attempt.
    pub attempt: String,
    /// The generation of the effect.
    pub generation: u32,
    /// The fingerprint of the payload that was granted, or the digest of the outcome.
    pub digest: Option<String>,
    /// The person who acted, if a person did.
    pub actor: Option<String>,
    /// The reason, for people.
    pub note: Option<String>,
    /// The hash of its leaf in the journal's tree.
    pub leaf_hash: String,
}

/// The names of the events, for the schema.
#[derive(ToSchema)]
#[schema(as = JournalEvent, rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum Events {
    Granted,
    Settled,
    Expired,
    Reconciled,
    Resolved,
    RolledBack,
    Reset,
    Contradicted,
}

impl Entry {
    /// The document of an entry.
    pub fn of(entry: &hapax::Entry) -> Self {
        Self {
            entry: entry.id,
            at: time(entry.at),
            namespace: entry.namespace.to_string(),
            key: entry.key.to_string(),
            event: entry.event.as_str(),
            state: entry.state.as_str(),
            attempt: entry.attempt.to_string(),
            generation: entry.generation,
            digest: entry.digest.map(|digest| format!("sha256:{}", HEXLOWER.encode(&digest))),
            actor: entry.actor.clone(),
            note: entry.note.clone(),
            leaf_hash: HEXLOWER.encode(&entry.leaf()),
        }
    }
}

/// An entry with the position of its leaf.
#[derive(Debug, Serialize, ToSchema)]
pub struct Leaf {
    /// The position of the leaf in the journal's tree.
    pub leaf: u64,
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
}

impl Leaf {
    /// The document of an entry at this leaf.
    pub fn of(leaf: u64, entry: &hapax::Entry) -> Self {
        Self { leaf, entry: Entry::of(entry) }
    }
}

/// A proof that an entry is in the journal. A reader needs only the public key to check it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Proof {
    /// The version of this document.
    pub hapax_proof: u32,
    /// The entry, for people.
    pub entry: Entry,
    /// The entry as it was sealed, in base64. The proof covers only these bytes.
    pub encoded: String,
    /// The position of its leaf.
    pub leaf: u64,
    /// The hashes on the way to the root, in base64.
    pub path: Vec<String>,
    /// The signed head that they lead to, as a note.
    pub checkpoint: String,
    /// The key that signed it.
    pub public_key: String,
}

impl Proof {
    /// The document of a proof, with this ledger's public key.
    pub fn of(proof: &hapax::Proof, verifier: &Verifier) -> Self {
        Self {
            hapax_proof: 1,
            entry: Entry::of(&proof.entry),
            encoded: BASE64.encode(&proof.entry.encode()),
            leaf: proof.leaf,
            path: proof.path.iter().map(|hash| BASE64.encode(hash)).collect(),
            checkpoint: proof.note.clone(),
            public_key: verifier.to_string(),
        }
    }
}

/// The newest signed head of the journal.
#[derive(Debug, Serialize, ToSchema)]
pub struct Checkpoint {
    /// The signed note, as C2SP tlog-checkpoint has it.
    pub checkpoint: String,
    /// The key that signed it.
    pub public_key: String,
}

/// The result of comparing the journal with its tree and its signed heads.
#[derive(Debug, Serialize, ToSchema)]
pub struct Verification {
    /// How many entries are sealed.
    pub sealed: u64,
    /// How many of the sealed entries have been exported and removed from the store.
    pub archived: u64,
    /// How many entries are not sealed yet, so that the comparison does not cover them.
    pub pending: u64,
    /// How many signed heads were checked.
    pub heads: u64,
    /// Whether the comparison found no damage.
    pub intact: bool,
    /// The damage, in the order of the journal.
    pub damage: Vec<String>,
}

impl Verification {
    /// The document of a comparison.
    pub fn of(found: &Verified) -> Self {
        let Verified { sealed, archived, pending, heads, .. } = *found;
        let damage: Vec<String> = found.damage.iter().map(ToString::to_string).collect();
        Self { sealed, archived, pending, heads, intact: damage.is_empty(), damage }
    }
}
