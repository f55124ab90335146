//! An attack from outside on the program as it is shipped: callers of every kind come in by `hapax run`, HTTP,
//! the proxy and SQL, while processes are killed and stopped, connections freeze, PostgreSQL restarts, and
//! an operator decides and resets.
//!
//! ```text
//!  callers ──▶ hapax run, hapax dev ×2, hapax proxy ──(relay)──▶ ledger
//!     │                └──▶ service ──▶ judge
//!     └──▶ judge        faults: kill, stop, freeze, restart        operator: resolve, reset
//! ```
//!
//! The judge and the callers' own table record the executions; the ledger is compared with them at the
//! end.

pub mod client;
mod faults;
mod operator;
mod service;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hapax::Key;
use hapax_testkit::{Postgres, free_port};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::field::room;
use crate::program::{self, Act};
use crate::relay::Relay;
use crate::report::Report;
use crate::sink::{Rule, Sink};
use client::Entrance;

pub use service::upstream;

/// The lease of `hapax run`.
const LEASE: Duration = Duration::from_secs(1);
/// How long a late arrival is possible at targets that take one.
const SETTLING_MS: u64 = 2_000;
/// How many callers there are at a time.
const CALLERS: u64 = 8;
/// How long a caller may take before it is killed.
const CALLER_TIMEOUT: Duration = Duration::from_secs(45);
/// How far back a caller goes for a key that was not done yet.
const OPEN: u64 = 600;

/// The kinds of effects: the callers' interface and the effect's safety. Keys take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    RunOpaque,
    RunFenced,
    RunSettling,
    HttpOpaque,
    HttpFenced,
    HttpSettling,
    Proxy,
    Sql,
    SqlLeased,
}

impl Kind {
    const DATABASE: [Self; 9] = [
        Self::RunOpaque,
        Self::RunFenced,
        Self::RunSettling,
        Self::HttpOpaque,
        Self::HttpFenced,
        Self::HttpSettling,
        Self::Proxy,
        Self::Sql,
        Self::SqlLeased,
    ];
    /// SQL comes last: a ledger in a file has no such entrance.
    const FILE: &'static [Self] = Self::DATABASE.split_at(7).0;

    fn rule(self) -> Rule {
        match self {
            Self::RunFenced | Self::HttpFenced => Rule::Fenced,
            _ => Rule::Plain,
        }
    }

    fn safety(self) -> &'static str {
        match self {
            Self::RunOpaque | Self::HttpOpaque | Self::Proxy => "opaque",
            Self::Sql | Self::SqlLeased => "transactional",
            _ => "reconcilable",
        }
    }

    fn settling_ms(self) -> u64 {
        if self.rule() == Rule::Fenced { 0 } else { SETTLING_MS }
    }

    fn is_run(self) -> bool {
        matches!(self, Self::RunOpaque | Self::RunFenced | Self::RunSettling)
    }

    fn entrance(self) -> Entrance {
        match self {
            Self::Proxy => Entrance::Proxy,
            Self::Sql => Entrance::Sql,
            Self::SqlLeased => Entrance::SqlLeased,
            _ => Entrance::Http,
        }
    }

    /// Whether the harness may stop its callers. A client over HTTP or SQL gives up by its own clock,
    /// but not while it is stopped between a look at the clock and its request; docs/guarantees.md says
    /// so.
    fn may_be_stopped(self) -> bool {
        !matches!(self, Self::HttpSettling)
    }
}

/// A ledger under attack, and everything around it.
struct Attack {
    directory: TempDir,
    sink: Sink,
    ledger: String,
    /// The ledger's address through the relay.
    detour: Option<String>,
    signing_key: PathBuf,
    kinds: &'static [Kind],
    bug: Option<String>,
    salt: u64,
    nodes: [u16; 2],
    proxy: u16,
    next_by: AtomicU64,
    over: AtomicBool,
    progress: Mutex<Progress>,
}

/// The progress of the callers so far.
#[derive(Default)]
struct Progress {
    /// The number of the next key.
    front: u64,
    /// The keys whose outcome no caller has received yet.
    open: BTreeSet<u64>,
    /// The callers at work, by process id, and their keys.
    live: HashMap<u32, u64>,
    /// When the last caller of a key ended.
    ended: HashMap<u64, Instant>,
    /// The callers that did the work, as outcomes named them.
    authors: BTreeMap<u64, Vec<u64>>,
    /// How often an operator may have reset a key.
    resets: BTreeMap<u64, u64>,
    /// How callers ended, by their exit code.
    exits: BTreeMap<String, u64>,
}

