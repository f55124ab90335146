//! The setting of an experiment: a ledger, a judge, workers and their logs, and the verdict.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hapax::tokio_postgres::NoTls;
use hapax::{Effect, Entry, EntryKind, Hapax, Key, State, StateName};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::deliveries::{Difference, compare};
use crate::history::{History, Reply, Request};
use crate::report::Report;
use crate::sink::Sink;
use crate::worker::{Kind, TABLE, author, key};

/// Longer than any step takes that ends by itself.
pub const LONG: Duration = Duration::from_secs(60);

/// The ledger of a process under test.
#[derive(Debug, Clone, clap::Args)]
pub struct At {
    /// The ledger: a file or a URL
    #[arg(long)]
    pub ledger: String,
    /// The key that seals the journal
    #[arg(long)]
    pub signing_key: PathBuf,
}

/// A ledger under test, and the harness around it.
pub struct Field {
    directory: TempDir,
    sink: Sink,
    /// The ledger: a file or a URL.
    pub ledger: String,
    signing_key: PathBuf,
    /// Another address of the same ledger, for the workers, if they have to use one.
    pub detour: Option<String>,
    /// The words of a command that starts the workers; empty if they are started directly.
    pub wrapper: Vec<String>,
    /// The bug that is planted in workers.
    pub bug: Option<String>,
    /// The lease of the workers, in milliseconds.
    pub lease_ms: u64,
    salt: u64,
    workers: AtomicU64,
}

/// A worker that is running.
pub struct Running {
    child: Child,
    /// Its log.
    pub log: PathBuf,
}

impl Field {
    /// A field around a new ledger in a file of its own.
    pub fn in_file() -> Self {
        let directory = room();
        let ledger = directory.path().join("hapax.db");
        let signing_key = directory.path().join("signing-key");
        Self::around(directory, ledger.to_string_lossy().into_owned(), signing_key)
    }

    /// A field around the ledger at this place: a file, or a database by its URL.
    pub fn at(ledger: impl Into<String>) -> Self {
        let directory = room();
        let signing_key = directory.path().join("signing-key");
        Self::sharing(ledger, directory, signing_key)
    }

    /// A field around a ledger that other fields use too, and whose journal is sealed with this
    /// key.
    pub fn shared(ledger: impl Into<String>, signing_key: &Path) -> Self {
        Self::sharing(ledger, room(), signing_key.to_owned())
    }

    fn sharing(ledger: impl Into<String>, directory: TempDir, signing_key: PathBuf) -> Self {
        let ledger = ledger.into();
        if ledger.contains("://") {
            blocking(prepare(&ledger, &signing_key));
        }
        Self::around(directory, ledger, signing_key)
    }

    fn around(directory: TempDir, ledger: String, signing_key: PathBuf) -> Self {
        let sink = Sink::start(&directory.path().join("judge"));
        let salt = getrandom::u64().expect("a number") >> 1;
        Self {
            directory,
            sink,
            ledger,
            signing_key,
            detour: None,
            wrapper: Vec::new(),
            bug: None,
            lease_ms: 1000,
            salt,
            workers: AtomicU64::new(0),
        }
    }

