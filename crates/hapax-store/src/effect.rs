//! The life of effects at the seam: load, ask core, write.
//!
//! ```text
//!  claim ─▶ settle          expire: a holder lapsed          judge: a reconciler or a person
//! ```
//!
//! Nothing is written before everything has been judged, and every change is written with its
//! journal entry.

use hapax_core::attempt::Fence;
use hapax_core::effect::{Effect, StateName};
use hapax_core::lease::LeaseId;
use hapax_core::name::{Name, Namespace};
use hapax_core::time::{LeaseInstant, Now};

use crate::error::StoreError;

mod claim;
mod expire;
mod holder;
mod judge;
mod record;
mod settle;

pub use claim::{DependsOn, FirstGrant, claim, peek};
pub(crate) use expire::{expire, sweep};
pub use holder::{EffectStatus, HolderStatus, statuses, stuck, unheld};
pub(crate) use judge::{reconcile, reset, resolve, roll_back};
pub(crate) use record::{EntryNote, LedgerEffect, find, record_ledger_effect, write};
pub(crate) use settle::settle;
pub use settle::{plain_success, settle_in};

/// The reads of effects.
pub trait EffectView {
    /// These effects, in this order.
    fn effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, StoreError>;

    /// The effects that a filter selects. For a large outcome a store may return only the digest
    /// and the size.
    fn list(&mut self, filter: &Filter) -> Result<Vec<EffectRecord>, StoreError>;

    /// How many effects there are in each state.
    fn census(&mut self) -> Result<Vec<(StateName, u64)>, StoreError>;
}

/// The writes of effects.
pub trait EffectTxn {
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
    /// Only running ones whose holder has no lease in force, or is past its deadline.
    pub unheld: Option<Unheld>,
    /// Only those whose newest attempt was granted before this one.
    pub before: Option<Fence>,
    /// At most this many.
    pub limit: usize,
}

/// Selects running effects that depend on none of these leases, or whose own deadline is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unheld {
    /// The leases in force.
    pub in_force: Vec<LeaseId>,
    /// The present time.
    pub at: LeaseInstant,
}

/// An effect and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRecord {
    /// Its name.
    pub name: Name,
    /// The record.
    pub effect: Effect,
}
