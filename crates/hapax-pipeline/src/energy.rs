//! What an operation takes, estimated from CPU time.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::run::Energy;

/// What CPU time costs here. An estimate needs nothing better than round numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// What a busy core draws, in milliwatts.
    pub milliwatts_per_core: u64,
    /// What a kilowatt-hour emits, in grams of carbon dioxide and its equivalents.
    pub grams_per_kwh: u64,
}

impl Default for Grid {
    /// Ten watts a core, and about the world's average for a kilowatt-hour.
    fn default() -> Self {
        Self { milliwatts_per_core: 10_000, grams_per_kwh: 450 }
    }
}

impl Grid {
    /// The estimate for this much CPU time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hapax_pipeline::Grid;
    ///
    /// let hour = Grid::default().estimate(Duration::from_secs(3600));
    /// assert_eq!((hour.microwatt_hours, hour.micrograms_co2e), (10_000_000, 4_500_000));
    /// ```
    pub fn estimate(&self, cpu: Duration) -> Energy {
        let microwatt_hours = cpu.as_micros() * u128::from(self.milliwatts_per_core) / 3_600_000;
        let micrograms = microwatt_hours * u128::from(self.grams_per_kwh) / 1_000;
        let whole = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        Energy {
            cpu_ms: whole(cpu.as_millis()),
            microwatt_hours: whole(microwatt_hours),
            micrograms_co2e: whole(micrograms),
        }
    }
}

/// Work whose CPU time is measured: that of the threads it is polled on, while it is polled.
pub(crate) struct Metered<F> {
    work: Pin<Box<F>>,
    spent: Duration,
}

impl<F: Future> Metered<F> {
    pub(crate) fn new(work: F) -> Self {
        Self { work: Box::pin(work), spent: Duration::ZERO }
    }
}

impl<F: Future> Future for Metered<F> {
    /// What came of it, or its panic, and the time.
    type Output = (std::thread::Result<F::Output>, Duration);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let before = thread_time();
        let polling = AssertUnwindSafe(|| self.work.as_mut().poll(context));
        let polled = match catch_unwind(polling) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        };
        self.spent += thread_time().saturating_sub(before);
        polled.map(|output| (output, self.spent))
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
