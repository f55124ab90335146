//! The metrics of extractions.
//!
//! Each metric has one name. Prometheus gets it as it is; OpenTelemetry gets it with dots and
//! without the endings that Prometheus wants: `hapax_extraction_evictions_total`,
//! `hapax.extraction.evictions`.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::proto::{Metric, MetricFamily, MetricType};
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::extractor::Bill;

/// The prefix of all names.
const PREFIX: &str = "hapax_extraction_";

/// A counter or a gauge, as OpenTelemetry gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// Its name, with dots.
    pub name: String,
    /// A label and its value, where several counts have this name.
    pub of: Option<(String, String)>,
    /// The number.
    pub value: u64,
    /// Whether it may fall; most are totals and never do.
    pub falls: bool,
}

impl Count {
    fn of(family: &MetricFamily, metric: &Metric) -> Self {
        let falls = family.get_field_type() == MetricType::GAUGE;
        let value = match falls {
            true => metric.get_gauge().get_value(),
            false => metric.get_counter().get_value(),
        };
        let label = metric.get_label().first();
        Self {
            name: dotted(family.name()),
            of: label.map(|label| (label.name().to_owned(), label.value().to_owned())),
            value: value as u64,
            falls,
        }
    }
}

/// The name that OpenTelemetry gets.
fn dotted(name: &str) -> String {
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    let plain = ["_total", "_seconds"].iter().find_map(|ending| name.strip_suffix(ending));
    format!("{}{}", PREFIX.replace('_', "."), plain.unwrap_or(name))
}

/// A callback that gets each measured time, in seconds.
type Listener = Box<dyn Fn(f64) + Send + Sync>;

/// How long something takes, each time.
pub struct Stopwatch {
    name: &'static str,
    histogram: Histogram,
    listener: OnceLock<Listener>,
}

impl Stopwatch {
    /// The bounds between which times fall, in seconds.
    pub const BOUNDS: [f64; 12] =
        [0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 2.0, 10.0, 60.0];

    fn new(name: &'static str, help: &str) -> Self {
        let options = HistogramOpts::new(name, help).buckets(Self::BOUNDS.to_vec());
        let histogram = Histogram::with_opts(options).expect("a right name");
        Self { name, histogram, listener: OnceLock::new() }
    }

    /// Its name, with dots.
    pub fn name(&self) -> String {
        dotted(self.name)
    }

    /// Sets the callback that gets each measured time from now on. There is at most one: the first
    /// stays.
    pub fn tell(&self, listener: impl Fn(f64) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    pub(crate) fn took(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.histogram.observe(seconds);
        if let Some(listener) = self.listener.get() {
            listener(seconds);
        }
    }
}

/// The counts of this process.
pub struct Meters {
    requests: IntCounterVec,
    pub(crate) hit: IntCounter,
    pub(crate) lookup: Stopwatch,
    pub(crate) store: Stopwatch,
    pub(crate) wait: Stopwatch,
    pub(crate) results: IntGauge,
    pub(crate) evictions: IntCounter,
    pub(crate) invalidations: IntCounter,
    pub(crate) key_errors: IntCounter,
    pub(crate) lookup_errors: IntCounter,
    pub(crate) chunks: IntCounterVec,
    calls: IntCounter,
    tokens: IntCounterVec,
    cost: IntCounter,
}

impl Default for Meters {
    fn default() -> Self {
        // Names and labels are constants that Prometheus accepts.
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect("a right name");
        let counters = |name: &str, help: &str, label: &str| {
            IntCounterVec::new(Opts::new(name, help), &[label]).expect("right names")
        };
        let requests = counters(
            "hapax_extraction_requests_total",
            "Requests, by what became of them: hit, shared, executed, failed.",
            "outcome",
        );
        for outcome in ["shared", "executed", "failed"] {
            requests.with_label_values(&[outcome]);
        }
        let hit = requests.with_label_values(&["hit"]);
        let chunks = counters(
            "hapax_extraction_chunks_total",
            "What was asked of chunks, by whether it was reused or extracted.",
            "how",
        );
        for how in ["extracted", "reused"] {
            chunks.with_label_values(&[how]);
        }
        Self {
            hit,
            requests,
            lookup: Stopwatch::new(
                "hapax_extraction_cache_lookup_seconds",
                "How long it took to find a result that was there.",
            ),
            store: Stopwatch::new(
                "hapax_extraction_cache_store_seconds",
                "How long it took to record a result.",
            ),
            wait: Stopwatch::new(
                "hapax_extraction_dedup_wait_seconds",
                "How long requests waited for another that was the same.",
            ),
            results: IntGauge::new("hapax_extraction_cached_results", "Results that are there.")
                .expect("a right name"),
            evictions: counter("hapax_extraction_evictions_total", "Results removed for room."),
            invalidations: counter(
                "hapax_extraction_invalidations_total",
                "Results removed because their ontology changed, or by hand.",
            ),
            key_errors: counter("hapax_extraction_key_errors_total", "Requests that have no key."),
            lookup_errors: counter(
                "hapax_extraction_lookup_errors_total",
                "Requests whose result could not be looked for.",
            ),
            chunks,
            calls: counter("hapax_extraction_calls_total", "Calls that cost."),
            tokens: counters("hapax_extraction_tokens_total", "Tokens, read and written.", "way"),
            cost: counter(
                "hapax_extraction_cost_micros_total",
                "What calls cost, in millionths of the currency of their prices.",
            ),
        }
    }
}

impl Meters {
    /// Registers all of them.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.requests.clone()))?;
        for stopwatch in self.stopwatches() {
            registry.register(Box::new(stopwatch.histogram.clone()))?;
        }
        registry.register(Box::new(self.results.clone()))?;
        registry.register(Box::new(self.evictions.clone()))?;
        registry.register(Box::new(self.invalidations.clone()))?;
        registry.register(Box::new(self.key_errors.clone()))?;
        registry.register(Box::new(self.lookup_errors.clone()))?;
        registry.register(Box::new(self.chunks.clone()))?;
        registry.register(Box::new(self.calls.clone()))?;
        registry.register(Box::new(self.tokens.clone()))?;
        registry.register(Box::new(self.cost.clone()))
    }