    /// Starts a worker on these keys.
    pub fn worker(&self, keys: Range<u64>, options: &[&str]) -> Running {
        let nth = self.workers.fetch_add(1, Ordering::Relaxed);
        let log = self.directory.path().join(format!("log-{nth}"));
        let mut words = self.wrapper.iter().map(std::ffi::OsString::from).collect::<Vec<_>>();
        words.push(crate::own_program().into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("worker").arg("--ledger");
        command.arg(self.detour.as_ref().unwrap_or(&self.ledger));
        command.args(["--sink", &self.sink.port.to_string(), "--log"]).arg(&log);
        command.arg("--signing-key").arg(&self.signing_key);
        command.args(["--salt", &self.salt.to_string()]);
        command.args(["--first", &keys.start.to_string(), "--last", &keys.end.to_string()]);
        command.args(["--lease-ms", &self.lease_ms.to_string()]);
        if let Some(bug) = &self.bug {
            command.args(["--plant", bug]);
        }
        command.args(options).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        Running { child: command.spawn().expect("a worker starts"), log }
    }

    /// Lets one last worker claim every key and wait for the effects still in flight.
    pub fn finish(&self, keys: Range<u64>) {
        // On a busy machine a lease of 150 ms lapses late: its beats are late, and those are stalls.
        let wait = (self.lease_ms * 6).max(30_000).to_string();
        let mut last = self.worker(keys, &["--wait-ms", &wait, "--callers", "32"]);
        last.ends(Duration::from_secs(300));
    }

    /// Compares the executions, the acknowledged outcomes, and the ledger.
    pub fn judge(&self, keys: Range<u64>, report: &mut Report) {
        let executed = self.executed();
        let effects = match blocking(self.effects(keys.clone())) {
            Ok(effects) => effects,
            Err(error) => return report.violation(format!("the ledger cannot be read: {error}")),
        };
        let calls = self.calls(report);
        self.compare(&executed, &calls, report);
        for n in keys {
            let none = Vec::new();
            let executed = executed.get(&n).unwrap_or(&none);
            let effect = effects.get(&key(self.salt, n));
            let calls = calls.get(&n).map(Vec::as_slice).unwrap_or_default();
            judge_key(n, executed, effect, calls, report);
        }
    }

    /// Compares acknowledged and possible outcomes with the targets.
    fn compare(
        &self,
        executed: &HashMap<u64, Vec<u64>>,
        calls: &BTreeMap<u64, Vec<Call>>,
        report: &mut Report,
    ) {
        // Only the key counts here, not the caller that executed it.
        let answered = |call: &&Call| call.reply.is_some();
        let of = |key: &u64| (*key, 0);
        let promised = calls.iter().filter(|(_, calls)| calls.iter().any(|call| answered(&call)));
        let promised: Vec<_> = promised.map(|(key, _)| of(key)).collect();
        let begun = calls.iter().filter(|(_, calls)| calls.iter().any(|call| call.offered));
        let begun: Vec<_> = begun.map(|(key, _)| of(key)).collect();
        let arrived = executed.iter().flat_map(|(key, by)| by.iter().map(move |_| of(key)));
        let arrived: Vec<_> = arrived.collect();
        let Difference { lost, duplicate, unexpected, .. } = compare(&promised, &begun, &arrived);
        for (count, figure) in [
            (lost, "acknowledged and lost"),
            (duplicate, "executed more than once"),
            (unexpected, "executed without an attempt"),
        ] {
            report.count(figure, count);
            report.expect(count == 0, || format!("{count} {figure}"));
        }
    }

    /// The callers that executed each key, by the judge or by the callers' own table.
    fn executed(&self) -> HashMap<u64, Vec<u64>> {
        let mut executed: HashMap<u64, Vec<u64>> = HashMap::new();
        for (key, by) in self.sink.executed() {
            if let Some(n) = key.strip_prefix(&format!("{}/", self.salt)) {
                executed.insert(n.parse().expect("a number"), by);
            }
        }
        for (n, by) in self.applied() {
            executed.entry(n).or_default().push(by);
        }
        executed
    }

    /// The rows that callers committed, read without hapax.
    fn applied(&self) -> Vec<(u64, u64)> {
        const ROWS: &str = "SELECT key, by FROM applied WHERE salt = $1";
        let salt = self.salt as i64;
        if self.ledger.contains("://") {
            return blocking(async {
                let (client, connection) =
                    hapax::tokio_postgres::connect(&self.ledger, NoTls).await.expect("a client");
                tokio::spawn(connection);
                let rows = client.query(ROWS, &[&salt]).await.expect("rows");
                rows.iter()
                    .map(|row| (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64))
                    .collect()
            });
        }
        let connection = rusqlite::Connection::open(&self.ledger).expect("the file");
        connection.execute_batch(TABLE).expect("the table");
        let mut statement = connection.prepare(ROWS).expect("the table");
        let rows = statement.query_map([salt], |row| {
            Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64))
        });
        rows.and_then(Iterator::collect).expect("rows")
    }

    /// Opens the ledger.
    pub async fn open(&self) -> Result<Hapax, hapax::Error> {
        let builder = Hapax::builder().background(false).signing_key(&self.signing_key);
        builder.open(&self.ledger).await
    }

    /// The ledger's effects.
    async fn effects(&self, keys: Range<u64>) -> Result<HashMap<Key, Effect>, hapax::Error> {
        let hapax = self.open().await?;
        let mut effects = HashMap::new();
        for n in keys {
            let key = key(self.salt, n);
            effects.extend(hapax.effects().show(key).await?.map(|effect| (key, effect)));
        }
        Ok(effects)
    }

    /// Seals the journal, verifies all of it, and counts its events.
    pub fn verify(&self, report: &mut Report) {
        if let Err(error) = blocking(self.try_verify(report)) {
            report.violation(format!("the journal cannot be read: {error}"));
        }
    }

    async fn try_verify(&self, report: &mut Report) -> Result<(), hapax::Error> {
        let hapax = self.open().await?;
        while hapax.pass().await?.sealed > 0 {}
        let verified = hapax.journal().verify(hapax.journal().verifier()?, |_, _| ()).await?;
        report.count("journal entries verified", verified.sealed);
        report.expect(verified.damage.is_empty() && verified.pending == 0, || {
            format!("the journal: {} pending, {:?}", verified.pending, verified.damage)
        });
        let (mut after, mut written) = (0, 0);
        let mut newest: HashMap<Key, Entry> = HashMap::new();
        while let entries = hapax.journal().entries(after, 10_000).await?
            && let Some(last) = entries.last()
        {
            (after, written) = (last.id, written + entries.len() as u64);
            for entry in entries.iter().filter(|entry| entry.event != EntryKind::Contradicted) {
                let before = newest.insert(entry.key, entry.clone());
                let running = before.is_some_and(|before| before.state == StateName::Running);
                report.expect(!running || entry.event != EntryKind::Granted, || {
                    format!("entry {} grants what the journal says is running", entry.id)
                });
            }
            for (event, figure) in [
                (EntryKind::Expired, "claims whose holder was declared dead"),
                (EntryKind::Contradicted, "stale successes that were journalled and not believed"),
            ] {
                let seen = entries.iter().filter(|entry| entry.event == event).count();
                report.count(figure, seen as u64);
            }
        }
        for found in hapax.effects().list(&[], 10_000_000).await? {
            let entry = newest.get(&found.name.key);
            let folds = entry.is_some_and(|entry| {
                entry.state == found.effect.state.name() && entry.attempt == found.effect.attempt
            });
            report.expect(folds, || {
                format!("{}: the record is not where the journal leads", found.name.key)
            });
        }
        report.expect(written == verified.sealed, || {
            format!("the journal has {written} entries; {} are sealed", verified.sealed)
        });
        Ok(())
    }

    /// The calls of all workers, by key.
    fn calls(&self, report: &mut Report) -> BTreeMap<u64, Vec<Call>> {
        let mut calls: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
        for nth in 0..self.workers.load(Ordering::Relaxed) {
            let log = self.directory.path().join(format!("log-{nth}"));
            for call in read_log(&log) {
                report.count("calls", 1);
                if let Some((_, Reply::Outcome(_))) = call.reply {
                    report.count("calls answered with an outcome", 1);
                }
                if let Some(code) = &call.failed {
                    report.count(format!("calls answered with {code}"), 1);
                }
                calls.entry(call.key).or_default().push(call);
            }
        }
        calls
    }

    /// One above the highest key that any worker has claimed.
    pub fn front(&self) -> u64 {
        let logs = 0..self.workers.load(Ordering::Relaxed);
        let calls =
            logs.flat_map(|nth| read_log(&self.directory.path().join(format!("log-{nth}"))));
        calls.map(|call| call.key + 1).max().unwrap_or(0)
    }
}

