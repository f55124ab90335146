//! How a store handles locks.

use super::*;

cases! {
    /// Proves K-8: the settle releases the lock.
    a_lock_serialises: |b| {
        let locked = |n| Ask { lock: Some(LockKey(7)), ..ask(n) };
        b.granted(1, locked(1));
        assert_eq!(b.claim(2, locked(2)), Verdict::Locked { holder: name(1).key });
        assert_eq!(b.state(2), None);
        b.granted(3, Ask { lock: Some(LockKey(8)), ..ask(3) });
        b.settle(1, attempt(1), ok());
        assert_eq!(b.view(|view| view.lock(&Namespace::default(), LockKey(7))), None);
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
        b.judged(command::RolledBack { name: name(1), attempt: attempt(1) });
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
}