    /// All stopwatches.
    pub fn stopwatches(&self) -> [&Stopwatch; 3] {
        [&self.lookup, &self.store, &self.wait]
    }

    /// All counters and gauges, as OpenTelemetry gets them.
    pub fn counts(&self) -> Vec<Count> {
        let registry = Registry::new();
        // Registration fails only for two metrics of one name, and there are none.
        if self.register(&registry).is_err() {
            return Vec::new();
        }
        let families = registry.gather();
        let counted = families.iter().filter(|f| f.get_field_type() != MetricType::HISTOGRAM);
        counted
            .flat_map(|family| family.get_metric().iter().map(|metric| Count::of(family, metric)))
            .collect()
    }

    /// Raises the counters to an extractor's own totals.
    pub(crate) fn charge(&self, bill: &Bill) {
        let raise = |counter: &IntCounter, to: u64| {
            counter.inc_by(to.saturating_sub(counter.get()));
        };
        raise(&self.calls, bill.calls);
        raise(&self.tokens.with_label_values(&["read"]), bill.tokens_in);
        raise(&self.tokens.with_label_values(&["written"]), bill.tokens_out);
        raise(&self.cost, bill.cost_micros.unwrap_or_default());
    }

    pub(crate) fn became(&self, outcome: &str) {
        self.requests.with_label_values(&[outcome]).inc();
    }

    /// How many requests had this outcome.
    pub fn requests(&self, outcome: &str) -> u64 {
        self.requests.with_label_values(&[outcome]).get()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Proves X-11: OpenTelemetry gets everything that Prometheus gets, each under its own name.
    #[test]
    fn everything_has_a_name_with_dots() {
        let meters = Meters::default();
        meters.charge(&Bill { calls: 3, ..Bill::default() });
        meters.became("failed");
        let counts = meters.counts();
        let value = |name: &str, of: Option<&str>| {
            let of = |count: &&Count| count.of.as_ref().map(|(_, value)| value.as_str()) == of;
            let found = counts.iter().filter(|count| count.name == name).find(of);
            found.map(|count| count.value)
        };
        assert_eq!(value("hapax.extraction.calls", None), Some(3));
        assert_eq!(value("hapax.extraction.requests", Some("failed")), Some(1));
        let mut names: Vec<_> = counts.iter().map(|count| count.name.clone()).collect();
        names.extend(meters.stopwatches().map(Stopwatch::name));
        names.sort();
        names.dedup();
        let registry = Registry::new();
        meters.register(&registry).unwrap();
        assert_eq!(names.len(), registry.gather().len());
        let plain = |name: &String| name.starts_with("hapax.extraction.") && name.len() > 17;
        assert!(names.iter().all(plain), "{names:?}");
        assert!(counts.iter().any(|count| count.falls && count.name.ends_with("cached_results")));
    }

    #[test]
    fn every_listener_hears_every_event() {
        let (meters, observed) = (Meters::default(), Arc::new(Mutex::new(Vec::new())));
        meters.wait.took(Duration::from_millis(250));
        let observer = observed.clone();
        meters.wait.tell(move |seconds| observer.lock().unwrap().push(seconds));
        meters.wait.took(Duration::from_millis(500));
        assert_eq!(*observed.lock().unwrap(), [0.5]);
        assert_eq!(meters.wait.histogram.get_sample_count(), 2);
    }
}
