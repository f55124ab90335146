//! Compares the executions, the answers to callers, and the ledger.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hapax::{Done, Effect, Entry, EntryKind, Error, Fence, Name, Namespace, State, StateName};

use super::{Kind, World};
use crate::history::{History, Reply};
use crate::report::Report;

/// The targets: their executions, and the calls that made them.
#[derive(Default)]
pub(super) struct Targets(Mutex<BTreeMap<u8, Target>>);

#[derive(Default)]
struct Target {
    by: Vec<u64>,
    bar: u64,
}

impl Targets {
    /// Executes the effect at its target. Returns the call whose execution is there; `None` if it
    /// was refused.
    pub(super) fn execute(&self, kind: Kind, by: u64, fence: Fence) -> Option<u64> {
        // A change in the ledger's database happens when the outcome is recorded, not here.
        if kind.is_transactional() {
            return Some(by);
        }
        let mut targets = self.0.lock().expect("one thread");
        let target = targets.entry(kind as u8).or_default();
        match kind {
            Kind::Keyed if !target.by.is_empty() => return target.by.first().copied(),
            Kind::Fenced if fence.0 < target.bar => return None,
            _ => {}
        }
        target.bar = fence.0;
        target.by.push(by);
        Some(by)
    }

    /// A reconciler looks for the effect; where fences are compared, with a higher one.
    pub(super) fn look(&self, kind: Kind, fence: Fence) -> Option<u64> {
        let mut targets = self.0.lock().expect("one thread");
        let target = targets.entry(kind as u8).or_default();
        target.bar = target.bar.max(fence.0 + 1);
        target.by.last().copied()
    }

    fn executed(&self, kind: Kind) -> Vec<u64> {
        let targets = self.0.lock().expect("one thread");
        targets.get(&(kind as u8)).map(|target| target.by.clone()).unwrap_or_default()
    }
}

/// The calls of callers, and their answers.
#[derive(Default)]
pub(super) struct Log {
    calls: Mutex<Vec<Call>>,
    moments: AtomicU64,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: u64,
    kind: Kind,
    pub(super) payload: u8,
    pub(super) reset: bool,
    /// Its own work was begun.
    pub(super) offered: bool,
    began: u64,
    reply: Option<(u64, Reply)>,
    /// It got an outcome that was not recorded at that moment.
    early: bool,
    hung: bool,
    void: bool,
}

impl Log {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::Relaxed)
    }

    fn add(&self, kind: Kind, payload: u8, reset: bool) -> u64 {
        let began = self.moment();
        let mut calls = self.calls.lock().expect("one thread");
        let id = calls.len() as u64;
        calls.push(Call {
            id,
            kind,
            payload,
            reset,
            offered: false,
            began,
            reply: None,
            early: false,
            hung: false,
            void: false,
        });
        id
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Call, u64)) {
        let moment = self.moment();
        change(&mut self.calls.lock().expect("one thread")[id as usize], moment);
    }

    pub(super) fn begin(&self, kind: Kind, payload: u8) -> u64 {
        self.add(kind, payload, false)
    }

    pub(super) fn begin_reset(&self, kind: Kind) -> u64 {
        self.add(kind, 0, true)
    }

    pub(super) fn offer(&self, id: u64) {
        self.change(id, |call, _| call.offered = true);
    }

    pub(super) fn end(&self, id: u64, result: Result<Done, Error>, early: bool) {
        self.change(id, |call, moment| {
            call.early = early;
            call.reply = Call::reply_in(&result).map(|reply| (moment, reply));
        });
    }

    pub(super) fn end_reset(&self, id: u64) {
        self.change(id, |call, moment| call.reply = Some((moment, Reply::Forgotten)));
    }

    /// The call did nothing, for certain.
    pub(super) fn void(&self, id: u64) {
        self.change(id, |call, _| call.void = true);
    }

    pub(super) fn hung(&self, id: u64) {
        self.change(id, |call, _| call.hung = true);
    }
}

