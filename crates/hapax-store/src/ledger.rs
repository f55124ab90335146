//! Load, ask, write: how a command is carried out on any store.
//!
//! The order of locks is the order of loads: epoch, lease, lock, effect. Nothing is written before
//! everything has been judged.

use std::collections::BTreeSet;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{
    self, Ask, Blocked, Change, Effect, Judged, Report, Safety, Settled, State, Verdict,
};
use hapax_core::epoch::{self, Bound, Domain, Transition};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::journal::{Entry, Event};
use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::lock::{Lock, LockKey};
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::Event as Emitted;
use hapax_core::outcome::{Outcome, bounded};
use hapax_core::planted::{Bug, planted};
use hapax_core::time::Now;
use hapax_core::token::Token;

use crate::command::{Answer, Command, LeaseAnswer, Limits};
use crate::dataset;
use crate::delivery;
use crate::error::StoreError;
use crate::failpoint::{Point, pass};
use crate::journal::{Head, SealedTile};
use crate::ontology;
use crate::outbox::{self, Attachments};
use crate::part;
use crate::result_index;
use crate::route;
use crate::step::Step;
use crate::txn::Txn;

/// Carries out one command. After an error the caller undoes the command's writes.
pub fn apply(txn: &mut dyn Txn, command: &Command) -> Result<Answer, StoreError> {
    match command {
        Command::OpenLease { id, term_ms, holder, forgetful } => {
            open_lease(txn, *id, *term_ms, holder, *forgetful)
        }
        Command::RenewLease { id, seen } => renew_lease(txn, *id, *seen),
        Command::CloseLease { id } => close_lease(txn, *id),
        Command::Claim { name, ask } => {
            if txn.lease(ask.lease)?.is_none_or(|lease| lease.dead) {
                return Err(StoreError::LeaseDead(ask.lease));
            }
            claim(txn, name, ask).map(Answer::Claim)
        }
        Command::Settle { name, attempt, fence, report, telling } => {
            settle(txn, name, (*attempt, *fence), report, telling).map(Answer::Settle)
        }
        Command::Reconcile { name, attempt, fence, looked, finding } => {
            judge(txn, name, None, |now, effect| {
                effect::reconcile(now, effect, (*attempt, *fence), *looked, finding)
            })
        }
        Command::Resolve { name, seen, resolution, actor, note } => {
            judge(txn, name, Some((actor, note)), |now, effect| {
                effect::resolve(now, effect, *seen, resolution, note)
            })
        }
        Command::RolledBack { name, attempt } => {
            judge(txn, name, None, |now, effect| effect::rolled_back(now, effect, *attempt))
        }
        Command::Reset { name, seen, actor, note } => {
            let answer = judge(txn, name, Some((actor, note)), |now, effect| {
                effect::reset(now, effect, *seen, note)
            })?;
            if let Answer::Judged(Judged::Decided(_)) = answer {
                txn.raise_notice()?;
            }
            Ok(answer)
        }
        Command::RegisterStep { name, attempt, step, nth } => {
            register_step(txn, name, *attempt, step, *nth)
        }
        Command::Advance { namespace, domain, seen, to, actor, reason } => {
            advance(txn, namespace, domain, (*seen, *to), (actor, reason)).map(Answer::Epoch)
        }
        Command::Expire { limit } => expire_pass(txn, *limit).map(Answer::Count),
        Command::Sweep { limit } => {
            let now = txn.now();
            let swept = if now.wall_trusted { txn.sweep(now, *limit)? } else { 0 };
            Ok(Answer::Count(swept))
        }
        Command::Seal { from, leaves, tiles, note } => seal(txn, *from, leaves, tiles, note),
        Command::Admit(token) => admit(txn, token),
        Command::Revoke { token } => {
            txn.drop_token(*token).map(|known| Answer::Count(usize::from(known)))
        }
        Command::Configure(routing) => route::configure(txn, routing),
        Command::Register(registry) => dataset::register(txn, registry),
        Command::Declare { name, dataset } => dataset::declare(txn, name, dataset.as_ref()),
        Command::Keep { namespace, id, ontology, actor } => {
            ontology::keep(txn, namespace, id, ontology.as_ref(), actor)
        }
        Command::Attend(heard) => result_index::record_accesses(txn, heard),
        Command::Evict { namespace, which, limit } => {
            result_index::evict(txn, namespace, which, *limit).map(Answer::Count)
        }
        Command::Pause { sink, paused } => {
            txn.put_paused(sink, *paused).map(|known| Answer::Count(usize::from(known)))
        }
        Command::Redrive(redrive) => {
            let now = txn.now();
            txn.redrive(redrive, now).map(Answer::Count)
        }
        Command::Share { lease, keep } => delivery::share(txn, *lease, keep),
        Command::Retire { lease } => txn.drop_dispatcher(*lease).map(|()| Answer::Count(0)),
        Command::Dispatch { lease, landed, over, departing } => {
            delivery::dispatch(txn, *lease, landed, over, departing)
        }
    }
}

