//! How a store handles epochs.

use hapax_core::effect::State;
use hapax_core::epoch::{self, Bound, Domain, Mismatch, Transition};

use super::*;

pub(super) fn domain() -> Domain {
    Domain::new("connector").expect("a domain")
}

fn bound(epoch: u64, n: u8) -> Ask {
    Ask { bound: Some(Bound { domain: domain(), epoch }), ..ask(n) }
}

fn mismatch(bound: u64, current: u64) -> Mismatch {
    Mismatch { domain: domain(), bound, current }
}

fn try_advance(b: &Bench<'_>, seen: u64, to: u64) -> Result<Transition, StoreError> {
    let (namespace, actor, reason) = (Namespace::default(), "ann".into(), "new leader".into());
    b.run(command::Advance { namespace, domain: domain(), seen, to, actor, reason })
}

fn advance(b: &Bench<'_>, seen: u64, to: u64) -> Transition {
    try_advance(b, seen, to).expect("a transition")
}

fn reason(b: &Bench<'_>, key: u8) -> String {
    match b.view(move |view| Ok(view.effects(&[name(key)])?.remove(0))).map(|e| e.state) {
        Some(State::Indeterminate { reason }) => reason,
        other => panic!("not indeterminate: {other:?}"),
    }
}

cases! {
    /// Proves C-4: INV-IDP-EPOCH-BOUND for claims and replays.
    a_key_counts_in_its_epoch_and_in_no_other: |b| {
        b.granted(1, bound(0, 1));
        b.settle(1, attempt(1), ok());
        assert_eq!(b.claim(1, bound(0, 2)), replayed(Outcome::new(*b"done")));
        assert_eq!(b.claim(2, bound(1, 3)), Verdict::Outdated(mismatch(1, 0)));
        assert_eq!(advance(b, 0, 1), Transition { epoch: 1, moved: true, voided: 0 });
        assert_eq!(b.claim(1, bound(0, 4)), Verdict::Outdated(mismatch(0, 1)), "a replay");
        assert_eq!(b.claim(2, bound(0, 5)), Verdict::Outdated(mismatch(0, 1)), "a new key");
        assert_eq!(b.claim(1, bound(1, 6)), Verdict::Outdated(mismatch(0, 1)), "an old key");
        assert!(matches!(b.claim(1, ask(7)), Verdict::Refused { .. }), "in no epoch at all");
        b.granted(2, bound(1, 8));
        b.granted(3, ask(9));
        assert!(matches!(b.claim(3, bound(1, 10)), Verdict::Refused { .. }), "it is in none");
    }

    /// Proves C-4: an effect that is open when its epoch ends is voided, and stays voided.
    effects_that_are_open_when_their_epoch_ends_are_voided: |b| {
        b.granted(1, bound(0, 1));
        b.granted(2, Ask { safety: Safety::Transactional, ..bound(0, 2) });
        b.granted(3, Ask { safety: Safety::Reconcilable(Settling::TargetRefusesLate), ..bound(0, 3) });
        b.settle(3, attempt(3), Report::Ambiguous("timeout".into()));
        b.granted(4, bound(0, 4));
        b.settle(4, attempt(4), Report::Ambiguous("timeout".into()));
        b.granted(5, bound(0, 5));
        b.settle(5, attempt(5), ok());
        b.granted(6, ask(6));
        assert_eq!(advance(b, 0, 7), Transition { epoch: 7, moved: true, voided: 3 });
        for key in 1..=4 {
            assert!(reason(b, key).ends_with("epoch 0 of connector is over: new leader"));
            let newest = b.journal(key).pop();
            assert_eq!(newest, Some((EntryKind::Expired, StateName::Indeterminate)), "key {key}");
        }
        for key in 1..=4 {
            assert_eq!(b.settle(key, attempt(key), ok()), Settled::Outdated(mismatch(0, 7)));
            assert_eq!(b.state(key), Some(StateName::Indeterminate), "key {key}");
        }
        assert!(reason(b, 1).contains("since then its holder says that it happened"));
        assert!(reason(b, 4).starts_with("timeout; epoch 0 of connector is over"));
        let entries = b.journal(1).len();
        assert_eq!(b.settle(1, attempt(1), ok()), Settled::Outdated(mismatch(0, 7)));
        assert_eq!(b.journal(1).len(), entries, "said before");
        assert_eq!(b.settle(5, attempt(5), ok()), Settled::Repeated, "it was recorded in time");
        assert_eq!(b.settle(6, attempt(6), ok()), Settled::Recorded, "bound to no epoch");
        let judged = b.resolve(2, attempt(2), Resolution::DidNotHappen);
        assert_eq!(judged, Judged::Decided(StateName::Failed), "a person may still decide");
    }

    /// Proves C-4: epochs only grow, one domain and one namespace at a time, and are journalled.
    an_epoch_only_grows: |b| {
        assert_eq!(advance(b, 0, 3), Transition { epoch: 3, moved: true, voided: 0 });
        for (seen, to) in [(0, 1), (0, 9), (2, 3)] {
            assert_eq!(advance(b, seen, to), Transition { epoch: 3, moved: false, voided: 0 });
        }
        for (seen, to) in [(4, 5), (3, 3), (3, 0), (3, u64::MAX), (3, 4 + (1 << 32))] {
            let refused = try_advance(b, seen, to);
            assert!(matches!(refused, Err(StoreError::Invalid(_))), "{seen} to {to}: {refused:?}");
        }
        let other = Domain::new("federation").expect("a domain");
        let elsewhere = Namespace::new("elsewhere").expect("a namespace");
        let (domains, epochs) = b.view(move |view| {
            let here = Namespace::default();
            let others = [view.epoch(&here, &other)?, view.epoch(&elsewhere, &domain())?];
            Ok((view.epochs(&here)?, others))
        });
        assert_eq!((domains, epochs), (vec![Bound { domain: domain(), epoch: 3 }], [0, 0]));
        let transition = Name { key: domain().transition(3), ..name(0) };
        let entries = b.view(move |view| view.entries(Some(&transition), 0, 10));
        let recorded: Vec<_> =
            entries.iter().map(|e| (e.event, e.actor.as_deref(), e.note.as_deref())).collect();
        let settled = (EntryKind::Settled, Some("ann"), Some("new leader"));
        assert_eq!(recorded, [(EntryKind::Granted, None, None), settled]);
    }

    /// Proves C-4: a caller who claimed the key of a transition does not stop it, and writes nothing
    /// afterwards.
    a_claim_of_the_key_of_a_transition_is_overtaken: |b| {
        let key = |to| Name { key: domain().transition(to), ..name(0) };
        let claim = |to, n| {
            match b.run(command::Claim { name: key(to), ask: ask(n) }) {
                Ok(Verdict::Granted(grant)) => grant.fence,
                other => panic!("not granted: {other:?}"),
            }
        };
        let generation = |to| {
            let found = b.view(move |view| Ok(view.effects(&[key(to)])?.remove(0)));
            found.map(|effect| effect.generation)
        };
        let settle = |n, fence, report| {
            let (name, fence, attachments) = (key(3), Some(fence), Attachments::default());
            b.run(command::Settle { name, attempt: attempt(n), fence, report, attachments })
        };
        let first = claim(3, 1);
        assert!(matches!(settle(1, first, Report::Failed("no".into())), Ok(Settled::Recorded)));
        let seen = Seen { attempt: attempt(1), state: StateName::Failed };
        let (name, actor, note) = (key(3), "ann".into(), "again".into());
        let judged = b.judged(command::Reset { name, seen, actor, note });
        assert!(matches!(judged, Judged::Decided(_)), "{judged:?}");
        let second = claim(3, 2);
        assert_eq!(generation(3), Some(2));
        assert!(advance(b, 0, 3).moved);
        assert_eq!(generation(3), Some(3), "a generation of its own");
        assert!(fenced(&settle(2, second, ok()).expect("an answer")));
    }

    /// Proves C-4: a typing mistake does not use up all epochs.
    a_step_of_an_epoch_has_a_limit: |b| {
        let refusal = |to| match try_advance(b, 0, to) {
            Err(StoreError::Invalid(why)) => why,
            other => panic!("not refused: {other:?}"),
        };
        let most = epoch::LONGEST_STEP;
        for to in [most + 1, epoch::MAX] {
            assert!(refusal(to).contains(&format!("more than {most} further")), "{to}");
        }
        assert!(refusal(epoch::MAX + 1).contains("the last epoch is"));
        assert!(refusal(u64::MAX).contains("the last epoch is"));
        assert_eq!(advance(b, 0, most), Transition { epoch: most, moved: true, voided: 0 });
        let next = Transition { epoch: 2 * most - 1, moved: true, voided: 0 };
        assert_eq!(advance(b, most, 2 * most - 1), next);
    }
}
