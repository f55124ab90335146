//! The state machines of items and mutations: every state, every event, and the state after it.

use expect_test::expect;
use hapax::{AttemptId, Fence, Finding, Fingerprint, Outcome, Resolution, Safety, Settling, State};
use hapax_core::effect::{
    Ask, Change, Effect, MAX_TRIES, Report, claim, expire, reconcile, reset, resolve, settle,
};
use hapax_core::lease::LeaseId;
use hapax_core::outcome::Cause;
use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_items::{ItemState, MutationState};

const NOW: Now = Now {
    wall: Timestamp(1_000_000),
    lease: LeaseInstant { era: 1, ms: 50_000 },
    wall_trusted: true,
};
const FENCE: Fence = Fence(7);

/// Something that happens to an effect.
type Event = (&'static str, fn(&Effect) -> Option<Change>);

fn ask(attempt: u8, safety: Safety) -> Ask {
    Ask {
        fingerprint: Fingerprint::of(b"p"),
        safety,
        lock: None,
        bound: None,
        label: None,
        ttl_ms: None,
        attempt: AttemptId::from_bytes([attempt; 16]),
        lease: LeaseId::from_bytes([9; 16]),
        deadline_ms: None,
        about: None,
        part: None,
    }
}

fn begun(safety: Safety) -> Effect {
    claim(NOW, None, &ask(1, safety), FENCE).1.expect("granted").effect
}

fn settled(effect: &Effect, report: Report) -> Option<Change> {
    settle(NOW, Some(effect), (effect.attempt, Some(effect.fence)), &report, None).1
}

fn resolved(effect: &Effect, resolution: Resolution) -> Option<Change> {
    resolve(NOW, Some(effect), effect.seen(), &resolution, "why").1
}

fn found(effect: &Effect, finding: Finding) -> Option<Change> {
    let of = (effect.attempt, effect.fence);
    reconcile(NOW, Some(effect), of, NOW.lease, &finding).1
}

fn ok() -> Outcome {
    Outcome::from("ok")
}

fn why() -> String {
    "why".into()
}

const CLAIMED: fn(&Effect) -> Option<Change> =
    |effect| claim(NOW, Some(effect), &ask(2, effect.safety), Fence(8)).1;

const ITEM: [Event; 8] = [
    ("a run takes it up", CLAIMED),
    ("its handler ends", |effect| settled(effect, Report::Succeeded(ok()))),
    ("its handler fails", |effect| settled(effect, Report::Failed(why()))),
    ("it comes before a person", |effect| settled(effect, Report::Partial(why()))),
    ("its process dies", |effect| expire(NOW, effect, "gone")),
    ("a person: go on", |effect| resolved(effect, Resolution::DidNotHappen)),
    ("a person: skip", |effect| resolved(effect, Resolution::Skip)),
    ("a person: reprocess", |effect| reset(NOW, Some(effect), effect.seen(), "why").1),
];

const MUTATION: [Event; 12] = [
    ("it is asked for", CLAIMED),
    ("the tool: applied", |effect| settled(effect, Report::Succeeded(ok()))),
    ("the tool: not done", |effect| settled(effect, Report::Failed(why()))),
    ("the tool: cannot tell", |effect| settled(effect, Report::Ambiguous(why()))),
    ("its process dies", |effect| expire(NOW, effect, "gone")),
    ("a look: it is there", |effect| found(effect, Finding::Happened(ok()))),
    ("a look: it is not there", |effect| found(effect, Finding::NotFound)),
    ("a look: cannot tell", |effect| found(effect, Finding::CannotTell(why()))),
    ("a person: happened", |effect| resolved(effect, Resolution::Happened(ok()))),
    ("a person: did not happen", |effect| resolved(effect, Resolution::DidNotHappen)),
    ("a person: try again", |effect| resolved(effect, Resolution::AskAgain)),
    ("a person: skip, reprocess", |effect| resolved(effect, Resolution::Skip)),
];

/// A table of the events that change one of these states.
fn table(from: &[Effect], events: &[Event], name: fn(&Effect) -> String) -> String {
    let mut table = String::new();
    for effect in from {
        for (event, happen) in events {
            if let Some(change) = happen(effect) {
                let (before, after) = (name(effect), name(&change.effect));
                table += &format!("{before:16} {event:26} {after}\n");
            }
        }
    }
    table
}

fn after(effect: &Effect, happen: impl Fn(&Effect) -> Option<Change>) -> Effect {
    happen(effect).expect("a change").effect
}

/// Proves I-9: the states of items, and the events that lead from one to another. An item that
/// waits for a new attempt is shown as failed.
#[test]
fn the_state_machine_of_items() {
    let processing = begun(Safety::Transactional);
    let escalated = after(&processing, |effect| settled(effect, Report::Partial(why())));
    let states = [
        processing.clone(),
        after(&processing, |effect| settled(effect, Report::Succeeded(ok()))),
        after(&processing, |effect| settled(effect, Report::Failed(why()))),
        escalated.clone(),
        after(&escalated, |effect| resolved(effect, Resolution::Skip)),
        after(&escalated, |effect| reset(NOW, Some(effect), effect.seen(), "why").1),
    ];
    let name = |effect: &Effect| {
        let state = ItemState::of(effect.state.name(), false).as_str();
        match (&effect.state, effect.generation) {
            (State::Failed(failure), _) if failure.cause == Cause::Reset => "to be anew".into(),
            (_, 1) => state.to_owned(),
            (_, nth) => format!("{state}, attempt {nth}"),
        }
    };
    expect![[r#"
        processing       its handler ends           done
        processing       its handler fails          failed
        processing       it comes before a person   needs_attention
        processing       its process dies           failed
        done             a person: reprocess        to be anew
        failed           a run takes it up          processing
        failed           a person: skip             skipped
        failed           a person: reprocess        to be anew
        needs_attention  a person: go on            failed
        needs_attention  a person: skip             skipped
        needs_attention  a person: reprocess        to be anew
        skipped          a person: reprocess        to be anew
        to be anew       a run takes it up          processing, attempt 2
        to be anew       a person: skip             skipped
        to be anew       a person: reprocess        to be anew
    "#]]
    .assert_eq(&table(&states, &ITEM, name));
}

/// Proves I-8: the states of mutations, and the events that lead from one to another: of mutations
/// that can be looked up, of those that cannot, and of those that settle in the ledger's own
/// transaction.
#[test]
fn the_state_machine_of_mutations() {
    let name = |effect: &Effect| MutationState::of(effect.state.name()).as_str().to_owned();
    let mut all = String::new();
    for (kind, safety) in [
        ("can be looked up", Safety::Reconcilable(Settling::TargetRefusesLate)),
        ("cannot", Safety::Opaque),
        ("settles with the ledger", Safety::Transactional),
    ] {
        let in_flight = begun(safety);
        let mut states = vec![
            in_flight.clone(),
            after(&in_flight, |effect| settled(effect, Report::Succeeded(ok()))),
            after(&in_flight, |effect| settled(effect, Report::Failed(why()))),
        ];
        let unknown = after(&in_flight, |effect| settled(effect, Report::Ambiguous(why())));
        if let State::Unknown { reason, since, .. } = &unknown.state {
            let (reason, since) = (reason.clone(), *since);
            let state = State::Unknown { reason, since, tries: MAX_TRIES - 1 };
            let last = Effect { state, ..unknown.clone() };
            let given_up = after(&last, |effect| found(effect, Finding::CannotTell(why())));
            states.extend([unknown, last, given_up]);
        } else {
            states.push(unknown);
        }
        all += &format!("{kind}\n{}", table(&states, &MUTATION, name));
    }
    expect![[r#"
        can be looked up
        in_flight        the tool: applied          applied
        in_flight        the tool: not done         failed
        in_flight        the tool: cannot tell      needs_reconcile
        in_flight        its process dies           needs_reconcile
        failed           it is asked for            in_flight
        failed           a person: skip, reprocess  indeterminate
        needs_reconcile  the tool: applied          applied
        needs_reconcile  the tool: not done         failed
        needs_reconcile  a look: it is there        applied
        needs_reconcile  a look: it is not there    failed
        needs_reconcile  a look: cannot tell        needs_reconcile
        needs_reconcile  a person: happened         applied
        needs_reconcile  a person: did not happen   failed
        needs_reconcile  a person: skip, reprocess  indeterminate
        needs_reconcile  the tool: applied          applied
        needs_reconcile  the tool: not done         failed
        needs_reconcile  a look: it is there        applied
        needs_reconcile  a look: it is not there    failed
        needs_reconcile  a look: cannot tell        indeterminate
        needs_reconcile  a person: happened         applied
        needs_reconcile  a person: did not happen   failed
        needs_reconcile  a person: skip, reprocess  indeterminate
        indeterminate    the tool: applied          applied
        indeterminate    the tool: not done         failed
        indeterminate    a person: happened         applied
        indeterminate    a person: did not happen   failed
        indeterminate    a person: try again        needs_reconcile
        indeterminate    a person: skip, reprocess  indeterminate
        cannot
        in_flight        the tool: applied          applied
        in_flight        the tool: not done         failed
        in_flight        the tool: cannot tell      indeterminate
        in_flight        its process dies           indeterminate
        failed           it is asked for            in_flight
        failed           a person: skip, reprocess  indeterminate
        indeterminate    the tool: applied          applied
        indeterminate    the tool: not done         failed
        indeterminate    a person: happened         applied
        indeterminate    a person: did not happen   failed
        indeterminate    a person: skip, reprocess  indeterminate
        settles with the ledger
        in_flight        the tool: applied          applied
        in_flight        the tool: not done         failed
        in_flight        the tool: cannot tell      failed
        in_flight        its process dies           failed
        failed           it is asked for            in_flight
        failed           a person: skip, reprocess  indeterminate
        failed           it is asked for            in_flight
        failed           a person: skip, reprocess  indeterminate
    "#]]
    .assert_eq(&all);
}
