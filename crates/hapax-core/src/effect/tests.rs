//! The whole state × event matrix, as one snapshot that a person can read.

use super::*;
use crate::epoch::Domain;
use crate::lease::GAPS;
use crate::outcome::MAX_REASON;
use expect_test::expect_file;

const NOW: Now = Now {
    wall: Timestamp(1_000_000),
    lease: LeaseInstant { era: 1, ms: 50_000 },
    wall_trusted: true,
};
/// The fence of the current attempt.
const FENCE: Fence = Fence(7);
const CURRENT: AttemptId = AttemptId::from_bytes([1; 16]);
const STALE: AttemptId = AttemptId::from_bytes([2; 16]);
const NEW: AttemptId = AttemptId::from_bytes([3; 16]);
/// The attempt and the fence that the current holder names.
const BY: (AttemptId, Option<Fence>) = (CURRENT, Some(FENCE));

fn ask(attempt: AttemptId, payload: &[u8]) -> Ask {
    Ask {
        fingerprint: Fingerprint::of(payload),
        safety: Safety::Opaque,
        lock: None,
        bound: None,
        label: None,
        ttl_ms: None,
        attempt,
        lease: LeaseId::from_bytes([9; 16]),
        deadline_ms: None,
        about: None,
        part: None,
    }
}

fn effect(state: State, safety: Safety) -> Effect {
    let (_, change) = claim(NOW, None, &ask(CURRENT, b"p"), FENCE);
    Effect { state, safety, ..change.unwrap().effect }
}

fn records() -> Vec<(&'static str, Option<Effect>)> {
    let running = || State::Running { lease: LeaseId::from_bytes([9; 16]), deadline: None };
    let reason = || "why".to_owned();
    let unknown = |since| State::Unknown { reason: reason(), since, tries: 0 };
    let failure = |cause| State::Failed(Failure { cause, reason: reason() });
    let after = Safety::Reconcilable(Settling::AfterMs(10_000));
    let refuses = Safety::Reconcilable(Settling::TargetRefusesLate);
    let long_ago = LeaseInstant { era: 1, ms: 40_000 };
    let mut old = effect(State::Succeeded(Outcome::new(*b"ok")), Safety::Opaque);
    (old.ttl_ms, old.updated) = (Some(1), Timestamp(0));
    vec![
        ("absent", None),
        ("running transactional", Some(effect(running(), Safety::Transactional))),
        ("running reconcilable", Some(effect(running(), after))),
        ("running opaque", Some(effect(running(), Safety::Opaque))),
        ("succeeded", Some(effect(State::Succeeded(Outcome::new(*b"ok")), Safety::Opaque))),
        ("succeeded, expired", Some(old)),
        ("failed", Some(effect(failure(Cause::Reported), Safety::Opaque))),
        ("failed, lapsed", Some(effect(failure(Cause::Lapsed), Safety::Transactional))),
        ("failed, reset", Some(effect(failure(Cause::Reset), Safety::Opaque))),
        ("partial", Some(effect(State::Partial { reason: reason() }, Safety::Opaque))),
        ("unknown, settling", Some(effect(unknown(NOW.lease), after))),
        ("unknown, settled", Some(effect(unknown(long_ago), after))),
        ("unknown, target refuses", Some(effect(unknown(NOW.lease), refuses))),
        (
            "unknown, last try",
            Some(effect(
                State::Unknown { reason: reason(), since: long_ago, tries: MAX_TRIES - 1 },
                after,
            )),
        ),
        (
            "indeterminate opaque",
            Some(effect(State::Indeterminate { reason: reason() }, Safety::Opaque)),
        ),
        (
            "indeterminate reconcilable",
            Some(effect(State::Indeterminate { reason: reason() }, after)),
        ),
        ("skipped", Some(effect(State::Skipped { reason: reason() }, Safety::Opaque))),
    ]
}

