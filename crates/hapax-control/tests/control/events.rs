//! Tests of the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hapax::Hapax;
use hapax_control::{
    ControlPlane, ControlReceiver, ControlRequest, Registry, SendError, derive_key,
};

use super::{PROBE, connector};

/// Keeps the fields of each event that the control plane logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

struct Fields(BTreeMap<String, String>);

impl tracing::field::Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").trim_matches('"').into());
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "hapax::control"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        assert_eq!(Some(event.metadata().name()), fields.0.get("code").map(String::as_str));
        self.0.lock().expect("a lock").push(fields.0);
    }
}

/// Proves C-6: one event for each decision, under its code, without the payload.
#[tokio::test]
async fn each_decision_is_logged_once_and_no_payload_ever() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let codes = || {
        let logged = std::mem::take(&mut *log.0.lock().expect("a lock"));
        assert!(!format!("{logged:?}").contains("hunter2"), "{logged:?}");
        logged.iter().map(|fields| fields["code"].clone()).collect::<Vec<_>>()
    };
    let hapax = Hapax::builder().in_memory();
    let plane = ControlPlane::new(hapax.clone(), Registry::standard());
    let secret = b"hunter2";
    let send = |_| async { Ok::<_, SendError>("hunter2 is no good") };
    plane.dispatch(PROBE, secret, send).await.expect("an answer");
    assert_eq!(codes(), ["IDP-001", "IDP-005"]);
    plane.dispatch(PROBE, secret, send).await.expect("an answer");
    assert_eq!(codes(), ["IDP-001", "IDP-002"]);

    let receiver = ControlReceiver::new(hapax.clone(), Registry::standard());
    let key = Some(derive_key(PROBE, 0, secret).expect("a key"));
    let request = |payload: &[u8]| ControlRequest {
        computation: PROBE.into(),
        epoch: 0,
        key,
        payload: payload.to_vec(),
    };
    receiver.receive(&request(secret), |_| async { Ok("done") }).await.expect("an answer");
    receiver.receive(&request(secret), |_| async { Ok("done") }).await.expect("an answer");
    receiver.receive(&request(b"hunter2!"), |_| async { Ok("no") }).await.expect_err("a conflict");
    assert_eq!(codes(), ["IDP-005", "IDP-002", "IDP-003"]);
    hapax.epochs().advance(&connector(), (0, 1), "ann", "new leader").await.expect("an epoch");
    receiver.receive(&request(secret), |_| async { Ok("no") }).await.expect_err("an old key");
    plane.dispatch_in(0, PROBE, secret, send).await.expect_err("an old key");
    assert_eq!(codes(), ["IDP-004", "IDP-001", "IDP-004"]);
}
