//! A program that dies with us: its output shown and recorded, signals forwarded.
//!
//! Between fork and exec this binary stands in for the program for a moment, asks the system
//! to be killed when its parent dies, and then becomes the program. Without that, killing
//! `hapax run` would leave the program at work while the next call runs it again.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitCode, Stdio};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Arrivals, SignalKind, signal};

use crate::recording::{Recording, Stream};

/// Set for the moment in which this binary is about to become the program.
const PARENT: &str = "HAPAX_PROGRAM_OF";

/// If we were started to become a program, becomes it. Returns only if that fails, or if we
/// were started for ourselves.
pub(crate) fn become_program() -> Option<ExitCode> {
    let parent = std::env::var(PARENT).ok()?;
    let mut words = std::env::args_os().skip(1);
    let program = words.next().unwrap_or_default();
    let bound = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    let orphaned = getppid().map(|pid| pid.as_raw_nonzero().to_string()) != Some(parent);
    if !bound || orphaned {
        return Some(ExitCode::from(126));
    }
    let error = std::process::Command::new(&program).args(words).env_remove(PARENT).exec();
    eprintln!("hapax: {}: {error}", program.display());
    Some(ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }))
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exited(u8),
    Killed(i32),
}

impl End {
    /// The exit code that a shell would report.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => (128 + signal).clamp(0, 255) as u8,
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

/// What to run, and what it sees.
pub(crate) struct Program<'a> {
    pub(crate) words: &'a [OsString],
    pub(crate) environment: &'a [(&'static str, String)],
    /// Whether its output is passed on while it runs.
    pub(crate) show: bool,
}

impl Program<'_> {
    /// Runs it to its end. An error means that it was not started.
    pub(crate) async fn run(&self) -> std::io::Result<(End, Recording)> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(self.words)
            .env(PARENT, std::process::id().to_string())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut signals = Signals::listen()?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let mut recording = Recording::default();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let status = {
            let record = record(out, err, self.show, &mut recording);
            let finish = finish(&mut child, record);
            let mut finish = std::pin::pin!(finish);
            loop {
                tokio::select! {
                    status = &mut finish => break status?,
                    signal = signals.next() => forward(pid, signal),
                }
            }
        };
        let end = match status.code() {
            Some(code) => End::Exited(code as u8),
            None => End::Killed(status.signal().unwrap_or_default()),
        };
        Ok((end, recording))
    }
}

/// The words of a shell command.
pub(crate) fn shell(command: &str) -> Vec<OsString> {
    ["sh", "-c", command].map(OsString::from).to_vec()
}

/// Words as the fingerprint and people see them.
pub(crate) fn bytes(word: &OsStr) -> &[u8] {
    word.as_encoded_bytes()
}

/// Waits for the end of the program and of its output. Output that a background child keeps
/// open is waited for only a moment longer than the program itself.
async fn finish(
    child: &mut Child,
    record: impl Future<Output = ()>,
) -> std::io::Result<std::process::ExitStatus> {
    let mut record = std::pin::pin!(record);
    let mut recorded = false;
    loop {
        tokio::select! {
            () = &mut record, if !recorded => recorded = true,
            status = child.wait() => {
                let status = status?;
                if !recorded {
                    let _ = tokio::time::timeout(std::time::Duration::from_millis(200), record).await;
                }
                return Ok(status);
            }
        }
    }
}

async fn record(
    out: Option<impl AsyncRead + Unpin>,
    err: Option<impl AsyncRead + Unpin>,
    show: bool,
    recording: &mut Recording,
) {
    let (mut out, mut err) = (out, err);
    let (mut from_out, mut from_err) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        let (stream, count) = tokio::select! {
            biased;
            count = read(&mut out, &mut from_out), if out.is_some() => (Stream::Out, count),
            count = read(&mut err, &mut from_err), if err.is_some() => (Stream::Err, count),
            else => return,
        };
        let bytes = match (stream, count) {
            (Stream::Out, 0) => {
                out = None;
                continue;
            }
            (Stream::Err, 0) => {
                err = None;
                continue;
            }
            (Stream::Out, count) => &from_out[..count],
            (Stream::Err, count) => &from_err[..count],
        };
        recording.add(stream, bytes);
        if show {
            stream.write(bytes);
        }
    }
}

async fn read(from: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

fn forward(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

/// The signals that are passed on. On a terminal the program gets an interrupt from the
/// terminal itself.
struct Signals {
    interrupt: Arrivals,
    quit: Arrivals,
    terminate: Arrivals,
    hang_up: Arrivals,
    on_terminal: bool,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            on_terminal: std::io::stdin().is_terminal(),
        })
    }

    async fn next(&mut self) -> Signal {
        loop {
            let (signal, from_terminal) = tokio::select! {
                _ = self.interrupt.recv() => (Signal::INT, true),
                _ = self.quit.recv() => (Signal::QUIT, true),
                _ = self.terminate.recv() => (Signal::TERM, false),
                _ = self.hang_up.recv() => (Signal::HUP, false),
            };
            if !(from_terminal && self.on_terminal) {
                return signal;
            }
        }
    }
}
