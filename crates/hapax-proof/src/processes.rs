//! Workers that are killed and stopped under load.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::field::{Field, Running};
use crate::report::Report;

/// How many workers share a ledger.
const WORKERS: usize = 3;

/// Kills workers while they work, this often, and starts new ones in their place.
pub fn kills(field: &Field, kills: u64, seed: u64, report: &mut Report) {
    let mut dice = SmallRng::seed_from_u64(seed);
    let start = |front: u64| field.worker(front.saturating_sub(16)..u64::MAX, &[]);
    let mut workers: Vec<Running> = (0..WORKERS).map(|_| start(0)).collect();
    let mut front = 0;
    for _ in 0..kills {
        let victim = dice.random_range(0..WORKERS);
        let worker = &mut workers[victim];
        if worker.is_at_work() {
            report.count("workers killed at work", 1);
        } else {
            report.violation("a worker ended before it was killed");
        }
        std::thread::sleep(Duration::from_micros(dice.random_range(0..20_000)));
        worker.kill();
        front = front.max(worker.front());
        workers[victim] = start(front);
    }
    workers.clear();
    conclude(field, report);
    report.at_least("workers killed at work", kills);
}

/// Stops workers for longer than their lease, this often, and lets them go on.
pub fn stops(field: &Field, stops: u64, seed: u64, report: &mut Report) {
    let mut dice = SmallRng::seed_from_u64(seed);
    // The other workers wait for the stopped one's effects, long enough to take them over.
    let wait = (field.lease_ms * 20).to_string();
    let start = |front: u64| {
        field.worker(front.saturating_sub(16)..u64::MAX, &["--wait-ms", &wait, "--work-ms", "20"])
    };
    let mut workers: Vec<Running> = (0..WORKERS).map(|_| start(0)).collect();
    for nth in 0..stops {
        let victim = dice.random_range(0..WORKERS);
        if !workers[victim].is_at_work() {
            report.violation("a worker ended by itself");
            break;
        }
        std::thread::sleep(Duration::from_millis(dice.random_range(0..30)));
        workers[victim].stop(true);
        let pause = field.lease_ms * dice.random_range(150..300) / 100;
        std::thread::sleep(Duration::from_millis(pause));
        workers[victim].stop(false);
        report.count("workers stopped for longer than their lease", 1);
        // A new one now and then, or all workers would be where the slowest is.
        if nth % 16 == 15 {
            let front = workers.iter().map(Running::front).max().unwrap_or(0);
            workers[victim].kill();
            workers[victim] = start(front);
        }
    }
    workers.clear();
    conclude(field, report);
}

/// Brings every key to its end and judges it.
pub fn conclude(field: &Field, report: &mut Report) {
    let keys = 0..field.front();
    field.finish(keys.clone());
    field.judge(keys, report);
    field.verify(report);
    // The number of calls does not count: it says how long a server was away, and how slow the
    // machine is.
    let (keys, acknowledged) = ("keys judged", "keys with an acknowledged outcome");
    let (keys, acknowledged) = (report.figure(keys), report.figure(acknowledged));
    report.expect(acknowledged * 2 >= keys, || {
        format!("vacuous: {acknowledged} of {keys} keys have an outcome")
    });
}
