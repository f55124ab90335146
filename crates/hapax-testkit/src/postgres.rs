//! A PostgreSQL server.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{free_port, hand_over, server, until};

/// A server that lives as long as this value.
pub struct Postgres {
    directory: TempDir,
    port: u16,
    child: Option<Child>,
    settings: Vec<String>,
}

/// The directory of the newest installed server's programs, if its version is supported.
pub fn installed() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let newest = versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|version| *version >= 15)
        .max()?;
    let bin = PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin"));
    bin.join("postgres").exists().then_some(bin)
}

fn program(name: &str) -> PathBuf {
    let bin = installed().expect("PostgreSQL 15 or newer; `cargo xtask test` installs it");
    bin.join(name)
}

impl Postgres {
    /// An empty server without fsync: a power cut would lose data, but tests have none.
    pub fn start() -> Self {
        Self::with(&["fsync=off", "shared_buffers=32MB", "max_connections=100"])
    }

    /// An empty server with settings of its own.
    pub fn with(settings: &[&str]) -> Self {
        Self::within(&room(), settings)
    }

    /// An empty server that writes to a disk.
    pub fn on_disk(settings: &[&str]) -> Self {
        Self::within(&std::env::temp_dir(), settings)
    }

    /// An empty server whose data lie in this directory.
    pub fn within(room: &Path, settings: &[&str]) -> Self {
        let directory = tempfile::tempdir_in(room).expect("a directory");
        hand_over(directory.path());
        copy(&template(), &directory.path().join("data"));
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { directory, port: free_port(), child: None, settings };
        server.up();
        server
    }

    /// A server that follows this one, on a copy of its data.
    pub fn standby(&self) -> Self {
        let directory = tempfile::tempdir_in(room()).expect("a directory");
        hand_over(directory.path());
        let copied = server(&program("pg_basebackup"))
            .args(["-R", "-X", "stream", "-c", "fast", "-d", &self.url("postgres"), "-D"])
            .arg(directory.path().join("data"))
            .output()
            .expect("pg_basebackup runs");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let settings = self.settings.clone();
        let mut standby = Self { directory, port: free_port(), child: None, settings };
        standby.up();
        standby
    }

    /// Makes a standby a server of its own.
    pub fn promote(&self) {
        self.sql("postgres", "SELECT pg_promote()");
    }

    /// The address of a database on it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A new empty database, and its address.
    pub fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    /// Runs SQL by `psql` and returns what it prints, unaligned and without headers.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).expect("the SQL is right")
    }

    /// Like [`sql`](Self::sql), where an error is expected.
    pub fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let output = Command::new(program("psql"))
            .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose"])
            .args(["-d", &self.url(database), "-c", sql])
            .output()
            .expect("psql runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Everything that is in a database, as `pg_dump` prints it; bytes as text.
    pub fn dump(&self, database: &str) -> String {
        let url = self.url(database);
        let output = Command::new(program("pg_dump")).args(["--inserts", "-d", &url]).output();
        let dump = String::from_utf8_lossy(&output.expect("pg_dump runs").stdout).into_owned();
        // Columns of bytes are printed in hexadecimal, and mostly hold text.
        let bytes = dump.split("'\\x").skip(1).filter_map(|rest| rest.split('\'').next());
        let read = |hex: &str| data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap_or_default();
        let texts: Vec<u8> = bytes.flat_map(read).collect();
        format!("{dump}{}", String::from_utf8_lossy(&texts))
    }

    /// Starts it again after [`stop`](Self::stop) or [`kill`](Self::kill), on the same port.
    pub fn up(&mut self) {
        let log = File::create(self.directory.path().join("log")).expect("a log");
        let mut command = server(&program("postgres"));
        command.arg("-D").arg(self.directory.path().join("data"));
        command.arg("-k").arg(self.directory.path());
        command.args(["-p", &self.port.to_string(), "-h", "127.0.0.1"]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("postgres starts"));
        until("PostgreSQL answers", || {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            assert!(ended.is_none(), "PostgreSQL ended: {}", self.log());
            self.try_sql("postgres", "SELECT 1").is_ok()
        });
    }

    /// Its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Stops it, and cuts its clients off.
    pub fn stop(&mut self) {
        self.end(rustix::process::Signal::INT);
    }

    /// Kills it without a checkpoint, as a crash does.
    pub fn kill(&mut self) {
        self.end(rustix::process::Signal::QUIT);
    }

    fn end(&mut self, signal: rustix::process::Signal) {
        let Some(mut child) = self.child.take() else { return };
        let id = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(id, signal);
        let _ = child.wait();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The directory for servers: in memory, if there is some, because most tests start one.
pub(crate) fn room() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// An empty data directory, made once per machine and copied for each test.
fn template() -> PathBuf {
    let initdb = program("initdb");
    let version = initdb.ancestors().nth(2).and_then(Path::file_name).expect("a version");
    let owner = rustix::process::geteuid().as_raw();
    let name = format!("hapax-postgres-{}-{owner}", version.to_string_lossy());
    let ready = room().join(name);
    if ready.join("PG_VERSION").exists() {
        return ready;
    }
    let draft = tempfile::tempdir_in(room()).expect("a directory");
    hand_over(draft.path());
    let data = draft.path().join("data");
    let made = server(&initdb)
        .args(["-U", "postgres", "-A", "trust", "-N", "--locale=C.UTF-8"])
        .args(["--wal-segsize", "1", "-D"])
        .arg(&data)
        .output()
        .expect("initdb runs");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    // Of several tests that make one at once, the first to be done wins.
    let _ = std::fs::rename(&data, &ready);
    assert!(ready.join("PG_VERSION").exists(), "no data directory at {}", ready.display());
    ready
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(copied.success(), "cp of {}", from.display());
}
