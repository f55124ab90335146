//! The tree over the journal: RFC 6962 hashing, kept as tiles.
//!
//! A tile holds up to 256 hashes of one level; level 0 is the leaves, and each full tile has
//! one hash at the level above. Roots and proofs read a handful of tiles, never the journal.

use sha2::{Digest as _, Sha256};

/// A node of the tree.
pub type Hash = [u8; 32];

/// How many hashes a full tile holds.
pub const TILE: u64 = 256;
/// The tree levels that one tile level spans.
const TILE_HEIGHT: u32 = 8;

/// The hash of a leaf.
pub fn leaf_hash(entry: &[u8]) -> Hash {
    Sha256::new_with_prefix([0]).chain_update(entry).finalize().into()
}

/// The hash of an inner node.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new_with_prefix([1]).chain_update(left).chain_update(right).finalize().into()
}

/// The root of an empty tree.
pub fn empty_root() -> Hash {
    Sha256::digest(b"").into()
}

/// A source of tiles. A missing tile is empty, or an error of the source's own kind.
pub trait Tiles {
    /// Why a tile could not be read.
    type Error;
    /// The hashes of a tile, as many as there are.
    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, Self::Error>;
}

/// The largest power of two below `n`, for `n` > 1.
fn split(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}

/// The hash over leaves `start..end`, read from tiles. `None` if a tile is too short.
pub fn range_hash<T: Tiles>(tiles: &mut T, start: u64, end: u64) -> Result<Option<Hash>, T::Error> {
    let size = end - start;
    if size == 0 {
        return Ok(Some(empty_root()));
    }
    if size.is_power_of_two() && start.is_multiple_of(size) {
        return complete(tiles, start, size.trailing_zeros());
    }
    let middle = start + split(size);
    let left = range_hash(tiles, start, middle)?;
    let right = range_hash(tiles, middle, end)?;
    Ok(left.zip(right).map(|(left, right)| node_hash(&left, &right)))
}

/// The hash of the complete subtree of `2^height` leaves that begins at `start`.
fn complete<T: Tiles>(tiles: &mut T, start: u64, height: u32) -> Result<Option<Hash>, T::Error> {
    let level = height / TILE_HEIGHT;
    let first = start >> (level * TILE_HEIGHT);
    let tile = tiles.tile(level, first / TILE)?;
    let from = (first % TILE) as usize;
    let count = 1usize << (height % TILE_HEIGHT);
    Ok(tile.get(from..from + count).map(fold))
}

/// The root over a power of two of hashes.
fn fold(hashes: &[Hash]) -> Hash {
    match hashes {
        [one] => *one,
        many => {
            let (left, right) = many.split_at(many.len() / 2);
            node_hash(&fold(left), &fold(right))
        }
    }
}

/// The hash of a full tile at the level above; `None` if the tile is not full.
pub fn tile_root(tile: &[Hash]) -> Option<Hash> {
    (tile.len() as u64 == TILE).then(|| fold(tile))
}

/// The proof that leaf `index` is in the tree of `size` leaves.
pub fn inclusion_proof<T: Tiles>(
    tiles: &mut T,
    index: u64,
    size: u64,
) -> Result<Option<Vec<Hash>>, T::Error> {
    let mut proof = Vec::new();
    let (mut start, mut end) = (0, size);
    if index >= size {
        return Ok(None);
    }
    while end - start > 1 {
        let middle = start + split(end - start);
        let sibling = if index < middle {
            let sibling = range_hash(tiles, middle, end)?;
            end = middle;
            sibling
        } else {
            let sibling = range_hash(tiles, start, middle)?;
            start = middle;
            sibling
        };
        let Some(sibling) = sibling else { return Ok(None) };
        proof.push(sibling);
    }
    proof.reverse();
    Ok(Some(proof))
}

