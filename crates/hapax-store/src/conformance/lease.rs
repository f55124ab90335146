//! How a store handles leases, and the effects that lapsed holders left behind.

use hapax_core::lease::{Lease, Liveness};

use super::*;
use crate::effect::{EffectRecord, EffectStatus, statuses};

cases! {
    /// Proves K-6 and K-7.
    a_lapsed_transactional_claim_is_granted_again: |b| {
        b.open_lease(OTHER);
        b.granted(1, Ask { safety: Safety::Transactional, ..ask(1) });
        b.pass(30_000, &[OTHER]);
        let again = Ask { safety: Safety::Transactional, lease: OTHER, ..ask(2) };
        assert_eq!(b.granted(1, again), attempt(2));
        assert!(fenced(&b.settle(1, attempt(1), ok())));
        assert_eq!(b.renew(b.lease), LeaseAnswer::Dead);
    }

    /// Proves K-7.
    a_lapsed_opaque_claim_needs_a_person: |b| {
        b.open_lease(OTHER);
        b.granted(1, ask(1));
        b.pass(30_000, &[OTHER]);
        let verdict = b.claim(1, Ask { lease: OTHER, ..ask(2) });
        assert!(blocked_in(&verdict, StateName::Indeterminate), "{verdict:?}");
    }

    /// Proves K-7.
    a_lapsed_reconcilable_claim_is_asked_about: |b| {
        b.open_lease(OTHER);
        b.granted(1, Ask { safety: RECONCILABLE, ..ask(1) });
        b.pass(30_000, &[OTHER]);
        let verdict = b.claim(1, Ask { safety: RECONCILABLE, lease: OTHER, ..ask(2) });
        assert!(blocked_in(&verdict, StateName::Unknown), "{verdict:?}");
        let found = Finding::Happened(Outcome::new(*b"found"));
        assert_eq!(b.reconcile(1, attempt(1), found), Judged::Decided(StateName::Succeeded));
        let third = Ask { lease: OTHER, ..ask(3) };
        assert_eq!(b.claim(1, third), replayed(Outcome::new(*b"found")));
    }

    /// Proves K-5.
    a_late_settle_of_an_attempt_that_was_not_overtaken_is_good: |b| {
        b.open_lease(OTHER);
        for (key, safety) in [(1, Safety::Transactional), (2, RECONCILABLE), (3, Safety::Opaque)] {
            b.granted(key, Ask { safety, ..ask(key) });
        }
        b.pass(30_000, &[OTHER]);
        b.count(command::Expire { limit: 10 });
        for key in 1..=3 {
            assert_eq!(b.settle(key, attempt(key), ok()), Settled::Recorded, "key {key}");
        }
    }

    /// Proves K-6.
    a_dead_lease_is_not_renewed: |b| {
        assert!(matches!(b.renew(b.lease), LeaseAnswer::Held { .. }));
        b.run(command::CloseLease { id: b.lease }).expect("closes");
        assert_eq!(b.renew(b.lease), LeaseAnswer::Dead);
        assert_eq!(b.renew(LeaseId::from_bytes([77; 16])), LeaseAnswer::Dead);
    }

    /// Proves K-6.
    nothing_is_granted_on_a_dead_lease: |b| {
        let claim = |lease| command::Claim { name: name(1), ask: Ask { lease, ..ask(1) } };
        assert!(matches!(b.run(claim(OTHER)), Err(StoreError::LeaseDead(_))), "never opened");
        b.open_lease(OTHER);
        b.granted(2, ask(2));
        b.pass(30_000, &[OTHER]);
        b.claim(2, Ask { lease: OTHER, ..ask(3) });
        assert!(matches!(b.run(claim(b.lease)), Err(StoreError::LeaseDead(_))), "taken over");
        b.run(command::CloseLease { id: OTHER }).expect("closes");
        assert!(matches!(b.run(claim(OTHER)), Err(StoreError::LeaseDead(_))), "given back");
        assert_eq!(b.state(1), None);
    }

    /// Proves K-17.
    a_healthy_lease_survives_a_stall: |b| {
        b.open_lease(OTHER);
        b.granted(1, Ask { safety: Safety::Transactional, ..ask(1) });
        b.clock.advance(10 * TERM_MS);
        let again = |n| Ask { safety: Safety::Transactional, lease: OTHER, ..ask(n) };
        assert_eq!(b.claim(1, again(2)), Verdict::InFlight { attempt: attempt(1) });
        assert!(matches!(b.renew(b.lease), LeaseAnswer::Held { .. }));
        assert_eq!(b.claim(1, again(3)), Verdict::InFlight { attempt: attempt(1) });
    }

    /// Proves K-6.
    a_deadline_ends_a_claim_on_a_healthy_lease: |b| {
        let short = |n| Ask { safety: Safety::Transactional, deadline_ms: Some(20_000), ..ask(n) };
        b.granted(1, short(1));
        b.pass(18_000, &[b.lease]);
        assert!(matches!(b.claim(1, short(2)), Verdict::InFlight { .. }));
        b.pass(3_000, &[b.lease]);
        assert_eq!(b.granted(1, short(3)), attempt(3));
        assert!(matches!(b.renew(b.lease), LeaseAnswer::Held { .. }));
    }

    /// Proves C-7 for the kernel.
    the_expiry_pass_finds_effects_of_dead_holders: |b| {
        b.open_lease(OTHER);
        b.granted(1, ask(1));
        b.granted(2, Ask { safety: RECONCILABLE, ..ask(2) });
        b.granted(3, Ask { safety: Safety::Transactional, ..ask(3) });
        b.granted(4, Ask { lease: OTHER, ..ask(4) });
        b.pass(30_000, &[OTHER]);
        assert_eq!(b.count(command::Expire { limit: 10 }), 2);
        let states = [1, 2, 3, 4].map(|key| b.state(key).expect("a record"));
        use StateName::{Indeterminate, Running, Unknown};
        assert_eq!(states, [Indeterminate, Unknown, Running, Running]);
    }

    /// Proves K-17: beats that are too far apart for one lease are near enough for another.
    a_silent_lease_with_a_short_term_does_not_slow_the_others: |b| {
        b.open_lease(OTHER);
        let id = LeaseId::from_bytes([55; 16]);
        let brief = command::OpenLease { id, term_ms: 1_000, holder: "brief".into(), forgetful: false };
        b.run(brief).expect("a lease opens");
        b.granted(1, ask(1));
        b.pass(30_000, &[OTHER]);
        assert_eq!(b.count(command::Expire { limit: 10 }), 1);
        assert_eq!(b.state(1), Some(StateName::Indeterminate));
    }

    /// Proves K-17.
    a_silent_lease_is_forgotten_in_bounded_time: |b| {
        b.open_lease(OTHER);
        let leases = |b: &Bench<'_>| b.view(|view| view.leases()).len();
        b.pass(30_000, &[OTHER]);
        b.count(command::Expire { limit: 10 });
        assert_eq!(leases(b), 2, "late, and perhaps coming back");
        b.pass(12 * TERM_MS, &[OTHER]);
        b.count(command::Expire { limit: 10 });
        assert_eq!(leases(b), 1);
        assert_eq!(b.renew(b.lease), LeaseAnswer::Dead);
    }

    /// Proves K-17.
    a_lease_has_a_minimum_term: |b| {
        let open = |n, term_ms| {
            let id = LeaseId::from_bytes([n; 16]);
            b.run(command::OpenLease { id, term_ms, holder: "brief".into(), forgetful: false })
        };
        let refused = open(60, Limits::SHORTEST_TERM_MS - 1);
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
        for (n, term_ms) in [(61, Limits::SHORTEST_TERM_MS), (62, Limits::SHORTEST_TERM_MS + 1)] {
            let opened = open(n, term_ms);
            assert!(matches!(opened, Ok(LeaseAnswer::Held { .. })), "{opened:?}");
        }
    }

    /// Proves K-11: a reset waits for holders that cache outcomes, until each has seen its notice.
    a_renewal_records_the_notice_that_its_holder_has_seen: |b| {
        b.granted(1, ask(1));
        b.settle(1, attempt(1), ok());
        b.reset(1, attempt(1));
        let notice = b.view(|view| view.notice());
        let renew = |seen| match b.run(command::RenewLease { id: b.lease, seen }) {
            Ok(LeaseAnswer::Held { lease, notice }) => (lease.seen, notice),
            other => panic!("not renewed: {other:?}"),
        };
        assert_eq!(renew(notice), (notice, notice));
        assert_eq!(renew(notice - 1), (notice - 1, notice), "an earlier request that comes later");
        assert_eq!(renew(notice + 1), (notice, notice), "a notice that this store never raised");
        let never = Lease::FORGETFUL;
        assert_eq!(renew(never), (never, notice));
        let id = b.lease;
        let stored = b.view(move |view| view.lease(id)).expect("a lease");
        assert_eq!(stored.seen, never);
    }

    /// Proves K-23: neither a stall of the store nor of the holder makes a reader take it for dead.
    a_holder_that_lives_is_never_shown_as_dead: |b| {
        b.open_lease(OTHER);
        b.granted(1, ask(1));
        assert_eq!(liveness(b, 1), Some(Liveness::Alive));
        b.clock.advance(10 * TERM_MS);
        assert_eq!(liveness(b, 1), Some(Liveness::Silent), "the store stalled");
        assert!(matches!(b.renew(b.lease), LeaseAnswer::Held { .. }));
        assert_eq!(liveness(b, 1), Some(Liveness::Alive));
        b.pass(30_000, &[OTHER]);
        assert_eq!(liveness(b, 1), Some(Liveness::Silent), "only the holder stalled");
        assert!(matches!(b.renew(b.lease), LeaseAnswer::Held { .. }));
        assert_eq!(liveness(b, 1), Some(Liveness::Alive));
        b.settle(1, attempt(1), ok());
        assert_eq!(liveness(b, 1), None);
    }

    /// Proves K-23: in every safety class, and before any claim or expiry pass.
    effects_without_a_holder_are_shown_before_they_are_expired: |b| {
        let opened = b.clock.now().wall;
        b.open_lease(OTHER);
        for (key, safety) in [(1, Safety::Transactional), (2, RECONCILABLE), (3, Safety::Opaque)] {
            b.granted(key, Ask { safety, ..ask(key) });
        }
        b.granted(4, Ask { lease: OTHER, ..ask(4) });
        b.granted(5, Ask { lease: OTHER, deadline_ms: Some(20_000), ..ask(5) });
        assert!(stuck(b).is_empty());
        b.pass(30_000, &[OTHER]);
        let silent = Some(Liveness::Silent);
        assert_eq!(stuck(b), [(5, silent), (3, silent), (2, silent), (1, silent)]);
        let holder = status(b, 1).and_then(|status| status.holder).expect("it runs");
        assert_eq!((holder.name.as_deref(), holder.since), (Some("test"), Some(opened)));
        let holder = status(b, 5).and_then(|status| status.holder).expect("it runs");
        assert_eq!(holder.since, Some(opened.plus_ms(20_000)), "its deadline");
        b.run(command::CloseLease { id: b.lease }).expect("closes");
        let dead = Some(Liveness::Dead);
        assert_eq!(stuck(b), [(5, silent), (3, dead), (2, dead), (1, dead)]);
        assert_eq!(b.count(command::Expire { limit: 10 }), 3);
        assert_eq!(stuck(b), [(5, None), (3, None), (2, None), (1, dead)]);
    }
}

fn status(b: &Bench<'_>, key: u8) -> Option<EffectStatus> {
    let status = b.view(move |view| {
        let effect = view.effects(&[name(key)])?.remove(0);
        let found = effect.map(|effect| EffectRecord { name: name(key), effect });
        statuses(view, found.into_iter().collect())
    });
    status.into_iter().next()
}

fn liveness(b: &Bench<'_>, key: u8) -> Option<Liveness> {
    status(b, key)?.liveness()
}

/// The keys of the effects that need attention, and whether their holders live.
fn stuck(b: &Bench<'_>) -> Vec<(u8, Option<Liveness>)> {
    let filter = Filter { limit: 10, ..Filter::default() };
    let found = b.view(move |view| crate::effect::stuck(view, &filter));
    found.iter().map(|found| (found.name.key.as_bytes()[0], found.liveness())).collect()
}
