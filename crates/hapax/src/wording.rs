//! How what is said of an effect is written down, where that is not word by word.

use hapax_core::effect::Finding;
use hapax_core::outcome::Outcome;
use hapax_store::Step;

/// Words that the ledger keeps in place of those it was given. See
/// [`EffectBuilder::worded`](crate::EffectBuilder::worded).
pub trait Wording: Send + Sync {
    /// Why something failed.
    fn reason(&self, reason: &str) -> String;

    /// What came of it, as a reconciler or a person knows it.
    fn outcome(&self, outcome: &Outcome) -> Outcome;

    /// Whether this may be kept as it is, for nobody could use it in other words.
    fn keeps(&self, bytes: &[u8]) -> bool;

    /// The same of a step that undoes something.
    fn keeps_step(&self, step: &Step) -> bool {
        self.keeps(step.name.as_bytes()) && self.keeps(&step.payload)
    }
}

/// What a reconciler found, as it is written down.
pub(crate) fn found(finding: Finding, wording: &dyn Wording) -> Finding {
    match finding {
        Finding::Happened(outcome) => Finding::Happened(wording.outcome(&outcome)),
        Finding::CannotTell(why) => Finding::CannotTell(wording.reason(&why)),
        Finding::NotFound => Finding::NotFound,
    }
}
