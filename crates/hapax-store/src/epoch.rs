//! Epochs at the seam: the epoch of each domain, and the effects that its end voids.

use std::collections::BTreeSet;

use hapax_core::attempt::Fence;
use hapax_core::effect::{self as core, State};
use hapax_core::epoch::{self, Bound, Domain, Transition};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::{Outcome, bounded};

use crate::command::Advance;
use crate::effect::{self, EntryNote, LedgerEffect};
use crate::error::StoreError;
use crate::limits::{Limits, check_length};
use crate::txn::Txn;

/// The reads of epochs.
pub trait EpochView {
    /// The epoch that a domain is in; 0 before its first transition.
    fn epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, StoreError>;

    /// All domains of a namespace that have left epoch 0, with their epochs, by name.
    fn epochs(&mut self, namespace: &Namespace) -> Result<Vec<Bound>, StoreError>;
}

/// The writes of epochs.
pub trait EpochTxn {
    /// Moves a domain to this epoch.
    fn put_epoch(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<(), StoreError>;

    /// Effects that are bound to this epoch and are running, unknown or indeterminate.
    fn bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, StoreError>;
}

/// Moves a domain to a new epoch. Writes to every effect of the old epoch that could still report a
/// success, so that a report either comes before the transition or is voided by it.
pub(crate) fn advance(txn: &mut dyn Txn, command: &Advance) -> Result<Transition, StoreError> {
    let Advance { ref namespace, ref domain, seen, to, ref actor, ref reason } = *command;
    check_length("the actor", actor)?;
    let invalid = |what: String| Err(StoreError::Invalid(what));
    if to <= seen {
        return invalid(format!("epoch {to} is not after {seen}; epochs only grow"));
    }
    if to > epoch::MAX {
        return invalid(format!("the last epoch is {}", epoch::MAX));
    }
    let before = txn.epoch(namespace, domain)?;
    if before > seen {
        return Ok(Transition { epoch: before, moved: false, voided: 0 });
    }
    if before < seen {
        return invalid(format!("{domain} is in epoch {before}; epoch {seen} has not begun"));
    }
    if to - before > epoch::LONGEST_STEP {
        let most = epoch::LONGEST_STEP;
        return invalid(format!("epoch {to} is more than {most} further than {before}"));
    }
    // Only a domain that is still in epoch 0 is not stored yet.
    if before == 0 && txn.epochs(namespace)?.len() >= Limits::DOMAINS {
        return invalid(format!("there are {} domains", Limits::DOMAINS));
    }
    let (over, next) = (
        Bound { domain: domain.clone(), epoch: before },
        Bound { domain: domain.clone(), epoch: to },
    );
    let (now, why) = (txn.now(), bounded(format!("{over} is over: {reason}")));
    let names: BTreeSet<_> = txn.bound(namespace, &over)?.into_iter().collect();
    let mut voided = 0;
    for name in names {
        let Some(effect) = effect::find(txn, &name)? else { continue };
        let Some(change) = core::void(now, &effect, &why) else { continue };
        effect::write(txn, &name, &change, EntryNote::by(actor, &why))?;
        voided += usize::from(!matches!(effect.state, State::Indeterminate { .. }));
    }
    let key = domain.transition(to);
    let fence = Fence(txn.next_entry()?);
    let done = LedgerEffect {
        name: Name { namespace: namespace.clone(), key },
        fingerprint: Fingerprint::of(reason.as_bytes()),
        label: next.to_string(),
        outcome: Outcome::from(reason.as_str()),
        event: None,
        note: EntryNote::by(actor, reason),
    };
    effect::record_ledger_effect(txn, now, fence, done)?;
    txn.put_epoch(namespace, &next)?;
    Ok(Transition { epoch: to, moved: true, voided })
}
