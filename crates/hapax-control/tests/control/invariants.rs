//! The five invariants of the design, each under its name, each on both kinds of ledger.

use hapax::{Fingerprint, Hapax, How, Key, StateName};
use hapax_control::{
    ControlPlane, ControlReceiver, ControlRequest, Error, Registry, SendError, derive_key,
};

use super::{FENCING, PROBE, Peer, connector};

macro_rules! on_both {
    ($($name:ident = $id:literal)*) => {
        $(mod $name {
            #[tokio::test]
            async fn on_sqlite() {
                super::super::in_a_file(|hapax| Box::pin(super::cases::$name(hapax))).await;
            }

            #[tokio::test]
            async fn on_postgresql() {
                super::super::in_a_database(|hapax| Box::pin(super::cases::$name(hapax))).await;
            }
        })*

        /// Proves C-9: each invariant of the design has a test that carries its name.
        #[test]
        fn every_invariant_has_its_tests() {
            let names = [$((stringify!($name), $id)),*];
            for (name, id) in names {
                assert_eq!(name.to_uppercase().replace('_', "-"), id);
            }
            assert_eq!(names.len(), 5);
        }
    };
}

on_both! {
    inv_idp_canonical_key = "INV-IDP-CANONICAL-KEY"
    inv_idp_dedup_consulted = "INV-IDP-DEDUP-CONSULTED"
    inv_idp_epoch_bound = "INV-IDP-EPOCH-BOUND"
    inv_idp_no_custom = "INV-IDP-NO-CUSTOM"
    inv_idp_conflict_hard = "INV-IDP-CONFLICT-HARD"
}

mod cases {
    use super::*;

    /// Proves C-1, C-9: INV-IDP-CANONICAL-KEY.
    ///
    /// Every key that reaches a peer follows from computation, epoch and bytes; a computation that
    /// is never retried has none.
    pub(super) async fn inv_idp_canonical_key(hapax: Hapax) {
        let (plane, peer) =
            (ControlPlane::new(hapax.clone(), Registry::standard()), Peer::new(hapax.clone()));
        hapax.epochs().advance(&connector(), (0, 7), "ann", "begin").await.expect("an epoch");
        let names = ["connector.rollout_notify.v1", "connector.migration_step.v1", FENCING, PROBE];
        for name in names {
            let done = plane.dispatch(name, b"payload", |request| peer.clone().ask(request)).await;
            assert_eq!(done.expect("an answer").body(), Some(&b"payload"[..]));
        }
        for (request, name) in peer.seen().iter().zip(names) {
            let key = derive_key(name, 7, b"payload").expect("a key");
            assert_eq!(request.key, (name != FENCING).then_some(key), "{name}");
            assert_eq!((request.epoch, request.computation.as_str()), (7, name));
        }
        for name in ["", "connector.health_probe", "connector.unheard_of.v1"] {
            let sent = plane.dispatch(name, b"", |request| peer.clone().ask(request)).await;
            assert_eq!(sent.expect_err("not registered").code(), "ERR_KEY_DERIVATION_FAILED");
        }
        assert_eq!(peer.seen().len(), names.len());
    }

    /// Proves C-3, C-9: INV-IDP-DEDUP-CONSULTED.
    ///
    /// Nothing is sent before the ledger was consulted, and no recorded request is sent again, even
    /// if many callers dispatch it at the same time.
    pub(super) async fn inv_idp_dedup_consulted(hapax: Hapax) {
        let (plane, peer) =
            (ControlPlane::new(hapax.clone(), Registry::standard()), Peer::new(hapax.clone()));
        let callers = (0..16).map(|_| {
            let (plane, peer) = (plane.clone(), peer.clone());
            tokio::spawn(async move {
                plane.dispatch(PROBE, b"{}", |request| peer.clone().ask(request)).await
            })
        });
        let mut executed = 0;
        for caller in callers.collect::<Vec<_>>() {
            let done = caller.await.expect("no panic").expect("an answer");
            executed += usize::from(done.how == How::Executed);
        }
        assert_eq!((executed, peer.seen().len(), peer.done()), (1, 1, 1));
        // The ledger knows of it before it is sent.
        let (seen, ledger) = (derive_key(PROBE, 0, b"{2}").expect("a key"), hapax.clone());
        let look = |_: ControlRequest| {
            let ledger = ledger.clone();
            async move {
                let found = ledger.effects().show(seen).await?.map(|effect| effect.state.name());
                assert_eq!(found, Some(StateName::Running));
                Ok::<_, SendError>("seen")
            }
        };
        plane.dispatch(PROBE, b"{2}", look).await.expect("an answer");
    }

