//! How a store handles effects: claims, settles, judgements, expiry.

use hapax_core::epoch::Bound;

use super::epoch::domain;
use super::*;

/// The first bytes of the keys that a filter lets through.
fn listed(b: &Bench<'_>, filter: Filter) -> Vec<u8> {
    let found = b.view(move |view| view.list(&filter));
    found.iter().map(|found| found.name.key.as_bytes()[0]).collect()
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
        b.open_lease(OTHER);
        let elsewhere = b.claim(1, Ask { lease: OTHER, ..ask(1) });
        assert_eq!(elsewhere, Verdict::InFlight { attempt: attempt(1) }, "another holder");
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

    /// Proves K-5: also when the key was swept and made again.
    a_settle_of_a_swept_key_writes_nothing: |b| {
        assert!(fenced(&b.settle(1, attempt(1), ok())));
        assert_eq!(b.state(1), None);
        b.granted(1, Ask { ttl_ms: Some(1_000), ..ask(1) });
        b.settle(1, attempt(1), Report::Failed("no".into()));
        b.clock.advance(1_000);
        assert_eq!(b.count(command::Sweep { limit: 10 }), 1);
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
            b.count(command::Sweep { limit: 10 });
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

    /// Proves K-7: a reconciler that began to look before the settling time was over cannot have
    /// seen the last arrival, however late it reports.
    a_finding_counts_as_of_when_the_reconciler_began_to_look: |b| {
        b.granted(1, Ask { safety: RECONCILABLE, ..ask(1) });
        b.settle(1, attempt(1), Report::Ambiguous("timeout".into()));
        let looked = b.clock.now().lease;
        b.clock.advance(60_000);
        let judged = b.reconcile_later(1, attempt(1), looked, Finding::NotFound);
        assert!(matches!(judged, Judged::Undecided { not_before: Some(_) }), "{judged:?}");
        let found = Finding::Happened("found".into());
        let judged = b.reconcile_later(1, attempt(1), looked, found);
        assert_eq!(judged, Judged::Decided(StateName::Succeeded));
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
        let tries = (0..20)
            .take_while(|_| {
                let cannot = Finding::CannotTell("503".into());
                matches!(b.reconcile(1, attempt(1), cannot), Judged::Undecided { .. })
            })
            .count();
        assert_eq!(tries, hapax_core::effect::MAX_TRIES as usize - 1);
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
    a_person_resolves_an_indeterminate_effect: |b| {
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

    /// Proves K-4.
    a_partial_effect_is_blocked_until_rolled_back: |b| {
        b.granted(1, ask(1));
        b.settle(1, attempt(1), Report::Partial("half".into()));
        assert!(blocked_in(&b.claim(1, ask(2)), StateName::Partial));
        let stale = b.judged(command::RolledBack { name: name(1), attempt: attempt(2) });
        assert!(matches!(stale, Judged::Fenced(_)));
        let done = b.judged(command::RolledBack { name: name(1), attempt: attempt(1) });
        assert_eq!(done, Judged::Decided(StateName::Failed));
        assert_eq!(b.granted(1, ask(3)), attempt(3));
    }

    /// Proves P-9 for the durable registration of rollback steps.
    rollback_steps_keep_their_order: |b| {
        let register = |b: &Bench<'_>, by, step: &str| {
            let step = Step { name: step.into(), payload: vec![1, 2] };
            b.run(command::RegisterStep { name: name(1), attempt: attempt(by), step, nth: None })
        };
        b.granted(1, ask(1));
        for step in ["first", "second", "third"] {
            assert!(matches!(register(b, 1, step), Ok(Settled::Recorded)));
        }
        assert!(matches!(register(b, 2, "stale"), Ok(Settled::Fenced(_))));
        let steps = b.view(|view| view.steps(&name(1), attempt(1)));
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["first", "second", "third"]);
        // Where the caller numbers the steps, a step that is registered twice is one step.
        let numbered = |nth, step: &str| {
            let step = Step { name: step.into(), payload: vec![1, 2] };
            b.run(command::RegisterStep { name: name(1), attempt: attempt(1), step, nth: Some(nth) })
        };
        assert!(matches!(numbered(2, "third"), Ok(Settled::Repeated)));
        assert!(matches!(numbered(2, "other"), Err(StoreError::Invalid(_))));
        assert!(matches!(numbered(4, "fifth"), Err(StoreError::Invalid(_))));
        assert!(matches!(numbered(3, "fourth"), Ok(Settled::Recorded)));
        // Claimants name their attempts; another namespace has steps of its own.
        let other = Namespace::new("other").expect("a plain name");
        b.claim_in(&other, 1, ask(1));
        let theirs = Name { namespace: other, ..name(1) };
        assert_eq!(b.view(move |view| view.steps(&theirs, attempt(1))), []);
        let too_many = (0..=Limits::STEPS).map(|_| register(b, 1, "more")).filter(Result::is_err).count();
        assert_eq!(too_many, 5);
    }

    /// Proves K-11 and P-16.
    a_reset_begins_a_new_generation: |b| {
        b.granted(1, ask(1));
        b.settle(1, attempt(1), ok());
        let before = b.view(|view| view.notice());
        assert!(matches!(b.reset(1, attempt(9)), Judged::Fenced(_)));
        assert_eq!(b.reset(1, attempt(1)), Judged::Decided(StateName::Failed));
        assert_eq!(b.view(|view| view.notice()), before + 1);
        let other = Ask { fingerprint: Fingerprint::of(b"other"), ..ask(2) };
        assert_eq!(b.granted(1, other), attempt(2));
        let effect = b.view(|view| Ok(view.effects(&[name(1)])?.remove(0))).expect("a record");
        assert_eq!(effect.generation, 2);
    }

    /// Proves K-11.
    a_reset_is_refused_while_running: |b| {
        b.granted(1, ask(1));
        assert!(matches!(b.reset(1, attempt(1)), Judged::Fenced(_)));
        assert_eq!(b.settle(1, attempt(1), ok()), Settled::Recorded);
    }

    /// Proves K-21: neither a state that the command itself brought about, nor one that came after
    /// the person looked.
    a_decision_about_a_state_that_was_not_shown_changes_nothing: |b| {
        b.open_lease(OTHER);
        b.granted(1, Ask { lease: OTHER, ..ask(1) });
        let decide = |seen: Seen, reset: bool| {
            let (name, actor, note) = (name(1), "ann".into(), "looked".into());
            match reset {
                true => b.judged(command::Reset { name, seen, actor, note }),
                false => {
                    let resolution = Resolution::DidNotHappen;
                    b.judged(command::Resolve { name, seen, resolution, actor, note })
                }
            }
        };
        let running = b.seen(1, attempt(1));
        b.pass(30_000, &[b.lease]);
        let found = Fenced { state: Some(StateName::Indeterminate), attempt: Some(attempt(1)) };
        assert_eq!(decide(running, true), Judged::Fenced(found));
        assert_eq!(b.state(1), Some(StateName::Indeterminate), "its holder was found dead");
        let indeterminate = b.seen(1, attempt(1));
        assert_eq!(b.settle(1, attempt(1), ok()), Settled::Recorded, "late, and not overtaken");
        for reset in [true, false] {
            assert!(matches!(decide(indeterminate, reset), Judged::Fenced(_)));
        }
        assert_eq!(b.state(1), Some(StateName::Succeeded));
    }

    /// Proves K-20: the command itself found the holder dead, and a person who expected that was
    /// not shown it yet.
    a_decision_about_a_state_that_was_guessed_changes_nothing: |b| {
        b.open_lease(OTHER);
        b.granted(1, Ask { lease: OTHER, ..ask(1) });
        b.pass(30_000, &[b.lease]);
        assert_eq!(b.state(1), Some(StateName::Running), "what a person is shown");
        let reset = || {
            let seen = Seen { attempt: attempt(1), state: StateName::Indeterminate };
            let (name, actor, note) = (name(1), "ann".into(), "it must be dead".into());
            b.judged(command::Reset { name, seen, actor, note })
        };
        assert!(matches!(reset(), Judged::Fenced(_)));
        assert_eq!(b.state(1), Some(StateName::Indeterminate));
        assert!(matches!(reset(), Judged::Decided(_)), "now it is shown");
    }

    /// Proves K-20: the overtaken holder's settle writes nothing, the current holder's is recorded.
    two_grants_of_one_attempt_differ_by_their_fences: |b| {
        let grant = |ask| match b.claim(1, ask) {
            Verdict::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        };
        let first = grant(ask(1));
        b.settle(1, attempt(1), Report::Failed("no".into()));
        b.granted(1, ask(2));
        b.settle(1, attempt(2), Report::Failed("no".into()));
        let second = grant(ask(1));
        assert_eq!(first.attempt, second.attempt);
        let settle = |fence, report| {
            let (name, attachments) = (name(1), Attachments::default());
            b.run(command::Settle { name, attempt: attempt(1), fence, report, attachments })
                .expect("a settle")
        };
        assert!(fenced(&settle(Some(first.fence), ok())), "overtaken");
        assert!(fenced(&settle(None, ok())), "only a release may name no fence");
        assert_eq!(settle(Some(second.fence), ok()), Settled::Recorded);
        assert_eq!(settle(Some(second.fence), ok()), Settled::Repeated);
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
        assert_eq!(b.count(command::Sweep { limit: 10 }), 0);
        b.clock.advance(1_000);
        assert_eq!(b.granted(2, brief(12)), attempt(12), "expired counts as absent");
        assert_eq!(b.count(command::Sweep { limit: 10 }), 1);
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
        assert_eq!(b.count(command::Sweep { limit: 10 }), 0);
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
        assert_eq!(b.count(command::Sweep { limit: 10 }), 1);
        match b.claim(2, ask(9)) {
            Verdict::Replayed { outcome, .. } => assert_eq!(outcome.body(), Some(body.as_slice())),
            other => panic!("not replayed: {other:?}"),
        }
    }

    /// Proves K-12.
    an_outcome_not_kept_is_still_a_success: |b| {
        let outcome = Outcome::new(*b"too large").within(3);
        assert_eq!(outcome.body(), None);
        b.granted(1, ask(1));
        b.settle(1, attempt(1), Report::Succeeded(outcome.clone()));
        assert_eq!(b.claim(1, ask(2)), replayed(outcome));
    }

    /// Proves K-16.
    a_failing_command_leaves_its_neighbours_alone: |b| {
        let mut answers = Vec::new();
        let jobs = (1..=64).map(|key| {
            let label = (key == 20).then(|| "x".repeat(Limits::LABEL + 1));
            let claim = command::Claim { name: name(key), ask: Ask { label, ..ask(key) } };
            let (job, answer) = Job::of(claim);
            answers.push(answer);
            job
        });
        b.store.submit(jobs.collect());
        for (key, answer) in (1..=64u8).zip(answers) {
            let answer = wait(answer).expect("an answer");
            match key {
                20 => assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}"),
                _ => assert!(matches!(answer, Ok(Verdict::Granted(_))), "{answer:?}"),
            }
        }
        assert_eq!(b.state(20), None);
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
            let namespace = namespace.cloned();
            listed(b, Filter { namespace, states: states.to_vec(), limit, ..Filter::default() })
        };
        let default = Namespace::default();
        assert_eq!(list(None, &[], 10), [4, 3, 2, 1]);
        assert_eq!(list(Some(&default), &[], 2), [3, 2]);
        assert_eq!(list(Some(&default), &[StateName::Succeeded], 10), [2]);
        assert_eq!(list(Some(&other), &[], 10), [4]);
        let all = Filter { limit: 10, ..Filter::default() };
        let fence = b.view(|view| view.effects(&[name(3)]))[0].as_ref().map(|effect| effect.fence);
        assert_eq!(listed(b, Filter { before: fence, ..all.clone() }), [2, 1]);
        b.granted(5, Ask { label: Some("POST /charges %_".into()), ..ask(5) });
        for (label, found) in [("charges %", &[5][..]), ("harg%s", &[]), ("", &[5])] {
            assert_eq!(listed(b, Filter { label: Some(label.into()), ..all.clone() }), found);
        }
        let census = b.view(|view| view.census());
        assert_eq!(census, [(StateName::Running, 4), (StateName::Succeeded, 1)]);
    }

    /// Proves K-15: a record is read as it was written, whatever its state.
    every_field_survives_storage: |b| {
        let full = |n| Ask {
            safety: Safety::Reconcilable(Settling::AfterMs(77)),
            lock: Some(LockKey(u64::MAX - u64::from(n))),
            bound: (n % 2 == 0).then(|| Bound { domain: domain(), epoch: 0 }),
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
        let twice = reports.iter().flat_map(|report| [report, report]);
        for (key, report) in (1..).zip(twice) {
            for bench in [b, &memory] {
                bench.granted(key, full(key));
                if let Some(report) = report {
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
