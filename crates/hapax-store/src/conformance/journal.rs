//! How a store handles the journal.

use super::*;

cases! {
    /// Proves K-5: a rejected success is journalled as a contradiction.
    a_stale_settle_writes_nothing_and_is_journalled: |b| {
        b.granted(1, ask(1));
        b.settle(1, attempt(1), Report::Failed("no".into()));
        b.granted(1, ask(2));
        assert!(fenced(&b.settle(1, attempt(1), ok())));
        assert_eq!(b.state(1), Some(StateName::Running));
        assert_eq!(b.journal(1).last(), Some(&(EntryKind::Contradicted, StateName::Running)));
        assert_eq!(b.settle(1, attempt(2), ok()), Settled::Recorded);
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
            (EntryKind::Granted, StateName::Running),
            (EntryKind::Settled, StateName::Unknown),
            (EntryKind::Reconciled, StateName::Unknown),
            (EntryKind::Resolved, StateName::Failed),
            (EntryKind::Granted, StateName::Running),
            (EntryKind::Settled, StateName::Succeeded),
        ]);
    }

    /// Proves P-7: the note of a grant or of a success stands in its entry.
    a_note_is_in_the_entry_of_the_claim_or_settle_that_gave_it: |b| {
        let about = |text: &str| Ask { about: Some(text.into()), ..ask(1) };
        let too_long = "x".repeat(Limits::NOTE + 1);
        assert!(b.run(command::Claim { name: name(1), ask: about(&too_long) }).is_err());
        b.granted(1, about("what is asked for"));
        let attachments = |note: &str| Attachments { note: Some(note.into()), ..Attachments::default() };
        let settle = |note: &str| b.settle_with(1, attempt(1), ok(), attachments(note));
        assert!(settle(&too_long).is_err());
        settle("what came of it").expect("a settle");
        settle("said again").expect("the same answer");
        let notes: Vec<_> = b.entries(1).into_iter().map(|entry| entry.note).collect();
        assert_eq!(notes, [Some("what is asked for".into()), Some("what came of it".into())]);
        b.granted(2, Ask { about: Some("kept only if it succeeds".into()), ..ask(2) });
        let report = Report::Failed("no".into());
        b.settle_with(2, attempt(2), report, attachments("done")).expect("a settle");
        assert_eq!(b.entries(2)[1].note.as_deref(), Some("no"));
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
}
