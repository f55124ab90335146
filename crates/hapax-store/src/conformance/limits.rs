//! The limits of what a store keeps: each is tried at the limit and one past it.

use std::fmt::Debug;

use super::*;

/// Whether a command was refused for its input. Any other error fails the case.
fn is_refused<T: Debug>(answer: Result<T, StoreError>) -> bool {
    match answer {
        Ok(_) => false,
        Err(StoreError::Invalid(_)) => true,
        Err(other) => panic!("not a refusal: {other:?}"),
    }
}

/// Which of three sizes are refused: one below the limit, the limit, and one past it.
fn refused<T: Debug>(
    limit: usize,
    mut keep: impl FnMut(String) -> Result<T, StoreError>,
) -> [bool; 3] {
    [limit - 1, limit, limit + 1].map(|size| is_refused(keep("x".repeat(size))))
}

const ONLY_THE_LAST: [bool; 3] = [false, false, true];

cases! {
    /// Proves K-16: a text that is too long is refused, and nothing is written.
    texts_are_kept_up_to_their_limits: |b| {
        let mut keys = 1..;
        let mut next = || keys.next().expect("a key");
        let labels = refused(Limits::LABEL, |text| {
            let n = next();
            b.run(command::Claim { name: name(n), ask: Ask { label: Some(text), ..ask(n) } })
        });
        assert_eq!(labels, ONLY_THE_LAST, "labels");
        assert_eq!(b.state(3), None);

        let holders = refused(Limits::LABEL, |holder| {
            let id = LeaseId::from_bytes([next(); 16]);
            b.run(command::OpenLease { id, term_ms: TERM_MS, holder, forgetful: false })
        });
        assert_eq!(holders, ONLY_THE_LAST, "holders");

        let notes_of_grants = refused(Limits::NOTE, |text| {
            let n = next();
            b.run(command::Claim { name: name(n), ask: Ask { about: Some(text), ..ask(n) } })
        });
        assert_eq!(notes_of_grants, ONLY_THE_LAST, "notes of grants");

        let notes_of_successes = refused(Limits::NOTE, |text| {
            let n = next();
            b.granted(n, ask(n));
            let attachments = Attachments { note: Some(text), ..Attachments::default() };
            b.settle_with(n, attempt(n), ok(), attachments)
        });
        assert_eq!(notes_of_successes, ONLY_THE_LAST, "notes of successes");

        let actors = refused(Limits::LABEL, |actor| {
            let n = next();
            b.granted(n, ask(n));
            b.settle(n, attempt(n), Report::Ambiguous("?".into()));
            let (name, seen, note) = (name(n), b.seen(n, attempt(n)), "looked".into());
            b.run(command::Resolve { name, seen, resolution: Resolution::Skip, actor, note })
        });
        assert_eq!(actors, ONLY_THE_LAST, "actors");
    }

    /// Proves P-9: what undoes a step is kept whole or refused, and only while the attempt runs.
    rollback_steps_are_kept_up_to_their_limits: |b| {
        b.granted(1, ask(1));
        let register = |name: String, payload: Vec<u8>| {
            let step = Step { name, payload };
            b.run(command::RegisterStep { name: super::name(1), attempt: attempt(1), step, nth: None })
        };
        assert_eq!(refused(Limits::LABEL, |name| register(name, vec![])), ONLY_THE_LAST, "names");
        let payloads = refused(Limits::STEP_PAYLOAD, |text| register("step".into(), text.into()));
        assert_eq!(payloads, ONLY_THE_LAST, "payloads");
        b.settle(1, attempt(1), ok());
        let late = register("late".into(), vec![]);
        assert!(matches!(late, Ok(Settled::Fenced(_))), "{late:?}");
        assert_eq!(b.view(|view| view.steps(&name(1), attempt(1))).len(), 4);
    }
}
