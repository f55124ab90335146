//! The engine under load.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hapax::{Failure, Hapax, How, Key, Safety};

use crate::load::{self, runtime};
use crate::{Error, ROUNDS, median};

fn key(run: u64, n: u64) -> Result<Key, Error> {
    Key::derive("bench.v1", &[("run", &run.to_be_bytes()), ("n", &n.to_be_bytes())])
        .map_err(|error| Error::Invalid(error.to_string()))
}

async fn perform(hapax: &Hapax, key: Key) -> Result<How, hapax::Error> {
    let done = hapax
        .effect(key)
        .payload(b"payload")
        .safety(Safety::Transactional)
        .run(|_| async { Ok::<_, Failure>("receipt 0123456789") })
        .await?;
    Ok(done.how)
}

/// New keys a second.
pub(crate) fn new_keys(file: &Path, callers: usize, time: Duration) -> Result<f64, Error> {
    Ok(new_keys_after(file, callers, time, Duration::default)?.per_s)
}

pub(crate) struct Rate {
    pub(crate) per_s: f64,
    pub(crate) opened: Duration,
}

/// New keys a second; `opened` is called when the ledger is open.
pub(crate) fn new_keys_after(
    file: &Path,
    callers: usize,
    time: Duration,
    opened: impl FnOnce() -> Duration,
) -> Result<Rate, Error> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let hapax = Hapax::open(file).await?;
        let opened = opened();
        // New keys each time, also where the ledger is not new.
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed) ^ u64::from(std::process::id()) << 32;
        perform(&hapax, key(run, u64::MAX)?).await?;
        let engine = hapax.clone();
        let work = move |n| {
            let hapax = engine.clone();
            async move {
                perform(&hapax, key(run, n)?).await?;
                Ok(())
            }
        };
        let per_s = load::per_s(callers, time, work).await?;
        hapax.close().await?;
        Ok(Rate { per_s, opened })
    })
}

/// Microseconds for a duplicate from the cache, and duplicates from the store a second.
pub(crate) fn duplicates(file: &Path, time: Duration) -> Result<(f64, f64), Error> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let hapax = Hapax::open(file).await?;
        let known = key(7, 7)?;
        perform(&hapax, known).await?;
        let (start, mut count) = (Instant::now(), 0u32);
        while start.elapsed() < time / 2 {
            for _ in 0..1000 {
                perform(&hapax, known).await?;
            }
            count += 1000;
        }
        let memory_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(count);
        hapax.close().await?;
        drop(hapax);
        let mut rounds = [0.0; ROUNDS];
        for per_s in &mut rounds {
            *per_s = from_store(file, 256, time).await?;
        }
        Ok((memory_us, median(rounds)))
    })
}

/// Duplicates a second that are not in the cache: each key is claimed once by an engine that has
/// never seen it.
pub(crate) async fn from_store(file: &Path, callers: usize, time: Duration) -> Result<f64, Error> {
    let hapax = Hapax::open(file).await?;
    let keys = hapax.effects().list(&[hapax::StateName::Succeeded], 100_000).await?;
    let keys: Arc<Vec<Key>> = Arc::new(keys.into_iter().map(|found| found.name.key).collect());
    perform(&hapax, key(7, 7)?).await?;
    let next = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let workers: Vec<_> = (0..callers)
        .map(|_| {
            let (hapax, next, keys) = (hapax.clone(), next.clone(), keys.clone());
            tokio::spawn(async move {
                let mut replayed = 0u64;
                while start.elapsed() < time {
                    let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed) as usize) else {
                        break;
                    };
                    replayed += u64::from(perform(&hapax, *key).await? == How::Replayed);
                }
                Ok::<_, Error>(replayed)
            })
        })
        .collect();
    let mut replayed = 0;
    for worker in workers {
        replayed += worker.await.map_err(|error| Error::Unreachable(error.to_string()))??;
    }
    let per_s = replayed as f64 / start.elapsed().as_secs_f64();
    hapax.close().await?;
    Ok(per_s)
}

/// How often identical concurrent requests ran, and how long they took, in microseconds.
pub(crate) fn identical(file: &Path, callers: usize) -> Result<(f64, f64), Error> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let hapax = Hapax::open(file).await?;
        let shared = key(11, u64::from(std::process::id()))?;
        let start = Instant::now();
        let workers: Vec<_> = (0..callers)
            .map(|_| {
                let hapax = hapax.clone();
                tokio::spawn(async move { perform(&hapax, shared).await })
            })
            .collect();
        let mut ran = 0.0;
        for worker in workers {
            let how = worker.await.map_err(|error| Error::Unreachable(error.to_string()))??;
            ran += f64::from(u8::from(how == How::Executed));
        }
        let micros = start.elapsed().as_secs_f64() * 1e6;
        hapax.close().await?;
        Ok((ran, micros))
    })
}
