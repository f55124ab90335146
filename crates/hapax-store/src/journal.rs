//! The journal at the seam: its entries, the tree over them and the signed heads of the tree.
//!
//! An entry is appended with the change that it records, and becomes a leaf of the tree when it is
//! sealed. Nothing here changes or removes an entry.

use std::ops::Range;

use hapax_core::journal::Entry;
use hapax_core::merkle::Hash;
use hapax_core::name::Name;

use crate::error::StoreError;

mod plan;
mod proof;
mod seal;
mod verify;

pub use plan::plan_seal;
pub use proof::{Proof, ViewTiles};
pub(crate) use seal::seal;
pub use verify::{Damage, Verified, verify};

/// The reads of the journal.
pub trait JournalView {
    /// Journal entries after `after`, in order, at most `limit`; of one effect if named.
    fn entries(
        &mut self,
        of: Option<&Name>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError>;

    /// The entry that is this leaf of the tree, if both are there.
    fn leaf_entry(&mut self, leaf: u64) -> Result<Option<Entry>, StoreError>;

    /// The entries of consecutive leaves. One that is missing or cannot be read is `None`, and
    /// the rest are read all the same.
    fn leaf_entries(&mut self, first: u64, count: u64) -> Result<Vec<Option<Entry>>, StoreError> {
        Ok((first..first + count).map(|leaf| self.leaf_entry(leaf).ok().flatten()).collect())
    }

    /// The leaves whose entries have been exported and left the store.
    fn archived(&mut self) -> Result<Vec<Range<u64>>, StoreError> {
        Ok(Vec::new())
    }

    /// Which leaf this entry is, if it is sealed.
    fn leaf_of(&mut self, entry: u64) -> Result<Option<u64>, StoreError>;

    /// The number of the newest entry; 0 if there is none.
    fn last_entry(&mut self) -> Result<u64, StoreError>;

    /// Entries that are no leaves yet, in the order in which they become leaves.
    fn unsealed(&mut self, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// How many entries are no leaves yet.
    fn pending(&mut self) -> Result<u64, StoreError>;

    /// The hashes of a tile; empty if there is none.
    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, StoreError>;

    /// Signed heads with a size above `after`, in order, at most `limit`.
    fn heads(&mut self, after: u64, limit: usize) -> Result<Vec<Head>, StoreError>;

    /// The newest signed head.
    fn newest_head(&mut self) -> Result<Option<Head>, StoreError>;
}

/// The writes of the journal.
pub trait JournalTxn {
    /// The number for the next entry, above all that this store has given.
    fn next_entry(&mut self) -> Result<u64, StoreError>;

    /// Appends an entry under the number [`next_entry`](Self::next_entry) gave for it.
    fn append(&mut self, entry: &Entry) -> Result<(), StoreError>;

    /// Makes these entries leaves, in this order, and writes the tiles and the head they lead to.
    fn put_head(
        &mut self,
        leaves: &[u64],
        tiles: &[SealedTile],
        head: &Head,
    ) -> Result<(), StoreError>;
}

/// A signed head of the journal's tree, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// How many leaves.
    pub size: u64,
    /// The signed note.
    pub note: String,
}

/// A tile of the journal's tree, to be written whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedTile {
    /// The tile's level.
    pub level: u32,
    /// The tile's place in its level.
    pub index: u64,
    /// Its hashes.
    pub hashes: Vec<Hash>,
}
