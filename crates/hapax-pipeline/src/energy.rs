//! Estimates of the energy and carbon of an operation, from CPU time.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::ThreadId;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::run::Energy;

/// The coefficients of the estimates. Round numbers are good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// The power that a busy core draws, in milliwatts.
    pub milliwatts_per_core: u64,
    /// The emissions of a kilowatt-hour, in grams of carbon dioxide and its equivalents.
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
        let microwatt_hours =
            cpu.as_micros().saturating_mul(self.milliwatts_per_core.into()) / 3_600_000;
        let micrograms = microwatt_hours.saturating_mul(self.grams_per_kwh.into()) / 1_000;
        let whole = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        Energy {
            cpu_ms: whole(cpu.as_millis()),
            microwatt_hours: whole(microwatt_hours),
            micrograms_co2e: whole(micrograms),
        }
    }
}

/// A counter of the CPU time that work uses. It can be read while the work runs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct CpuTime(Arc<Mutex<Turns>>);

#[derive(Debug, Default)]
struct Turns {
    /// The CPU time of all turns that are over. A turn is one poll.
    over: Duration,
    /// The thread of the turn under way, and that thread's CPU time when the turn began.
    since: Option<(ThreadId, Duration)>,
}

impl Turns {
    /// The CPU time of the turn under way so far; zero on another thread.
    fn under_way(&self) -> Duration {
        let ours = self.since.filter(|(thread, _)| *thread == std::thread::current().id());
        ours.map_or(Duration::ZERO, |(_, since)| thread_time().saturating_sub(since))
    }
}

impl CpuTime {
    /// The CPU time of all turns that are over.
    pub(crate) fn total(&self) -> Duration {
        self.lock().over
    }

    /// The same with the turn under way so far, if it is called on the thread of that turn.
    pub(crate) fn so_far(&self) -> Duration {
        let turns = self.lock();
        turns.over + turns.under_way()
    }

    fn begin(&self) {
        self.lock().since = Some((std::thread::current().id(), thread_time()));
    }

    fn end(&self) {
        let mut turns = self.lock();
        let took = turns.under_way();
        turns.over += took;
        turns.since = None;
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work whose CPU time is measured: that of the threads it is polled on, while it is polled.
pub(crate) struct Metered<F> {
    work: Pin<Box<F>>,
    cpu: CpuTime,
}

impl<F: Future> Metered<F> {
    pub(crate) fn new(work: F, cpu: CpuTime) -> Self {
        Self { work: Box::pin(work), cpu }
    }
}

impl<F: Future> Future for Metered<F> {
    /// The output of the work, or its panic.
    type Output = std::thread::Result<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.cpu.begin();
        let polling = AssertUnwindSafe(|| self.work.as_mut().poll(context));
        let polled = match catch_unwind(polling) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        };
        self.cpu.end();
        polled
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_follow_from_time_and_coefficients() {
        let cases = [
            // A second of ten watts, at 450 grams a kilowatt-hour.
            (1_000, 10_000, 450, (1_000, 2_777, 1_249)),
            (1_000, 20_000, 450, (1_000, 5_555, 2_499)),
            (1_000, 10_000, 30, (1_000, 2_777, 83)),
            (3_600_000, 1_000, 1_000, (3_600_000, 1_000_000, 1_000_000)),
            (1, 10_000, 450, (1, 2, 0)),
            (0, 10_000, 450, (0, 0, 0)),
            (1_000, 0, 450, (1_000, 0, 0)),
            (1_000, 10_000, 0, (1_000, 2_777, 0)),
        ];
        for (ms, milliwatts_per_core, grams_per_kwh, expected) in cases {
            let grid = Grid { milliwatts_per_core, grams_per_kwh };
            let Energy { cpu_ms, microwatt_hours, micrograms_co2e } =
                grid.estimate(Duration::from_millis(ms));
            assert_eq!((cpu_ms, microwatt_hours, micrograms_co2e), expected);
        }
        let endless = Grid { milliwatts_per_core: u64::MAX, grams_per_kwh: 1 };
        assert_eq!(endless.estimate(Duration::MAX / 4).microwatt_hours, u64::MAX);
    }
}
