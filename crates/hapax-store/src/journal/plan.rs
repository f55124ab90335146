//! Plans the next seal: which entries become leaves, and the tiles and the head they lead to.

use hapax_core::checkpoint::Signer;
use hapax_core::merkle::{self, Hash, TILE, Tiles};

use crate::command::Seal;
use crate::error::StoreError;
use crate::journal::SealedTile;
use crate::txn::View;

/// Plans the next seal: hashes at most `limit` unsealed entries. `None` if every entry is sealed.
pub fn plan_seal(
    view: &mut dyn View,
    signer: &Signer,
    limit: usize,
) -> Result<Option<Seal>, StoreError> {
    let from = view.newest_head()?.map_or(0, |head| head.size);
    let entries = view.unsealed(limit)?;
    if entries.is_empty() {
        return Ok(None);
    }
    let mut growth = Growth { view, changed: Vec::new() };
    for (leaf, entry) in (from..).zip(&entries) {
        growth.push(0, leaf, entry.leaf())?;
    }
    let size = from + entries.len() as u64;
    let root = merkle::range_hash(&mut growth, 0, size)?
        .ok_or_else(|| StoreError::Corrupt("a tile of the journal's tree is too short".into()))?;
    let tiles = growth.changed;
    let leaves = entries.iter().map(|entry| entry.id).collect();
    Ok(Some(Seal { from, leaves, tiles, note: signer.sign(size, root) }))
}

/// The tiles of a tree while leaves are added.
struct Growth<'a> {
    view: &'a mut dyn View,
    changed: Vec<SealedTile>,
}

impl Growth<'_> {
    fn push(&mut self, level: u32, position: u64, hash: Hash) -> Result<(), StoreError> {
        let (index, within) = (position / TILE, position % TILE);
        let newest = self.changed.iter().rposition(|tile| tile.level == level);
        let at = match newest.filter(|at| self.changed[*at].index == index) {
            Some(at) => at,
            None => {
                let hashes = if within == 0 { Vec::new() } else { self.view.tile(level, index)? };
                self.changed.push(SealedTile { level, index, hashes });
                self.changed.len() - 1
            }
        };
        let tile = &mut self.changed[at];
        tile.hashes.truncate(within as usize);
        tile.hashes.push(hash);
        match merkle::tile_root(&tile.hashes) {
            Some(root) => self.push(level + 1, index, root),
            None => Ok(()),
        }
    }
}

impl Tiles for Growth<'_> {
    type Error = StoreError;

    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, StoreError> {
        let changed = self.changed.iter().find(|tile| (tile.level, tile.index) == (level, index));
        match changed {
            Some(tile) => Ok(tile.hashes.clone()),
            None => self.view.tile(level, index),
        }
    }
}
