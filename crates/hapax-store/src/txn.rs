//! The rows a backend loads and writes. Nouns only; nothing here decides.

use std::ops::Range;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Effect, StateName};
use hapax_core::epoch::{Bound, Domain};
use hapax_core::journal::Entry;
use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::lock::{Lock, LockKey};
use hapax_core::merkle::Hash;
use hapax_core::name::{Name, Namespace};
use hapax_core::time::{LeaseInstant, Now};
use hapax_core::token::{Token, TokenId};

use crate::error::StoreError;
use crate::outbox::{OutboxTxn, OutboxView};
use crate::part::{PartTxn, PartView};
use crate::result_index::{ShelfTxn, ShelfView};

/// How to undo one step of an effect, registered before the step is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The handler that undoes it.
    pub name: String,
    /// The handler's input.
    pub payload: Vec<u8>,
}

/// Which effects to list. Newest first.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only of this namespace.
    pub namespace: Option<Namespace>,
    /// Only in these states; any if empty.
    pub states: Vec<StateName>,
    /// Only those with this text in their label.
    pub label: Option<String>,
    /// Only those whose newest attempt was granted before this one.
    pub before: Option<Fence>,
    /// At most this many.
    pub limit: usize,
}

/// An effect and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: Name,
    /// The record.
    pub effect: Effect,
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

/// One consistent view of the ledger.
pub trait View: OutboxView + PartView + ShelfView {
    /// The store's clocks. A command sees one reading of them.
    fn now(&mut self) -> Now;

    /// These effects, in this order.
    fn effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, StoreError>;

    /// The effects that a filter selects. For a large outcome a store may return only the digest
    /// and the size.
    fn list(&mut self, filter: &Filter) -> Result<Vec<Found>, StoreError>;

    /// How many effects there are in each state.
    fn census(&mut self) -> Result<Vec<(StateName, u64)>, StoreError>;

    /// A lease.
    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError>;

    /// All leases that are not dead.
    fn leases(&mut self) -> Result<Vec<Lease>, StoreError>;

    /// The store's own evidence that a lease's holder died. `false` when it has none.
    fn is_gone(&mut self, lease: &Lease) -> bool;

    /// The store's pulse, as it was last beaten.
    fn pulse(&mut self) -> Result<Pulse, StoreError>;

    /// The lock of this key, if it is held.
    fn lock(&mut self, namespace: &Namespace, key: LockKey) -> Result<Option<Lock>, StoreError>;

    /// The steps an attempt registered, in the order of their registration.
    fn steps(&mut self, name: &Name, attempt: AttemptId) -> Result<Vec<Step>, StoreError>;

    /// The epoch that a domain is in; 0 before its first transition.
    fn epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, StoreError>;

    /// All domains of a namespace that have left epoch 0, with their epochs, by name.
    fn epochs(&mut self, namespace: &Namespace) -> Result<Vec<Bound>, StoreError>;

    /// The newest notice: a count of the changes that every node must act upon.
    fn notice(&mut self) -> Result<u64, StoreError>;

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

    /// All tokens, oldest first.
    fn tokens(&mut self) -> Result<Vec<Token>, StoreError>;
}

/// A transaction: a view that can be written to. The writes of one command are kept or undone as a
/// whole.
pub trait Txn: View + OutboxTxn + PartTxn + ShelfTxn {
    /// Writes an effect, new or not.
    fn put_effect(&mut self, name: &Name, effect: &Effect) -> Result<(), StoreError>;

    /// Writes the first effect of this name. The number of its grant is that of the next entry.
    /// `None` if there is an effect already, or if the store wants it to be loaded first.
    fn put_first(&mut self, name: &Name, effect: &Effect) -> Result<Option<Fence>, StoreError> {
        let _ = (name, effect);
        Ok(None)
    }

    /// Removes expired effects, at most this many, and dead leases that no running,
    /// non-transactional effect depends on.
    fn sweep(&mut self, now: Now, limit: usize) -> Result<usize, StoreError>;

    /// Running, non-transactional effects whose lease is dead or missing, or whose lease or own
    /// deadline is up by `at`; at most this many, some perhaps twice.
    fn overdue(&mut self, at: LeaseInstant, limit: usize) -> Result<Vec<Name>, StoreError>;

    /// Writes a lease, new or not.
    fn put_lease(&mut self, lease: &Lease) -> Result<(), StoreError>;

    /// Ends a lease: marks it dead, and removes it once no running, non-transactional effect
    /// depends on it.
    fn drop_lease(&mut self, id: LeaseId) -> Result<(), StoreError>;

    /// Writes the store's pulse.
    fn put_pulse(&mut self, pulse: &Pulse) -> Result<(), StoreError>;

    /// Writes a lock that was just taken.
    fn put_lock(&mut self, namespace: &Namespace, lock: &Lock) -> Result<(), StoreError>;

    /// Releases a lock, if this attempt holds it.
    fn drop_lock(
        &mut self,
        namespace: &Namespace,
        key: LockKey,
        attempt: AttemptId,
    ) -> Result<(), StoreError>;

    /// Moves a domain to this epoch.
    fn put_epoch(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<(), StoreError>;

    /// Effects that are bound to this epoch and are running, unknown or indeterminate.
    fn bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, StoreError>;

    /// Adds a step to those an attempt registered.
    fn push_step(&mut self, name: &Name, attempt: AttemptId, step: &Step)
    -> Result<(), StoreError>;

    /// Raises the notice by one.
    fn raise_notice(&mut self) -> Result<u64, StoreError>;

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

    /// Writes a new token.
    fn put_token(&mut self, token: &Token) -> Result<(), StoreError>;

    /// Removes a token. Returns whether there was one.
    fn drop_token(&mut self, id: TokenId) -> Result<bool, StoreError>;
}
