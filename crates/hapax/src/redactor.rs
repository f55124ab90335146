//! How texts about an effect are redacted before the ledger keeps them.

use hapax_core::effect::Finding;
use hapax_core::outcome::Outcome;
use hapax_store::Step;

/// Rewords the texts that the ledger keeps. See
/// [`EffectBuilder::redactor`](crate::EffectBuilder::redactor).
pub trait Redactor: Send + Sync {
    /// The reason of a failure, redacted.
    fn reason(&self, reason: &str) -> String;

    /// An outcome from a reconciler or a person, redacted.
    fn outcome(&self, outcome: &Outcome) -> Outcome;

    /// Whether these bytes may be kept as they are: redacted, they would be of no use.
    fn keeps(&self, bytes: &[u8]) -> bool;

    /// The same for a rollback step.
    fn keeps_step(&self, step: &Step) -> bool {
        self.keeps(step.name.as_bytes()) && self.keeps(&step.payload)
    }
}

/// A reconciler's finding, redacted.
pub(crate) fn redact_finding(finding: Finding, redactor: &dyn Redactor) -> Finding {
    match finding {
        Finding::Happened(outcome) => Finding::Happened(redactor.outcome(&outcome)),
        Finding::CannotTell(why) => Finding::CannotTell(redactor.reason(&why)),
        Finding::NotFound => Finding::NotFound,
    }
}
