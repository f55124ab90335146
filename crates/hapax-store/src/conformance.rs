//! The one suite that defines what a store is.
//!
//! A backend expands [`conformance!`](crate::conformance!) in a test file with a function
//! that opens an empty store on a given clock. Each case becomes one test; none is optional.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hapax_core::attempt::AttemptId;
use hapax_core::checkpoint::Signer;
use hapax_core::effect::{
    Ask, Finding, Judged, Report, Resolution, Safety, Settled, Settling, StateName, Verdict,
};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::journal::{Entry, Event};
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::lock::LockKey;
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::Outcome;

use crate::ManualClock;
use crate::command::{Answer, Command, Job, LeaseAnswer, Limits, Store, call, read};
use crate::error::StoreError;
use crate::journal::{Damage, Proof, plan_seal, verify};
use crate::txn::{Filter, Step, View};

/// Expands to one named test per case, each on a fresh store.
///
/// ```ignore
/// hapax_store::conformance!(|clock| MemoryStore::new(clock));
/// ```
#[macro_export]
macro_rules! conformance {
    ($open:expr) => {
        $crate::conformance!(@cases $open;
            a_new_key_is_granted_once
            a_claim_repeated_with_its_attempt_gives_the_same_answer
            another_payload_is_a_conflict_in_every_state
            a_settled_success_is_replayed
            a_settle_repeated_gives_the_same_answer
            a_failed_effect_is_granted_again
            a_stale_settle_writes_nothing_and_is_journalled
            a_settle_of_a_swept_key_writes_nothing
            fences_only_grow
            namespaces_do_not_see_each_other
            a_lapsed_transactional_claim_is_granted_again
            a_lapsed_opaque_claim_needs_a_person
            a_lapsed_reconcilable_claim_is_asked_about
            a_late_settle_that_nobody_overtook_is_good
            not_found_counts_only_after_the_settling_time
            not_found_counts_at_once_where_the_target_refuses_late_arrivals
            a_reconciler_that_cannot_tell_ends_with_a_person
            a_judgement_of_another_attempt_is_fenced
            a_person_decides
            a_dead_lease_is_not_renewed
            nothing_is_granted_on_a_dead_lease
            a_healthy_lease_survives_a_stall
            a_deadline_ends_a_claim_on_a_healthy_lease
            a_lock_serialises
            a_lock_is_kept_while_the_outcome_is_open
            a_lock_taken_from_a_lapsed_effect_voids_its_attempt
            a_partial_effect_is_blocked_until_rolled_back
            rollback_steps_keep_their_order
            a_reset_begins_a_new_generation
            a_reset_is_refused_while_running
            only_settled_records_are_swept
            nothing_is_swept_while_the_clock_is_doubted
            large_outcomes_come_back_whole
            an_outcome_not_kept_is_still_a_success
            a_failing_command_leaves_its_neighbours_alone
            every_transition_is_journalled
            the_journal_seals_and_verifies
            two_sealers_do_not_both_win
            an_entry_is_proved
            the_expiry_pass_surfaces_what_was_left
            listing_filters_by_state_and_namespace
            every_field_survives_storage
        );
    };
    (@cases $open:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let clock = std::sync::Arc::new($crate::ManualClock::default());
                let open: fn(std::sync::Arc<$crate::ManualClock>) -> _ = $open;
                let store = open(clock.clone());
                $crate::conformance::$case(&$crate::conformance::Bench::new(&store, clock));
            }
        )*
    };
}

/// A store under test and what a case needs to drive it.
pub struct Bench<'a> {
    store: &'a dyn Store,
    clock: Arc<ManualClock>,
    lease: LeaseId,
}

/// The lease length every case uses.
const TERM_MS: u64 = 9_000;

impl<'a> Bench<'a> {
    /// Opens the lease that the cases hang their claims on.
    pub fn new(store: &'a dyn Store, clock: Arc<ManualClock>) -> Self {
        let bench = Self { store, clock, lease: LeaseId::from_bytes([1; 16]) };
        bench.open_lease(bench.lease);
        bench
    }

    fn open_lease(&self, id: LeaseId) {
        let command = Command::OpenLease { id, term_ms: TERM_MS, holder: "test".into() };
        self.run(command).expect("a lease opens");
    }

    fn run(&self, command: Command) -> Result<Answer, StoreError> {
        wait(call(self.store, command))
    }

