//! A program that dies with this process: its output shown and recorded, signals forwarded.
//!
//! A [watchdog](crate::watchdog) stands between `hapax run` and the program. Between fork and exec this
//! binary stands in for the program for a moment, asks the system to be killed when the watchdog dies, and
//! then becomes the program. Without that, killing `hapax run` would leave the program at work while the
//! next call runs it again.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use hapax::Claim;
use hapax_pipeline::Work;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::net::UnixListener;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Arrivals, SignalKind, signal};

use crate::recording::{Recording, Stream};
use crate::watchdog;

/// Set for the moment in which this binary is about to become the program.
pub(crate) const PARENT: &str = "HAPAX_PROGRAM_OF";

/// If this process was started to become a program, becomes it. Returns only if that fails, or if
/// the process was started as itself.
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
    /// The watchdog killed it, because its lease may have lapsed.
    Stopped,
}

impl End {
    /// The exit code that a shell would report.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => (128 + signal).clamp(0, 255) as u8,
            Self::Stopped => 137,
        }
    }
}

impl End {
    /// As the watchdog reports it.
    pub(crate) fn report(self) -> String {
        match self {
            Self::Exited(code) => format!("exited {code}"),
            Self::Killed(signal) => format!("killed {signal}"),
            Self::Stopped => "stopped".into(),
        }
    }

    fn read(text: &str) -> Option<Self> {
        match text.trim().split_once(' ') {
            Some(("exited", code)) => code.parse().ok().map(Self::Exited),
            Some(("killed", signal)) => signal.parse().ok().map(Self::Killed),
            None if text.trim() == "stopped" => Some(Self::Stopped),
            _ => None,
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
            Self::Stopped => {
                f.write_str("was stopped, because its lease or deadline was about to lapse")
            }
        }
    }
}

/// The program to run, and its environment.
pub(crate) struct Program<'a> {
    pub(crate) words: &'a [OsString],
    pub(crate) environment: &'a [(&'static str, String)],
    /// Whether its output is shown while it runs.
    pub(crate) show: bool,
    /// The limit on how long it may work, if there is one.
    pub(crate) limits: Option<&'a dyn WorkLimit>,
}

/// How long a program may work for the claim it is run for.
pub(crate) trait WorkLimit: Sync {
    /// Until when, by the boot-time clock; for ever, if nothing limits it.
    fn work_until_ms(&self) -> Option<u64>;

    /// The file whose lock shows that the holder lives.
    fn lease_file(&self) -> Option<PathBuf>;
}

impl WorkLimit for Claim {
    fn work_until_ms(&self) -> Option<u64> {
        self.work_until_ms()
    }

    fn lease_file(&self) -> Option<PathBuf> {
        self.lease_file()
    }
}

impl WorkLimit for Work {
    fn work_until_ms(&self) -> Option<u64> {
        self.work_until_ms()
    }

    fn lease_file(&self) -> Option<PathBuf> {
        self.lease_file()
    }
}

impl Program<'_> {
    /// Runs it to its end. An error means that it was not started.
    pub(crate) async fn run(&self) -> std::io::Result<(End, Recording)> {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("watchdog");
        let listener = UnixListener::bind(&socket)?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(self.words)
            .env(watchdog::SOCKET, &socket)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(file) = self.limits.and_then(WorkLimit::lease_file) {
            command.env(watchdog::LEASE, file);
        }
        let mut child = command.spawn()?;
        let mut signals = Signals::listen()?;
        let mut recording = Recording::default();
        // The watchdog connects, or has ended without a program.
        let line = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            status = child.wait() => {
                let code = status?.code().unwrap_or(126);
                return Err(std::io::Error::other(format!("its watchdog ended with {code}")));
            }
        };
        let (from_watchdog, mut to_watchdog) = line.into_split();
        // The watchdog starts the program once it knows how long that may work.
        let until = || self.limits.and_then(WorkLimit::work_until_ms).unwrap_or(u64::MAX);
        let mut until_ms = until();
        to_watchdog.write_all(format!("until {until_ms}\n").as_bytes()).await?;
        // From here on the program may have been started, so nothing that goes wrong is an error of starting it.
        let mut lines = BufReader::new(from_watchdog).lines();
        let line = lines.next_line().await.ok().flatten();
        let pid = line.and_then(|line| Pid::from_raw(line.strip_prefix("pid ")?.parse().ok()?));
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let status = {
            let record = record(out, err, self.show, &mut recording);
            let finish = finish(&mut child, record);
            let mut finish = std::pin::pin!(finish);
            loop {
                if until() != until_ms {
                    until_ms = until();
                    let line = format!("until {until_ms}\n");
                    let _ = to_watchdog.write_all(line.as_bytes()).await;
                }
                tokio::select! {
                    status = &mut finish => break status.ok(),
                    signal = signals.next() => forward(pid, signal),
                    () = tokio::time::sleep(UPDATE_EVERY), if self.limits.is_some() => {}
                }
            }
        };
        // The watchdog has reported how the program ended. If it was killed, it has not, and the program died with
        // it.
        let last_line = tokio::time::timeout(UPDATE_EVERY, lines.next_line()).await;
        let last_line = last_line.ok().and_then(Result::ok).flatten();
        let end = last_line.as_deref().and_then(End::read);
        let signal = status.and_then(|status| status.signal()).unwrap_or(9);
        Ok((end.unwrap_or(End::Killed(signal)), recording))
    }
}

/// How often the watchdog gets a new time until which the program may work.
const UPDATE_EVERY: Duration = Duration::from_millis(20);

/// The words of a shell command.
pub(crate) fn shell(command: &str) -> Vec<OsString> {
    ["sh", "-c", command].map(OsString::from).to_vec()
}

/// Words as the fingerprint and people get them.
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

/// The signals that are forwarded. On a terminal the program gets an interrupt from the terminal itself.
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