fn open_lease(
    txn: &mut dyn Txn,
    id: LeaseId,
    term_ms: u64,
    holder: &str,
    forgetful: bool,
) -> Result<Answer, StoreError> {
    check_length("the holder", holder)?;
    if term_ms < Limits::SHORTEST_TERM_MS {
        return Err(StoreError::Invalid(format!(
            "a lease of {term_ms} ms is shorter than {} ms",
            Limits::SHORTEST_TERM_MS
        )));
    }
    let (now, notice) = (txn.now(), txn.notice()?);
    let lease = match txn.lease(id)? {
        // The holder asks again because an answer was lost. The lease is renewed from now.
        Some(lease) => match lease.renew(now) {
            Some(renewed) => renewed,
            None => return Ok(Answer::Lease(LeaseAnswer::Dead)),
        },
        None => {
            let seen = if forgetful { Lease::FORGETFUL } else { notice };
            Lease::open(now, id, term_ms, holder.to_owned(), seen)
        }
    };
    txn.put_lease(&lease)?;
    beat(txn, now)?;
    Ok(Answer::Lease(LeaseAnswer::Held { lease, notice }))
}

fn renew_lease(txn: &mut dyn Txn, id: LeaseId, seen: u64) -> Result<Answer, StoreError> {
    let now = txn.now();
    let notice = txn.notice()?;
    beat(txn, now)?;
    let Some(lease) = txn.lease(id)?.and_then(|lease| lease.renew(now)) else {
        return Ok(Answer::Lease(LeaseAnswer::Dead));
    };
    let seen = if seen == Lease::FORGETFUL { seen } else { seen.min(notice) };
    let lease = Lease { seen, ..lease };
    txn.put_lease(&lease)?;
    Ok(Answer::Lease(LeaseAnswer::Held { lease, notice }))
}

fn admit(txn: &mut dyn Txn, token: &Token) -> Result<Answer, StoreError> {
    check_length("the holder", &token.holder)?;
    if txn.tokens()?.len() >= Limits::TOKENS {
        return Err(StoreError::Invalid(format!("there are {} tokens", Limits::TOKENS)));
    }
    txn.put_token(token)?;
    Ok(Answer::Count(1))
}

fn close_lease(txn: &mut dyn Txn, id: LeaseId) -> Result<Answer, StoreError> {
    txn.drop_lease(id)?;
    Ok(Answer::Lease(LeaseAnswer::Dead))
}

/// Beats the store's pulse. Only a steady pulse lets time alone count against a lease.
pub(crate) fn beat(txn: &mut dyn Txn, now: Now) -> Result<Pulse, StoreError> {
    let pulse = txn.pulse()?.beat(now);
    txn.put_pulse(&pulse)?;
    Ok(pulse)
}

/// Judges a claim and writes the change. Public for claims in a caller's transaction, which end
/// with it and need no lease.
pub fn claim(txn: &mut dyn Txn, name: &Name, ask: &Ask) -> Result<Verdict, StoreError> {
    if let Some(label) = &ask.label {
        check_length("the label", label)?;
    }
    check_note(ask.about.as_deref())?;
    part::check(ask.part.as_ref())?;
    if let Some(bound) = &ask.bound
        && let Err(mismatch) = bound.check(txn.epoch(&name.namespace, &bound.domain)?)
    {
        return Ok(Verdict::Outdated(mismatch));
    }
    let now = txn.now();
    if let Some(verdict) = claim_first(txn, now, name, ask)? {
        return Ok(verdict);
    }
    let current = load(txn, now, name, Some(ask.lease))?;
    let judge = |fence| effect::claim(now, current.as_ref(), ask, fence);
    // The grant takes its number last, because expiring the lock's holder takes a number too.
    if let (verdict, None) = judge(Fence(0)) {
        return Ok(verdict);
    }
    if let Some(lock) = ask.lock
        && let Some(refusal) = held(txn, now, name, lock, ask.lease)?
    {
        return Ok(refusal);
    }
    let (verdict, change) = judge(Fence(txn.next_entry()?));
    if let Some(change) = change {
        write(txn, name, &change, EntryNote { by: None, note: ask.about.as_deref() })?;
        if let Some(part) = &ask.part {
            txn.put_part(name, part)?;
        }
    }
    if let Some(key) = ask.lock {
        txn.put_lock(&name.namespace, &Lock { key, holder: name.key, attempt: ask.attempt })?;
    }
    Ok(verdict)
}

