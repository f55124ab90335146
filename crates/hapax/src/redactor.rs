//! How texts about an effect are reworded before the ledger keeps them.

use hapax_core::effect::Finding;
use hapax_core::outcome::Outcome;
use hapax_store::Step;

/// Rewords the texts that the ledger keeps. See
/// [`EffectBuilder::worded`](crate::EffectBuilder::worded).
pub trait Redactor: Send + Sync {
    /// The reason of a failure, reworded.
    fn reason(&self, reason: &str) -> String;

    /// An outcome from a reconciler or a person, reworded.
    fn outcome(&self, outcome: &Outcome) -> Outcome;

    /// Whether these bytes may be kept as they are: reworded, they would be of no use.
    fn keeps(&self, bytes: &[u8]) -> bool;

    /// The same for a rollback step.
    fn keeps_step(&self, step: &Step) -> bool {
        self.keeps(step.name.as_bytes()) && self.keeps(&step.payload)
    }
}

/// A reconciler's finding, reworded.
pub(crate) fn found(finding: Finding, wording: &dyn Redactor) -> Finding {
    match finding {
        Finding::Happened(outcome) => Finding::Happened(wording.outcome(&outcome)),
        Finding::CannotTell(why) => Finding::CannotTell(wording.reason(&why)),
        Finding::NotFound => Finding::NotFound,
    }
}