    fn view<T: Send + 'static>(
        &self,
        reading: impl FnOnce(&mut dyn View) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        wait(read(self.store, reading)).expect("a read succeeds")
    }

    fn claim(&self, key: u8, ask: Ask) -> Verdict {
        self.claim_in(&Namespace::default(), key, ask)
    }

    fn claim_in(&self, namespace: &Namespace, key: u8, ask: Ask) -> Verdict {
        let name = Name { namespace: namespace.clone(), ..name(key) };
        match self.run(Command::Claim { name, ask }) {
            Ok(Answer::Claim(verdict)) => verdict,
            other => panic!("not an answer to a claim: {other:?}"),
        }
    }

    fn granted(&self, key: u8, ask: Ask) -> AttemptId {
        match self.claim(key, ask) {
            Verdict::Granted(grant) => grant.attempt,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn settle(&self, key: u8, attempt: AttemptId, report: Report) -> Settled {
        match self.run(Command::Settle { name: name(key), attempt, report }) {
            Ok(Answer::Settle(settled)) => settled,
            other => panic!("not an answer to a settle: {other:?}"),
        }
    }

    fn judged(&self, command: Command) -> Judged {
        match self.run(command) {
            Ok(Answer::Judged(judged)) => judged,
            other => panic!("not an answer to a judgement: {other:?}"),
        }
    }

    fn reconcile(&self, key: u8, attempt: AttemptId, finding: Finding) -> Judged {
        self.judged(Command::Reconcile { name: name(key), attempt, finding })
    }

    fn resolve(&self, key: u8, attempt: AttemptId, resolution: Resolution) -> Judged {
        let (actor, note) = ("ann".into(), "looked at the bank".into());
        self.judged(Command::Resolve { name: name(key), attempt, resolution, actor, note })
    }

    fn renew(&self, id: LeaseId) -> LeaseAnswer {
        match self.run(Command::RenewLease { id, seen: 0 }) {
            Ok(Answer::Lease(answer)) => answer,
            other => panic!("not an answer to a renewal: {other:?}"),
        }
    }

    fn count(&self, command: Command) -> usize {
        match self.run(command) {
            Ok(Answer::Count(count)) => count,
            other => panic!("not a count: {other:?}"),
        }
    }

    fn state(&self, key: u8) -> Option<StateName> {
        self.view(move |view| Ok(view.effects(&[name(key)])?.remove(0))).map(|e| e.state.name())
    }

    fn journal(&self, key: u8) -> Vec<(Event, StateName)> {
        let entries = self.view(move |view| view.entries(Some(&name(key)), 0, 1000));
        entries.into_iter().map(|entry| (entry.event, entry.state)).collect()
    }

    /// Lets time pass in steps that keep the store's pulse steady, renewing `keep`.
    fn pass(&self, ms: u64, keep: &[LeaseId]) {
        for _ in 0..ms / 3_000 {
            self.clock.advance(3_000);
            for id in keep {
                self.renew(*id);
            }
            self.run(Command::RenewLease { id: LeaseId::from_bytes([99; 16]), seen: 0 })
                .expect("beats");
        }
    }

    fn seal(&self, signer: &Arc<Signer>) -> usize {
        let signer = signer.clone();
        match self.view(move |view| plan_seal(view, &signer, 1000)) {
            Some(command) => self.count(command),
            None => 0,
        }
    }
}

/// Polls a store's answer until it is there; a store that never answers fails the case.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        assert!(Instant::now() < deadline, "the store does not answer");
        std::thread::yield_now();
    }
}

fn name(key: u8) -> Name {
    Name { namespace: Namespace::default(), key: Key::from_bytes([key; 32]) }
}

fn attempt(n: u8) -> AttemptId {
    AttemptId::from_bytes([n; 16])
}

fn ask(n: u8) -> Ask {
    Ask {
        fingerprint: Fingerprint::of(b"payload"),
        safety: Safety::Opaque,
        lock: None,
        label: None,
        ttl_ms: None,
        attempt: attempt(n),
        lease: LeaseId::from_bytes([1; 16]),
        deadline_ms: None,
    }
}

fn ok() -> Report {
    Report::Succeeded(Outcome::new(*b"done"))
}

fn replayed(outcome: Outcome) -> Verdict {
    Verdict::Replayed { outcome, expires: None }
}

fn fenced(settled: &Settled) -> bool {
    matches!(settled, Settled::Fenced(_))
}