/// Grants a claim of a new key without loading it first. Most keys are new, and the store detects
/// an existing one as it writes.
fn claim_first(
    txn: &mut dyn Txn,
    now: Now,
    name: &Name,
    ask: &Ask,
) -> Result<Option<Verdict>, StoreError> {
    let judge = |fence| match effect::claim(now, None, ask, fence) {
        (verdict, Some(change)) if ask.lock.is_none() => Some((verdict, change)),
        _ => None,
    };
    let Some((_, change)) = judge(Fence(0)) else { return Ok(None) };
    pass(Point::ChangeJudged)?;
    let Some(fence) = txn.put_first(name, &change.effect)? else { return Ok(None) };
    pass(Point::ChangeRecorded)?;
    let Some((verdict, change)) = judge(fence) else { return Ok(None) };
    txn.append(&entry(fence.0, name, &change, EntryNote { by: None, note: ask.about.as_deref() }))?;
    pass(Point::ChangeJournalled)?;
    if let Some(part) = &ask.part {
        txn.put_part(name, part)?;
    }
    Ok(Some(verdict))
}

/// The verdict on a lock that another effect holds. A lapsed holder is expired first.
fn held(
    txn: &mut dyn Txn,
    now: Now,
    name: &Name,
    key: LockKey,
    asker: LeaseId,
) -> Result<Option<Verdict>, StoreError> {
    let Some(lock) = txn.lock(&name.namespace, key)? else { return Ok(None) };
    if lock.holder == name.key {
        return Ok(None);
    }
    let holder = Name { namespace: name.namespace.clone(), key: lock.holder };
    let effect = load(txn, now, &holder, Some(asker))?
        .filter(|effect| effect.attempt == lock.attempt && effect.state.name().keeps_lock());
    Ok(effect.map(|effect| match effect.state {
        State::Running { .. } => Verdict::Locked { holder: lock.holder },
        _ => Verdict::Blocked(Blocked { holder: Some(lock.holder), ..Blocked::by(&effect) }),
    }))
}

/// Loads an effect, and expires it first if its holder has lapsed.
fn load(
    txn: &mut dyn Txn,
    now: Now,
    name: &Name,
    asker: Option<LeaseId>,
) -> Result<Option<Effect>, StoreError> {
    let Some(effect) = one(txn, name)? else { return Ok(None) };
    let State::Running { lease: id, deadline } = effect.state else { return Ok(Some(effect)) };
    let lease = txn.lease(id)?;
    let gone = asker != Some(id) && lease.as_ref().is_some_and(|lease| txn.is_gone(lease));
    let late = lease.as_ref().is_some_and(|lease| {
        lease.until.reached(now.lease) || deadline.is_some_and(|at| at.reached(now.lease))
    });
    let pulse = if late { beat(txn, now)? } else { Pulse::default() };
    if !effect::lapsed(now, &effect.state, lease.as_ref(), &pulse, gone) {
        return Ok(Some(effect));
    }
    if let Some(lease) = lease.filter(|lease| gone || lease.lapsed(now, &pulse)) {
        txn.put_lease(&Lease { dead: true, ..lease })?;
    }
    let why = if gone { "its holder died" } else { "its lease or deadline lapsed" };
    let Some(change) = effect::expire(now, &effect, why) else { return Ok(Some(effect)) };
    if asker.is_none() || !planted(Bug::LockWithoutExpiry) {
        write(txn, name, &change, EntryNote::default())?;
    }
    Ok(Some(change.effect))
}

