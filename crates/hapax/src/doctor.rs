//! The doctor's examination of a ledger, and its findings.

use std::collections::BTreeSet;

use hapax_core::delivery::Buckets;
use hapax_core::effect::{Safety, StateName};
use hapax_core::journal::{Entry, EntryKind};
use hapax_core::lease::Liveness;
use hapax_core::name::Namespace;
use hapax_core::outbox::Status;
use hapax_sqlite::FileProblem;
use hapax_store::outbox::{RecordFilter, SinkStats};
use hapax_store::{EffectRecord, EffectStatus, Filter, StoreError, View};

/// The findings of [`Maintenance::doctor`](crate::Maintenance::doctor).
#[derive(Debug, Clone, Default)]
pub struct Doctor {
    /// How many effects there are in each state.
    pub census: Vec<(StateName, u64)>,
    /// How many leases are in force: those of living processes and clients.
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

impl Doctor {
    /// Adds findings, and keeps the worst first.
    pub(crate) fn add(&mut self, findings: impl Iterator<Item = DoctorFinding>) {
        self.findings.extend(findings);
        self.findings.sort_by_key(|finding| finding.severity);
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn with(mut self, problems: Vec<hapax_postgres::DatabaseProblem>) -> Self {
        self.add(problems.into_iter().map(|problem| DoctorFinding {
            severity: if problem.severe { Severity::Error } else { Severity::Warning },
            what: problem.what,
            next: problem.next,
        }));
        self
    }
}

/// How many stuck effects are named one by one.
pub(crate) const NAMED: usize = 20;

/// Examines the ledger. `namespaces` are all that it has; a finding names its own if there are several.
pub(crate) fn examine(view: &mut dyn View, namespaces: &[Namespace]) -> Result<Doctor, StoreError> {
    let sealed = view.newest_head()?.map_or(0, |head| head.size);
    let mut doctor = Doctor {
        census: view.census()?,
        leases: 0,
        entries: sealed + view.pending()?,
        sealed,
        findings: Vec::new(),
    };
    let states = StateName::NEEDING_ATTENTION.to_vec();
    for found in view.list(&Filter { states, limit: NAMED, ..Filter::default() })? {
        doctor.findings.push(stuck_effect(&found, namespaces));
    }
    for entry in recent_contradictions(view)? {
        let namespace = in_namespace(&entry.namespace, namespaces);
        doctor.findings.push(DoctorFinding {
            severity: Severity::Error,
            what: format!(
                "{}{namespace}: a stale attempt, {}, reported success (entry {})",
                entry.key, entry.attempt, entry.id
            ),
            next: "compare what both attempts did at the target".into(),
        });
    }
    let now = view.now();
    for lease in view.leases()? {
        let gone = view.is_gone(&lease);
        match lease.liveness(now, gone) {
            Liveness::Alive => doctor.leases += 1,
            liveness => doctor.findings.push(DoctorFinding {
                severity: Severity::Warning,
                what: format!("{} ({}) is {liveness}", lease.id, lease.holder),
                next: "nothing, if it was stopped; what it left is taken over when asked for"
                    .into(),
            }),
        }
    }
    for stats in view.outbox_stats()? {
        if stats.failed > 0 {
            doctor.findings.push(dead_letters(view, &stats, namespaces)?);
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

/// Names a namespace if the ledger has several.
fn in_namespace(namespace: &Namespace, namespaces: &[Namespace]) -> String {
    match namespaces {
        [] | [_] => String::new(),
        _ => format!(" in namespace {namespace}"),
    }
}

fn stuck_effect(found: &EffectRecord, namespaces: &[Namespace]) -> DoctorFinding {
    let EffectRecord { name, effect } = found;
    let label = effect.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
    let namespace = in_namespace(&name.namespace, namespaces);
    let state = effect.state.name();
    let held = effect.lock.map(|lock| format!("; it holds {lock}")).unwrap_or_default();
    DoctorFinding {
        severity: Severity::Error,
        what: format!(
            "{}{label}{namespace} is {state}: {}{held}",
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

/// A running effect whose holder is silent or dead.
pub(crate) fn unheld_effect(status: &EffectStatus, namespaces: &[Namespace]) -> DoctorFinding {
    let EffectStatus { name, effect, holder } = status;
    let label = effect.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
    let namespace = in_namespace(&name.namespace, namespaces);
    let liveness = status.liveness().unwrap_or(Liveness::Alive);
    let holder = holder.as_ref().and_then(|holder| holder.name.as_ref());
    let holder = holder.map(|holder| format!(" ({holder})")).unwrap_or_default();
    let then = match effect.safety {
        Safety::Transactional => "the next claim performs it again",
        Safety::Reconcilable(_) => {
            "the next claim, or a running server, makes it unknown, and its reconciler looks it up"
        }
        Safety::Opaque => {
            "the next claim, or a running server, makes it indeterminate, and an operator decides"
        }
    };
    DoctorFinding {
        severity: Severity::Warning,
        what: format!(
            "{}{label}{namespace} is running, and its holder{holder} is {liveness}",
            name.key
        ),
        next: match liveness {
            Liveness::Dead => then.into(),
            _ => format!("wait whether the holder comes back; otherwise {then}"),
        },
    }
}

/// The failed deliveries of a sink, and the ordering keys that wait behind them.
fn dead_letters(
    view: &mut dyn View,
    stats: &SinkStats,
    namespaces: &[Namespace],
) -> Result<DoctorFinding, StoreError> {
    let (sink, failed) = (&stats.sink.name, stats.failed);
    let parked = view.parked(sink, &Buckets::all())?.len();
    let mut what = match failed {
        1 => format!("1 delivery to sink {sink} is a dead letter"),
        _ => format!("{failed} deliveries to sink {sink} are dead letters"),
    };
    if namespaces.len() > 1 {
        let (status, sink) = (Some(Status::Failed), Some(sink.clone()));
        let newest = RecordFilter { status, sink, limit: NAMED, ..RecordFilter::default() };
        let newest = view.outbox(&newest)?;
        let of: BTreeSet<_> = newest.iter().map(|found| &found.record.name.namespace).collect();
        let of: Vec<_> = of.into_iter().map(|namespace| namespace.as_str()).collect();
        what += &format!(", the newest in namespace {}", of.join(", "));
    }
    match parked {
        0 => {}
        1 => what += "; 1 ordering key is parked",
        _ => what += &format!("; {parked} ordering keys are parked"),
    }
    Ok(DoctorFinding {
        severity: Severity::Warning,
        what,
        next: format!(
            "see why: hapax outbox list --status failed --sink {sink}; then: hapax outbox redrive \
             --sink {sink}"
        ),
    })
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