fn blocked_in(verdict: &Verdict, state: StateName) -> bool {
    matches!(verdict, Verdict::Blocked(blocked) if blocked.state == state)
}

const OTHER: LeaseId = LeaseId::from_bytes([2; 16]);
const RECONCILABLE: Safety = Safety::Reconcilable(Settling::AfterMs(60_000));

/// Declares the cases, so that each is one documented function.
macro_rules! cases {
    ($($(#[$doc:meta])* $case:ident: |$bench:ident| $body:block)*) => {
        $($(#[$doc])* pub fn $case($bench: &Bench<'_>) $body)*
    };
}

cases! {
    /// Proves K-3.
    a_new_key_is_granted_once: |b| {
        b.granted(1, ask(1));
        assert_eq!(b.claim(1, ask(2)), Verdict::InFlight { attempt: attempt(1) });
        assert_eq!(b.state(1), Some(StateName::Running));
        assert_eq!(b.journal(1).len(), 1);
    }

    /// Proves K-5.
    a_claim_repeated_with_its_attempt_gives_the_same_answer: |b| {
        let first = b.claim(1, ask(1));
        assert_eq!(b.claim(1, ask(1)), first);
        assert_eq!(b.journal(1).len(), 1);
        b.settle(1, attempt(1), Report::Failed("no".into()));
        assert!(matches!(b.claim(1, ask(1)), Verdict::Refused { .. }));
    }

    /// Proves K-3: the fingerprint is judged before everything else.
    another_payload_is_a_conflict_in_every_state: |b| {
        let other = |n| Ask { fingerprint: Fingerprint::of(b"other"), ..ask(n) };
        let conflict = |b: &Bench<'_>, key| matches!(b.claim(key, other(50)), Verdict::Conflict { .. });
        for (key, report) in [
            (1, None),
            (2, Some(ok())),
            (3, Some(Report::Failed("no".into()))),
            (4, Some(Report::Partial("half".into()))),
            (5, Some(Report::Ambiguous("?".into()))),
        ] {
            b.granted(key, ask(key));
            if let Some(report) = report {
                b.settle(key, attempt(key), report);
            }
            assert!(conflict(b, key), "key {key}");
        }
    }

    /// Proves K-3.
    a_settled_success_is_replayed: |b| {
        b.granted(1, ask(1));
        assert_eq!(b.settle(1, attempt(1), ok()), Settled::Recorded);
        assert_eq!(b.claim(1, ask(2)), replayed(Outcome::new(*b"done")));
        assert_eq!(b.journal(1).len(), 2);
    }

    /// Proves K-5.
    a_settle_repeated_gives_the_same_answer: |b| {
        b.granted(1, ask(1));
        b.settle(1, attempt(1), ok());
        assert_eq!(b.settle(1, attempt(1), ok()), Settled::Repeated);
        assert!(fenced(&b.settle(1, attempt(1), Report::Failed("no".into()))));
        assert_eq!(b.journal(1).len(), 2);
    }

    /// Proves K-4.
    a_failed_effect_is_granted_again: |b| {
        b.granted(1, ask(1));
        b.settle(1, attempt(1), Report::Failed("no".into()));
        match b.claim(1, ask(2)) {
            Verdict::Granted(grant) => assert_eq!((grant.attempt, grant.nth), (attempt(2), 2)),
            other => panic!("not granted: {other:?}"),
        }
        assert!(fenced(&b.settle(1, attempt(1), Report::Failed("no".into()))));
    }

    /// Proves K-5: a rejected success is journalled as a contradiction.
    a_stale_settle_writes_nothing_and_is_journalled: |b| {
        b.granted(1, ask(1));
        b.settle(1, attempt(1), Report::Failed("no".into()));
        b.granted(1, ask(2));
        assert!(fenced(&b.settle(1, attempt(1), ok())));
        assert_eq!(b.state(1), Some(StateName::Running));
        assert_eq!(b.journal(1).last(), Some(&(Event::Contradicted, StateName::Running)));
        assert_eq!(b.settle(1, attempt(2), ok()), Settled::Recorded);
    }

    /// Proves K-5: also when the key was swept and made again.
    a_settle_of_a_swept_key_writes_nothing: |b| {
        assert!(fenced(&b.settle(1, attempt(1), ok())));
        assert_eq!(b.state(1), None);
        b.granted(1, Ask { ttl_ms: Some(1_000), ..ask(1) });
        b.settle(1, attempt(1), Report::Failed("no".into()));
        b.clock.advance(1_000);
        assert_eq!(b.count(Command::Sweep { limit: 10 }), 1);
        b.granted(1, ask(2));
        assert!(fenced(&b.settle(1, attempt(1), ok())));
        assert_eq!(b.state(1), Some(StateName::Running));
    }

    /// Proves K-5.
    fences_only_grow: |b| {
        let mut last = 0;
        for n in 1..=20 {
            match b.claim(n % 3, Ask { ttl_ms: Some(1), ..ask(n) }) {
                Verdict::Granted(grant) => {
                    assert!(grant.fence.0 > last);
                    last = grant.fence.0;
                }
                other => panic!("not granted: {other:?}"),
            }
            b.settle(n % 3, attempt(n), Report::Failed("no".into()));
            b.clock.advance(1);
            b.count(Command::Sweep { limit: 10 });
        }
    }

    /// Proves K-14.
    namespaces_do_not_see_each_other: |b| {
        b.granted(1, ask(1));
        let other = Namespace::new("other").expect("a plain name");
        assert!(matches!(b.claim_in(&other, 1, ask(2)), Verdict::Granted(_)));
        b.settle(1, attempt(1), ok());
        assert!(matches!(b.claim_in(&other, 1, ask(3)), Verdict::InFlight { .. }));
        let locked = |n| Ask { lock: Some(LockKey(7)), ..ask(n) };
        b.granted(4, locked(4));
        assert!(matches!(b.claim_in(&other, 5, locked(5)), Verdict::Granted(_)));
    }

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
    a_late_settle_that_nobody_overtook_is_good: |b| {
        b.open_lease(OTHER);
        for (key, safety) in [(1, Safety::Transactional), (2, RECONCILABLE), (3, Safety::Opaque)] {
            b.granted(key, Ask { safety, ..ask(key) });
        }
        b.pass(30_000, &[OTHER]);
        b.count(Command::Expire { limit: 10 });
        for key in 1..=3 {
            assert_eq!(b.settle(key, attempt(key), ok()), Settled::Recorded, "key {key}");
        }
    }

    /// Proves K-7.
    not_found_counts_only_after_the_settling_time: |b| {
        b.granted(1, Ask { safety: RECONCILABLE, ..ask(1) });
        b.settle(1, attempt(1), Report::Ambiguous("timeout".into()));
        let early = b.reconcile(1, attempt(1), Finding::NotFound);
        assert!(matches!(early, Judged::Undecided { not_before: Some(_) }), "{early:?}");
        assert_eq!(b.state(1), Some(StateName::Unknown));
        b.clock.advance(60_000);
        let late = b.reconcile(1, attempt(1), Finding::NotFound);
        assert_eq!(late, Judged::Decided(StateName::Failed));
    }

    /// Proves K-7.
    not_found_counts_at_once_where_the_target_refuses_late_arrivals: |b| {
        let safety = Safety::Reconcilable(Settling::TargetRefusesLate);
        b.granted(1, Ask { safety, ..ask(1) });
        b.settle(1, attempt(1), Report::Ambiguous("timeout".into()));
        let judged = b.reconcile(1, attempt(1), Finding::NotFound);
        assert_eq!(judged, Judged::Decided(StateName::Failed));
    }

    /// Proves K-7.
    a_reconciler_that_cannot_tell_ends_with_a_person: |b| {
        b.granted(1, Ask { safety: RECONCILABLE, ..ask(1) });
        b.settle(1, attempt(1), Report::Ambiguous("timeout".into()));
        let asked = (0..20)
            .take_while(|_| {
                let cannot = Finding::CannotTell("503".into());
                matches!(b.reconcile(1, attempt(1), cannot), Judged::Undecided { .. })
            })
            .count();
        assert_eq!(asked, hapax_core::effect::MAX_TRIES as usize - 1);
        assert_eq!(b.state(1), Some(StateName::Indeterminate));
        let again = b.resolve(1, attempt(1), Resolution::AskAgain);
        assert_eq!(again, Judged::Decided(StateName::Unknown));
    }

    /// Proves K-5.
    a_judgement_of_another_attempt_is_fenced: |b| {
        b.granted(1, Ask { safety: RECONCILABLE, ..ask(1) });
        b.settle(1, attempt(1), Report::Ambiguous("timeout".into()));
        assert!(matches!(b.reconcile(1, attempt(9), Finding::NotFound), Judged::Fenced(_)));
        assert!(matches!(b.resolve(1, attempt(9), Resolution::Skip), Judged::Fenced(_)));
        assert_eq!(b.state(1), Some(StateName::Unknown));
    }

    /// Proves K-4.
    a_person_decides: |b| {
        for (key, resolution, state) in [
            (1, Resolution::Happened(Outcome::new(*b"seen")), StateName::Succeeded),
            (2, Resolution::DidNotHappen, StateName::Failed),
            (3, Resolution::Skip, StateName::Skipped),
        ] {
            b.granted(key, ask(key));
            b.settle(key, attempt(key), Report::Ambiguous("?".into()));
            assert_eq!(b.resolve(key, attempt(key), resolution), Judged::Decided(state));
            let entries = b.view(move |view| view.entries(Some(&name(key)), 0, 10));
            let last = entries.last().expect("an entry");
            assert_eq!(last.actor.as_deref(), Some("ann"));
            assert_eq!(last.note.as_deref(), Some("looked at the bank"));
        }
        assert_eq!(b.claim(1, ask(11)), replayed(Outcome::new(*b"seen")));
        assert_eq!(b.granted(2, ask(12)), attempt(12));
        assert!(matches!(b.claim(3, ask(13)), Verdict::Refused { .. }));
        let again = b.resolve(1, attempt(1), Resolution::DidNotHappen);
        assert!(matches!(again, Judged::Fenced(_)), "a success is immutable");
    }

    /// Proves K-6.
    a_dead_lease_is_not_renewed: |b| {
        assert!(matches!(b.renew(b.lease), LeaseAnswer::Held { .. }));
        b.run(Command::CloseLease { id: b.lease }).expect("closes");
        assert_eq!(b.renew(b.lease), LeaseAnswer::Dead);
        assert_eq!(b.renew(LeaseId::from_bytes([77; 16])), LeaseAnswer::Dead);
    }

    /// Proves K-6.
    nothing_is_granted_on_a_dead_lease: |b| {
        let claim = |lease| Command::Claim { name: name(1), ask: Ask { lease, ..ask(1) } };
        assert!(matches!(b.run(claim(OTHER)), Err(StoreError::LeaseDead(_))));
        b.run(Command::CloseLease { id: b.lease }).expect("closes");
        assert!(matches!(b.run(claim(b.lease)), Err(StoreError::LeaseDead(_))));
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

    /// Proves K-8: the settle releases the lock.
    a_lock_serialises: |b| {
        let locked = |n| Ask { lock: Some(LockKey(7)), ..ask(n) };
        b.granted(1, locked(1));
        assert_eq!(b.claim(2, locked(2)), Verdict::Locked { holder: name(1).key });
        assert_eq!(b.state(2), None);
        b.granted(3, Ask { lock: Some(LockKey(8)), ..ask(3) });
        b.settle(1, attempt(1), ok());
        assert_eq!(b.granted(2, locked(4)), attempt(4));
    }

    /// Proves P-8.
    a_lock_is_kept_while_the_outcome_is_open: |b| {
        let locked = |n| Ask { lock: Some(LockKey(7)), ..ask(n) };
        b.granted(1, locked(1));
        b.settle(1, attempt(1), Report::Partial("half".into()));
        match b.claim(2, locked(2)) {
            Verdict::Blocked(blocked) => {
                assert_eq!(blocked.holder, Some(name(1).key));
                assert_eq!(blocked.state, StateName::Partial);
            }
            other => panic!("not blocked: {other:?}"),
        }
        b.judged(Command::RolledBack { name: name(1), attempt: attempt(1) });
        assert_eq!(b.granted(2, locked(3)), attempt(3));
    }

    /// Proves K-5: an effect that lost only its lock is fenced.
    a_lock_taken_from_a_lapsed_effect_voids_its_attempt: |b| {
        b.open_lease(OTHER);
        let locked = |n| Ask { lock: Some(LockKey(7)), safety: Safety::Transactional, ..ask(n) };
        b.granted(1, locked(1));
        b.pass(30_000, &[OTHER]);
        assert_eq!(b.granted(2, Ask { lease: OTHER, ..locked(2) }), attempt(2));
        assert_eq!(b.state(1), Some(StateName::Failed));
        assert!(fenced(&b.settle(1, attempt(1), ok())));
        assert!(matches!(b.claim(3, Ask { lease: OTHER, ..locked(3) }), Verdict::Locked { .. }));
    }

    /// Proves K-4.
    a_partial_effect_is_blocked_until_rolled_back: |b| {
        b.granted(1, ask(1));
        b.settle(1, attempt(1), Report::Partial("half".into()));
        assert!(blocked_in(&b.claim(1, ask(2)), StateName::Partial));
        let stale = b.judged(Command::RolledBack { name: name(1), attempt: attempt(2) });
        assert!(matches!(stale, Judged::Fenced(_)));
        let done = b.judged(Command::RolledBack { name: name(1), attempt: attempt(1) });
        assert_eq!(done, Judged::Decided(StateName::Failed));
        assert_eq!(b.granted(1, ask(3)), attempt(3));
    }

    /// Proves P-9 for the durable registration of rollback steps.
    rollback_steps_keep_their_order: |b| {
        let register = |b: &Bench<'_>, by, step: &str| {
            let step = Step { name: step.into(), payload: vec![1, 2] };
            b.run(Command::RegisterStep { name: name(1), attempt: attempt(by), step })
        };
        b.granted(1, ask(1));
        for step in ["first", "second", "third"] {
            assert!(matches!(register(b, 1, step), Ok(Answer::Settle(Settled::Recorded))));
        }
        assert!(matches!(register(b, 2, "stale"), Ok(Answer::Settle(Settled::Fenced(_)))));
        let steps = b.view(|view| view.steps(&name(1), attempt(1)));
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["first", "second", "third"]);
        let too_many = (0..=Limits::STEPS).map(|_| register(b, 1, "more")).filter(Result::is_err).count();
        assert_eq!(too_many, 4);
    }

    /// Proves K-11 and P-16.
    a_reset_begins_a_new_generation: |b| {
        b.granted(1, ask(1));
        b.settle(1, attempt(1), ok());
        let before = b.view(|view| view.notice());
        let reset = |by| Command::Reset { name: name(1), attempt: attempt(by), actor: "ann".into(), note: "wrong file".into() };
        assert!(matches!(b.judged(reset(9)), Judged::Fenced(_)));
        assert_eq!(b.judged(reset(1)), Judged::Decided(StateName::Failed));
        assert_eq!(b.view(|view| view.notice()), before + 1);
        let other = Ask { fingerprint: Fingerprint::of(b"other"), ..ask(2) };
        assert_eq!(b.granted(1, other), attempt(2));
        let effect = b.view(|view| Ok(view.effects(&[name(1)])?.remove(0))).expect("a record");
        assert_eq!(effect.generation, 2);
    }

    /// Proves K-11.
    a_reset_is_refused_while_running: |b| {
        b.granted(1, ask(1));
        let (actor, note) = ("ann".into(), "impatient".into());
        let judged = b.judged(Command::Reset { name: name(1), attempt: attempt(1), actor, note });
        assert!(matches!(judged, Judged::Fenced(_)));
        assert_eq!(b.settle(1, attempt(1), ok()), Settled::Recorded);
    }

    /// Proves K-11.
    only_settled_records_are_swept: |b| {
        let brief = |n| Ask { ttl_ms: Some(1_000), ..ask(n) };
        let reports = [
            None,
            Some(ok()),
            Some(Report::Failed("no".into())),
            Some(Report::Partial("half".into())),
            Some(Report::Ambiguous("?".into())),
        ];
        for (key, report) in (1..).zip(reports) {
            b.granted(key, brief(key));
            if let Some(report) = report {
                b.settle(key, attempt(key), report);
            }
        }
        b.granted(9, ask(9));
        b.settle(9, attempt(9), ok());
        let before = b.view(|view| view.last_entry());
        assert_eq!(b.count(Command::Sweep { limit: 10 }), 0);
        b.clock.advance(1_000);
        assert_eq!(b.granted(2, brief(12)), attempt(12), "expired counts as absent");
        assert_eq!(b.count(Command::Sweep { limit: 10 }), 1);
        assert_eq!(b.state(3), None);
        for key in [1, 2, 4, 5, 9] {
            assert!(b.state(key).is_some(), "key {key}");
        }
        assert_eq!(b.view(|view| view.last_entry()), before + 1, "the journal is left alone");
    }

    /// Proves K-17.
    nothing_is_swept_while_the_clock_is_doubted: |b| {
        b.granted(1, Ask { ttl_ms: Some(1_000), ..ask(1) });
        b.settle(1, attempt(1), ok());
        b.clock.change(|now| {
            now.wall = now.wall.plus_ms(315_360_000_000);
            now.wall_trusted = false;
        });
        assert_eq!(b.count(Command::Sweep { limit: 10 }), 0);
        assert!(matches!(b.claim(1, ask(2)), Verdict::Replayed { .. }));
    }

    /// Proves K-12.
    large_outcomes_come_back_whole: |b| {
        let body: Vec<u8> = (0..300_000u32).flat_map(|i| (i % 977).to_be_bytes()).collect();
        for key in [1, 2] {
            b.granted(key, Ask { ttl_ms: Some(u64::from(key) * 1_000), ..ask(key) });
            b.settle(key, attempt(key), Report::Succeeded(Outcome::new(body.clone())));
        }
        b.clock.advance(1_000);
        assert_eq!(b.count(Command::Sweep { limit: 10 }), 1);
        match b.claim(2, ask(9)) {
            Verdict::Replayed { outcome, .. } => assert_eq!(outcome.body(), Some(body.as_slice())),
            other => panic!("not replayed: {other:?}"),
        }
    }

    /// Proves K-12.
    an_outcome_not_kept_is_still_a_success: |b| {
        let outcome = Outcome::new(*b"too large").within(3);
        b.granted(1, ask(1));
        b.settle(1, attempt(1), Report::Succeeded(outcome.clone()));
        assert_eq!(b.claim(1, ask(2)), replayed(outcome));
    }

    /// Proves K-16.
    a_failing_command_leaves_its_neighbours_alone: |b| {
        let mut answers = Vec::new();
        let jobs = (1..=64).map(|key| {
            let label = (key == 20).then(|| "x".repeat(Limits::LABEL + 1));
            let (reply, answer) = tokio::sync::oneshot::channel();
            answers.push(answer);
            Job { command: Command::Claim { name: name(key), ask: Ask { label, ..ask(key) } }, reply }
        });
        b.store.submit(jobs.collect());
        for (key, answer) in (1..=64u8).zip(answers) {
            let answer = wait(answer).expect("an answer");
            match key {
                20 => assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}"),
                _ => assert!(matches!(answer, Ok(Answer::Claim(Verdict::Granted(_)))), "{answer:?}"),
            }
        }
        assert_eq!(b.state(20), None);
    }

    /// Proves K-4 and K-13.
    every_transition_is_journalled: |b| {
        b.granted(1, Ask { safety: RECONCILABLE, ..ask(1) });
        b.settle(1, attempt(1), Report::Ambiguous("timeout".into()));
        b.reconcile(1, attempt(1), Finding::CannotTell("503".into()));
        b.resolve(1, attempt(1), Resolution::DidNotHappen);
        b.granted(1, Ask { safety: RECONCILABLE, ..ask(2) });
        b.settle(1, attempt(2), ok());
        assert_eq!(b.journal(1), [
            (Event::Granted, StateName::Running),
            (Event::Settled, StateName::Unknown),
            (Event::Reconciled, StateName::Unknown),
            (Event::Resolved, StateName::Failed),
            (Event::Granted, StateName::Running),
            (Event::Settled, StateName::Succeeded),
        ]);
    }

    /// Proves K-13.
    the_journal_seals_and_verifies: |b| {
        let signer = Arc::new(Signer::from_seed(&[5; 32]));
        for key in 0..=255 {
            b.granted(key, ask(key));
            if key % 100 == 0 {
                assert!(b.seal(&signer) > 0);
            }
            b.settle(key, attempt(key), ok());
        }
        assert!(b.seal(&signer) > 0);
        assert_eq!(b.seal(&signer), 0);
        let found = b.view({
            let verifier = signer.verifier();
            move |view| verify(view, &verifier, |_, _| {})
        });
        assert_eq!((found.sealed, found.pending, found.damage.len()), (512, 0, 0));
        assert!(found.heads >= 4);
        let wrong = Signer::from_seed(&[6; 32]).verifier();
        let doubted = b.view(move |view| verify(view, &wrong, |_, _| {}));
        assert!(matches!(doubted.damage[0], Damage::Head { .. }));
    }

    /// Proves K-13: sealing is fenced by the size it was planned on.
    two_sealers_do_not_both_win: |b| {
        let signer = Arc::new(Signer::from_seed(&[5; 32]));
        b.granted(1, ask(1));
        let plan = |b: &Bench<'_>| {
            let signer = signer.clone();
            b.view(move |view| plan_seal(view, &signer, 1000)).expect("something to seal")
        };
        let (first, second) = (plan(b), plan(b));
        assert_eq!(b.count(first), 1);
        assert_eq!(b.count(second), 0);
    }

    /// Proves K-13.
    an_entry_is_proved: |b| {
        let signer = Arc::new(Signer::from_seed(&[5; 32]));
        for key in 1..=9 {
            b.granted(key, ask(key));
        }
        assert_eq!(b.view(|view| Proof::of(view, 4)), None, "not sealed yet");
        b.seal(&signer);
        let proof = b.view(|view| Proof::of(view, 4)).expect("a proof");
        assert_eq!(proof.entry.key, name(4).key);
        assert!(proof.verify(&signer.verifier()).is_ok());
        let forged = Proof { entry: Entry { generation: 9, ..proof.entry.clone() }, ..proof };
        assert!(forged.verify(&signer.verifier()).is_err());
    }

    /// Proves C-7 for the kernel.
    the_expiry_pass_surfaces_what_was_left: |b| {
        b.open_lease(OTHER);
        b.granted(1, ask(1));
        b.granted(2, Ask { safety: RECONCILABLE, ..ask(2) });
        b.granted(3, Ask { safety: Safety::Transactional, ..ask(3) });
        b.granted(4, Ask { lease: OTHER, ..ask(4) });
        b.pass(30_000, &[OTHER]);
        assert_eq!(b.count(Command::Expire { limit: 10 }), 2);
        let states = [1, 2, 3, 4].map(|key| b.state(key).expect("a record"));
        use StateName::{Indeterminate, Running, Unknown};
        assert_eq!(states, [Indeterminate, Unknown, Running, Running]);
    }

    /// Proves K-14 for listings.
    listing_filters_by_state_and_namespace: |b| {
        let other = Namespace::new("other").expect("a plain name");
        for key in 1..=3 {
            b.granted(key, ask(key));
        }
        b.claim_in(&other, 4, ask(4));
        b.settle(2, attempt(2), ok());
        let list = |namespace: Option<&Namespace>, states: &[StateName], limit| {
            let filter = Filter { namespace: namespace.cloned(), states: states.to_vec(), limit };
            let found = b.view(move |view| view.list(&filter));
            found.iter().map(|found| found.name.key.as_bytes()[0]).collect::<Vec<_>>()
        };
        let default = Namespace::default();
        assert_eq!(list(None, &[], 10), [4, 3, 2, 1]);
        assert_eq!(list(Some(&default), &[], 2), [3, 2]);
        assert_eq!(list(Some(&default), &[StateName::Succeeded], 10), [2]);
        assert_eq!(list(Some(&other), &[], 10), [4]);
        let census = b.view(|view| view.census());
        assert_eq!(census, [(StateName::Running, 3), (StateName::Succeeded, 1)]);
    }

    /// Proves K-15: a record is read as it was written, whatever its state.
    every_field_survives_storage: |b| {
        let full = |n| Ask {
            safety: Safety::Reconcilable(Settling::AfterMs(77)),
            lock: Some(LockKey(u64::MAX - u64::from(n))),
            label: Some("naïve\u{1F3DF}".into()),
            ttl_ms: Some(1 << 40),
            deadline_ms: Some(12_345),
            ..ask(n)
        };
        let reports = [
            None,
            Some(ok()),
            Some(Report::Succeeded(Outcome::new(Vec::new()))),
            Some(Report::Failed("a reason".into())),
            Some(Report::Released("not delivered".into())),
            Some(Report::Partial("half".into())),
            Some(Report::Ambiguous("who knows".into())),
        ];
        let oracle = crate::MemoryStore::new(b.clock.clone());
        let memory = Bench::new(&oracle, b.clock.clone());
        for (key, report) in (1..).zip(reports) {
            for bench in [b, &memory] {
                bench.granted(key, full(key));
                if let Some(report) = &report {
                    bench.settle(key, attempt(key), report.clone());
                }
            }
            let load = |bench: &Bench<'_>| bench.view(move |view| view.effects(&[name(key)]));
            assert_eq!(load(b), load(&memory), "key {key}");
        }
        let everything = |bench: &Bench<'_>| bench.view(|view| view.entries(None, 0, 1000));
        assert_eq!(everything(b), everything(&memory));
    }
}
