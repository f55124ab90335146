//! Message brokers.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::group::Group;
use crate::{free_port, hand_over, server, until};

const NATS: &str = "/usr/sbin/nats-server";
const REDIS: &str = "/usr/bin/redis-server";
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const EPMD: &str = "/usr/bin/epmd";

/// Which brokers are installed: NATS, RabbitMQ, Redis.
pub fn brokers() -> [bool; 3] {
    [NATS, RABBITMQ, REDIS].map(|path| Path::new(path).exists())
}

/// A broker that lives as long as this value, and keeps what it has on disk.
pub struct Broker {
    scheme: &'static str,
    directory: TempDir,
    port: u16,
    command: fn(&Path, u16) -> Command,
    running: Option<Group>,
    /// What RabbitMQ finds its nodes with.
    _names: Option<Group>,
}

impl Broker {
    /// A NATS server with JetStream.
    pub fn nats() -> Self {
        Self::start("nats", NATS, None, |directory, port| {
            let mut command = server(Path::new(NATS));
            command.args(["--addr", "127.0.0.1", "--jetstream", "--store_dir"]).arg(directory);
            command.args(["--port", &port.to_string()]);
            command
        })
    }

    /// A Redis that syncs before it answers.
    pub fn redis() -> Self {
        Self::start("redis", REDIS, None, |directory, port| {
            let mut command = server(Path::new(REDIS));
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
            command.args(["--appendfsync", "always", "--port", &port.to_string(), "--dir"]);
            command.arg(directory);
            command
        })
    }

    /// A RabbitMQ; everybody is `guest`.
    pub fn rabbitmq() -> Self {
        // Its own register of names: the machine's is not ours to use.
        let names = free_port();
        let mut epmd = server(Path::new(EPMD));
        epmd.args(["-address", "127.0.0.1", "-port", &names.to_string()]);
        let epmd = Group::spawn(&mut epmd, Stdio::null());
        until("epmd answers", || TcpStream::connect(("127.0.0.1", names)).is_ok());
        let mut broker = Self::start("amqp", RABBITMQ, Some(names), rabbitmq);
        broker._names = Some(epmd);
        broker
    }

    fn start(
        scheme: &'static str,
        program: &str,
        names: Option<u16>,
        command: fn(&Path, u16) -> Command,
    ) -> Self {
        assert!(Path::new(program).exists(), "{program}; `cargo xtask test` installs it");
        let directory = tempfile::tempdir().expect("a directory");
        hand_over(directory.path());
        if let Some(names) = names {
            std::fs::write(directory.path().join("names"), names.to_string()).expect("a file");
        }
        let port = free_port();
        let mut broker = Self { scheme, directory, port, command, running: None, _names: None };
        broker.restart();
        broker
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again, where it was killed.
    pub fn restart(&mut self) {
        self.kill();
        let log = self.directory.path().join("log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log");
        let mut command = (self.command)(self.directory.path(), self.port);
        self.running = Some(Group::spawn(&mut command, log.into()));
        until("the broker answers", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Kills it without warning, if it runs.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Stops it in its tracks, as a machine does that is out of memory.
    pub fn pause(&self) {
        self.running.as_ref().expect("it runs").signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.running.as_ref().expect("it runs").signal(Signal::CONT);
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
        .env("RABBITMQ_PID_FILE", at("pid"))
        .env("RABBITMQ_CONFIG_FILE", at("rabbitmq"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins"))
        .current_dir(directory);
    command
}
