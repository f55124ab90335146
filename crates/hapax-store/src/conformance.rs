//! The one suite that defines what a store is.
//!
//! A backend expands [`conformance!`](crate::conformance!) in a test file with a function
//! that opens an empty store on a given clock. Each case becomes one test; none is optional.

/// Declares the cases, so that each is one documented function.
macro_rules! cases {
    ($($(#[$doc:meta])* $case:ident: |$bench:ident| $body:block)*) => {
        $($(#[$doc])* pub fn $case($bench: &Bench<'_>) $body)*
    };
}

mod effect;
mod epoch;
mod journal;
mod lease;
mod limits;
mod lock;
mod outbox;
mod part;
mod result_index;
mod token;

pub use effect::*;
pub use epoch::*;
pub use journal::*;
pub use lease::*;
pub use limits::*;
pub use lock::*;
pub use outbox::*;
pub use part::*;
pub use result_index::*;
pub use token::*;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::checkpoint::Signer;
use hapax_core::effect::{
    Ask, Fenced, Finding, Judged, Report, Resolution, Safety, Seen, Settled, Settling, StateName,
    Verdict,
};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::journal::{Entry, EntryKind};
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::lock::LockKey;
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::Outcome;
use hapax_core::time::LeaseInstant;

use crate::clock::{Clock as _, ManualClock};
use crate::command::{self, LeaseAnswer};
use crate::effect::Filter;
use crate::error::StoreError;
use crate::job::{Job, Request};
use crate::journal::{Damage, Proof, plan_seal, verify};
use crate::limits::Limits;
use crate::outbox::Attachments;
use crate::step::Step;
use crate::store::{Store, call, read};
use crate::txn::View;

/// Expands to one named test per case, each on a fresh store.
///
/// ```text
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
            a_late_settle_of_an_attempt_that_was_not_overtaken_is_good
            a_finding_counts_as_of_when_the_reconciler_began_to_look
            not_found_counts_only_after_the_settling_time
            not_found_counts_at_once_where_the_target_refuses_late_arrivals
            a_reconciler_that_cannot_tell_ends_with_a_person
            a_judgement_of_another_attempt_is_fenced
            a_person_resolves_an_indeterminate_effect
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
            a_decision_about_a_state_that_was_not_shown_changes_nothing
            a_decision_about_a_state_that_was_guessed_changes_nothing
            two_grants_of_one_attempt_differ_by_their_fences
            only_settled_records_are_swept
            nothing_is_swept_while_the_clock_is_doubted
            large_outcomes_come_back_whole
            an_outcome_not_kept_is_still_a_success
            a_failing_command_leaves_its_neighbours_alone
            every_transition_is_journalled
            a_note_is_in_the_entry_of_the_claim_or_settle_that_gave_it
            the_journal_seals_and_verifies
            two_sealers_do_not_both_win
            an_entry_is_proved
            the_expiry_pass_finds_effects_of_dead_holders
            a_silent_lease_with_a_short_term_does_not_slow_the_others
            a_silent_lease_is_forgotten_in_bounded_time
            a_lease_has_a_minimum_term
            a_renewal_records_the_notice_that_its_holder_has_seen
            a_holder_that_lives_is_never_shown_as_dead
            effects_without_a_holder_are_shown_before_they_are_expired
            texts_are_kept_up_to_their_limits
            rollback_steps_are_kept_up_to_their_limits
            listing_filters_by_state_and_namespace
            a_token_counts_until_it_is_revoked
            a_key_counts_in_its_epoch_and_in_no_other
            effects_that_are_open_when_their_epoch_ends_are_voided
            an_epoch_only_grows
            a_claim_of_the_key_of_a_transition_is_overtaken
            a_step_of_an_epoch_has_a_limit
            every_field_survives_storage
            events_are_recorded_with_the_settle
            a_stale_claimant_emits_nothing
            an_event_that_cannot_be_recorded_settles_nothing
            what_is_recorded_can_be_followed
            deliveries_that_lie_far_apart_are_fed_in_order
            the_result_of_a_delivery_whose_row_moved_is_recorded
            events_are_judged_by_what_is_declared_of_their_dataset
            an_event_that_is_emitted_again_is_the_same_record
            a_version_is_published_once
            each_sink_has_a_delivery_of_its_own
            a_failed_delivery_waits_until_it_is_redriven
            what_a_receiver_forgot_is_not_redriven_by_accident
            buckets_belong_to_one_dispatcher
            a_dispatcher_that_was_overtaken_writes_nothing
            deliveries_are_read_in_order_and_none_is_passed_over
            every_field_of_a_record_survives_storage
            an_ontology_is_kept_until_another_takes_its_place
            a_result_of_an_ontology_that_changed_is_not_recorded
            a_result_is_found_by_its_ontology_text_and_parameters
            results_are_removed_by_last_use
            only_the_results_of_one_ontology_are_removed
            an_expired_result_leaves_the_index
            parts_are_found_by_their_whole_in_the_order_of_their_grants
            the_newest_claim_or_report_decides_the_body_of_a_part
            an_expired_part_is_gone
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
    /// Opens the lease that the cases' claims depend on.
    pub fn new(store: &'a dyn Store, clock: Arc<ManualClock>) -> Self {
        let bench = Self { store, clock, lease: LeaseId::from_bytes([1; 16]) };
        bench.open_lease(bench.lease);
        bench
    }

    fn open_lease(&self, id: LeaseId) {
        let command =
            command::OpenLease { id, term_ms: TERM_MS, holder: "test".into(), forgetful: false };
        self.run(command).expect("a lease opens");
    }

    fn run<R: Request>(&self, command: R) -> Result<R::Answer, StoreError> {
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
        self.run(command::Claim { name, ask }).expect("a verdict")
    }

    fn granted(&self, key: u8, ask: Ask) -> AttemptId {
        match self.claim(key, ask) {
            Verdict::Granted(grant) => grant.attempt,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn settle(&self, key: u8, attempt: AttemptId, report: Report) -> Settled {
        self.settle_with(key, attempt, report, Attachments::default()).expect("a settle")
    }

    fn settle_with(
        &self,
        key: u8,
        attempt: AttemptId,
        report: Report,
        attachments: Attachments,
    ) -> Result<Settled, StoreError> {
        let fence = Some(self.fence(key, attempt));
        self.run(command::Settle { name: name(key), attempt, fence, report, attachments })
    }

    /// The fence that an attempt was granted with last, which is the number of its entry.
    fn fence(&self, key: u8, attempt: AttemptId) -> Fence {
        let entries = self.entries(key);
        let granted =
            |entry: &&Entry| entry.event == EntryKind::Granted && entry.attempt == attempt;
        Fence(entries.iter().rev().find(granted).map_or(0, |entry| entry.id))
    }

    fn judged(&self, command: impl Request<Answer = Judged>) -> Judged {
        self.run(command).expect("a judgement")
    }

    fn reconcile(&self, key: u8, attempt: AttemptId, finding: Finding) -> Judged {
        self.reconcile_later(key, attempt, self.clock.now().lease, finding)
    }

    fn reconcile_later(
        &self,
        key: u8,
        attempt: AttemptId,
        looked: LeaseInstant,
        finding: Finding,
    ) -> Judged {
        let effect = self.view(move |view| Ok(view.effects(&[name(key)])?.remove(0)));
        let fence = effect.map_or(Fence(0), |effect| effect.fence);
        self.judged(command::Reconcile { name: name(key), attempt, fence, looked, finding })
    }

    fn resolve(&self, key: u8, attempt: AttemptId, resolution: Resolution) -> Judged {
        let (actor, note) = ("ann".into(), "looked at the bank".into());
        let seen = self.seen(key, attempt);
        self.judged(command::Resolve { name: name(key), seen, resolution, actor, note })
    }

    fn reset(&self, key: u8, attempt: AttemptId) -> Judged {
        let (actor, note) = ("ann".into(), "wrong file".into());
        let seen = self.seen(key, attempt);
        self.judged(command::Reset { name: name(key), seen, actor, note })
    }

    /// This attempt, and the state that a person who looks now is shown.
    fn seen(&self, key: u8, attempt: AttemptId) -> Seen {
        Seen { attempt, state: self.state(key).unwrap_or(StateName::Running) }
    }

    fn renew(&self, id: LeaseId) -> LeaseAnswer {
        self.run(command::RenewLease { id, seen: 0 }).expect("a renewal")
    }

    fn count(&self, command: impl Request<Answer = usize>) -> usize {
        self.run(command).expect("a count")
    }

    fn state(&self, key: u8) -> Option<StateName> {
        self.view(move |view| Ok(view.effects(&[name(key)])?.remove(0))).map(|e| e.state.name())
    }

    fn entries(&self, key: u8) -> Vec<Entry> {
        self.view(move |view| view.entries(Some(&name(key)), 0, 1000))
    }

    fn journal(&self, key: u8) -> Vec<(EntryKind, StateName)> {
        self.entries(key).into_iter().map(|entry| (entry.event, entry.state)).collect()
    }

    /// Lets time pass in steps that keep the store's pulse steady, renewing `keep`.
    fn pass(&self, ms: u64, keep: &[LeaseId]) {
        for _ in 0..ms / 3_000 {
            self.clock.advance(3_000);
            for id in keep {
                self.renew(*id);
            }
            self.run(command::RenewLease { id: LeaseId::from_bytes([99; 16]), seen: 0 })
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
        bound: None,
        label: None,
        ttl_ms: None,
        attempt: attempt(n),
        lease: LeaseId::from_bytes([1; 16]),
        deadline_ms: None,
        about: None,
        part: None,
    }
}

fn ok() -> Report {
    Report::Succeeded(Outcome::new(*b"done"))
}

fn replayed(outcome: Outcome) -> Verdict {
    Verdict::Replayed { outcome, expires: None, left_ms: None }
}

fn fenced(settled: &Settled) -> bool {
    matches!(settled, Settled::Fenced(_))
}

fn blocked_in(verdict: &Verdict, state: StateName) -> bool {
    matches!(verdict, Verdict::Blocked(blocked) if blocked.state == state)
}

const OTHER: LeaseId = LeaseId::from_bytes([2; 16]);
const RECONCILABLE: Safety = Safety::Reconcilable(Settling::AfterMs(60_000));