/// Attacks a ledger in a file, or in a database of this server, for this long.
pub fn attack(
    mut server: Option<Postgres>,
    seconds: u64,
    seed: u64,
    bug: Option<&str>,
    report: &mut Report,
) {
    let relay = server.as_ref().map(|server| Relay::before(server.port()));
    let attack = Attack::new(server.as_ref(), relay.as_ref(), bug);
    let mut services = service::Services::start(&attack);
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for nth in 0..CALLERS {
            let dice = SmallRng::seed_from_u64(seed.wrapping_mul(1_000) + nth);
            let attack = &attack;
            scope.spawn(move || attack.call_all(dice));
        }
        let operating = scope.spawn(|| operator::operate(&attack));
        let dice = SmallRng::seed_from_u64(seed);
        faults::strike(
            &attack,
            &mut services,
            server.as_mut(),
            relay.as_ref(),
            dice,
            until,
            report,
        );
        attack.over.store(true, Ordering::Release);
        report.add(operating.join().expect("the operator does not panic"));
    });
    drop(services);
    attack.judge(report);
    for fault in faults::least(server.is_some(), seconds) {
        report.at_least(fault.0, fault.1);
    }
}

impl Attack {
    fn new(server: Option<&Postgres>, relay: Option<&Relay>, bug: Option<&str>) -> Self {
        let directory = room();
        let sink = Sink::start(&directory.path().join("judge"));
        let ledger = match server {
            Some(server) => {
                let url = server.database("attack");
                server.sql("attack", "CREATE TABLE applied (target text, by bigint)");
                url
            }
            None => directory.path().join("hapax.db").to_string_lossy().into_owned(),
        };
        let attack = Self {
            sink,
            ledger,
            detour: relay.map(|relay| relay.url("attack")),
            signing_key: directory.path().join("signing-key"),
            directory,
            kinds: if server.is_some() { &Kind::DATABASE } else { Kind::FILE },
            bug: bug.map(str::to_owned),
            salt: getrandom::u64().expect("a number") >> 1,
            nodes: [free_port(), free_port()],
            proxy: free_port(),
            next_by: AtomicU64::new(FIRST_BY),
            over: AtomicBool::new(false),
            progress: Mutex::default(),
        };
        // The ledger and its signing key are made by one process, before many come.
        let made = attack.hapax(&attack.ledger).args(["run", "-k", "first", "--", "true"]).status();
        assert!(made.is_ok_and(|status| status.success()), "the ledger is made");
        attack
    }

    /// The program under attack.
    fn hapax(&self, ledger: &str) -> Command {
        let mut command = program::hapax(self.bug.as_deref());
        command.current_dir(self.directory.path()).args(["--db", ledger, "--signing-key"]);
        command.arg(&self.signing_key).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no panic")
    }

    fn kind(&self, n: u64) -> Kind {
        self.kinds[n as usize % self.kinds.len()]
    }

    fn key(&self, n: u64) -> Key {
        let (salt, n) = (self.salt.to_be_bytes(), n.to_be_bytes());
        Key::derive("attack.v1", &[("salt", &salt), ("n", &n)]).expect("a versioned name")
    }

    /// The judge's name for a key.
    fn target(&self, n: u64) -> String {
        format!("{}-{n}", self.salt)
    }

    /// The ledger's address for one caller: some go through the relay.
    fn way(&self, dice: &mut SmallRng) -> &str {
        match &self.detour {
            Some(detour) if dice.random_bool(0.5) => detour,
            _ => &self.ledger,
        }
    }

    /// Runs one caller after the other until the attack is over.
    fn call_all(&self, mut dice: SmallRng) {
        while !self.over.load(Ordering::Acquire) {
            let n = self.progress().choose(&mut dice);
            let mut command = self.caller(n, &mut dice);
            let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
            self.wait_for(n, child.expect("a caller starts"));
        }
    }