type Row = (&'static str, String, Option<Change>);

fn events(current: Option<&Effect>) -> Vec<Row> {
    let ok = || Outcome::new(*b"ok");
    let mut rows: Vec<Row> = Vec::new();
    for (name, ask) in [
        ("claim", ask(NEW, b"p")),
        ("claim, other payload", ask(NEW, b"q")),
        ("claim, same attempt", ask(CURRENT, b"p")),
        ("claim in an epoch", Ask { bound: Some(bound()), ..ask(NEW, b"p") }),
    ] {
        let (verdict, change) = claim(NOW, current, &ask, Fence(8));
        rows.push((name, verdict_name(&verdict), change));
    }
    for (name, by, report) in [
        ("settle succeeded", BY, Report::Succeeded(ok())),
        ("settle succeeded otherwise", BY, Report::Succeeded(Outcome::new(*b"no"))),
        ("settle failed", BY, Report::Failed("why".into())),
        ("settle partial", BY, Report::Partial("why".into())),
        ("settle ambiguous", BY, Report::Ambiguous("why".into())),
        ("release", BY, Report::Released("why".into())),
        ("release, no fence", (CURRENT, None), Report::Released("why".into())),
        ("settle succeeded, stale", (STALE, Some(FENCE)), Report::Succeeded(ok())),
        ("settle succeeded, old fence", (CURRENT, Some(Fence(6))), Report::Succeeded(ok())),
        ("settle succeeded, no fence", (CURRENT, None), Report::Succeeded(ok())),
    ] {
        let (settled, change) = settle(NOW, current, by, &report, None);
        rows.push((name, settled_name(&settled), change));
    }
    for (name, report) in [
        ("settle succeeded, epoch over", Report::Succeeded(ok())),
        ("settle failed, epoch over", Report::Failed("why".into())),
        ("settle ambiguous, epoch over", Report::Ambiguous("why".into())),
    ] {
        let over = bound().check(1).err();
        let (settled, change) = settle(NOW, current, BY, &report, over);
        rows.push((name, settled_name(&settled), change));
    }
    rows.push(("void", "-".into(), current.and_then(|effect| void(NOW, effect, "why"))));
    rows.push(("expire", "-".into(), current.and_then(|effect| expire(NOW, effect, "why"))));
    let state = current.map_or(StateName::Running, |effect| effect.state.name());
    let seen = Seen { attempt: CURRENT, state };
    let earlier = Seen { state: StateName::Running, ..seen };
    let judgements = [
        (
            "reconcile happened",
            reconcile(NOW, current, (CURRENT, FENCE), NOW.lease, &Finding::Happened(ok())),
        ),
        (
            "reconcile not found",
            reconcile(NOW, current, (CURRENT, FENCE), NOW.lease, &Finding::NotFound),
        ),
        (
            "reconcile cannot tell",
            reconcile(NOW, current, (CURRENT, FENCE), NOW.lease, &Finding::CannotTell("x".into())),
        ),
        (
            "reconcile, stale",
            reconcile(NOW, current, (STALE, FENCE), NOW.lease, &Finding::NotFound),
        ),
        ("resolve happened", resolve(NOW, current, seen, &Resolution::Happened(ok()), "why")),
        ("resolve did not happen", resolve(NOW, current, seen, &Resolution::DidNotHappen, "why")),
        ("resolve skip", resolve(NOW, current, seen, &Resolution::Skip, "why")),
        ("resolve ask again", resolve(NOW, current, seen, &Resolution::AskAgain, "why")),
        (
            "resolve skip, stale",
            resolve(NOW, current, Seen { attempt: STALE, state }, &Resolution::Skip, "why"),
        ),
        ("resolve skip, seen running", resolve(NOW, current, earlier, &Resolution::Skip, "why")),
        ("rolled back", rolled_back(NOW, current, CURRENT)),
        ("reset", reset(NOW, current, seen, "why")),
        ("reset, seen running", reset(NOW, current, earlier, "why")),
        ("reset, stale", reset(NOW, current, Seen { attempt: STALE, state }, "why")),
    ];
    for (name, (judged, change)) in judgements {
        let answer = match judged {
            Judged::Decided(_) => "decided".into(),
            Judged::Undecided { not_before: None } => "undecided".into(),
            Judged::Undecided { not_before: Some(at) } => format!("undecided until {}", at.ms),
            Judged::Fenced(_) => "fenced".into(),
        };
        rows.push((name, answer, change));
    }
    rows
}

fn bound() -> Bound {
    Bound { domain: Domain::new("connector").unwrap(), epoch: 0 }
}

fn settled_name(settled: &Settled) -> String {
    let name = match settled {
        Settled::Recorded => "recorded",
        Settled::Repeated => "repeated",
        Settled::Fenced(_) => "fenced",
        Settled::Outdated(_) => "outdated",
    };
    name.into()
}

fn verdict_name(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Granted(grant) => format!("granted #{}", grant.nth),
        Verdict::Replayed { .. } => "replayed".into(),
        Verdict::InFlight { .. } => "in flight".into(),
        Verdict::Undecided { .. } => "undecided".into(),
        Verdict::Conflict { .. } => "conflict".into(),
        Verdict::Blocked(blocked) => format!("blocked {}", blocked.state),
        Verdict::Locked { .. } => "locked".into(),
        Verdict::Outdated(_) => "outdated".into(),
        Verdict::Refused { .. } => "refused".into(),
    }
}