/// A directory in memory, if there is some: most experiments are not about disks.
pub fn room() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory")
}

/// Makes the schema and the callers' table before the workers start.
async fn prepare(url: &str, signing_key: &Path) {
    let builder = Hapax::builder().background(false).signing_key(signing_key);
    let hapax = builder.open(url).await.expect("a ledger");
    let _ = hapax.close().await;
    let (client, connection) = hapax::tokio_postgres::connect(url, NoTls).await.expect("a client");
    tokio::spawn(connection);
    // Two sessions that create the table at the same time would both find it missing.
    let alone = format!("BEGIN; SELECT pg_advisory_xact_lock(7); {TABLE}; COMMIT");
    client.batch_execute(&alone).await.expect("a table");
}

/// Runs a future to its end.
pub fn blocking<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

#[derive(Debug, Clone)]
struct Call {
    key: u64,
    id: u64,
    began: u64,
    offered: bool,
    reply: Option<(u64, Reply)>,
    failed: Option<String>,
}

/// Reads a worker's log. The last line may be cut off.
fn read_log(path: &Path) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let (Some(at), Some(verb)) = (number(0), words.get(1)) else { continue };
        let Some(id) = number(2) else { continue };
        if *verb == "began" {
            places.insert(id, calls.len());
            let key = number(3).expect("a key");
            calls.push(Call { key, id, began: at, offered: false, reply: None, failed: None });
            continue;
        }
        let Some(call) = places.get(&id).and_then(|place| calls.get_mut(*place)) else { continue };
        match *verb {
            "offered" => call.offered = true,
            "answered" => call.reply = number(3).map(|by| (at, Reply::Outcome(by))),
            "failed" => call.failed = words.get(3).map(|code| (*code).to_owned()),
            _ => {}
        }
    }
    calls
}