    /// A caller of this key, ready to start.
    fn caller(&self, n: u64, dice: &mut SmallRng) -> Command {
        let (kind, by) = (self.kind(n), self.next_by.fetch_add(1, Ordering::Relaxed));
        // Most work is brief; some takes as long as a lease.
        let work_ms = match dice.random_bool(0.2) {
            true => dice.random_range(0..2_500),
            false => dice.random_range(0..60),
        };
        let ledger = self.way(dice).to_owned();
        if kind.is_run() {
            let act = Act {
                sink: self.sink.port,
                key: self.target(n),
                rule: kind.rule(),
                by,
                before_ms: work_ms,
                after_ms: work_ms / 4,
                started: None,
            };
            let mut command = self.hapax(&ledger);
            command.args(["run", "--key", &self.key(n).to_string(), "--safety", kind.safety()]);
            command.args(["--lease", &humantime(LEASE)]);
            if kind.safety() == "reconcilable" {
                let settling = humantime(Duration::from_millis(kind.settling_ms()));
                command.args([
                    "--settling",
                    &settling,
                    "--reconcile",
                    &act.words("look").join(" "),
                ]);
            }
            if dice.random_bool(0.3) {
                command.args(["--wait", "4s"]);
            }
            act.set_environment(&mut command);
            command.arg("--").args(act.words("act"));
            return command;
        }
        let mut command = Command::new(crate::own_program());
        command.args(["client", "--sink", &self.sink.port.to_string()]);
        command.args(["--target", &self.target(n), "--rule", &kind.rule().to_string()]);
        command.args(["--safety", kind.safety(), "--by", &by.to_string()]);
        command.args(["--settling-ms", &kind.settling_ms().to_string()]);
        command.args(["--work-ms", &work_ms.to_string()]);
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let (entrance, at, key) = match kind.entrance() {
            Entrance::Http => {
                let first = dice.random_range(0..2);
                let nodes = [self.nodes[first], self.nodes[1 - first]];
                ("http", nodes.map(local).to_vec(), self.key(n).to_string())
            }
            Entrance::Proxy => ("proxy", vec![local(self.proxy)], self.target(n)),
            Entrance::Sql => ("sql", vec![ledger], self.key(n).to_string()),
            Entrance::SqlLeased => ("sql-leased", vec![ledger], self.key(n).to_string()),
        };
        command.args(["--entrance", entrance, "--key", &key]);
        command.args(at.iter().flat_map(|at| ["--at", at]));
        command
    }

    /// Waits until a caller has ended, and records the outcome that it received.
    fn wait_for(&self, n: u64, mut child: Child) {
        let pid = child.id();
        self.progress().live.insert(pid, n);
        let start = Instant::now();
        let how = loop {
            {
                // Signals are sent under this lock, and only to children that were not waited for.
                let mut progress = self.progress();
                if let Some(status) = child.try_wait().expect("a child can be waited for") {
                    progress.live.remove(&pid);
                    break status
                        .code()
                        .map_or("was killed".into(), |code| format!("exited {code}"));
                }
                if start.elapsed() > CALLER_TIMEOUT {
                    progress.live.remove(&pid);
                    let _ = child.kill();
                    break "took too long, and was killed".into();
                }
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        let output = child.wait_with_output().expect("its output");
        let text = String::from_utf8_lossy(&output.stdout);
        let mut progress = self.progress();
        progress.ended.insert(n, Instant::now());
        if how == "exited 0" {
            progress.open.remove(&n);
            // An outcome without an author was decided by an operator.
            let by = author_in(&text);
            progress.authors.entry(n).or_default().extend(by);
        }
        *progress.exits.entry(format!("{:?} {how}", self.kind(n))).or_default() += 1;
    }
}

impl Progress {
    /// Chooses a key: a new one, one that is not done yet, or a recent one.
    fn choose(&mut self, dice: &mut SmallRng) -> u64 {
        let old = self.front.saturating_sub(OPEN);
        let open: Vec<u64> = self.open.range(old..).copied().collect();
        match dice.random_range(0..10) {
            0..=3 if !open.is_empty() => open[dice.random_range(0..open.len())],
            4..=5 if self.front > 0 => self.front - 1 - dice.random_range(0..self.front.min(24)),
            _ => {
                let n = self.front;
                self.front += 1;
                self.open.insert(n);
                n
            }
        }
    }

    /// Whether no caller of this key is at work, and the last one ended a while ago.
    fn is_quiet(&self, n: u64) -> bool {
        let ended = self.ended.get(&n);
        !self.live.values().any(|live| *live == n)
            && ended.is_some_and(|ended| ended.elapsed() > Duration::from_secs(3))
    }
}

/// The number of the first caller: so long that nothing else in an outcome looks like one.
const FIRST_BY: u64 = 7_000_000_000;

/// The number of the caller that an outcome names.
fn author_in(text: &str) -> Option<u64> {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
    numbers.into_iter().find(|by| (FIRST_BY..FIRST_BY * 2).contains(by))
}

fn humantime(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, signal);
    }
}