/// Proves K-3 and K-4.
#[test]
fn the_whole_matrix_is_as_written_down() {
    let mut table = String::new();
    for (name, current) in records() {
        table += &format!("{name}\n");
        for (event, answer, change) in events(current.as_ref()) {
            let after = change.map_or_else(String::new, |change| {
                format!(" -> {} (gen {})", change.effect.state.name(), change.effect.generation)
            });
            table += &format!("  {event:<28} {answer}{after}\n");
        }
    }
    expect_file!["matrix.txt"].assert_eq(&table);
}

/// Proves K-4: an answer that refuses writes nothing.
#[test]
fn a_refusal_never_carries_a_change() {
    for (name, current) in records() {
        for (event, answer, change) in events(current.as_ref()) {
            let refused = ["fenced", "conflict", "in flight", "replayed", "refused", "repeated"]
                .iter()
                .any(|word| answer.starts_with(word))
                || answer.starts_with("blocked");
            assert!(!(refused && change.is_some()), "{name}: {event}");
        }
    }
}

/// Proves C-4: the report of a voided holder is kept, however long the reason is.
#[test]
fn a_remark_is_kept_however_long_the_reason_is() {
    let done = Outcome::new(*b"done");
    for (name, current) in records() {
        let Some(mut effect) = current.filter(|effect| effect.state.name().is_open()) else {
            continue;
        };
        let Some(voided) = void(NOW, &effect, &"é".repeat(3_000)) else { panic!("{name}") };
        effect = voided.effect;
        for report in [Report::Failed("x".repeat(5_000)), Report::Succeeded(done.clone())] {
            let over = bound().check(1).err();
            let (_, change) = settle(NOW, Some(&effect), BY, &report, over.clone());
            effect = change.unwrap().effect;
            let (_, again) = settle(NOW, Some(&effect), BY, &report, over);
            assert_eq!(again, None, "{name}: said before");
        }
        let reason = effect.state.reason().unwrap();
        assert!(reason.contains(&done.digest().to_string()), "{name}: {reason}");
        assert!(reason.contains("that it did not happen: xxx") && reason.len() <= MAX_REASON);
        assert!(reason.len() > MAX_REASON - 8, "{name}: no more is cut than has to be");
    }
}

/// Proves K-11.
#[test]
fn only_settled_records_expire_and_only_while_the_clock_is_trusted() {
    for (name, current) in records() {
        let Some(mut effect) = current else { continue };
        (effect.ttl_ms, effect.updated) = (Some(1), Timestamp(0));
        assert_eq!(effect.expired(NOW), effect.state.name().is_settled(), "{name}");
        assert!(!effect.expired(Now { wall_trusted: false, ..NOW }), "{name}");
        effect.ttl_ms = None;
        assert!(!effect.expired(NOW), "{name}");
    }
}

/// Proves K-6.
#[test]
fn a_missing_lease_a_dead_holder_and_a_passed_deadline_are_all_lapses() {
    let lease = Lease::open(NOW, LeaseId::from_bytes([9; 16]), 30_000, "p".into(), 0);
    let steady = Pulse { last: NOW.lease, gaps: [0; GAPS] };
    let running = |deadline| State::Running { lease: lease.id, deadline };
    assert!(!lapsed(NOW, &running(None), Some(&lease), &steady, false));
    assert!(lapsed(NOW, &running(None), None, &steady, false));
    assert!(lapsed(NOW, &running(None), Some(&lease), &steady, true));
    assert!(lapsed(NOW, &running(Some(NOW.lease)), Some(&lease), &steady, false));
    let shaken = Pulse { gaps: [NOW.lease.ms; GAPS], ..steady };
    assert!(!lapsed(NOW, &running(Some(NOW.lease)), Some(&lease), &shaken, false));
}

