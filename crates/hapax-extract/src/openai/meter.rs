//! Counts the calls to an endpoint, their tokens and their cost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::settings::Prices;

/// The total use since the extractor was made. It includes failed calls and calls whose caller went
/// away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointUsage {
    /// HTTP requests, each counted once, when it is begun.
    pub calls: u64,
    /// Calls that brought no completion.
    pub failed_calls: u64,
    /// Answers that were sent back because something was wrong with them.
    pub repairs: u64,
    /// Entities and relations that were dropped because they still had no place in the text or
    /// in the ontology.
    pub left_out: u64,
    /// The tokens that were read, as the endpoint counts them.
    pub tokens_in: u64,
    /// The tokens that were written.
    pub tokens_out: u64,
    /// Their cost by the prices in the settings, rounded up; none without prices.
    pub cost_micros: Option<u64>,
}

/// The use of one question.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) calls: u32,
    pub(super) tokens_in: u64,
    pub(super) tokens_out: u64,
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    calls: AtomicU64,
    failed_calls: AtomicU64,
    repairs: AtomicU64,
    left_out: AtomicU64,
    tokens_in: AtomicU64,
    tokens_out: AtomicU64,
}

impl Meter {
    /// Begins a call. It counts as failed unless [`Call::completed`] is called, so that a call
    /// whose caller goes away has failed too.
    pub(super) fn begin<'a>(&'a self, tally: &'a mut Tally) -> Call<'a> {
        self.calls.fetch_add(1, Relaxed);
        tally.calls = tally.calls.saturating_add(1);
        Call { meter: self, tally, completed: false }
    }

    pub(super) fn repaired(&self) {
        self.repairs.fetch_add(1, Relaxed);
    }

    pub(super) fn left_out(&self, items: usize) {
        self.left_out.fetch_add(items as u64, Relaxed);
    }

    pub(super) fn spent(&self, prices: Option<Prices>) -> EndpointUsage {
        let (tokens_in, tokens_out) = (self.tokens_in.load(Relaxed), self.tokens_out.load(Relaxed));
        EndpointUsage {
            calls: self.calls.load(Relaxed),
            failed_calls: self.failed_calls.load(Relaxed),
            repairs: self.repairs.load(Relaxed),
            left_out: self.left_out.load(Relaxed),
            tokens_in,
            tokens_out,
            cost_micros: prices.map(|prices| cost(prices, tokens_in, tokens_out)),
        }
    }
}

/// The cost of the totals, so that rounding call by call loses nothing.
pub(super) fn cost(prices: Prices, tokens_in: u64, tokens_out: u64) -> u64 {
    let part = |tokens, price| u128::from(tokens) * u128::from(price);
    let whole = part(tokens_in, prices.input_micros_per_million)
        + part(tokens_out, prices.output_micros_per_million);
    whole.div_ceil(1_000_000).try_into().unwrap_or(u64::MAX)
}

/// A call in flight.
pub(super) struct Call<'a> {
    meter: &'a Meter,
    tally: &'a mut Tally,
    completed: bool,
}

impl Call<'_> {
    /// Tokens are paid for whether or not the answer is of use.
    pub(super) fn used(&mut self, tokens_in: u64, tokens_out: u64) {
        self.meter.tokens_in.fetch_add(tokens_in, Relaxed);
        self.meter.tokens_out.fetch_add(tokens_out, Relaxed);
        self.tally.tokens_in = self.tally.tokens_in.saturating_add(tokens_in);
        self.tally.tokens_out = self.tally.tokens_out.saturating_add(tokens_out);
    }

    pub(super) fn completed(mut self) {
        self.completed = true;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.meter.failed_calls.fetch_add(u64::from(!self.completed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_failed_until_it_is_completed() {
        let (meter, mut tally) = (Meter::default(), Tally::default());
        drop(meter.begin(&mut tally));
        let mut call = meter.begin(&mut tally);
        call.used(1_000, 3);
        call.completed();
        let prices = Prices { input_micros_per_million: 150_000, output_micros_per_million: 1 };
        let spent = meter.spent(Some(prices));
        assert_eq!((spent.calls, spent.failed_calls), (2, 1));
        assert_eq!((spent.tokens_in, spent.tokens_out), (1_000, 3));
        assert_eq!(spent.cost_micros, Some(151));
        assert_eq!((tally.calls, tally.tokens_in, tally.tokens_out), (2, 1_000, 3));
        assert_eq!(meter.spent(None).cost_micros, None);
    }
}
