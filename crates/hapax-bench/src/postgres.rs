//! The engine on PostgreSQL, beside pgbench on the same server in the same run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::load::runtime;
use crate::report::{Bar, Report, human};
use crate::{Error, Options, ROUNDS, engine, median, say, short};

/// How many callers ask at once, and the ratio that they must reach.
const BARS: [(usize, f64); 3] = [(1, 0.7), (64, 2.5), (256, 4.0)];

pub(crate) fn measure(
    options: &Options,
    url: &str,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let scratch = Scratch::make(url, directory)?;
    let mut new_64 = 0.0;
    for (callers, bar) in BARS {
        say(&format!("new keys, {callers} callers, in turns with pgbench"));
        let mut rounds = [(0.0, 0.0); ROUNDS];
        for round in &mut rounds {
            let before = scratch.pgbench(NAIVE, callers, options.time / 2)?;
            scratch.quiet()?;
            let engine = engine::new_keys(&scratch.place, callers, options.time)?;
            let after = scratch.pgbench(NAIVE, callers, options.time / 2)?;
            *round = (engine, (before + after) / 2.0);
        }
        let rate = median(rounds.map(|(engine, _)| engine));
        let naive = median(rounds.map(|(_, naive)| naive));
        let label = format!("new keys, {callers} callers: claim + settle");
        report.fact(label, &format!("pg.new.{callers}.per_s"), rate, "effects/s");
        report.figure(&format!("pg.naive.{callers}.per_s"), naive);
        let ratio = median(rounds.map(|(engine, naive)| engine / naive));
        let beside = format!("× naive {}", human(naive));
        let name = format!("pg.new.{callers}.vs_naive");
        report.ratio("", &name, ratio, beside, Bar::AtLeast(bar));
        if callers == 64 {
            new_64 = rate;
        }
    }
    duplicates(options, &scratch, report)?;
    if let Some(size) = options.size {
        large(options, &scratch, size, new_64, report)?;
    }
    Ok(())
}

fn duplicates(options: &Options, scratch: &Scratch, report: &mut Report) -> Result<(), Error> {
    say("duplicates, in turns with pgbench");
    let runtime = runtime()?;
    let mut rounds = [(0.0, 0.0); ROUNDS];
    for round in &mut rounds {
        scratch.quiet()?;
        let engine = runtime.block_on(engine::from_store(&scratch.place, 64, options.time))?;
        *round = (engine, scratch.pgbench(SELECT, 64, options.time)?);
    }
    let (rate, select) = (median(rounds.map(|r| r.0)), median(rounds.map(|r| r.1)));
    report.fact("duplicates from the store, 64 callers", "pg.dup.64.per_s", rate, "a second");
    report.figure("pg.select.64.per_s", select);
    let ratio = median(rounds.map(|(engine, select)| engine / select));
    let beside = format!("× single selects {}", human(select));
    report.ratio("", "pg.dup.64.vs_select", ratio, beside, Bar::AtLeast(1.5));
    Ok(())
}

/// New keys with many effects already there.
fn large(
    options: &Options,
    scratch: &Scratch,
    size: u64,
    empty: f64,
    report: &mut Report,
) -> Result<(), Error> {
    let name = short(size);
    say(&format!("filling the ledger with {size} effects"));
    scratch.sql(&FILL.replace(":size", &size.to_string()))?;
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        scratch.quiet()?;
        *round = engine::new_keys(&scratch.place, 64, options.time)?;
    }
    let rate = median(rounds);
    let label = format!("with {size} effects there: new keys, 64 callers");
    report.fact(label, &format!("pg.new.64.{name}.per_s"), rate, "effects/s");
    let beside = format!("× empty {}", human(empty));
    let ratio = format!("pg.new.64.{name}_vs_empty");
    report.ratio("", &ratio, rate / empty, beside, Bar::AtLeast(0.8));
    Ok(())
}

/// The code that people write by hand: the key as primary key, one transaction to claim and one to
/// settle. `n` is practically new each time.
const NAIVE: &str = "\
\\set n random(1, 9000000000000000000)
INSERT INTO idempotency VALUES (sha256(int8send(:n)), sha256(int8send(:n)), 'running', NULL, now())
    ON CONFLICT DO NOTHING;
UPDATE idempotency SET status = 'done', response = 'receipt 0123456789'
    WHERE key = sha256(int8send(:n));
