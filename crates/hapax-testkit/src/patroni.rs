//! A PostgreSQL cluster that fails over by itself: Patroni, with etcd.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::postgres::{installed, room};
use crate::{free_port, hand_over, server, until};

/// The path of Patroni, if Patroni and etcd are installed.
pub fn patroni() -> Option<PathBuf> {
    let there = |path: &str| Some(PathBuf::from(path)).filter(|path| path.exists());
    there("/usr/bin/etcd").and(there("/usr/bin/patroni"))
}

/// Three servers, one of them the primary, replicating synchronously.
pub struct Cluster {
    etcd: Child,
    nodes: Vec<Node>,
    _directory: TempDir,
}

struct Node {
    directory: PathBuf,
    port: u16,
    api: u16,
    patroni: Option<Child>,
}

/// How long a cluster may take to have a primary and a standby again.
const SETTLED: Duration = Duration::from_secs(120);

impl Cluster {
    /// Starts one and waits until it can lose its primary.
    pub fn start() -> Self {
        let directory = tempfile::tempdir_in(room()).expect("a directory");
        hand_over(directory.path());
        let (client, peer) = (free_port(), free_port());
        let urls = [client, peer].map(|port| format!("http://127.0.0.1:{port}"));
        let etcd = server(Path::new("/usr/bin/etcd"))
            .args(["--unsafe-no-fsync", "--data-dir"])
            .arg(directory.path().join("etcd"))
            .args(["--listen-client-urls", &urls[0], "--advertise-client-urls", &urls[0]])
            .args(["--listen-peer-urls", &urls[1], "--initial-advertise-peer-urls", &urls[1]])
            .args(["--initial-cluster", &format!("default={}", urls[1])])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd starts");
        until("etcd answers", || TcpStream::connect(("127.0.0.1", client)).is_ok());
        let nodes = (0..3).map(|nth| Node::new(directory.path(), nth, client)).collect();
        let mut cluster = Self { etcd, nodes, _directory: directory };
        for node in 0..cluster.nodes.len() {
            cluster.nodes[node].up();
        }
        cluster.settled();
        cluster
    }

    /// The address of a database, wherever the primary is.
    pub fn url(&self, database: &str) -> String {
        let hosts: Vec<_> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let hosts = hosts.join(",");
        format!(
            "postgres://postgres@{hosts}/{database}?target_session_attrs=read-write&connect_timeout=2"
        )
    }