pub(crate) fn one(txn: &mut dyn Txn, name: &Name) -> Result<Option<Effect>, StoreError> {
    Ok(txn.effects(std::slice::from_ref(name))?.pop().flatten())
}

/// The actor and the note of a journal entry.
#[derive(Clone, Copy, Default)]
pub(crate) struct EntryNote<'a> {
    by: Option<&'a str>,
    /// Replaces the record's own reason.
    note: Option<&'a str>,
}

impl<'a> EntryNote<'a> {
    pub(crate) fn by(actor: &'a str, note: &'a str) -> Self {
        Self { by: Some(actor), note: Some(note) }
    }
}

/// Writes a change: the journal entry, the record, and the release of its lock.
pub(crate) fn write(
    txn: &mut dyn Txn,
    name: &Name,
    change: &Change,
    told: EntryNote<'_>,
) -> Result<(), StoreError> {
    let id = match change.event {
        Event::Granted => change.effect.fence.0,
        _ => txn.next_entry()?,
    };
    pass(Point::ChangeJudged)?;
    if change.event != Event::Expired || !planted(Bug::Unjournalled) {
        txn.append(&entry(id, name, change, told))?;
    }
    pass(Point::ChangeJournalled)?;
    txn.put_effect(name, &change.effect)?;
    pass(Point::ChangeRecorded)?;
    match change.effect.lock {
        Some(lock) if !change.effect.state.name().keeps_lock() => {
            txn.drop_lock(&name.namespace, lock, change.effect.attempt)
        }
        _ => Ok(()),
    }
}

/// The entry of a change.
fn entry(id: u64, name: &Name, change: &Change, told: EntryNote<'_>) -> Entry {
    let mut entry = Entry::of(id, name, change);
    entry.actor = told.by.map(str::to_owned);
    if let Some(note) = told.note {
        entry.note = Some(if told.by.is_some() { bounded(note) } else { note.to_owned() });
    }
    entry
}

/// Judges a report inside a caller's own transaction. Only [`Settled::Recorded`] lets the caller
/// commit. A settle that was recorded before is an error there. After every other answer, too, the
/// caller rolls back: its other writes were committed with the first settle, or belong to an
/// attempt that was overtaken.
pub fn settle_in(
    txn: &mut dyn Txn,
    name: &Name,
    (attempt, fence): (AttemptId, Fence),
    report: &Report,
    telling: &Attachments,
) -> Result<Settled, StoreError> {
    match settle(txn, name, (attempt, Some(fence)), report, telling)? {
        Settled::Repeated if !planted(Bug::RepeatedSettleCommits) => {
            Err(StoreError::AlreadyRecorded(attempt))
        }
        settled => Ok(settled),
    }
}

/// Judges a report and writes the change.
fn settle(
    txn: &mut dyn Txn,
    name: &Name,
    (attempt, fence): (AttemptId, Option<Fence>),
    report: &Report,
    telling: &Attachments,
) -> Result<Settled, StoreError> {
    check_note(telling.note.as_deref())?;
    part::check(telling.part.as_ref())?;
    let now = txn.now();
    if let (Report::Succeeded(_), Some(entry)) = (report, &telling.index_entry) {
        ontology::check_version(txn, &name.namespace, entry)?;
    }
    let current = one(txn, name)?;
    let over = match current.as_ref().and_then(|effect| effect.bound.as_ref()) {
        Some(bound) => bound.check(txn.epoch(&name.namespace, &bound.domain)?).err(),
        None => None,
    };
    let (settled, change) = effect::settle(now, current.as_ref(), (attempt, fence), report, over);
    if let Some(change) = change {
        let mut told = EntryNote::default();
        if let State::Succeeded(_) = change.effect.state {
            outbox::record(txn, name, &change.effect, &telling.events)?;
            told.note = telling.note.as_deref();
        }
        write(txn, name, &change, told)?;
        if let Some(part) = &telling.part {
            txn.put_part(name, part)?;
        }
        if let (State::Succeeded(outcome), Some(entry)) =
            (&change.effect.state, &telling.index_entry)
        {
            txn.put_index_entry(name, entry, outcome.size(), now)?;
        }
    } else if let (Settled::Fenced(_), Report::Succeeded(outcome)) = (&settled, report) {
        contradict(txn, now, name, current.as_ref(), attempt, *outcome.digest().as_bytes())?;
    }
    Ok(settled)
}