/// Proves K-7: the clock that a settling time is counted by ends with its era, and the count begins anew.
#[test]
fn after_a_reboot_a_settling_time_is_counted_anew() {
    let since = LeaseInstant { era: 0, ms: 5 };
    let state = State::Unknown { reason: "why".into(), since, tries: 3 };
    let settling = Safety::Reconcilable(Settling::AfterMs(1_000));
    let before = effect(state.clone(), settling);
    let (judged, change) =
        reconcile(NOW, Some(&before), (CURRENT, FENCE), NOW.lease, &Finding::NotFound);
    let at = NOW.lease.plus_ms(1_000);
    assert_eq!(judged, Judged::Undecided { not_before: Some(at) });
    let after = change.unwrap().effect;
    assert!(matches!(after.state, State::Unknown { since, tries: 3, .. } if since == NOW.lease));
    let later = Now { lease: at, ..NOW };
    let (judged, _) = reconcile(later, Some(&after), (CURRENT, FENCE), at, &Finding::NotFound);
    assert_eq!(judged, Judged::Decided(StateName::Failed));

    let refuses = effect(state, Safety::Reconcilable(Settling::TargetRefusesLate));
    let (judged, _) =
        reconcile(NOW, Some(&refuses), (CURRENT, FENCE), NOW.lease, &Finding::NotFound);
    assert_eq!(judged, Judged::Decided(StateName::Failed), "nothing is counted there");
}

/// Proves K-23: a reader learns of a dead holder and of a deadline that is over, whatever the pulse.
#[test]
fn the_holder_of_a_running_effect_is_alive_silent_or_dead() {
    let lease = Lease::open(NOW, LeaseId::from_bytes([9; 16]), 30_000, "p".into(), 0);
    let running = |deadline| State::Running { lease: lease.id, deadline };
    let judged = |state: &State, lease, gone| liveness(NOW, state, lease, gone);
    assert_eq!(judged(&running(None), Some(&lease), false), Some(Liveness::Alive));
    assert_eq!(judged(&running(None), Some(&lease), true), Some(Liveness::Dead));
    assert_eq!(judged(&running(None), None, false), Some(Liveness::Dead), "its lease was removed");
    let (over, ahead) = (Some(NOW.lease), Some(NOW.lease.plus_ms(1)));
    assert_eq!(judged(&running(over), Some(&lease), false), Some(Liveness::Silent));
    assert_eq!(judged(&running(over), Some(&lease), true), Some(Liveness::Dead));
    assert_eq!(judged(&running(ahead), Some(&lease), false), Some(Liveness::Alive));
    let done = State::Succeeded("ok".into());
    assert_eq!(judged(&done, None, true), None);
}

#[test]
fn a_record_keeps_when_it_was_made_and_says_when_it_changed() {
    let before = effect(failed(Cause::Reported, "no"), Safety::Opaque);
    let before = Effect { generation: 3, ..before };
    let later = Now { wall: NOW.wall.plus_ms(5), ..NOW };
    let (_, again) = claim(later, Some(&before), &ask(NEW, b"p"), Fence(8));
    let again = again.unwrap().effect;
    assert_eq!((again.created, again.updated), (NOW.wall, later.wall));
    assert_eq!((again.generation, again.attempts), (3, 2));
    let last = Now { wall: NOW.wall.plus_ms(9), ..NOW };
    let by = (NEW, Some(Fence(8)));
    let (_, done) = settle(last, Some(&again), by, &Report::Succeeded("ok".into()), None);
    let done = done.unwrap().effect;
    assert_eq!((done.created, done.updated), (NOW.wall, last.wall));
}

/// Proves C-4: a key of another domain is no key of an earlier epoch.
#[test]
fn a_key_of_another_domain_is_refused_by_its_name() {
    let before =
        Effect { bound: Some(bound()), ..effect(failed(Cause::Reset, ""), Safety::Opaque) };
    let before = Effect { state: State::Succeeded("ok".into()), ..before };
    let domain = Domain::new("rollout").unwrap();
    let elsewhere = Ask { bound: Some(Bound { domain, epoch: 1 }), ..ask(NEW, b"p") };
    let (verdict, _) = claim(NOW, Some(&before), &elsewhere, Fence(8));
    assert!(matches!(&verdict, Verdict::Refused { reason } if reason.contains("connector")));
    let next = Ask { bound: Some(Bound { epoch: 1, ..bound() }), ..ask(NEW, b"p") };
    let (verdict, _) = claim(NOW, Some(&before), &next, Fence(8));
    assert!(matches!(verdict, Verdict::Outdated(_)), "{verdict:?}");
}
