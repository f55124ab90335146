//! Message brokers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::group::Group;
use crate::{free_port, hand_over, server, until};

const NATS: &str = "/usr/sbin/nats-server";
const REDIS: &str = "/usr/bin/redis-server";
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const EPMD: &str = "/usr/bin/epmd";

/// The broker's log file, beside its data.
const LOG: &str = "log";

/// Which brokers are installed: NATS, RabbitMQ, Redis.
pub fn brokers() -> [bool; 3] {
    [NATS, RABBITMQ, REDIS].map(|path| Path::new(path).exists())
}

/// A broker that lives as long as this value, and keeps its data on disk.
pub struct Broker {
    kind: Kind,
    directory: TempDir,
    port: u16,
    running: Option<Group>,
    /// The name server that RabbitMQ finds its nodes with.
    _names: Option<Group>,
}

/// The properties of a kind of broker.
struct Kind {
    scheme: &'static str,
    program: &'static str,
    command: fn(&Path, u16) -> Command,
    /// The first bytes of a client, and the first bytes of a ready broker's answer: some brokers
    /// listen long before they are ready.
    greeting: (&'static [u8], &'static [u8]),
}

impl Kind {
    fn is_ready(&self, port: u16) -> bool {
        let (hello, ready) = self.greeting;
        let greet = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(hello)?;
            let mut answer = vec![0; ready.len()];
            stream.read_exact(&mut answer)?;
            Ok(answer == ready)
        };
        greet().unwrap_or(false)
    }
}

impl Broker {
    /// A NATS server with JetStream.
    pub fn nats() -> Self {
        let command = |directory: &Path, port: u16| {
            let mut command = server(Path::new(NATS));
            command.args(["--addr", "127.0.0.1", "--jetstream", "--store_dir"]).arg(directory);
            command.args(["--port", &port.to_string()]);
            command
        };
        let greeting: (&[u8], &[u8]) = (b"", b"INFO ");
        Self::start(Kind { scheme: "nats", program: NATS, command, greeting }, None)
    }

    /// A Redis that syncs before it answers.
    pub fn redis() -> Self {
        let command = |directory: &Path, port: u16| {
            let mut command = server(Path::new(REDIS));
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
            command.args(["--appendfsync", "always", "--port", &port.to_string(), "--dir"]);
            command.arg(directory);
            command
        };
        let greeting: (&[u8], &[u8]) = (b"PING\r\n", b"+PONG");
        Self::start(Kind { scheme: "redis", program: REDIS, command, greeting }, None)
    }

    /// A RabbitMQ; every client is `guest`.
    pub fn rabbitmq() -> Self {
        // Its own name server: the machine's is not ours to use.
        let names = free_port();
        let mut epmd = server(Path::new(EPMD));
        epmd.args(["-address", "127.0.0.1", "-port", &names.to_string()]);
        let epmd = Group::spawn(&mut epmd, Stdio::null());
        until("epmd answers", || TcpStream::connect(("127.0.0.1", names)).is_ok());
        // The header of AMQP 0-9-1, and a frame with a method on channel 0.
        let greeting: (&[u8], &[u8]) = (b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00");
        let kind = Kind { scheme: "amqp", program: RABBITMQ, command: rabbitmq, greeting };
        let mut broker = Self::start(kind, Some(names));
        broker._names = Some(epmd);
        broker
    }

    fn start(kind: Kind, names: Option<u16>) -> Self {
        let program = kind.program;
        assert!(Path::new(program).exists(), "{program}; `cargo xtask test` installs it");
        let directory = tempfile::tempdir().expect("a directory");
        hand_over(directory.path());
        if let Some(names) = names {
            std::fs::write(directory.path().join("names"), names.to_string()).expect("a file");
        }
        let port = free_port();
        let mut broker = Self { kind, directory, port, running: None, _names: None };
        broker.restart();
        broker
    }

    /// The URL it listens on.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.kind.scheme, self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again, also if it was killed.
    pub fn restart(&mut self) {
        self.kill();
        let path = self.directory.path().join(LOG);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&path).expect("a log");
        hand_over(&path);
        let mut command = (self.kind.command)(self.directory.path(), self.port);
        self.running = Some(Group::spawn(&mut command, log.into()));
        until("the broker answers", || self.kind.is_ready(self.port));
    }

    /// Ends it in good order, and starts it again. A RabbitMQ that is killed right after its first
    /// start may forget the queues it has confirmed (3.10 does).
    pub fn settle(&mut self) {
        let running = self.running.as_mut().expect("it runs");
        running.signal(Signal::TERM);
        until("the broker ends", || running.is_over());
        self.restart();
    }

    /// Kills it without warning, if it runs.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Stops it in its tracks, as on a machine that is out of memory.
    pub fn pause(&self) {
        self.running.as_ref().expect("it runs").signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.running.as_ref().expect("it runs").signal(Signal::CONT);
    }
}

impl Drop for Broker {
    /// Prints the broker's log if a test fails, because that may be the broker's fault.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read(self.directory.path().join(LOG)).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<_> = log.lines().collect();
            let last = lines.len().saturating_sub(60);
            eprintln!("the last lines of {}:\n{}", self.kind.program, lines[last..].join("\n"));
        }
    }
}

fn rabbitmq(directory: &Path, port: u16) -> Command {
    let names = std::fs::read_to_string(directory.join("names")).expect("a port");
    let at = |name: &str| directory.join(name).into_os_string();
    let mut command = server(Path::new(RABBITMQ));
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", directory)
        .env("ERL_EPMD_PORT", names)
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODENAME", format!("hapax{port}@localhost"))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", free_port().to_string())
        .env("RABBITMQ_MNESIA_BASE", at("data"))
        .env("RABBITMQ_LOG_BASE", at("logs"))
        .env("RABBITMQ_LOGS", at(LOG))
        .env("RABBITMQ_PID_FILE", at("pid"))
        .env("RABBITMQ_CONFIG_FILE", at("rabbitmq"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins"))
        .current_dir(directory);
    command
}
