//! The engine on a real file: sharing, waiting, losing, and telling the truth about it.

mod callers_transaction;
mod line;
mod outbox;
mod remote;
mod result_index;
mod running;
mod sharing;
mod stale;

use std::path::PathBuf;
use std::time::Duration;

use hapax::{Failure, Hapax, Key, StateName};

/// Longer than any test should take, so that reaching it is a failure.
const LONG: Duration = Duration::from_secs(20);

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("hapax.db")
    }

    async fn open(&self) -> Hapax {
        Hapax::open(self.file()).await.expect("a ledger")
    }

    /// With a lease so short that a test can outlast it.
    async fn open_brief(&self) -> Hapax {
        Hapax::builder()
            .lease(Duration::from_millis(150))
            .open(self.file())
            .await
            .expect("a ledger")
    }
}

fn key(n: u8) -> Key {
    Key::from_bytes([n; 32])
}

fn ok(text: &'static str) -> Result<&'static str, Failure> {
    Ok(text)
}

async fn state(hapax: &Hapax, n: u8) -> Option<StateName> {
    hapax.effects().show(key(n)).await.expect("a read").map(|effect| effect.state.name())
}

/// Waits for a state, because a dropped future reports in the background.
async fn becomes(hapax: &Hapax, n: u8, wanted: StateName) {
    let wait = async {
        while state(hapax, n).await != Some(wanted) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("never became {wanted}"));
}
