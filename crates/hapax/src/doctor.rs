//! The doctor's examination of a ledger, and its findings.

use hapax_core::effect::StateName;
use hapax_core::journal::{Entry, EntryKind};
use hapax_sqlite::FileProblem;
use hapax_store::{EffectRecord, Filter, StoreError};

/// The findings of [`Maintenance::doctor`](crate::Maintenance::doctor).
#[derive(Debug, Clone, Default)]
pub struct Doctor {
    /// How many effects there are in each state.
    pub census: Vec<(StateName, u64)>,
    /// How many processes hold a lease.
    pub leases: usize,
    /// How many entries the journal has.
    pub entries: u64,
    /// How many of them are sealed.
    pub sealed: u64,
    /// The problems, worst first.
    pub findings: Vec<DoctorFinding>,
}

/// A problem that needs attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorFinding {
    /// How bad it is.
    pub severity: Severity,
    /// The problem.
    pub what: String,
    /// The next step.
    pub next: String,
}

impl From<FileProblem> for DoctorFinding {
    fn from(problem: FileProblem) -> Self {
        match problem {
            FileProblem::Missing(object) => Self {
                severity: Severity::Error,
                what: format!("the {object} is missing"),
                next: "copy the file; then make it again as `hapax_sqlite::SCHEMA` has it".into(),
            },
            FileProblem::SecondRow { key, effect } => Self {
                severity: Severity::Error,
                what: format!(
                    "{key} has a second row, number {effect}, which is not found by its key"
                ),
                next: "compare both in the history of the key, then: hapax doctor --repair".into(),
            },
            FileProblem::Bloated(share) => Self {
                severity: Severity::Warning,
                what: format!("{share} of 100 pages of the file are empty"),
                next: "while no process writes: VACUUM".into(),
            },
        }
    }
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// An operator must act: something is stuck or wrong.
    Error,
    /// An operator should look.
    Warning,
}

#[cfg(feature = "postgres")]
impl Doctor {
    pub(crate) fn with(mut self, problems: Vec<hapax_postgres::DatabaseProblem>) -> Self {
        self.findings.extend(problems.into_iter().map(|problem| DoctorFinding {
            severity: if problem.severe { Severity::Error } else { Severity::Warning },
            what: problem.what,
            next: problem.next,
        }));
        self.findings.sort_by_key(|finding| finding.severity);
        self
    }
}

/// How many stuck effects are named one by one.
const NAMED: usize = 20;

pub(crate) fn examine(view: &mut dyn hapax_store::View) -> Result<Doctor, StoreError> {
    let sealed = view.newest_head()?.map_or(0, |head| head.size);
    let mut doctor = Doctor {
        census: view.census()?,
        leases: view.leases()?.len(),
        entries: sealed + view.pending()?,
        sealed,
        findings: Vec::new(),
    };
    let states = StateName::NEEDING_ATTENTION.to_vec();
    for found in view.list(&Filter { states, limit: NAMED, ..Filter::default() })? {
        doctor.findings.push(stuck_effect(&found));
    }
    for entry in recent_contradictions(view)? {
        doctor.findings.push(DoctorFinding {
            severity: Severity::Error,
            what: format!(
                "{}: a stale attempt, {}, reported success (entry {})",
                entry.key, entry.attempt, entry.id
            ),
            next: "compare what both attempts did at the target".into(),
        });
    }
    let now = view.now();
    for lease in view.leases()? {
        if view.is_gone(&lease) || lease.until.reached(now.lease) {
            doctor.findings.push(DoctorFinding {
                severity: Severity::Warning,
                what: format!("{} ({}) is dead or silent", lease.id, lease.holder),
                next: "nothing, if it was stopped; what it left is taken over when asked for"
                    .into(),
            });
        }
    }
    if !now.wall_trusted {
        doctor.findings.push(DoctorFinding {
            severity: Severity::Error,
            what: "the wall clock ran ahead of the machine's uptime; nothing expires".into(),
            next: "set the clock right; expiry resumes by itself".into(),
        });
    }
    doctor.findings.sort_by_key(|finding| finding.severity);
    Ok(doctor)
}

fn stuck_effect(found: &EffectRecord) -> DoctorFinding {
    let EffectRecord { name, effect } = found;
    let label = effect.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
    let state = effect.state.name();
    let held = effect.lock.map(|lock| format!("; it holds {lock}")).unwrap_or_default();
    DoctorFinding {
        severity: Severity::Error,
        what: format!(
            "{}{label} is {state}: {}{held}",
            name.key,
            effect.state.reason().unwrap_or_default()
        ),
        next: match state {
            StateName::Unknown => {
                "run it again with its reconciler, or decide: hapax effects resolve".into()
            }
            StateName::Partial => {
                "run it again with its rollback, or decide: hapax effects resolve".into()
            }
            _ => "find out whether it happened, then: hapax effects resolve".into(),
        },
    }
}

/// How far back contradictions are looked for.
const RECENT: u64 = 10_000;

fn recent_contradictions(view: &mut dyn hapax_store::View) -> Result<Vec<Entry>, StoreError> {
    let after = view.last_entry()?.saturating_sub(RECENT);
    let entries = view.entries(None, after, RECENT as usize)?;
    Ok(entries
        .into_iter()
        .filter(|entry| entry.event == EntryKind::Contradicted)
        .take(NAMED)
        .collect())
}
