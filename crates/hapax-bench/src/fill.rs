//! A ledger with a past: many effects, made quickly and not durably, then sealed.

use std::path::Path;

use hapax::Hapax;
use rusqlite::{Connection, params};

use crate::{Error, Progress};

/// How many effects go into one transaction.
const CHUNK: u64 = 200_000;

pub(crate) fn fill(path: &Path, size: u64, progress: Progress) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::Unreachable(error.to_string()))?;
    // Made by the engine, so that it is a ledger in every respect.
    runtime.block_on(async { Hapax::open(path).await?.close().await })?;
    rows(path, size, progress).map_err(|error| Error::Unreachable(format!("filling: {error}")))?;
    runtime.block_on(seal(path, size, progress))
}

fn rows(path: &Path, size: u64, progress: Progress) -> rusqlite::Result<()> {
    let db = Connection::open(path)?;
    let schema = |name: &str| -> rusqlite::Result<String> {
        db.query_row("SELECT sql FROM sqlite_schema WHERE name = ?1", [name], |row| row.get(0))
    };
    let triggers = [schema("effect_new")?, schema("effect_indexed")?, schema("journal_grows")?];
    db.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;
         DROP TRIGGER effect_new; DROP TRIGGER effect_indexed; DROP TRIGGER journal_grows;",
    )?;
    let bar = progress("filling", size);
    let mut from = 0;
    while from < size {
        let to = (from + CHUNK).min(size);
        db.execute_batch("BEGIN")?;
        db.execute(
            "INSERT INTO effect (id, namespace, key, fingerprint, state, safety, attempt, fence,
                 generation, attempts, created, updated, entry, outcome)
             WITH RECURSIVE n (i) AS (SELECT ?1 + 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
             SELECT i, 1, randomblob(32), randomblob(32), 1, 0, randomblob(16), 2 * i - 1,
                 1, 1, 1800000000000 + i, 1800000000000 + i, 2 * i, x'72656365697074203031323334353637'
             FROM n",
            params![from as i64, to as i64],
        )?;
        for (event, offset) in [(0, 1), (1, 0)] {
            db.execute(
                "INSERT INTO journal (id, prev, at, namespace, key, event, state, attempt, generation, digest)
                 SELECT 2 * id - ?3, iif(?3 = 1, NULL, 2 * id - 1), created, 1, key, ?4, ?4, attempt, 1, fingerprint
                 FROM effect WHERE id > ?1 AND id <= ?2",
                params![from as i64, to as i64, offset, event],
            )?;
        }
        db.execute_batch("COMMIT")?;
        // An index made at once is packed full, unlike one that has grown. So two thirds are indexed at once, and
        // the rest in chunks after them.
        let due = size * 2 / 3;
        if due < to {
            db.execute_batch(INDEX)?;
        }
        from = to;
        bar.set_position(from);
    }
    bar.finish_and_clear();
    db.execute_batch(&format!("{}; PRAGMA journal_mode = WAL;", triggers.join(";")))
}

/// Indexes all effects that are not indexed yet.
const INDEX: &str = "
    INSERT INTO key_index (namespace, prefix, effect)
    SELECT namespace, substr(key, 1, 16), id FROM effect
    WHERE id > (SELECT ifnull(max(effect), 0) FROM key_index)
    ORDER BY namespace, substr(key, 1, 16);";

async fn seal(path: &Path, size: u64, progress: Progress) -> Result<(), Error> {
    let hapax = Hapax::builder().background(false).open(path).await?;
    let bar = progress("sealing", 2 * size);
    loop {
        match hapax.pass().await?.sealed {
            0 => break,
            sealed => bar.inc(sealed as u64),
        }
    }
    bar.finish_and_clear();
    hapax.close().await?;
    Ok(())
}