fn judge_key(
    n: u64,
    executed: &[u64],
    effect: Option<&Effect>,
    calls: &[Call],
    report: &mut Report,
) {
    let kind = Kind::of(n);
    let wrong = |violation: String| format!("key {n}, {kind:?}: {violation}");
    report.count("keys judged", 1);
    report.count("effects executed", executed.len() as u64);
    report.expect(executed.len() <= 1, || wrong(format!("executed {} times", executed.len())));
    let state = effect.map(|effect| &effect.state);
    let recorded = match state {
        Some(State::Succeeded(outcome)) => author(outcome),
        _ => None,
    };
    let acknowledged = calls.iter().any(|call| call.reply.is_some());
    report.count("keys with an acknowledged outcome", u64::from(acknowledged));
    for call in calls {
        if let Some((_, Reply::Outcome(by))) = call.reply {
            report.count("outcomes acknowledged", 1);
            report.expect(recorded == Some(by), || {
                wrong(format!("acknowledged as done by {by}, and now: {state:?}"))
            });
        }
    }
    if let Some(by) = recorded {
        report.expect(executed.contains(&by), || {
            wrong(format!("recorded as done by {by}, executed by {executed:?}"))
        });
    } else if !executed.is_empty() {
        let name = effect.map(|effect| effect.state.name());
        let shown = matches!(name, Some(StateName::Unknown | StateName::Indeterminate))
            // The target takes a late first arrival, and answers the next caller with it.
            || (kind == Kind::Keyed && name == Some(StateName::Failed));
        report.count("unknown outcomes, shown as needing attention", 1);
        report.expect(shown, || wrong(format!("executed, and now: {state:?}")));
    }
    let running = state.is_some_and(|state| matches!(state, State::Running { .. }));
    report.expect(!running, || wrong("still running when everybody is gone".into()));
    let mut history = History::default();
    for call in calls.iter().filter(|call| call.offered || call.reply.is_some()) {
        let request = Request::Run { payload: 0, offer: call.offered.then_some(call.id) };
        history.call(call.began, request, call.reply.clone());
    }
    report.count("histories checked", 1);
    report.expect(history.is_linearizable(), || {
        wrong(format!("no order explains what callers were told: {history:?}"))
    });
}

impl Running {
    /// Waits until it is at work. `false` if it ended before.
    pub fn is_at_work(&mut self) -> bool {
        self.has_written(" offered ", 1)
    }

    /// Waits until this many of its calls were answered with an outcome. `false` if it ended before.
    pub fn has_answered(&mut self, outcomes: usize) -> bool {
        self.has_written(" answered ", outcomes)
    }

    /// Waits until it has written a word this many times. `false` if it ended before.
    pub fn has_written(&mut self, word: &str, times: usize) -> bool {
        let deadline = Instant::now() + LONG;
        loop {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            if text.matches(word).count() >= times {
                return true;
            }
            if self.has_ended() || Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether it ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits until it ends; kills it if that takes too long. Returns whether it ended by itself.
    pub fn ends(&mut self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if self.has_ended() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
        false
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it, or lets it go on.
    pub fn stop(&self, stopped: bool) {
        let signal = if stopped { Signal::STOP } else { Signal::CONT };
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// One above the highest key that it has claimed.
    pub fn front(&self) -> u64 {
        read_log(&self.log).iter().map(|call| call.key + 1).max().unwrap_or(0)
    }

    /// Whether a line with this word is in its log.
    pub fn wrote(&self, word: &str) -> bool {
        std::fs::read_to_string(&self.log).unwrap_or_default().contains(word)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
