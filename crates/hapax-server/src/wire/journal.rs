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
    /// Its number in the store; only grows.
    pub entry: u64,
    /// When, by the store's clock.
    pub at: String,
    /// Whose.
    pub namespace: String,
    /// Which effect.
    pub key: String,
    /// What happened.
    #[schema(value_type = Events)]
    pub event: &'static str,
    /// The state after it.
    #[schema(value_type = StateNames)]
    pub state: &'static str,
    /// The attempt it is about.
    pub attempt: String,
    /// The generation it belongs to.
    pub generation: u32,
    /// The fingerprint of what was granted, or the digest of what succeeded.
    pub digest: Option<String>,
    /// Who did it, where a person did.
    pub actor: Option<String>,
    /// Why, for people.
    pub note: Option<String>,
    /// The hash of its leaf in the journal's tree.
    pub leaf_hash: String,
}

/// The names of what happens, for the schema.
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
    /// An entry.
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

/// An entry and its leaf.
#[derive(Debug, Serialize, ToSchema)]
pub struct Leaf {
    /// Its place in the journal's tree.
    pub leaf: u64,
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
}

impl Leaf {
    /// An entry at its leaf.
    pub fn of(leaf: u64, entry: &hapax::Entry) -> Self {
        Self { leaf, entry: Entry::of(entry) }
    }
}

/// A proof that an entry is in the journal, which anyone can check.
#[derive(Debug, Serialize, ToSchema)]
pub struct Proof {
    /// The version of this document.
    pub hapax_proof: u32,
    /// The entry, for people.
    pub entry: Entry,
    /// The entry as it was sealed, in base64. Only this counts.
    pub encoded: String,
    /// Its leaf.
    pub leaf: u64,
    /// The hashes on the way to the root, in base64.
    pub path: Vec<String>,
    /// The signed head that they lead to.
    pub checkpoint: String,
    /// The key that signed it.
    pub public_key: String,
}

impl Proof {
    /// A proof under this ledger's public key.
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

/// What became of a comparison of the journal with its tree and its signed heads.
#[derive(Debug, Serialize, ToSchema)]
pub struct Verification {
    /// How many entries are sealed.
    pub sealed: u64,
    /// How many of them have been exported and left the store.
    pub archived: u64,
    /// How many wait to be sealed, and are not covered.
    pub pending: u64,
    /// How many signed heads were checked.
    pub heads: u64,
    /// Whether nothing is wrong.
    pub intact: bool,
    /// What is wrong, in the order of the journal.
    pub damage: Vec<String>,
}

impl Verification {
    /// What was found.
    pub fn of(found: &Verified) -> Self {
        let Verified { sealed, archived, pending, heads, .. } = *found;
        let damage: Vec<String> = found.damage.iter().map(ToString::to_string).collect();
        Self { sealed, archived, pending, heads, intact: damage.is_empty(), damage }
    }
}