/// Journals that a stale attempt reports success. An operator must look at both attempts.
fn contradict(
    txn: &mut dyn Txn,
    now: Now,
    name: &Name,
    current: Option<&Effect>,
    attempt: AttemptId,
    digest: [u8; 32],
) -> Result<(), StoreError> {
    let found = effect::Fenced::by(current);
    let entry = Entry {
        id: txn.next_entry()?,
        at: now.wall,
        namespace: name.namespace.clone(),
        key: name.key,
        event: Event::Contradicted,
        state: found.state.unwrap_or(effect::StateName::Succeeded),
        attempt,
        generation: current.map_or(0, |effect| effect.generation),
        digest: Some(digest),
        actor: None,
        note: Some(format!("a stale attempt reports success; the record is: {found}")),
    };
    txn.append(&entry)
}

fn judge(
    txn: &mut dyn Txn,
    name: &Name,
    by: Option<(&String, &String)>,
    decide: impl FnOnce(Now, Option<&Effect>) -> (Judged, Option<Change>),
) -> Result<Answer, StoreError> {
    if let Some((actor, _)) = by {
        check_length("the actor", actor)?;
    }
    let now = txn.now();
    let shown = one(txn, name)?.map(|effect| effect.seen());
    let current = load(txn, now, name, None)?;
    // Loading has just expired the effect, and the person has not seen the new state.
    let changed = current.as_ref().map(Effect::seen) != shown;
    if by.is_some() && changed && !planted(Bug::UnseenReset) {
        return Ok(Answer::Judged(Judged::Fenced(effect::Fenced::by(current.as_ref()))));
    }
    let (judged, change) = decide(now, current.as_ref());
    if let Some(change) = change {
        let told = by.map(|(actor, note)| EntryNote::by(actor, note)).unwrap_or_default();
        write(txn, name, &change, told)?;
    }
    Ok(Answer::Judged(judged))
}

/// Moves a domain to a new epoch. Writes to every effect of the old epoch that could still report a
/// success, so that a report either comes before the transition or is voided by it.
fn advance(
    txn: &mut dyn Txn,
    namespace: &Namespace,
    domain: &Domain,
    (seen, to): (u64, u64),
    (actor, reason): (&str, &str),
) -> Result<Transition, StoreError> {
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
        let Some(effect) = one(txn, &name)? else { continue };
        let Some(change) = effect::void(now, &effect, &why) else { continue };
        write(txn, &name, &change, EntryNote::by(actor, &why))?;
        voided += usize::from(!matches!(effect.state, State::Indeterminate { .. }));
    }
    let key = domain.transition(to);
    let fence = Fence(txn.next_entry()?);
    let done = Done {
        name: Name { namespace: namespace.clone(), key },
        fingerprint: Fingerprint::of(reason.as_bytes()),
        label: next.to_string(),
        outcome: Outcome::from(reason),
        event: None,
        told: EntryNote::by(actor, reason),
    };
    record_done(txn, now, fence, done)?;
    txn.put_epoch(namespace, &next)?;
    Ok(Transition { epoch: to, moved: true, voided })
}

/// Something that the ledger did itself, and records as an effect.
pub(crate) struct Done<'a> {
    pub(crate) name: Name,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) label: String,
    pub(crate) outcome: Outcome,
    /// An event for followers, which needs no route.
    pub(crate) event: Option<Emitted>,
    pub(crate) told: EntryNote<'a>,
}

/// Records an effect that is granted and settled at once, under a fence that was just taken. A
/// caller that claimed its key before is overtaken.
pub(crate) fn record_done(
    txn: &mut dyn Txn,
    now: Now,
    fence: Fence,
    done: Done<'_>,
) -> Result<(), StoreError> {
    let Done { name, fingerprint, label, outcome, event, told } = done;
    let mut attempt = [0; 16];
    attempt.copy_from_slice(&name.key.as_bytes()[..16]);
    let ask = Ask {
        fingerprint,
        safety: Safety::Transactional,
        lock: None,
        bound: None,
        label: Some(label),
        ttl_ms: None,
        attempt: AttemptId::from_bytes(attempt),
        lease: LeaseId::from_bytes([0; 16]),
        deadline_ms: None,
        about: None,
        part: None,
    };
    let generation = one(txn, &name)?.map_or(0, |there| there.generation);
    let (_, Some(mut granted)) = effect::claim(now, None, &ask, fence) else { return Ok(()) };
    granted.effect.generation += generation;
    write(txn, &name, &granted, EntryNote::default())?;
    let (report, by) = (Report::Succeeded(outcome), (ask.attempt, Some(fence)));
    let (_, settled) = effect::settle(now, Some(&granted.effect), by, &report, None);
    let Some(settled) = settled else { return Ok(()) };
    if let Some(event) = event {
        outbox::record_unrouted(txn, now, &name, &settled.effect, event)?;
    }
    write(txn, &name, &settled, told)
}

