//! Metrics, traces and log records to an OpenTelemetry collector, where one is named.
//!
//! Everything is set as the specification of OpenTelemetry has it: `OTEL_EXPORTER_OTLP_ENDPOINT`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_METRIC_EXPORT_INTERVAL`. Without the
//! feature `otlp` nothing is exported; if the environment names a collector, the log says so.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hapax::Hapax;
use hapax_extract::Extract;
use hapax_pipeline::Meters;

#[cfg(feature = "otlp")]
mod exporter;

use exporter::Exporter;
#[cfg(feature = "otlp")]
pub use exporter::record;

/// The variable that names the collector.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Why telemetry cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The feature `otlp` is not built in. Build it in, or unset the variable.
    #[error("{ENDPOINT} is set, and this build cannot export telemetry")]
    Unsupported,
    /// The settings in the environment are wrong. Correct them.
    #[error("{ENDPOINT}: {0}")]
    Invalid(String),
}

/// The exporters to a collector, if there is one. By default there is none.
#[derive(Default)]
pub struct Telemetry(Option<Exporter>);

impl Telemetry {
    /// Begins to export telemetry of the ledger and of the operations on it, if a collector is
    /// named.
    pub fn start(
        hapax: &Hapax,
        operations: &Arc<Meters>,
        extract: Option<&Extract>,
    ) -> Result<Self, TelemetryError> {
        match std::env::var_os(ENDPOINT).is_some_and(|endpoint| !endpoint.is_empty()) {
            true => {
                Exporter::start(hapax, operations, extract).map(|exporter| Self(Some(exporter)))
            }
            false => Ok(Self(None)),
        }
    }

    /// Whether there is a collector.
    pub fn is_exporting(&self) -> bool {
        self.0.is_some()
    }

    /// The same routes, each request a span: a child of the client's span, a parent of the spans
    /// that other services make for it.
    pub fn traced(&self, app: Router) -> Router {
        match &self.0 {
            Some(exporter) => exporter.traced(app),
            None => app,
        }
    }

    /// Exports the rest, and stops.
    pub async fn stop(self) {
        if let Some(exporter) = self.0 {
            let _ = tokio::task::spawn_blocking(move || exporter.stop()).await;
        }
    }

    /// The same, but waits no longer than this for a collector that does not answer. Returns
    /// whether it answered.
    #[must_use]
    pub async fn stop_within(self, timeout: Duration) -> bool {
        let Some(exporter) = self.0 else { return true };
        let (stopped, waiting) = tokio::sync::oneshot::channel();
        // The runtime would wait for a thread of its own; this one ends with the process.
        std::thread::spawn(move || {
            exporter.stop();
            let _ = stopped.send(());
        });
        tokio::time::timeout(timeout, waiting).await.is_ok()
    }
}

/// Exporters of a build without the feature.
#[cfg(not(feature = "otlp"))]
mod exporter {
    use std::sync::Arc;

    use axum::Router;
    use hapax::Hapax;
    use hapax_extract::Extract;
    use hapax_pipeline::Meters;

    use super::TelemetryError;

    /// Has no value.
    pub(super) enum Exporter {}

    impl Exporter {
        pub(super) fn start(
            _: &Hapax,
            _: &Arc<Meters>,
            _: Option<&Extract>,
        ) -> Result<Self, TelemetryError> {
            Err(TelemetryError::Unsupported)
        }

        pub(super) fn traced(&self, _: Router) -> Router {
            match *self {}
        }

        pub(super) fn stop(self) {
            match self {}
        }
    }
}
