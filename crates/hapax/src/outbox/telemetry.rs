//! The log lines of a dispatcher, for machines and for people.

use std::time::Duration;

use hapax_core::route::SinkName;
use hapax_store::outbox::Disposition;

use super::sink::{Delivery, DynSink, SinkSettings};

/// Logs one line for each try.
pub(super) fn log(sink: &SinkName, delivery: &Delivery, disposition: &Disposition) {
    let (status, duplicate, error) = match disposition {
        Disposition::Delivered { duplicate } => ("success", *duplicate, ""),
        Disposition::Again { error, .. } => ("failure", false, error.as_str()),
        Disposition::Failed { error, .. } => ("failed", false, error.as_str()),
    };
    let record = &delivery.record;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_millis() as i64);
    if let Disposition::Failed { error, .. } = disposition {
        tracing::warn!(name: "event_given_up", %sink, outbox_id = %record.id, error, "an event was given up after its last attempt");
    }
    tracing::debug!(
        target: "hapax::dispatch",
        %sink,
        outbox_id = %record.id,
        pipeline_id = record.event.pipeline.as_deref().unwrap_or_default(),
        event_name = record.event.name,
        dispatch_status = status,
        attempt = delivery.attempt,
        latency_ms = now - record.created.0,
        duplicate_detected = duplicate,
        error,
    );
}

/// Warns if retries go on for longer than the receiver remembers ids.
pub(super) fn warn_of_horizon(name: &SinkName, sink: &dyn DynSink, settings: &SinkSettings) {
    let horizon = Duration::from_millis(settings.policy.horizon_ms());
    if let Some(remembers) = sink.remembers().filter(|remembers| *remembers < horizon) {
        tracing::warn!(
            name: "receiver_forgets_early",
            sink = %name,
            remembers_s = remembers.as_secs(),
            horizon_s = horizon.as_secs(),
            "retries go on for longer than the receiver remembers ids: it may see duplicates",
        );
    }
}