fn register_step(
    txn: &mut dyn Txn,
    name: &Name,
    attempt: AttemptId,
    step: &Step,
    nth: Option<usize>,
) -> Result<Answer, StoreError> {
    check_length("the step's name", &step.name)?;
    if step.payload.len() > Limits::STEP_PAYLOAD {
        let (size, limit) = (step.payload.len(), Limits::STEP_PAYLOAD);
        return Err(StoreError::Invalid(format!(
            "a step's payload of {size} bytes exceeds {limit}"
        )));
    }
    let current = one(txn, name)?;
    let running = current
        .as_ref()
        .is_some_and(|e| e.attempt == attempt && matches!(e.state, State::Running { .. }));
    if !running {
        return Ok(Answer::Settle(Settled::Fenced(effect::Fenced::by(current.as_ref()))));
    }
    let steps = txn.steps(name, attempt)?;
    match nth.map(|nth| (steps.get(nth), nth)) {
        Some((Some(there), _)) if there == step => return Ok(Answer::Settle(Settled::Repeated)),
        Some((None, nth)) if nth == steps.len() => {}
        Some((_, nth)) => {
            let there = steps.len();
            let what = format!("it is step {nth} of {there}, and not the same, or not the next");
            return Err(StoreError::Invalid(what));
        }
        None => {}
    }
    if steps.len() >= Limits::STEPS {
        return Err(StoreError::Invalid(format!("more than {} rollback steps", Limits::STEPS)));
    }
    txn.push_step(name, attempt, step)?;
    Ok(Answer::Settle(Settled::Recorded))
}

/// Expires effects that lapsed holders left running. Transactional effects are left for the next
/// claim: until another claimant overtakes one, its late settle is still good.
fn expire_pass(txn: &mut dyn Txn, limit: usize) -> Result<usize, StoreError> {
    let now = txn.now();
    let pulse = beat(txn, now)?;
    for lease in txn.leases()? {
        if let Some(lease) = lease.set_right(now) {
            txn.put_lease(&lease)?;
        }
        // A lapsed holder may still come back, as long as no other claimant has acted on its lapse.
        if txn.is_gone(&lease) || lease.is_forgotten(now, &pulse) {
            txn.put_lease(&Lease { dead: true, ..lease })?;
        }
    }
    // In the order of names, in which every command locks rows.
    let names: BTreeSet<_> = txn.overdue(now.lease, limit)?.into_iter().collect();
    let mut expired = 0;
    for name in names {
        let after = load(txn, now, &name, None)?;
        expired += usize::from(after.is_some_and(|e| !matches!(e.state, State::Running { .. })));
    }
    Ok(expired)
}

fn seal(
    txn: &mut dyn Txn,
    from: u64,
    leaves: &[u64],
    tiles: &[SealedTile],
    note: &str,
) -> Result<Answer, StoreError> {
    if txn.newest_head()?.map_or(0, |head| head.size) != from {
        return Ok(Answer::Count(0));
    }
    let size = from + leaves.len() as u64;
    txn.put_head(leaves, tiles, &Head { size, note: note.to_owned() })?;
    Ok(Answer::Count(leaves.len()))
}

fn check_note(note: Option<&str>) -> Result<(), StoreError> {
    match note.map(str::len) {
        Some(size) if size > Limits::NOTE => {
            let most = Limits::NOTE;
            Err(StoreError::Invalid(format!("a note of {size} bytes; at most {most} are kept")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_length(what: &str, text: &str) -> Result<(), StoreError> {
    if text.len() <= Limits::LABEL {
        return Ok(());
    }
    Err(StoreError::Invalid(format!(
        "{what} is {} bytes long; at most {} are kept",
        text.len(),
        Limits::LABEL
    )))
}
