//! The watchdog: a process between `hapax run` and the program it runs.
//!
//! ```text
//!  hapax run ──starts──▶ watchdog ──starts──▶ program ──▶ its descendants
//!      └──── "until …", over a socket ───▶┘  kills all of these
//! ```
//!
//! It learns until when the program may work, by the boot-time clock. It kills the program and everything that the
//! program has started when that time has come, or when `hapax run` has gone. It is a process of its own, in a
//! process group of its own, so that it goes on while `hapax run` is stopped. It holds the lease's lock as long as
//! it lives: a process that finds that lock free knows that the program is gone as well.
//!
//! It cannot help when it is itself killed or stopped and the program has started other processes, nor when a
//! descendant runs on another machine or under another service.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper, setpgid};
use rustix::time::{ClockId, clock_gettime};

use crate::program::{End, PARENT};

/// The socket on which the watchdog learns until when the program may work. Set for the watchdog alone.
pub(crate) const SOCKET: &str = "HAPAX_WATCHDOG";
/// The file of the lease, whose lock is held while the program lives.
pub(crate) const LEASE: &str = "HAPAX_WATCHDOG_LEASE";

/// Milliseconds of the clock that leases are measured by in this process.
pub(crate) fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// If this process was started as a watchdog, is one until the program is gone.
pub(crate) fn watch() -> Option<ExitCode> {
    let socket = std::env::var_os(SOCKET)?;
    let code = match run(PathBuf::from(socket)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hapax: the watchdog of the program could not start: {error}");
            126
        }
    };
    Some(ExitCode::from(code))
}

fn run(socket: PathBuf) -> std::io::Result<u8> {
    // The lock is taken before it connects. So there is no moment at which the parent is gone, the lock is free,
    // and a program may still be started.
    let lease = match std::env::var_os(LEASE) {
        Some(path) => {
            let file = File::open(path)?;
            file.lock_shared()?;
            Some(file)
        }
        None => None,
    };
    let mut to_parent = UnixStream::connect(socket)?;
    let mut from_parent = BufReader::new(to_parent.try_clone()?);
    let mut line = String::new();
    from_parent.read_line(&mut line)?;
    let until = parse_until(&line).ok_or_else(|| {
        std::io::Error::other("hapax run did not say how long the program may work")
    })?;
    // Orphans of the program become children of the watchdog, and are found.
    set_child_subreaper(Some(getpid()))?;
    let mut words = std::env::args_os();
    let own = std::env::current_exe()?;
    let mut program = Command::new(own)
        .args(words.by_ref().skip(1))
        .env_remove(SOCKET)
        .env_remove(LEASE)
        .env(PARENT, std::process::id().to_string())
        .spawn()?;
    // Stopping the terminal's foreground processes does not stop this one.
    let _ = setpgid(None, None);
    writeln!(to_parent, "pid {}", program.id())?;
    let until_ms = Arc::new(Mutex::new(Some(until)));
    let work_until = until_ms.clone();
    std::thread::spawn(move || listen(from_parent, &work_until));
    loop {
        if let Some(status) = program.try_wait()? {
            let end = match status.code() {
                Some(code) => End::Exited(code as u8),
                None => End::Killed(status.signal().unwrap_or_default()),
            };
            drop(lease);
            let _ = writeln!(to_parent, "{}", end.report());
            return Ok(end.code());
        }
        let until = *until_ms.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // The machine may have slept, so the clock is looked at often.
        let left = until.map_or(0, |until| until.saturating_sub(boot_ms()));
        if left == 0 {
            kill_all();
            let _ = program.wait();
            drop(lease);
            let _ = writeln!(to_parent, "stopped");
            return Ok(End::Killed(9).code());
        }
        std::thread::sleep(Duration::from_millis(left.min(5)));
    }
}

/// Keeps the newest time that the parent sends. No time is left once the parent is gone.
fn listen(mut lines: BufReader<UnixStream>, until_ms: &Mutex<Option<u64>>) {
    let set = |until| *until_ms.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = until;
    let mut line = String::new();
    loop {
        line.clear();
        match lines.read_line(&mut line) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return set(None),
            Ok(_) => {
                if let Some(until) = parse_until(&line) {
                    set(Some(until));
                }
            }
        }
    }
}

fn parse_until(line: &str) -> Option<u64> {
    line.trim().strip_prefix("until ")?.parse().ok()
}

/// Kills everything that descends from this process, until there is nothing left: a process may have
/// started another one in the meantime.
fn kill_all() {
    for _ in 0..1_000 {
        let mut left = descendants();
        left.retain(|pid| kill_process(*pid, Signal::KILL).is_ok());
        if left.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processes that descend from this one and are not dead.
fn descendants() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // After the name, which may have anything in it: the state, and the parent.
        let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let (state, parent) = (fields.next(), fields.next());
        if let (Some(state), Some(Ok(parent))) = (state, parent.map(str::parse::<i32>))
            && !matches!(state, "Z" | "X")
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![std::process::id() as i32];
    while let Some(parent) = next.pop() {
        let of = children.remove(&parent).unwrap_or_default();
        found.extend(of.iter().filter_map(|pid| Pid::from_raw(*pid)));
        next.extend(of);
    }
    found
}
