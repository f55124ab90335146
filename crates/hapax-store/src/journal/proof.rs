//! Proofs that an entry is in the journal, which need neither the ledger nor its store.

use hapax_core::checkpoint::{Checkpoint, CheckpointError, Verifier};
use hapax_core::journal::Entry;
use hapax_core::merkle::{self, Hash, Tiles};
use hapax_core::planted::{Bug, planted};

use crate::error::StoreError;
use crate::txn::View;

/// A proof that one entry is in the journal, complete in itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The entry.
    pub entry: Entry,
    /// Its leaf.
    pub leaf: u64,
    /// The hashes on the way to the root.
    pub path: Vec<Hash>,
    /// The signed head it leads to.
    pub note: String,
}

impl Proof {
    /// Proves one entry; `None` if it does not exist or is not sealed yet.
    pub fn of(view: &mut dyn View, entry: u64) -> Result<Option<Self>, StoreError> {
        let (Some(leaf), Some(head)) = (view.leaf_of(entry)?, view.newest_head()?) else {
            return Ok(None);
        };
        let Some(entry) = view.leaf_entry(leaf)? else { return Ok(None) };
        let path = merkle::inclusion_proof(&mut ViewTiles(view), leaf, head.size)?;
        Ok(path.map(|path| Self { entry, leaf, path, note: head.note }))
    }

    /// Whether the entry is in the tree that this key signed.
    pub fn verify(&self, verifier: &Verifier) -> Result<Checkpoint, CheckpointError> {
        let head = verifier.verify(&self.note)?;
        let root =
            merkle::root_from_inclusion(&self.entry.leaf(), self.leaf, head.size, &self.path);
        if root == Some(head.root) || planted(Bug::RootUnchecked) {
            Ok(head)
        } else {
            Err(CheckpointError::Signature)
        }
    }
}

/// A view as a source of tiles.
pub struct ViewTiles<'a>(pub &'a mut dyn View);

impl Tiles for ViewTiles<'_> {
    type Error = StoreError;

    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, StoreError> {
        self.0.tile(level, index)
    }
}
