//! The result index at the seam: by what cached results are found, and when they were last used.

use hapax_core::name::{Name, Namespace};
use hapax_core::result_index::{
    CacheAccess, CacheStats, Evict, IndexEntry, IndexedResult, ResultFilter,
};
use hapax_core::time::Now;

use crate::command;
use crate::error::StoreError;
use crate::limits::Limits;
use crate::txn::Txn;

/// The reads of the result index.
pub trait ResultIndexView {
    /// The results that clients requested, most recently used first.
    fn indexed_results(
        &mut self,
        namespace: &Namespace,
        filter: &ResultFilter,
    ) -> Result<Vec<IndexedResult>, StoreError>;

    /// Counts and size of the results.
    fn cache_stats(&mut self, namespace: &Namespace) -> Result<CacheStats, StoreError>;
}

/// The writes of the result index.
pub trait ResultIndexTxn {
    /// Writes the index entry of an effect's result, last used now.
    fn put_index_entry(
        &mut self,
        name: &Name,
        entry: &IndexEntry,
        bytes: u64,
        now: Now,
    ) -> Result<(), StoreError>;

    /// Records cache accesses. A hit, or a part that was used, counts as used now.
    fn record_accesses(&mut self, accesses: &[CacheAccess], now: Now) -> Result<(), StoreError>;

    /// Removes results and their effects, except those that are being made again.
    fn evict(
        &mut self,
        namespace: &Namespace,
        which: &Evict,
        limit: usize,
    ) -> Result<usize, StoreError>;
}

/// Records cache accesses.
pub(crate) fn record_accesses(
    txn: &mut dyn Txn,
    accesses: &[CacheAccess],
) -> Result<(), StoreError> {
    if accesses.len() > Limits::ACCESSES {
        let most = Limits::ACCESSES;
        return Err(StoreError::Invalid(format!("at most {most} are written down at once")));
    }
    let now = txn.now();
    txn.record_accesses(accesses, now)
}

/// Removes results. Nodes may still replay a result from their caches if it was evicted for want of
/// room. Every other removal raises a notice, so that they drop it.
pub(crate) fn evict(txn: &mut dyn Txn, command: &command::Evict) -> Result<usize, StoreError> {
    let command::Evict { namespace, which, limit } = command;
    let evicted = txn.evict(namespace, which, *limit)?;
    if evicted > 0 && !matches!(which, Evict::Oldest) {
        txn.raise_notice()?;
    }
    Ok(evicted)
}
