//! The next step after a failure: another try, a repair, or a person.

use hapax::Backoff;

use crate::class::Class;

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NextStep {
    /// The same again, after a delay.
    Retry {
        /// The longest delay, in milliseconds; the actual delay is drawn at random below it.
        within_ms: u64,
    },
    /// A maintainer proposes a better script.
    Repair,
    /// It is escalated to a person.
    Escalate(EscalationCause),
}

/// The cause of an escalation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EscalationCause {
    /// Only a person can deal with a failure of this class.
    Class,
    /// It was tried often enough, or for long enough.
    Exhausted,
    /// No maintainer is set up.
    NoMaintainer,
}

/// How much may be spent before the escalation. Counted from the last time a person decided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailureBudget {
    /// How often it is tried again, and after how long.
    pub retries: Backoff,
    /// For how long it is tried again, in milliseconds.
    pub retry_ms: u64,
    /// How often a maintainer gets a request.
    pub repairs: u32,
    /// Within how long, in milliseconds.
    pub repair_ms: u64,
    /// The total cost of maintainers in that time, in thousandths of the unit that they report.
    pub repair_cost: u64,
}

impl Default for FailureBudget {
    fn default() -> Self {
        Self {
            retries: Backoff { base_ms: 1_000, cap_ms: 60_000, attempts: 5 },
            retry_ms: 60 * 60 * 1_000,
            repairs: 3,
            repair_ms: 24 * 60 * 60 * 1_000,
            repair_cost: 5_000,
        }
    }
}

/// The budget spent so far on an item, or on a run that failed outside of any item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetUsage {
    /// How often it failed, this time included.
    pub failures: u32,
    /// How long ago it failed first, in milliseconds.
    pub for_ms: u64,
    /// How often a maintainer got a request lately.
    pub repairs: u32,
    /// The cost of that, in thousandths.
    pub cost: u64,
}

/// Decides by the class of a failure and by the budget spent.
pub fn route(
    class: Class,
    spent: BudgetUsage,
    budget: &FailureBudget,
    maintained: bool,
) -> NextStep {
    match class {
        Class::Transient => match budget.retries.ceiling_ms(spent.failures) {
            Some(within_ms) if spent.for_ms < budget.retry_ms => NextStep::Retry { within_ms },
            _ => NextStep::Escalate(EscalationCause::Exhausted),
        },
        Class::Logic if !maintained => NextStep::Escalate(EscalationCause::NoMaintainer),
        Class::Logic if spent.repairs < budget.repairs && spent.cost < budget.repair_cost => {
            NextStep::Repair
        }
        Class::Logic => NextStep::Escalate(EscalationCause::Exhausted),
        Class::Permission | Class::Precondition | Class::Indeterminate => {
            NextStep::Escalate(EscalationCause::Class)
        }
    }
}

impl NextStep {
    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Repair => "repair",
            Self::Escalate(_) => "escalate",
        }
    }
}

impl std::fmt::Display for EscalationCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Class => "only a person can deal with that",
            Self::Exhausted => "the budget is spent",
            Self::NoMaintainer => "no maintainer is set up to repair the script",
        })
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    /// Proves I-10: the class decides, until the budget is spent; indeterminate is never repaired.
    #[test]
    fn the_class_of_a_failure_decides_the_next_step() {
        let budget = FailureBudget::default();
        let spents = [
            ("at first", BudgetUsage { failures: 1, ..BudgetUsage::default() }),
            ("the fifth time", BudgetUsage { failures: 5, ..BudgetUsage::default() }),
            ("too often", BudgetUsage { failures: 6, repairs: 3, ..BudgetUsage::default() }),
            (
                "for too long",
                BudgetUsage { failures: 1, for_ms: u64::MAX, ..BudgetUsage::default() },
            ),
            (
                "at too high a price",
                BudgetUsage { failures: 1, cost: 5_000, ..BudgetUsage::default() },
            ),
        ];
        let mut table = String::new();
        for class in Class::ALL {
            for (when, spent) in spents {
                let next = route(class, spent, &budget, true);
                table += &format!("{class:14} {when:20} {next:?}\n");
            }
            let alone = route(class, spents[0].1, &budget, false);
            table += &format!("{class:14} {:20} {alone:?}\n", "without maintainer");
        }
        expect![[r#"
            transient      at first             Retry { within_ms: 1000 }
            transient      the fifth time       Retry { within_ms: 16000 }
            transient      too often            Escalate(Exhausted)
            transient      for too long         Escalate(Exhausted)
            transient      at too high a price  Retry { within_ms: 1000 }
            transient      without maintainer   Retry { within_ms: 1000 }
            logic          at first             Repair
            logic          the fifth time       Repair
            logic          too often            Escalate(Exhausted)
            logic          for too long         Repair
            logic          at too high a price  Escalate(Exhausted)
            logic          without maintainer   Escalate(NoMaintainer)
            permission     at first             Escalate(Class)
            permission     the fifth time       Escalate(Class)
            permission     too often            Escalate(Class)
            permission     for too long         Escalate(Class)
            permission     at too high a price  Escalate(Class)
            permission     without maintainer   Escalate(Class)
            precondition   at first             Escalate(Class)
            precondition   the fifth time       Escalate(Class)
            precondition   too often            Escalate(Class)
            precondition   for too long         Escalate(Class)
            precondition   at too high a price  Escalate(Class)
            precondition   without maintainer   Escalate(Class)
            indeterminate  at first             Escalate(Class)
            indeterminate  the fifth time       Escalate(Class)
            indeterminate  too often            Escalate(Class)
            indeterminate  for too long         Escalate(Class)
            indeterminate  at too high a price  Escalate(Class)
            indeterminate  without maintainer   Escalate(Class)
        "#]]
        .assert_eq(&table);
    }
}
