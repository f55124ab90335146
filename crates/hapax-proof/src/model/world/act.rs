//! The steps that can be taken next.

use hapax_core::lease::LeaseId;

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A worker asks for an effect, with an attempt of its own or with the one that follows from
    /// the client's key.
    Ask(usize, usize, bool),
    /// A claim reaches the ledger; the reply arrives or is lost.
    Claim(usize, bool),
    /// A caller gives up before it gets its grant.
    Cancel(usize),
    /// The worker sends the effect to the target.
    Depart(usize),
    /// A message reaches the target, also if its worker is gone.
    Arrive(usize),
    /// The worker reports; the reply arrives or is lost.
    Report(usize, bool),
    /// The worker reports an ambiguous outcome.
    Doubt(usize),
    /// A worker's own clock says that its lease may be about to lapse: it was stopped, or its
    /// connection to the ledger is frozen.
    Late(usize),
    /// A worker that is late stops its work.
    Stop(usize),
    /// A renewal reaches the ledger.
    Renew(usize),
    /// A process dies.
    Crash(usize),
    /// The time of a lease runs out: of a process that lives, or of one that is dead.
    Lapse(LeaseId),
    /// The expiry pass.
    Expire,
    /// A reconciler looks at the target for a key.
    Look(usize),
    /// A reconciler reports its finding to the ledger.
    Judge(usize),
    /// The settling time of an unknown outcome runs out.
    Settle(usize),
    /// A copy of the ledger is made.
    Backup,
    /// The copy is restored over the ledger while processes use it.
    Restore,
}
