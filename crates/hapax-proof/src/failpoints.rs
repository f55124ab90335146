//! Every step of claim, run, settle, renew, seal and sweep fails once: the process ends there, the step
//! fails, or it takes longer than the lease. Where a store writes, its code panics, too: then its
//! process lives on, and must not block other processes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hapax_core::planted::Bug;
use hapax_store::failpoint::Point;
use hapax_testkit::Postgres;

use crate::field::{Field, room};
use crate::report::Report;

/// The faults at a failpoint.
const ACTIONS: [&str; 4] = ["abort", "error", "stall", "panic"];

/// How many runs go on at once; they mostly wait.
const AT_ONCE: usize = 6;

/// How many runs share a database.
const DATABASE: usize = 60;

/// The keys of a run.
const KEYS: std::ops::Range<u64> = 0..30;

/// Whether a run on this store can reach the point.
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

/// Runs each point with each action, `times` times, at one pass after the other. Fails if one never
/// fires. The search for a planted bug ends when it is caught: a worker that hangs takes its whole
/// deadline.
pub fn failpoints(postgres: Option<&Postgres>, times: u64, bug: Option<&str>, report: &mut Report) {
    let points = Point::ALL.iter().copied().filter(|point| concerns(*point, postgres.is_some()));
    let points: Vec<Point> = points.collect();
    let armed = |point: &Point| ACTIONS.map(|action| (*point, action));
    let mut each: Vec<(Point, &str)> = points.iter().flat_map(armed).collect();
    let writes = |point: Point| {
        let stores = ["change.", "sqlite.", "postgres.", "quick."];
        stores.iter().any(|store| point.name().starts_with(store))
    };
    each.retain(|(point, action)| *action != "panic" || writes(*point));
    if let Some(bug) = bug {
        // The planted bug concerns commands that fail, or panic, while they write.
        let planted = if bug == Bug::PanicEscapes.name() { "panic" } else { "error" };
        each.retain(|(point, action)| writes(*point) && *action == planted);
    }
    let runs: Vec<(u64, (Point, &str))> =
        (0..times).flat_map(|time| each.iter().map(move |fault| (time, *fault))).collect();
    let tried = Results::default();
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
                    while let Some((time, fault)) = some.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if bug.is_some() && tried.has_violations() {
                            break;
                        }
                        tried.one(shared(), database.is_none(), *time, *fault, bug);
                    }
                });
            }
        });
        if database.is_some() {
            shared().verify(&mut tried.found.lock().expect("no panic"));
        }
    }
    report.add(tried.found.into_inner().expect("no panic"));
    let fired = tried.fired.into_inner().expect("no panic");
    report.count("runs", runs.len() as u64);
    report
        .count("runs in which the failpoint fired", fired.values().map(|fired| fired.times).sum());
    report.count("failpoints", points.len() as u64);
    for (point, action) in each {
        report.expect(
            fired.get(&(point.name(), action)).is_some_and(|fired| fired.times > 0),
            || format!("vacuous: {} never fired with {action}", point.name()),
        );
    }
}

/// The results so far.
#[derive(Default)]
struct Results {
    found: Mutex<Report>,
    fired: Mutex<BTreeMap<(&'static str, &'static str), Fired>>,
}

/// How often a failpoint has fired with an action.
#[derive(Default)]
struct Fired {
    times: u64,
    /// The first pass at which it did not fire: a worker does not reach the point that often.
    too_late: Option<u64>,
}

impl Results {
    fn has_violations(&self) -> bool {
        !self.found.lock().expect("no panic").violations.is_empty()
    }

    /// One run, at the next pass that a worker is known to reach.
    fn one(
        &self,
        field: Field,
        alone: bool,
        time: u64,
        (point, action): (Point, &'static str),
        bug: Option<&str>,
    ) {
        let place = (point.name(), action);
        let reached = self.fired.lock().expect("no panic").entry(place).or_default().too_late;
        let pass = time % reached.map_or(u64::MAX, |pass| (pass - 1).max(1)) + 1;
        let armed = format!("{}:{action}:{pass}", point.name());
        let (mut found, hit) = one(field, alone, &armed, bug);
        for violation in &mut found.violations {
            *violation = format!("{armed}: {violation}");
        }
        let mut fired = self.fired.lock().expect("no panic");
        let fired = fired.entry(place).or_default();
        match hit {
            true => fired.times += 1,
            false => fired.too_late = Some(fired.too_late.map_or(pass, |known| known.min(pass))),
        }
        self.found.lock().expect("no panic").add(found);
    }
}

fn fresh() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// One run. Returns its findings, and whether the failpoint fired.
fn one(mut field: Field, alone: bool, armed: &str, bug: Option<&str>) -> (Report, bool) {
    let mut report = Report::default();
    field.lease_ms = 150;
    field.bug = bug.map(str::to_owned);
    // A worker died here before, so that there are effects to expire, reconcile and take over.
    let mut dead = field.worker(KEYS, &["--failpoint", "run.end:abort:4"]);
    dead.ends(Duration::from_secs(20));
    let options = ["--failpoint", armed, "--wait-ms", "3000", "--work-ms", "40"];
    let stays = armed.contains(":panic:");
    let options = [&options[..], if stays { &["--stay"] } else { &[] }].concat();
    let mut worker = field.worker(KEYS, &options);
    let ended = match stays {
        true => worker.has_written("over", 1),
        false => worker.ends(Duration::from_secs(40)),
    };
    report.expect(ended, || "the worker hangs".into());
    let fired = worker.wrote("fired");
    field.finish(KEYS);
    worker.kill();
    field.judge(KEYS, &mut report);
    if alone {
        field.verify(&mut report);
    }
    (report, fired)
}
