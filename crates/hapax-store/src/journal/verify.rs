//! Verifying: every sealed entry is compared with the tree, and the tree with every signed head.

use std::collections::VecDeque;

use hapax_core::checkpoint::{Checkpoint, Verifier};
use hapax_core::journal::Entry;
use hapax_core::merkle::{self, Hash, TILE};

use crate::error::StoreError;
use crate::journal::Head;
use crate::txn::View;

/// The findings of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// How many entries are sealed.
    pub sealed: u64,
    /// How many of them have been exported and left the store: their hashes are still in the tree.
    pub archived: u64,
    /// How many wait to be sealed, and are not covered.
    pub pending: u64,
    /// How many signed heads were checked.
    pub heads: u64,
    /// The damage that was found; empty if there is none.
    pub damage: Vec<Damage>,
}

/// Something in the journal that is not as it was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// An entry differs from what was sealed, or stands in another's place.
    Altered {
        /// The entry's number.
        entry: u64,
        /// Its leaf.
        leaf: u64,
    },
    /// The entry of a leaf is not there, or cannot be read.
    Missing {
        /// The leaf.
        leaf: u64,
    },
    /// The entries are as sealed, but this tile of the tree is not.
    Tile {
        /// The level.
        level: u32,
        /// The place in the level.
        index: u64,
    },
    /// A signed head does not verify, or is not a head of these entries.
    Head {
        /// The size it claims.
        size: u64,
        /// Why it is not believed.
        why: String,
    },
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Altered { entry, leaf } => write!(f, "entry {entry} (leaf {leaf}) was altered"),
            Self::Missing { leaf } => {
                write!(f, "the entry of leaf {leaf} was removed or cannot be read")
            }
            Self::Tile { level, index } => {
                write!(f, "tile {level}/{index} of the tree was altered")
            }
            Self::Head { size, why } => {
                write!(f, "the signed head of size {size} is not believed: {why}")
            }
        }
    }
}

/// How much damage is listed before the search ends.
const MOST_DAMAGE: usize = 100;

/// Compares every sealed entry with the tree, and the tree with every signed head.
/// Calls `progress` with the number of entries read so far, and the number of all.
pub fn verify(
    view: &mut dyn View,
    verifier: &Verifier,
    mut progress: impl FnMut(u64, u64),
) -> Result<Verified, StoreError> {
    let mut found =
        Verified { sealed: view.newest_head()?.map_or(0, |head| head.size), ..Verified::default() };
    let archived = view.archived()?;
    let mut tree = Frontier::default();
    let mut heads = Heads::default();
    while tree.size < found.sealed && found.damage.len() < MOST_DAMAGE {
        let (first, index) = (tree.size, tree.size / TILE);
        let sealed = view.tile(0, index)?;
        let count = TILE.min(found.sealed - first);
        for (leaf, entry) in (first..).zip(view.leaf_entries(first, count)?) {
            let sealed = sealed.get((leaf - first) as usize);
            let left = entry.is_none() && archived.iter().any(|leaves| leaves.contains(&leaf));
            let hash = match (left, sealed) {
                (true, Some(hash)) => {
                    found.archived += 1;
                    *hash
                }
                _ => check_leaf(entry, leaf, sealed, &mut found.damage),
            };
            tree.push(hash);
            while let Some(head) = heads.at(view, tree.size)? {
                found.heads += 1;
                check_head(&head, verifier, &tree, &mut found.damage);
            }
        }
        progress(tree.size, found.sealed);
    }
    blame_tiles(view, &mut found)?;
    found.pending = view.pending()?;
    Ok(found)
}

/// The hash that this leaf has in the tree that the entries make. Notes damage where the sealed
/// hash differs. An entry that cannot be read counts as missing, and the search goes on after it.
fn check_leaf(
    entry: Option<Entry>,
    leaf: u64,
    sealed: Option<&Hash>,
    damage: &mut Vec<Damage>,
) -> Hash {
    match entry {
        None => {
            damage.push(Damage::Missing { leaf });
            sealed.copied().unwrap_or_default()
        }
        Some(entry) => {
            let hash = entry.leaf();
            if sealed != Some(&hash) {
                damage.push(Damage::Altered { entry: entry.id, leaf });
            }
            hash
        }
    }
}

fn check_head(head: &Head, verifier: &Verifier, tree: &Frontier, damage: &mut Vec<Damage>) {
    let why = match verifier.verify(&head.note) {
        Err(error) => error.to_string(),
        Ok(Checkpoint { size, .. }) if size != head.size => "its size was altered".into(),
        Ok(Checkpoint { root, .. }) if root != tree.root() => {
            "its root is not the root of the entries".into()
        }
        Ok(_) => return,
    };
    damage.push(Damage::Head { size: head.size, why });
}

/// When the newest head signs the root of the entries as they are, the entries are right and
/// a leaf tile that disagrees is wrong.
fn blame_tiles(view: &mut dyn View, found: &mut Verified) -> Result<(), StoreError> {
    let heads_hold =
        !found.damage.iter().any(|d| matches!(d, Damage::Head { .. } | Damage::Missing { .. }));
    if heads_hold && found.heads > 0 && found.damage.len() < MOST_DAMAGE {
        for damage in &mut found.damage {
            if let Damage::Altered { leaf, .. } = *damage {
                *damage = Damage::Tile { level: 0, index: leaf / TILE };
            }
        }
        found.damage.dedup();
        check_upper_tiles(view, found)?;
    }
    Ok(())
}

fn check_upper_tiles(view: &mut dyn View, found: &mut Verified) -> Result<(), StoreError> {
    let (mut level, mut count) = (0, found.sealed / TILE);
    while count > 0 {
        for index in 0..count.div_ceil(TILE) {
            let upper = view.tile(level + 1, index)?;
            let children = index * TILE..count.min((index + 1) * TILE);
            let mut intact = true;
            for child in children {
                let root = merkle::tile_root(&view.tile(level, child)?);
                intact &= root.is_some() && root.as_ref() == upper.get((child % TILE) as usize);
            }
            if !intact {
                found.damage.push(Damage::Tile { level: level + 1, index });
            }
        }
        (level, count) = (level + 1, count / TILE);
    }
    Ok(())
}

/// The roots of the complete subtrees of a tree that only grows.
#[derive(Default)]
struct Frontier {
    size: u64,
    roots: Vec<Hash>,
}

impl Frontier {
    fn push(&mut self, leaf: Hash) {
        let mut hash = leaf;
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.roots.pop() {
                hash = merkle::node_hash(&left, &hash);
            }
        }
        self.roots.push(hash);
        self.size += 1;
    }

    fn root(&self) -> Hash {
        let mut roots = self.roots.iter().rev();
        let last = roots.next().copied().unwrap_or_else(merkle::empty_root);
        roots.fold(last, |right, left| merkle::node_hash(left, &right))
    }
}

/// Signed heads, read ahead in order.
#[derive(Default)]
struct Heads {
    ahead: VecDeque<Head>,
    read_to: u64,
    done: bool,
}

impl Heads {
    fn at(&mut self, view: &mut dyn View, size: u64) -> Result<Option<Head>, StoreError> {
        if self.ahead.is_empty() && !self.done {
            self.ahead = view.heads(self.read_to, 256)?.into();
            match self.ahead.back() {
                Some(head) => self.read_to = head.size,
                None => self.done = true,
            }
        }
        Ok(match self.ahead.front() {
            Some(head) if head.size <= size => self.ahead.pop_front(),
            _ => None,
        })
    }
}