";

const TABLE: &str = "CREATE TABLE idempotency (key bytea PRIMARY KEY, fingerprint bytea NOT NULL,
    status text NOT NULL, response text, created timestamptz NOT NULL);
INSERT INTO idempotency SELECT sha256(int8send(n)), sha256(int8send(n)), 'done',
    'receipt 0123456789', now() FROM generate_series(1, 100000) n";

/// A gigabyte of write-ahead log, so that its files are there, as on a server that has been in use.
const WARM: &str = "CREATE TABLE filler AS
    SELECT n, repeat(md5(n::text), 10) AS text FROM generate_series(1, 3000000) n;
CHECKPOINT;
DROP TABLE filler;
CHECKPOINT";

const SELECT: &str = "\
\\set n random(1, 100000)
SELECT status, response FROM idempotency WHERE key = sha256(int8send(:n));
";

/// Many effects at once.
const FILL: &str =
    "INSERT INTO hapax.effect (namespace, state, safety, entry, fence, created, updated,
    generation, attempts, key, fingerprint, attempt, outcome)
SELECT 1, 1, 0, n, n, 1800000000000 + n, 1800000000000 + n, 1, 1, sha256(int8send(n)),
    sha256(int8send(n)), substring(sha256(int8send(n)), 1, 16), 'receipt 0123456789'
FROM generate_series(1, :size) n";

/// A database of its own on a given server, dropped when it is no longer needed.
pub(crate) struct Scratch {
    server: String,
    name: String,
    /// The database's URL, as a ledger is opened by it.
    place: PathBuf,
    script: PathBuf,
}

impl Scratch {
    pub(crate) fn make(server: &str, directory: &Path) -> Result<Self, Error> {
        let name = format!("hapax_bench_{}", std::process::id());
        let (base, options) = match server.split_once('?') {
            Some((base, options)) => (base, format!("?{options}")),
            None => (server, String::new()),
        };
        let host = base.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        let scratch = Self {
            server: server.to_owned(),
            place: format!("{host}/{name}{options}").into(),
            name,
            script: directory.join("pgbench.sql"),
        };
        psql(server, &format!("CREATE DATABASE {}", scratch.name))?;
        scratch.sql(TABLE)?;
        say("a server that has been in use for a while");
        scratch.sql(WARM)?;
        Ok(scratch)
    }

    pub(crate) fn url(&self) -> &str {
        self.place.to_str().unwrap_or_default()
    }

    pub(crate) fn sql(&self, sql: &str) -> Result<(), Error> {
        psql(self.url(), sql)
    }

    /// Lets the server finish what it would do later: otherwise each measurement pays for
    /// cleaning up after the one before.
    pub(crate) fn quiet(&self) -> Result<(), Error> {
        self.sql("VACUUM ANALYZE;\nCHECKPOINT")
    }

    /// Transactions a second of this script, by as many clients.
    pub(crate) fn pgbench(
        &self,
        script: &str,
        clients: usize,
        time: Duration,
    ) -> Result<f64, Error> {
        let io = |error: std::io::Error| Error::Unreachable(format!("pgbench: {error}"));
        std::fs::write(&self.script, script).map_err(io)?;
        self.quiet()?;
        let threads = clients.min(std::thread::available_parallelism().map_or(1, usize::from));
        let output = Command::new("pgbench")
            .args(["-n", "-M", "prepared", "-f"])
            .arg(&self.script)
            .args(["-c", &clients.to_string(), "-j", &threads.to_string()])
            .args(["-T", &time.as_secs().max(1).to_string()])
            .arg(self.url())
            .output()
            .map_err(io)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps = tps.and_then(|rest| rest.split(' ').next()?.parse().ok());
        tps.ok_or_else(|| {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Error::Unreachable(format!("pgbench: {why}"))
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let dropped = psql(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name));
        if let Err(error) = dropped {
            eprintln!("hapax: {error}");
        }
    }
}

/// Runs each statement by itself.
fn psql(url: &str, sql: &str) -> Result<(), Error> {
    let mut command = Command::new("psql");
    command.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-d", url]);
    for statement in sql.split(";\n") {
        command.args(["-c", statement]);
    }
    let failed = |why: String| Error::Unreachable(format!("psql: {why}"));
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
