//! The append-only record: one entry for each transition, and its one encoding.
//!
//! The encoding covers every field, so changing any of them changes the leaf hash. Entries
//! are hashed into a [Merkle tree](crate::merkle) by a sealer, off the hot path.

use crate::attempt::AttemptId;
use crate::effect::{Change, Effect, State, StateName};
use crate::key::Key;
use crate::merkle::{Hash, leaf_hash};
use crate::name::{Name, Namespace};
use crate::time::Timestamp;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryKind {
    /// Permission was given.
    Granted,
    /// A holder reported.
    Settled,
    /// A holder lapsed, or the epoch of the effect ended.
    Expired,
    /// A reconciler looked.
    Reconciled,
    /// A person decided.
    Resolved,
    /// A rollback was completed.
    RolledBack,
    /// A person cleared the record.
    Reset,
    /// A stale attempt reported success. Nothing else was written; an operator must look.
    Contradicted,
}

impl EntryKind {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 8] = [
        Self::Granted,
        Self::Settled,
        Self::Expired,
        Self::Reconciled,
        Self::Resolved,
        Self::RolledBack,
        Self::Reset,
        Self::Contradicted,
    ];

    /// The kind with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Its code in a database or an encoded entry.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Settled => "settled",
            Self::Expired => "expired",
            Self::Reconciled => "reconciled",
            Self::Resolved => "resolved",
            Self::RolledBack => "rolled_back",
            Self::Reset => "reset",
            Self::Contradicted => "contradicted",
        }
    }
}

impl std::fmt::Display for EntryKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// One entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the store; only grows.
    pub id: u64,
    /// When, by the store's wall clock.
    pub at: Timestamp,
    /// The namespace of the effect.
    pub namespace: Namespace,
    /// The key of the effect.
    pub key: Key,
    /// The kind of the entry.
    pub event: EntryKind,
    /// The state after it.
    pub state: StateName,
    /// The attempt it is about.
    pub attempt: AttemptId,
    /// The generation it belongs to.
    pub generation: u32,
    /// The fingerprint of a grant's payload, or the digest of a success's outcome.
    pub digest: Option<[u8; 32]>,
    /// The person who did it, if a person did.
    pub actor: Option<String>,
    /// Why, for people.
    pub note: Option<String>,
}

impl Entry {
    /// The entry that records a change.
    pub fn of(id: u64, name: &Name, change: &Change) -> Self {
        let Change { effect, event } = change;
        Self {
            id,
            at: effect.updated,
            namespace: name.namespace.clone(),
            key: name.key,
            event: *event,
            state: effect.state.name(),
            attempt: effect.attempt,
            generation: effect.generation,
            digest: digest_of(effect),
            actor: None,
            note: effect.state.reason().map(str::to_owned),
        }
    }

    /// The canonical bytes: a version, then every field, framed.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        out.push(1);
        out.extend(self.id.to_be_bytes());
        out.extend(self.at.0.to_be_bytes());
        frame(&mut out, self.namespace.as_str().as_bytes());
        out.extend(self.key.as_bytes());
        out.push(self.event.code());
        out.push(self.state.code());
        out.extend(self.attempt.as_bytes());
        out.extend(self.generation.to_be_bytes());
        optional(&mut out, self.digest.as_ref().map(<[u8; 32]>::as_slice));
        optional(&mut out, self.actor.as_deref().map(str::as_bytes));
        optional(&mut out, self.note.as_deref().map(str::as_bytes));
        out
    }

    /// Reads the bytes that [`encode`](Self::encode) wrote; nothing else is accepted.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let version = take::<1>(&mut rest)?;
        let entry = Self {
            id: u64::from_be_bytes(take(&mut rest)?),
            at: Timestamp(i64::from_be_bytes(take(&mut rest)?)),
            namespace: Namespace::new(std::str::from_utf8(take_framed(&mut rest)?).ok()?).ok()?,
            key: Key::from_bytes(take(&mut rest)?),
            event: EntryKind::from_code(take::<1>(&mut rest)?[0])?,
            state: StateName::from_code(take::<1>(&mut rest)?[0])?,
            attempt: AttemptId::from_bytes(take(&mut rest)?),
            generation: u32::from_be_bytes(take(&mut rest)?),
            digest: match take_optional(&mut rest)? {
                None => None,
                Some(digest) => Some(digest.try_into().ok()?),
            },
            actor: take_optional(&mut rest)?.map_or(Some(None), |b| text(b).map(Some))?,
            note: take_optional(&mut rest)?.map_or(Some(None), |b| text(b).map(Some))?,
        };
        (version == [1] && rest.is_empty()).then_some(entry)
    }

    /// The hash of this entry as a leaf of the tree.
    pub fn leaf(&self) -> Hash {
        leaf_hash(&self.encode())
    }
}

fn digest_of(effect: &Effect) -> Option<[u8; 32]> {
    match &effect.state {
        State::Running { .. } => Some(*effect.fingerprint.as_bytes()),
        State::Succeeded(outcome) => Some(*outcome.digest().as_bytes()),
        _ => None,
    }
}

fn frame(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

fn optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        frame(out, bytes);
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn take_framed<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_be_bytes(take(rest)?) as usize;
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn take_optional<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match take::<1>(rest)? {
        [0] => Some(None),
        [1] => take_framed(rest).map(Some),
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            id: 7,
            at: Timestamp(1_700_000_000_000),
            namespace: Namespace::default(),
            key: Key::from_bytes([3; 32]),
            event: EntryKind::Settled,
            state: StateName::Succeeded,
            attempt: AttemptId::from_bytes([4; 16]),
            generation: 1,
            digest: Some([5; 32]),
            actor: None,
            note: Some("fine".into()),
        }
    }

    /// Proves K-13.
    #[test]
    fn flipping_any_bit_of_an_entry_changes_its_leaf_or_makes_it_unreadable() {
        let bytes = entry().encode();
        assert_eq!(Entry::decode(&bytes), Some(entry()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Some(other) = Entry::decode(&flipped) {
                assert_ne!(other, entry());
                assert_ne!(other.leaf(), entry().leaf());
            }
        }
    }

    #[test]
    fn a_short_or_long_encoding_is_refused() {
        let bytes = entry().encode();
        for end in 0..bytes.len() {
            assert_eq!(Entry::decode(&bytes[..end]), None);
        }
        assert_eq!(Entry::decode(&[bytes, vec![0]].concat()), None);
    }
}
