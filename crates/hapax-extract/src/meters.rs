//! What is counted of extractions.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::extractor::Bill;

/// The bounds between which times fall, in seconds.
const BOUNDS: [f64; 12] =
    [0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 2.0, 10.0, 60.0];

/// The counts of this process.
pub struct Meters {
    requests: IntCounterVec,
    pub(crate) hit: IntCounter,
    pub(crate) lookup: Histogram,
    pub(crate) store: Histogram,
    pub(crate) wait: Histogram,
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
        // Names and labels are constants, and right.
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect("a right name");
        let counters = |name: &str, help: &str, label: &str| {
            IntCounterVec::new(Opts::new(name, help), &[label]).expect("right names")
        };
        let seconds = |name: &str, help: &str| {
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(BOUNDS.to_vec()))
                .expect("a right name")
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
            lookup: seconds(
                "hapax_extraction_cache_lookup_seconds",
                "How long it took to find a result that was there.",
            ),
            store: seconds(
                "hapax_extraction_cache_store_seconds",
                "How long it took to record a result.",
            ),
            wait: seconds(
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
    /// Has them told with others.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.requests.clone()))?;
        registry.register(Box::new(self.lookup.clone()))?;
        registry.register(Box::new(self.store.clone()))?;
        registry.register(Box::new(self.wait.clone()))?;
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

    /// Takes over what an extractor says of itself.
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

    /// How many requests became what.
    pub fn requests(&self, outcome: &str) -> u64 {
        self.requests.with_label_values(&[outcome]).get()
    }

    pub(crate) fn took(histogram: &Histogram, time: Duration) {
        histogram.observe(time.as_secs_f64());
    }
}
