//! Every step of claim, run, settle, renew, seal and sweep fails once: the process ends there,
//! the step fails, or it takes longer than the lease.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hapax_store::failpoint::Point;
use hapax_testkit::Postgres;

use crate::field::{Field, room};
use crate::report::Report;

/// What happens at a failpoint.
const ACTIONS: [&str; 3] = ["abort", "error", "stall"];

/// How many runs go on at once; most of their time is waiting.
const AT_ONCE: usize = 6;

/// How many runs share a database.
const DATABASE: usize = 60;

/// The keys of a run.
const KEYS: std::ops::Range<u64> = 0..30;

/// Which passes of a point are tried.
const PASSES: [u64; 24] =
    [1, 2, 3, 5, 8, 13, 21, 4, 6, 7, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24];

/// Whether a point is in this store's way.
fn concerns(point: Point, postgres: bool) -> bool {
    let name = point.name();
    if name.starts_with("sqlite.") {
        !postgres
    } else if name.starts_with("postgres.") || name.starts_with("quick.") {
        postgres
    } else {
        true
    }
}

/// Runs each point with each action, at this many of its passes. Fails if one never fires.
pub fn failpoints(
    postgres: Option<&Postgres>,
    passes: usize,
    bug: Option<&str>,
    report: &mut Report,
) {
    let points = Point::ALL.iter().copied().filter(|point| concerns(*point, postgres.is_some()));
    let points: Vec<Point> = points.collect();
    let mut runs = Vec::new();
    for pass in PASSES.iter().take(passes) {
        for point in &points {
            runs.extend(ACTIONS.map(|action| (*point, action, *pass)));
        }
    }
    let fired: Mutex<BTreeMap<(&str, &str), u64>> = Mutex::default();
    let total = Mutex::new(Report::default());
    for some in runs.chunks(if postgres.is_some() { DATABASE } else { runs.len() }) {
        let keys = room();
        let signing_key = keys.path().join("signing-key");
        let database = postgres.map(|server| server.database(&format!("fail_{}", fresh())));
        let shared = || match &database {
            Some(url) => Field::shared(url, &signing_key),
            None => Field::in_file(),
        };
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some((point, action, pass)) =
                        some.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let armed = format!("{}:{action}:{pass}", point.name());
                        let (mut found, hit) = one(shared(), database.is_none(), &armed, bug);
                        for violation in &mut found.violations {
                            *violation = format!("{armed}: {violation}");
                        }
                        if hit {
                            let mut fired = fired.lock().expect("no panic");
                            *fired.entry((point.name(), action)).or_default() += 1;
                        }
                        total.lock().expect("no panic").add(found);
                    }
                });
            }
        });
        if database.is_some() {
            shared().verify(&mut total.lock().expect("no panic"));
        }
    }
    report.add(total.into_inner().expect("no panic"));
    let fired = fired.into_inner().expect("no panic");
    report.count("runs", runs.len() as u64);
    report.count("runs in which the failpoint fired", fired.values().sum());
    report.count("failpoints", points.len() as u64);
    for point in points {
        for action in ACTIONS {
            report.expect(fired.contains_key(&(point.name(), action)), || {
                format!("vacuous: {} never fired with {action}", point.name())
            });
        }
    }
}

fn fresh() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// One run. What was found, and whether the failpoint fired.
fn one(mut field: Field, alone: bool, armed: &str, bug: Option<&str>) -> (Report, bool) {
    let mut report = Report::default();
    field.lease_ms = 150;
    field.bug = bug.map(str::to_owned);
    // Somebody died here before, so that there is something to expire, reconcile and take over.
    let mut dead = field.worker(KEYS, &["--failpoint", "run.end:abort:4"]);
    dead.ends(Duration::from_secs(20));
    let options = ["--failpoint", armed, "--wait-ms", "3000", "--work-ms", "40"];
    let mut worker = field.worker(KEYS, &options);
    let ended = worker.ends(Duration::from_secs(40));
    report.expect(ended, || "the worker hangs".into());
    let fired = worker.wrote("fired");
    field.finish(KEYS);
    field.judge(KEYS, &mut report);
    if alone {
        field.verify(&mut report);
    }
    (report, fired)
}
