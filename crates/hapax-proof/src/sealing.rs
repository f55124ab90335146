//! Several sealers at once, and entries that are committed out of order.

use std::sync::Arc;
use std::time::Duration;

use hapax::tokio_postgres::NoTls;
use hapax::{Failure, Hapax};
use hapax_store::failpoint::{self, Point};
use hapax_testkit::Postgres;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::field::{Field, blocking};
use crate::report::Report;
use crate::worker::{key, outcome};

/// Runs engines that work and seal at the same time, on a file or in a database.
pub fn sealing(postgres: Option<&Postgres>, rounds: u64, seed: u64, report: &mut Report) {
    let field = match postgres {
        Some(server) => Field::at(server.database("sealing")),
        None => Field::in_file(),
    };
    // A pause between planning a seal and writing it, in which other engines seal.
    failpoint::hook(|point| {
        if point == Point::SealPlanned {
            let while_ns = getrandom::u64().unwrap_or(0) % 2_000_000;
            std::thread::sleep(Duration::from_nanos(while_ns));
        }
        Ok(())
    });
    blocking(async {
        let mut engines = Vec::new();
        for nth in 0..3 {
            let hapax = field.open().await.expect("a ledger");
            let postgres = postgres.is_some();
            let url = field.ledger.clone();
            engines.push(tokio::spawn(async move {
                match postgres {
                    true => slowly(&hapax, &url, nth, rounds, seed).await,
                    false => quickly(&hapax, nth, rounds).await,
                }
            }));
        }
        for engine in engines {
            let seals = engine.await.expect("an engine does not panic");
            report.count("seals beside others", seals);
        }
    });
    field.verify(report);
    // Their number depends on how fast the machine is; that there are some does not.
    report.at_least("seals beside others", (rounds / 10).max(3));
}

/// Runs effects and seals after each few.
async fn quickly(hapax: &Hapax, nth: u64, rounds: u64) -> u64 {
    let mut seals = 0;
    for round in 0..rounds {
        let key = key(nth, round);
        let _ = hapax.effect(key).run(|_| async { Ok::<_, Failure>("done") }).await;
        seals += u64::from(hapax.pass().await.is_ok_and(|pass| pass.sealed > 0));
    }
    seals
}

/// Settles in transactions that stay open for a while, so that entries appear out of order.
async fn slowly(hapax: &Hapax, url: &str, nth: u64, rounds: u64, seed: u64) -> u64 {
    let mut dice = SmallRng::seed_from_u64(seed ^ nth);
    let sealer = hapax.clone();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = done.clone();
    let sealing = tokio::spawn(async move {
        let mut seals = 0;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            seals += u64::from(sealer.pass().await.is_ok_and(|pass| pass.sealed > 0));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        seals
    });
    let (mut client, connection) =
        hapax::tokio_postgres::connect(url, NoTls).await.expect("a client");
    tokio::spawn(connection);
    for round in 0..rounds {
        let tx = client.transaction().await.expect("a transaction");
        let effect = hapax.effect(key(nth, round));
        let once = effect.once_in_postgres(&tx, async |_, _| Ok::<_, Failure>(outcome(round)));
        once.await.expect("the sealer is not shared");
        tokio::time::sleep(Duration::from_micros(dice.random_range(0..5_000))).await;
        tx.commit().await.expect("committed");
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    sealing.await.expect("a sealer does not panic")
}