/// The root that an inclusion proof leads to, or `None` if it has the wrong shape.
pub fn root_from_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    let (mut hash, mut node, mut last) = (*leaf, index, size - 1);
    for sibling in proof {
        if last == 0 {
            return None;
        }
        if node % 2 == 1 || node == last {
            hash = node_hash(sibling, &hash);
            while node % 2 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

/// The proof that the tree of `old` leaves is the beginning of the tree of `new` leaves.
pub fn consistency_proof<T: Tiles>(
    tiles: &mut T,
    old: u64,
    new: u64,
) -> Result<Option<Vec<Hash>>, T::Error> {
    if old == 0 || old > new {
        return Ok((old <= new).then(Vec::new));
    }
    let mut proof = Vec::new();
    let (mut start, mut end) = (0, new);
    let mut whole = true;
    while end != old {
        let middle = start + split(end - start);
        let other = if old <= middle {
            let other = range_hash(tiles, middle, end)?;
            end = middle;
            other
        } else {
            let other = range_hash(tiles, start, middle)?;
            start = middle;
            whole = false;
            other
        };
        let Some(other) = other else { return Ok(None) };
        proof.push(other);
    }
    if !whole {
        let Some(base) = range_hash(tiles, start, end)? else { return Ok(None) };
        proof.push(base);
    }
    proof.reverse();
    Ok(Some(proof))
}

/// Whether a consistency proof connects the two roots.
pub fn consistent(old: u64, old_root: &Hash, new: u64, new_root: &Hash, proof: &[Hash]) -> bool {
    if old > new {
        return false;
    }
    if old == new {
        return proof.is_empty() && old_root == new_root;
    }
    if old == 0 {
        return proof.is_empty() && *old_root == empty_root();
    }
    let mut proof = proof.iter();
    let seed = if old.is_power_of_two() { Some(old_root) } else { proof.next() };
    let Some(seed) = seed else { return false };
    let (mut node, mut last) = (old - 1, new - 1);
    while node % 2 == 1 {
        node >>= 1;
        last >>= 1;
    }
    let (mut from_old, mut from_new) = (*seed, *seed);
    for hash in proof {
        if last == 0 {
            return false;
        }
        if node % 2 == 1 || node == last {
            from_old = node_hash(hash, &from_old);
            from_new = node_hash(hash, &from_new);
            while node % 2 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            from_new = node_hash(&from_new, hash);
        }
        node >>= 1;
        last >>= 1;
    }
    last == 0 && from_old == *old_root && from_new == *new_root
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    #[derive(Default)]
    struct Memory(BTreeMap<(u32, u64), Vec<Hash>>);

    impl Memory {
        fn with(leaves: u64) -> Self {
            let mut memory = Self::default();
            for i in 0..leaves {
                memory.push(0, i, leaf(i));
            }
            memory
        }

        fn push(&mut self, level: u32, position: u64, hash: Hash) {
            let tile = self.0.entry((level, position / TILE)).or_default();
            tile.push(hash);
            if let Some(root) = tile_root(tile) {
                self.push(level + 1, position / TILE, root);
            }
        }
    }

    impl Tiles for Memory {
        type Error = Infallible;
        fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, Infallible> {
            Ok(self.0.get(&(level, index)).cloned().unwrap_or_default())
        }
    }

    fn leaf(i: u64) -> Hash {
        leaf_hash(&i.to_be_bytes())
    }

    /// RFC 6962's definition, straight from the text.
    fn reference(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => empty_root(),
            [one] => *one,
            many => {
                let (left, right) = many.split_at(split(many.len() as u64) as usize);
                node_hash(&reference(left), &reference(right))
            }
        }
    }

    fn root(tiles: &mut Memory, size: u64) -> Hash {
        range_hash(tiles, 0, size).unwrap().unwrap()
    }

    const SIZES: [u64; 12] = [1, 2, 3, 7, 8, 13, 255, 256, 257, 511, 600, 1025];

    #[test]
    fn roots_follow_the_definition() {
        let mut tiles = Memory::with(1025);
        let leaves: Vec<_> = (0..1025).map(leaf).collect();
        for size in SIZES {
            assert_eq!(root(&mut tiles, size), reference(&leaves[..size as usize]));
        }
    }

    /// Proves K-13: an inclusion proof holds, and no altered one does.
    #[test]
    fn inclusion_proofs_verify_and_forged_ones_do_not() {
        let mut tiles = Memory::with(1025);
        for size in SIZES {
            let root = root(&mut tiles, size);
            for index in (0..size).step_by(1 + size as usize / 23) {
                let proof = inclusion_proof(&mut tiles, index, size).unwrap().unwrap();
                assert_eq!(root_from_inclusion(&leaf(index), index, size, &proof), Some(root));
                assert_ne!(root_from_inclusion(&leaf(index + 1), index, size, &proof), Some(root));
                for at in 0..proof.len() {
                    let mut forged = proof.clone();
                    forged[at][0] ^= 1;
                    assert_ne!(root_from_inclusion(&leaf(index), index, size, &forged), Some(root));
                }
                let longer = [proof.clone(), vec![[0; 32]]].concat();
                assert_ne!(root_from_inclusion(&leaf(index), index, size, &longer), Some(root));
            }
        }
        assert_eq!(inclusion_proof(&mut tiles, 5, 5).unwrap(), None);
    }

    /// Proves K-13: a tree is the beginning of a later one, or the proof fails.
    #[test]
    fn consistency_proofs_verify_and_forged_ones_do_not() {
        let mut tiles = Memory::with(1025);
        for (i, old) in SIZES.into_iter().enumerate() {
            for new in SIZES.into_iter().skip(i) {
                let (a, b) = (root(&mut tiles, old), root(&mut tiles, new));
                let proof = consistency_proof(&mut tiles, old, new).unwrap().unwrap();
                assert!(consistent(old, &a, new, &b, &proof), "{old} {new}");
                assert!(!consistent(old, &[9; 32], new, &b, &proof), "{old} {new}");
                for at in 0..proof.len() {
                    let mut forged = proof.clone();
                    forged[at][31] ^= 1;
                    assert!(!consistent(old, &a, new, &b, &forged), "{old} {new} {at}");
                }
            }
        }
    }
}