/// Compares executions, records, journal and answers.
pub(super) async fn judge(world: &World, scenario: &str, only_stalls: bool, report: &mut Report) {
    let (effects, journal) = ledger(world);
    let calls = world.log.calls.lock().expect("one thread").clone();
    for kind in Kind::ALL {
        let entries: Vec<&Entry> = journal.iter().filter(|entry| entry.key == kind.key()).collect();
        let wrong = |violation: String| format!("{scenario}: {kind:?}: {violation}");
        let effect = effects.get(&(kind as u8));
        let resets = entries.iter().filter(|entry| entry.event == EntryKind::Reset).count();
        let executed = world.targets.executed(kind);
        report.count("effects executed", executed.len() as u64);
        report.expect(executed.len() <= 1 + resets, || {
            wrong(format!("executed by {executed:?}, after {resets} resets"))
        });
        if let Some(why) = misrecorded(kind, effect, &executed, resets) {
            report.violation(wrong(why));
        }
        report.expect(folds(effect, &entries), || wrong("the record is not the journal's".into()));
        let lapsed = entries.iter().filter(|entry| entry.event == EntryKind::Expired).count();
        report.count("effects whose holder was declared dead", lapsed as u64);
        report.expect(!only_stalls || lapsed == 0, || {
            wrong(format!("{lapsed} given up while only the store stalled"))
        });
        let mut history = History::default();
        for call in calls.iter().filter(|call| call.kind == kind && !call.void) {
            if call.reply.is_some() || call.offered || call.reset {
                history.call(call.began, call.request(), call.reply.clone());
            }
        }
        report.count("histories checked", 1);
        report.expect(history.is_linearizable(), || {
            wrong(format!("no order explains what callers were told: {history:?}"))
        });
    }
    for call in &calls {
        let wrong = |violation| format!("{scenario}: {:?}: a caller {violation}", call.kind);
        report.expect(!call.hung, || wrong("was never answered"));
        report.expect(!call.early, || wrong("was told an outcome before it was recorded"));
    }
    tally(world, &calls, report);
}

fn tally(world: &World, calls: &[Call], report: &mut Report) {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let runs = calls.iter().filter(|call| !call.reset);
    let answered = |call: &&Call| matches!(call.reply, Some((_, Reply::Outcome(_))));
    report.count("calls", runs.clone().count() as u64);
    report.count("calls answered with an outcome", runs.filter(answered).count() as u64);
    let tally = &world.line.tally;
    report.count("calls to the store", load(&tally.calls));
    report.count("calls to the store that failed before they took effect", load(&tally.before));
    report.count("calls to the store whose reply was lost", load(&tally.after));
    report.count("calls to the store that were late", load(&tally.late));
    report.count("nodes killed", load(&world.faults.crashes));
    report.count("nodes paused", load(&world.faults.pauses));
    report.count("stalls of the store", load(&world.faults.stalls));
    report.count("faults that struck while a caller was at work", load(&tally.overlapping));
}

/// The ledger's effects and its journal, read from the store itself.
fn ledger(world: &World) -> (BTreeMap<u8, Effect>, Vec<Entry>) {
    let (send, receive) = std::sync::mpsc::channel();
    hapax_store::Store::read(
        &*world.line.store,
        Box::new(move |view| {
            let view = view.expect("memory can be read");
            let name = |kind: Kind| Name { namespace: Namespace::default(), key: kind.key() };
            let names: Vec<_> = Kind::ALL.into_iter().map(name).collect();
            let effects = view.effects(&names).expect("effects");
            let effects = Kind::ALL.into_iter().zip(effects);
            let effects = effects.filter_map(|(kind, effect)| Some((kind as u8, effect?)));
            let journal = view.entries(None, 0, usize::MAX).expect("a journal");
            let _ = send.send((effects.collect(), journal));
        }),
    );
    receive.recv().expect("a view")
}

/// Whether an outcome is in the journal now.
pub(super) fn recorded(world: &World, kind: Kind, done: &Done) -> bool {
    let (_, journal) = ledger(world);
    let digest = *done.outcome.digest().as_bytes();
    let recorded = |entry: &Entry| {
        entry.key == kind.key()
            && entry.state == StateName::Succeeded
            && entry.event != EntryKind::Contradicted
            && entry.digest == Some(digest)
    };
    journal.iter().any(recorded)
}

/// Why a record is wrong, if it is: it contradicts the executions, and does not call the outcome
/// unknown.
fn misrecorded(
    kind: Kind,
    effect: Option<&Effect>,
    executed: &[u64],
    resets: usize,
) -> Option<String> {
    let happened = executed.len() > resets;
    let Some(effect) = effect else {
        return happened.then(|| "executed, and there is no record".to_owned());
    };
    match &effect.state {
        State::Succeeded(outcome) if !kind.is_transactional() => {
            let by = super::author(outcome);
            let known = by.is_some_and(|by| executed.contains(&by));
            (!known).then(|| format!("recorded as done by {by:?}; executed by {executed:?}"))
        }
        // A target that knows keys takes a late first arrival, and answers the next caller with it.
        State::Failed(_) if kind == Kind::Keyed => None,
        State::Failed(failure) if happened => {
            Some(format!("executed by {executed:?}, and recorded as not done: {}", failure.reason))
        }
        State::Running { .. } if !kind.is_transactional() => {
            Some("still running when everybody is gone".into())
        }
        _ => None,
    }
}

/// Whether the record is the one that its journal leads to.
fn folds(effect: Option<&Effect>, entries: &[&Entry]) -> bool {
    let newest = entries.iter().rev().find(|entry| entry.event != EntryKind::Contradicted);
    match (effect, newest) {
        (None, None) => true,
        (Some(effect), Some(entry)) => {
            effect.state.name() == entry.state
                && effect.attempt == entry.attempt
                && effect.generation == entry.generation
                && (entry.state != StateName::Running || effect.fence.0 == entry.id)
        }
        _ => false,
    }
}
