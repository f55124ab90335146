//! Servers that tests start for themselves: each in a temporary directory, on a free port, and
//! gone when the test is over, however it ends.

mod bouncer;
mod broker;
mod cut;
mod group;
mod mail;
mod patroni;
mod postgres;
mod proxy;

pub use bouncer::{PgBouncer, pgbouncer};
pub use broker::{Broker, brokers};
pub use cut::Cut;
pub use mail::{Mail, mail_servers};
pub use patroni::{Cluster, patroni};
pub use postgres::{Postgres, installed};
pub use proxy::CuttingProxy;

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a server may take to start or stop.
const DEADLINE: Duration = Duration::from_secs(60);

/// Ports that the system does not hand out: its own, for connections too, begin at 32,768. A server
/// that is slow to listen would find one of those taken.
const PORTS: Range<u16> = 10_000..32_000;
/// How many of them a process tries before it takes its neighbour's.
const STRETCH: u32 = 16;

/// A port that is free now, and that this process was not given before.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id().wrapping_mul(STRETCH);
    let ports = std::iter::repeat_with(|| {
        let nth = own.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        PORTS.start + (nth % PORTS.len() as u32) as u16
    });
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.take(PORTS.len()).find(free).expect("a free port")
}

/// Waits until a condition holds; panics with `what` if it takes too long.
pub fn until(condition: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long until {condition}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The user that servers run as if the test runs as root, which they refuse.
const NOBODY: u32 = 65_534;

/// A command that ends with the test, under a user that servers accept.
fn server(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]);
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    }
    command.arg(program);
    command
}

/// Hands a directory and the files in it to the user that servers run as.
pub fn readable_by_servers(directory: &Path) {
    hand_over(directory);
    for file in std::fs::read_dir(directory).expect("a directory") {
        hand_over(&file.expect("a file").path());
    }
}

/// Hands a directory to the user that servers run as.
fn hand_over(path: &Path) {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("chown");
    }
}
