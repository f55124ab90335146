//! A PgBouncer in transaction mode.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use tempfile::TempDir;

use crate::{Postgres, free_port, hand_over, server, until};

/// A pooler that lives as long as this value.
pub struct PgBouncer {
    _directory: TempDir,
    port: u16,
    child: Child,
}

/// The path of the program, if it is installed.
pub fn pgbouncer() -> Option<PathBuf> {
    let places = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];
    places.iter().map(PathBuf::from).find(|path| path.exists())
}

impl PgBouncer {
    /// A pooler in front of this server, with this many connections to each database.
    pub fn before(postgres: &Postgres, connections: usize) -> Self {
        let program = pgbouncer().expect("PgBouncer; `cargo xtask test` installs it");
        let directory = tempfile::tempdir().expect("a directory");
        hand_over(directory.path());
        let port = free_port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = {connections}\n\
             max_client_conn = 500\nlog_connections = 0\nlog_disconnections = 0\n",
            postgres.port()
        );
        let file = directory.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("settings");
        let log = std::fs::File::create(directory.path().join("log")).expect("a log");
        let mut command = server(&program);
        let child = command.arg(&file).stdout(Stdio::null()).stderr(log).spawn();
        let pooler = Self { _directory: directory, port, child: child.expect("pgbouncer starts") };
        until("PgBouncer answers", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        pooler
    }

    /// The address of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