    /// Waits until there is a primary with a synchronous standby, and returns its number. Panics if
    /// that takes too long.
    pub fn settled(&self) -> usize {
        let deadline = Instant::now() + SETTLED;
        loop {
            if let Some(primary) = self.primary() {
                return primary;
            }
            assert!(Instant::now() < deadline, "the cluster does not settle: {}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The primary, if Patroni has one with a standby that may take over, and it takes writes.
    fn primary(&self) -> Option<usize> {
        let views: Vec<String> = self.nodes.iter().filter_map(Node::view).collect();
        let agreed = |text: &str| !views.is_empty() && views.iter().all(|view| view.contains(text));
        let leads = |nth: &usize| agreed(&format!("\"name\": \"node{nth}\", \"role\": \"leader\""));
        let primary = (0..self.nodes.len()).find(leads)?;
        let writable = self.nodes[primary].sql("SELECT pg_is_in_recovery()")?;
        (agreed("\"role\": \"sync_standby\"") && writable == "f").then_some(primary)
    }

    /// Makes a database.
    pub fn database(&self, name: &str) -> String {
        let primary = self.settled();
        let made = self.nodes[primary].sql(&format!("CREATE DATABASE {name}"));
        assert!(made.is_some(), "no database");
        self.url(name)
    }

    /// Kills the primary's server; its machine goes on. Waits until the cluster has settled, and
    /// returns whether another node has taken over: Patroni may find that it is quicker to recover.
    pub fn kill_primary(&self) -> bool {
        let primary = self.settled();
        self.nodes[primary].signal_server(Signal::KILL);
        until("the primary is down", || self.nodes[primary].sql("SELECT 1").is_none());
        self.settled() != primary
    }

    /// Kills the primary's server and its Patroni, as the loss of a machine does, and starts them
    /// again when another node has taken over.
    pub fn lose_primary(&mut self) {
        let primary = self.settled();
        let node = &mut self.nodes[primary];
        if let Some(mut patroni) = node.patroni.take() {
            let _ = patroni.kill();
            let _ = patroni.wait();
        }
        node.signal_server(Signal::KILL);
        self.taken_over_from(primary);
        self.nodes[primary].up();
    }

    /// Waits until another node is the primary.
    fn taken_over_from(&self, primary: usize) {
        let deadline = Instant::now() + SETTLED;
        let is_primary =
            |node: &Node| node.sql("SELECT pg_is_in_recovery()").as_deref() == Some("f");
        let others = || self.nodes.iter().enumerate().filter(|(nth, _)| *nth != primary);
        while !others().any(|(_, node)| is_primary(node)) {
            assert!(Instant::now() < deadline, "no standby takes over: {}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn logs(&self) -> String {
        let last = |node: &Node| {
            let log = std::fs::read_to_string(node.directory.join("log")).unwrap_or_default();
            let own: Vec<&str> = log.lines().filter(|line| line.contains(" INFO: ")).collect();
            own[own.len().saturating_sub(12)..].join("\n") + "\n"
        };
        self.nodes.iter().map(last).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(mut patroni) = node.patroni.take() {
                let _ = patroni.kill();
                let _ = patroni.wait();
            }
            node.signal_server(Signal::QUIT);
        }
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

impl Node {
    fn new(room: &Path, nth: usize, etcd: u16) -> Self {
        let directory = room.join(format!("node{nth}"));
        std::fs::create_dir(&directory).expect("a directory");
        hand_over(&directory);
        let (port, api) = (free_port(), free_port());
        let bin = installed().expect("PostgreSQL; `cargo xtask test` installs it");
        let (data, bin) = (directory.join("data"), bin.display().to_string());
        let settings = format!(
            "scope: hapax
name: node{nth}
restapi: {{listen: '127.0.0.1:{api}', connect_address: '127.0.0.1:{api}'}}
etcd3: {{host: '127.0.0.1:{etcd}'}}
bootstrap:
  dcs:
    ttl: 5
    loop_wait: 1
    retry_timeout: 2
    primary_start_timeout: 0
    synchronous_mode: true
    synchronous_mode_strict: true
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters: {{max_connections: 100, wal_log_hints: 'on', shared_buffers: 32MB}}
  initdb: [{{auth: trust}}, {{encoding: UTF8}}, {{locale: C.UTF-8}}]
  pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust']
postgresql:
  listen: '127.0.0.1:{port}'
  connect_address: '127.0.0.1:{port}'
  data_dir: '{data}'
  bin_dir: '{bin}'
  pgpass: '{directory}/pgpass'
  authentication:
    superuser: {{username: postgres}}
    replication: {{username: postgres}}
  parameters: {{unix_socket_directories: '{directory}'}}
  pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust', 'local all all trust']
",
            data = data.display(),
            directory = directory.display(),
        );
        let file = directory.join("patroni.yml");
        std::fs::write(&file, settings).expect("settings");
        Self { directory, port, api, patroni: None }
    }

    fn up(&mut self) {
        let log = File::options().create(true).append(true).open(self.directory.join("log"));
        let mut command = server(Path::new("/usr/bin/patroni"));
        command.arg(self.directory.join("patroni.yml")).stdout(Stdio::null());
        self.patroni = Some(command.stderr(log.expect("a log")).spawn().expect("patroni starts"));
    }

    /// The cluster, as this node's Patroni sees it.
    fn view(&self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.api)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(b"GET /cluster HTTP/1.0\r\n\r\n").ok()?;
        let mut view = String::new();
        stream.read_to_string(&mut view).ok()?;
        Some(view)
    }

    fn sql(&self, sql: &str) -> Option<String> {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres?connect_timeout=2", self.port);
        let output = Command::new("psql").args(["-XqAt", "-d", &url, "-c", sql]).output().ok()?;
        let text = || String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then(text)
    }

    /// Signals the server that Patroni has started, by its pid file.
    fn signal_server(&self, signal: Signal) {
        let file = std::fs::read_to_string(self.directory.join("data/postmaster.pid"));
        let id = file.ok().and_then(|text| text.lines().next()?.parse().ok());
        if let Some(id) = id.and_then(Pid::from_raw) {
            let _ = kill_process(id, signal);
        }
    }
}
