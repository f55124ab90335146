//! The baselines of the engine: code by hand, raw SQL, bare SHA-256.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hapax::key::control;
use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::load::Clock;

fn sql(error: rusqlite::Error) -> Error {
    Error::Unreachable(format!("the baseline: {error}"))
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;",
    )?;
    Ok(db)
}

fn key(n: u64) -> [u8; 32] {
    Sha256::digest(n.to_be_bytes()).into()
}

/// The code that people write by hand: the key as primary key, one transaction to claim and one to
/// settle, per operation, on one connection that all callers share.
pub(crate) fn naive(path: &Path, callers: usize, time: Duration) -> Result<f64, Error> {
    let open = || -> rusqlite::Result<Connection> {
        let db = open(path)?;
        db.execute_batch(
            "CREATE TABLE idempotency (key BLOB PRIMARY KEY, fingerprint BLOB NOT NULL,
                 status TEXT NOT NULL, response BLOB, created INTEGER NOT NULL);",
        )?;
        Ok(db)
    };
    let db = Mutex::new(open().map_err(sql)?);
    let next = AtomicU64::new(0);
    let mut clock = Clock::new(time);
    let start = Instant::now();
    let caller = || -> rusqlite::Result<()> {
        while start.elapsed() < time {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let claimed = claim_by_hand(&lock(&db), n)?;
            assert_eq!(claimed, 1, "the keys are new");
            settle_by_hand(&lock(&db), n, "receipt 0123456789")?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..callers).map(|_| scope.spawn(caller)).collect();
        while clock.runs(next.load(Ordering::Relaxed)) {
            std::thread::sleep(time / 100);
        }
        let per_s = clock.per_s(next.load(Ordering::Relaxed));
        for caller in callers {
            caller.join().unwrap_or(Ok(())).map_err(sql)?;
        }
        Ok(per_s)
    })
}

fn lock(db: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    db.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn claim_by_hand(db: &Connection, n: u64) -> rusqlite::Result<usize> {
    db.prepare_cached(
        "INSERT INTO idempotency VALUES (?1, ?1, 'running', NULL, ?2) ON CONFLICT DO NOTHING",
    )?
    .execute(params![key(n), n as i64])
}

fn settle_by_hand(db: &Connection, n: u64, receipt: &str) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE idempotency SET status = 'done', response = ?2 WHERE key = ?1")?
        .execute(params![key(n), receipt])?;
    Ok(())
}

/// The rows that the engine writes, by hand, in batches of 64 on one connection.
pub(crate) fn raw(path: &Path, time: Duration) -> Result<f64, Error> {
    const BATCH: u64 = 64;
    let measure = || -> rusqlite::Result<f64> {
        let db = open(path)?;
        db.execute_batch(hapax_sqlite::SCHEMA)?;
        let (mut clock, mut count, mut entry) = (Clock::new(time), 0u64, 0i64);
        while clock.runs(count) {
            db.execute_batch("BEGIN IMMEDIATE")?;
            for n in count..count + BATCH {
                entry += 1;
                journal(&db, None, n, 0)?;
                claim(&db, n, entry)?;
            }
            db.execute_batch("COMMIT; BEGIN IMMEDIATE")?;
            for n in count..count + BATCH {
                entry += 1;
                journal(&db, Some(entry - BATCH as i64), n, 1)?;
                settle(&db, n, entry)?;
            }
            db.execute_batch("COMMIT")?;
            count += BATCH;
        }
        Ok(clock.per_s(count))
    };
    measure().map_err(sql)
}

fn journal(db: &Connection, prev: Option<i64>, n: u64, state: u8) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR FAIL INTO journal (prev, at, namespace, key, event, state, attempt, generation, digest)
         VALUES (?1, ?2, 1, ?3, ?4, ?4, ?5, 1, ?3)",
    )?
    .execute(params![prev, 1_800_000_000_000i64 + n as i64, key(n), state, &key(n)[..16]])?;
    Ok(())
}

fn claim(db: &Connection, n: u64, entry: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR FAIL INTO effect (id, namespace, key, fingerprint, state, safety, attempt, fence,
             generation, attempts, created, updated, entry, lease)
         VALUES (?3, 1, ?1, ?1, 0, 0, ?2, ?3, 1, 1, ?4, ?4, ?3, ?2)",
    )?
    .execute(params![key(n), &key(n)[..16], entry, 1_800_000_000_000i64 + entry])?;
    Ok(())
}

fn settle(db: &Connection, n: u64, entry: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE effect SET state = 1, lease = NULL, outcome = ?2, updated = ?3, entry = ?4
         WHERE id = coalesce((SELECT effect FROM key_tail WHERE namespace = 1 AND prefix = ?1),
             (SELECT effect FROM key_middle WHERE namespace = 1 AND prefix = ?1),
             (SELECT effect FROM key_index WHERE namespace = 1 AND prefix = ?1))",
    )?
    .execute(params![
        &key(n)[..16],
        b"receipt 0123456789",
        1_800_000_000_000i64 + entry,
        entry
    ])?;
    Ok(())
}

/// Megabytes a second of key derivation, and of SHA-256 alone, on 64 KiB inputs.
pub(crate) fn keys(time: Duration) -> (f64, f64) {
    let input = vec![7; 64 * 1024];
    let rate = |work: &dyn Fn()| {
        let (start, mut count) = (Instant::now(), 0u32);
        while start.elapsed() < time / 6 {
            work();
            count += 1;
        }
        f64::from(count) * input.len() as f64 / 1e6 / start.elapsed().as_secs_f64()
    };
    let derive = || {
        let _ = std::hint::black_box(control::derive_key("connector.health_probe.v1", 1, &input));
    };
    let bare = || {
        std::hint::black_box(Sha256::digest(&input));
    };
    // Alternated, so that a change of the machine's mood hits both.
    let rounds: Vec<_> = (0..3).map(|_| (rate(&derive), rate(&bare))).collect();
    let best = |of: fn(&(f64, f64)) -> f64| rounds.iter().map(of).fold(0.0, f64::max);
    (best(|round| round.0), best(|round| round.1))
}
