//! The threads that scripts run on.
//!
//!   script ──▶ the thread with the fewest scripts, where it stays
//!
//! A script has a thread to itself as long as there are few scripts. Many scripts share threads: a
//! thread that is awake for one script also finds the answers for its other scripts, and waking a
//! thread for each answer costs more than running the script. The price: while one script computes,
//! the others on its thread wait, for as long as its limit allows.
//!
//! A script that has begun runs to its end, also when [`ScriptThreads`] is dropped.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_executor::LocalPool;
use futures_util::FutureExt as _;
use futures_util::task::LocalSpawnExt as _;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// How many threads there are at most, on a machine with few cores.
const SMALL_MACHINE_THREADS: usize = 16;

/// Starts a future on the thread that it stays on.
type StartFuture = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The script threads, started on demand.
#[derive(Default)]
pub(crate) struct ScriptThreads {
    threads: Mutex<Vec<ScriptThread>>,
}

/// One thread, and the number of scripts on it.
struct ScriptThread {
    load: Arc<AtomicUsize>,
    begin: UnboundedSender<StartFuture>,
}

impl ScriptThreads {
    /// Runs a future to its end on one of the threads. Drops it if there is no thread.
    pub(crate) fn carry<F>(&self, begin: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |thread: &ScriptThread| thread.load.load(Ordering::Relaxed);
        let least = threads.iter().map(load).min();
        if least != Some(0) && threads.len() < most() {
            match ScriptThread::start(threads.len()) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(name: "no_thread_for_scripts", %error, "starting a script thread failed; scripts share the running ones");
                }
            }
        }
        let Some(thread) = threads.iter().min_by_key(|thread| load(thread)) else { return };
        let guard = LoadGuard::at(&thread.load);
        let begin = move || -> Pin<Box<dyn Future<Output = ()>>> {
            let work = begin();
            Box::pin(async move {
                work.await;
                drop(guard);
            })
        };
        let _ = thread.begin.send(Box::new(begin));
    }
}

/// How many threads there are at most.
fn most() -> usize {
    std::thread::available_parallelism()
        .map_or(SMALL_MACHINE_THREADS, |cores| SMALL_MACHINE_THREADS.max(2 * cores.get()))
}

impl ScriptThread {
    fn start(nth: usize) -> std::io::Result<Self> {
        let (begin, begun) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name(format!("hapax-script-{nth}"));
        thread.spawn(move || run_all(begun))?;
        Ok(Self { load: Arc::default(), begin })
    }
}

/// Runs every future that is begun here, until the channel is closed and every future has ended.
fn run_all(mut begun: UnboundedReceiver<StartFuture>) {
    let mut pool = LocalPool::new();
    let spawner = pool.spawner();
    pool.run_until(async move {
        while let Some(begin) = begun.recv().await {
            // A panic ends only its own future; the waiting caller sees its channels close.
            let alone = AssertUnwindSafe(async move { begin().await }).catch_unwind();
            let _ = spawner.spawn_local(alone.map(drop));
        }
    });
    pool.run();
}

/// A running future, counted until it is dropped.
struct LoadGuard(Arc<AtomicUsize>);

impl LoadGuard {
    fn at(load: &Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Ordering::Relaxed);
        Self(load.clone())
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::{ThreadId, current};
    use std::time::Duration;

    use tokio::sync::watch;

    use super::{ScriptThreads, most};

    const SOON: Duration = Duration::from_secs(30);

    /// Starts `count` futures, which report their thread and wait until they may end.
    fn carried(threads: &ScriptThreads, count: usize) -> (watch::Sender<bool>, Receiver<ThreadId>) {
        let ((end, may_end), (sender, started)) = (watch::channel(false), channel());
        for _ in 0..count {
            let (mut may_end, sender) = (may_end.clone(), sender.clone());
            threads.carry(|| async move {
                sender.send(current().id()).expect("the test listens");
                let _ = may_end.wait_for(|may| *may).await;
                sender.send(current().id()).expect("the test listens");
            });
        }
        (end, started)
    }

    fn count_threads(started: &Receiver<ThreadId>, count: usize) -> HashMap<ThreadId, usize> {
        let mut counts = HashMap::new();
        for _ in 0..count {
            *counts.entry(started.recv_timeout(SOON).expect("each reports")).or_default() += 1;
        }
        counts
    }

    #[test]
    fn a_few_have_threads_of_their_own_and_many_share_them_evenly() {
        let (few, many) = (ScriptThreads::default(), ScriptThreads::default());
        let (_end, started) = carried(&few, most());
        assert_eq!(count_threads(&started, most()).len(), most());
        let (end, started) = carried(&many, 3 * most());
        let begun = count_threads(&started, 3 * most());
        assert!(begun.len() == most() && begun.values().all(|count| *count == 3), "{begun:?}");
        end.send(true).expect("they wait");
        assert_eq!(count_threads(&started, 3 * most()), begun, "they stay where they began");
    }

    #[test]
    fn a_thread_that_carries_nothing_is_used_again() {
        let threads = ScriptThreads::default();
        let mut seen = HashMap::new();
        for _ in 0..3 {
            let (end, started) = carried(&threads, 1);
            end.send(true).expect("it waits");
            seen.extend(count_threads(&started, 2));
            let idle =
                || threads.threads.lock().unwrap()[0].load.load(super::Ordering::Relaxed) == 0;
            let since = std::time::Instant::now();
            while !idle() {
                assert!(since.elapsed() < SOON, "it ends");
                std::thread::yield_now();
            }
        }
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn one_that_panics_ends_alone() {
        let threads = ScriptThreads::default();
        let (end, started) = carried(&threads, most());
        count_threads(&started, most());
        threads.carry(|| async { panic!("as one of them does") });
        end.send(true).expect("they wait");
        assert_eq!(count_threads(&started, most()).len(), most(), "all others come to their ends");
    }

    #[test]
    fn scripts_end_also_after_their_threads_owner_is_dropped() {
        let threads = ScriptThreads::default();
        let (end, started) = carried(&threads, 3 * most());
        drop(threads);
        count_threads(&started, 3 * most());
        end.send(true).expect("they wait");
        count_threads(&started, 3 * most());
        assert!(started.recv_timeout(SOON).is_err(), "and the threads end");
    }
}
