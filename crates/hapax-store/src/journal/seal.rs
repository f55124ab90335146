//! Sealing: planned entries become leaves of the tree, and a signed head says so.

use crate::command::Seal;
use crate::error::StoreError;
use crate::journal::Head;
use crate::txn::Txn;

/// Adds leaves to the tree, unless it has grown since the plan was made. Returns how many.
pub(crate) fn seal(txn: &mut dyn Txn, command: &Seal) -> Result<usize, StoreError> {
    let Seal { from, leaves, tiles, note } = command;
    if txn.newest_head()?.map_or(0, |head| head.size) != *from {
        return Ok(0);
    }
    let size = from + leaves.len() as u64;
    txn.put_head(leaves, tiles, &Head { size, note: note.clone() })?;
    Ok(leaves.len())
}
