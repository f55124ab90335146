//! Load: a clock, a runtime, and callers that ask again as soon as they are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::Error;

/// A measurement in time. Work done in the first quarter is not counted: files grow to their
/// working size, caches fill.
pub(crate) struct Clock {
    start: Instant,
    time: Duration,
    warm: Option<(Instant, u64)>,
}

impl Clock {
    pub(crate) fn new(time: Duration) -> Self {
        Self { start: Instant::now(), time, warm: None }
    }

    /// Whether to go on, with this much done so far.
    pub(crate) fn runs(&mut self, done: u64) -> bool {
        if self.warm.is_none() && self.start.elapsed() >= self.time / 4 {
            self.warm = Some((Instant::now(), done));
        }
        self.start.elapsed() < self.time
    }

    /// How much was done a second since it was warm.
    pub(crate) fn per_s(&self, done: u64) -> f64 {
        let (since, before) = self.warm.unwrap_or((self.start, 0));
        (done - before) as f64 / since.elapsed().as_secs_f64()
    }
}

pub(crate) fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::Unreachable(format!("no runtime: {error}")))
}

/// How often a second this many callers get `work` done; each time it gets a new number.
pub(crate) async fn per_s<W, Done>(callers: usize, time: Duration, work: W) -> Result<f64, Error>
where
    W: Fn(u64) -> Done + Clone + Send + Sync + 'static,
    Done: Future<Output = Result<(), Error>> + Send,
{
    let next = Arc::new(AtomicU64::new(0));
    let mut clock = Clock::new(time);
    let workers: Vec<_> = (0..callers)
        .map(|_| {
            let (next, work, start) = (next.clone(), work.clone(), clock.start);
            tokio::spawn(async move {
                while start.elapsed() < time {
                    work(next.fetch_add(1, Ordering::Relaxed)).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    while clock.runs(next.load(Ordering::Relaxed)) {
        tokio::time::sleep(time / 100).await;
    }
    let per_s = clock.per_s(next.load(Ordering::Relaxed));
    for worker in workers {
        worker.await.map_err(|error| Error::Unreachable(error.to_string()))??;
    }
    Ok(per_s)
}