    /// Proves C-4, C-9: INV-IDP-EPOCH-BOUND.
    ///
    /// A key of epoch N counts in epoch N and in no other: not to send, not to be answered from
    /// the record, not at the peer.
    pub(super) async fn inv_idp_epoch_bound(hapax: Hapax) {
        let (plane, peer) =
            (ControlPlane::new(hapax.clone(), Registry::standard()), Peer::new(hapax.clone()));
        let send = || plane.dispatch_in(0, PROBE, b"{}", |request| peer.clone().ask(request));
        send().await.expect("an answer");
        assert_eq!(send().await.expect("an answer").how, How::Replayed);
        hapax.epochs().advance(&connector(), (0, 1), "ann", "new leader").await.expect("an epoch");
        let error = send().await.expect_err("an old key");
        assert_eq!(error.code(), "ERR_EPOCH_MISMATCH");
        assert!(matches!(error, Error::Epoch(m) if (m.bound, m.current) == (0, 1)));
        let old = peer.seen().pop().expect("a request");
        let late = peer.receiver.receive(&old, |_| async { Ok("never") }).await;
        assert_eq!(late.expect_err("an old key").code(), "ERR_EPOCH_MISMATCH");
        let early = ControlRequest {
            epoch: 2,
            key: Some(derive_key(PROBE, 2, b"{}").expect("a key")),
            ..old
        };
        let early = peer.receiver.receive(&early, |_| async { Ok("never") }).await;
        assert_eq!(early.expect_err("a key of the future").code(), "ERR_EPOCH_MISMATCH");
        let again = plane.dispatch(PROBE, b"{}", |request| peer.clone().ask(request)).await;
        assert_eq!(again.expect("a new key").how, How::Executed);
        assert_eq!((peer.seen().len(), peer.done()), (2, 2));
    }

    /// Proves C-9, C-10: INV-IDP-NO-CUSTOM.
    ///
    /// A key that was made in any other way is refused, and leaves no trace.
    pub(super) async fn inv_idp_no_custom(hapax: Hapax) {
        let receiver = ControlReceiver::new(hapax.clone(), Registry::standard());
        let custom = [
            Key::derive("mine.v1", &[("payload", b"{}")]).expect("a key"),
            Key::from_bytes(*Fingerprint::of(b"{}").as_bytes()),
            derive_key(PROBE, 1, b"{}").expect("a key"),
            derive_key("connector.rollout_notify.v1", 0, b"{}").expect("a key"),
            derive_key(PROBE, 0, b"{ }").expect("a key"),
        ];
        let request = |computation: &str, key| ControlRequest {
            computation: computation.into(),
            epoch: 0,
            key,
            payload: b"{}".to_vec(),
        };
        let keys = custom.map(Some).into_iter().chain([None]);
        let requests = keys.map(|key| request(PROBE, key)).chain([
            request(FENCING, Some(custom[0])),
            request("connector.unheard_of.v1", Some(custom[0])),
        ]);
        for request in requests {
            let refused = receiver.receive(&request, |_| async { Ok("never") }).await;
            let error = refused.expect_err("a key that was not derived");
            assert_eq!(error.code(), "ERR_KEY_DERIVATION_FAILED", "{request:?}");
        }
        assert_eq!(hapax.journal().last_entry().await.expect("a journal"), 0);
    }

    /// Proves C-3, C-9, C-10: INV-IDP-CONFLICT-HARD.
    ///
    /// The same key with another payload is an error for its sender, before anything is derived or
    /// run.
    pub(super) async fn inv_idp_conflict_hard(hapax: Hapax) {
        let receiver = ControlReceiver::new(hapax.clone(), Registry::standard());
        let key = Some(derive_key(PROBE, 0, b"{}").expect("a key"));
        let request = |payload: &[u8]| ControlRequest {
            computation: PROBE.into(),
            epoch: 0,
            key,
            payload: payload.to_vec(),
        };
        let first = receiver.receive(&request(b"{}"), |_| async { Ok("first") }).await;
        assert_eq!(first.expect("an answer").how, How::Executed);
        let second = receiver.receive(&request(b"{2}"), |_| async { Ok("second") }).await;
        assert_eq!(second.expect_err("a conflict").code(), "ERR_IDEMPOTENCY_CONFLICT");
        let again = receiver.receive(&request(b"{}"), |_| async { Ok("third") }).await;
        let again = again.expect("an answer");
        assert_eq!((again.how, again.body()), (How::Replayed, Some(&b"first"[..])));
        // And at the sender, where the recorded payload differs from the one to be sent.
        let plane = ControlPlane::new(hapax.clone(), Registry::standard());
        let key = derive_key(PROBE, 0, b"{3}").expect("a key");
        let bound = hapax::Bound { domain: connector(), epoch: 0 };
        let other = hapax.effect(key).payload(b"another").in_epoch(bound);
        other.run(|_| async { Ok("another") }).await.expect("an outcome");
        let sent = plane.dispatch(PROBE, b"{3}", |_| async { Ok::<_, SendError>("never") }).await;
        assert_eq!(sent.expect_err("a conflict").code(), "ERR_IDEMPOTENCY_CONFLICT");
    }
}
