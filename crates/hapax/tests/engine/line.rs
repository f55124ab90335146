//! A connection to the store that loses commands, or brings an answer late.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::{Error, Failure, Hapax, How, MemoryStore, StateName, WorkResult};
use hapax_core::lease::LeaseId;
use hapax_store::{Job, Reading, Store, StoreError, call, command};
use tokio::sync::Notify;

use super::{LONG, becomes, key, ok, state};

/// In virtual time, so waiting for several of them costs nothing.
const LEASE: Duration = Duration::from_secs(2);

/// The store as one node reaches it.
struct Line {
    store: Arc<MemoryStore>,
    fault: Mutex<SettleFault>,
    /// The lease that the newest claim depends on.
    lease: Mutex<Option<LeaseId>>,
    /// Renewals that are held back, once this is set.
    renewals: Mutex<Option<Vec<Job>>>,
}

/// The fault that settles meet.
enum SettleFault {
    None,
    /// This many more are lost on their way.
    Lost(u32),
    /// The next one arrives and notifies the first; its answer waits for the second.
    Late(Arc<Notify>, Arc<Notify>),
}

impl Line {
    fn new(fault: SettleFault) -> (Arc<Self>, Hapax) {
        let store = Arc::new(MemoryStore::with_system_clock());
        let (fault, lease, renewals) = (Mutex::new(fault), Mutex::default(), Mutex::default());
        let line = Arc::new(Self { store, fault, lease, renewals });
        let hapax = Hapax::builder().lease(LEASE).on(line.clone());
        (line, hapax)
    }

    /// Another node, on a connection without faults.
    fn other_node(&self) -> Hapax {
        Hapax::builder().lease(LEASE).on(self.store.clone())
    }
}

impl Store for Line {
    fn submit(&self, jobs: Vec<Job>) {
        for mut job in jobs {
            if let Job::Claim(claim) = &job {
                *self.lease.lock().expect("no panic") = Some(claim.command.ask.lease);
            }
            if let (Job::RenewLease(_), Some(held)) =
                (&job, self.renewals.lock().expect("no panic").as_mut())
            {
                held.push(job);
                continue;
            }
            let mut fault = self.fault.lock().expect("no panic");
            match &mut *fault {
                SettleFault::Lost(left) if *left > 0 && matches!(job, Job::Settle(_)) => {
                    *left -= 1;
                    job.fail(StoreError::Unavailable("the line is bad".into()));
                    job.reply();
                }
                SettleFault::Late(arrived, go) if matches!(job, Job::Settle(_)) => {
                    let (arrived, go) = (arrived.clone(), go.clone());
                    *fault = SettleFault::None;
                    self.store.carry_out(&mut job);
                    tokio::spawn(async move {
                        arrived.notify_one();
                        go.notified().await;
                        job.reply();
                    });
                }
                _ => self.store.submit(vec![job]),
            }
        }
    }

    fn read(&self, reading: Reading) {
        self.store.read(reading);
    }
}

/// Proves K-6: a caller that goes away while the connection is bad does not leave its work running for ever.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_reported_until_the_store_answers() {
    let (_line, hapax) = Line::new(SettleFault::Lost(5));
    let started = Arc::new(Notify::new());
    let (effect, starts) = (hapax.effect(key(1)), started.clone());
    let task = tokio::spawn(effect.run(|_| async move {
        starts.notify_one();
        std::future::pending::<Result<&str, Failure>>().await
    }));
    started.notified().await;
    task.abort();
    becomes(&hapax, 1, StateName::Indeterminate).await;
}

/// Proves K-5, K-24: an outcome that cannot be recorded for long is recorded later, although its caller got
/// an error, which says that the work ran.
#[tokio::test(start_paused = true)]
async fn an_outcome_is_recorded_after_its_caller_gave_up() {
    let (line, hapax) = Line::new(SettleFault::Lost(u32::MAX));
    let answer = hapax.effect(key(1)).run(|_| async { ok("done") }).await;
    let ran = |result: &WorkResult| *result == WorkResult::Succeeded;
    assert!(matches!(&answer, Err(Error::Unrecorded { result, .. }) if ran(result)), "{answer:?}");
    assert_eq!(state(&hapax, 1).await, Some(StateName::Running));
    *line.fault.lock().unwrap() = SettleFault::None;
    becomes(&hapax, 1, StateName::Succeeded).await;
    let again = hapax.effect(key(1)).run(|_| async { ok("twice") }).await.unwrap();
    assert_eq!((again.how, again.body()), (How::Replayed, Some(&b"done"[..])));
}

async fn reset(hapax: &Hapax, n: u8) {
    let seen = hapax.effects().show(key(n)).await.expect("a read").expect("a record").seen();
    hapax.effects().reset(key(n), seen, "ada", "the parcel came back").await.expect("it is reset");
}

/// Proves K-11: a caller that comes after a reset does not share an execution from before it,
/// although that execution has not been answered yet.
#[tokio::test(start_paused = true)]
async fn no_caller_joins_a_flight_that_began_before_a_reset() {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (line, hapax) = Line::new(SettleFault::Late(arrived.clone(), go.clone()));
    let before = tokio::spawn(hapax.effect(key(1)).run(|_| async { ok("before") }));
    arrived.notified().await;
    reset(&line.other_node(), 1).await;
    let after = hapax.effect(key(1)).run(|_| async { ok("after") });
    let after = tokio::time::timeout(LONG, after).await.expect("it does not wait").unwrap();
    assert_eq!((after.how, after.body()), (How::Executed, Some(&b"after"[..])));
    go.notify_one();
    assert_eq!(before.await.unwrap().unwrap().body(), Some(&b"before"[..]));
    let again = hapax.effect(key(1)).run(|_| async { ok("again") }).await.unwrap();
    assert_eq!((again.how, again.body()), (How::Replayed, Some(&b"after"[..])));
}

/// Proves K-11: an answer requested while the node had no lease, so that a reset did not wait for
/// it, is not cached under the next lease.
#[tokio::test(start_paused = true)]
async fn an_answer_from_before_the_lease_is_not_remembered() {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (line, hapax) = Line::new(SettleFault::Late(arrived.clone(), go.clone()));
    let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let before = tokio::spawn({
        let (started, finish) = (started.clone(), finish.clone());
        hapax.effect(key(1)).run(|_| async move {
            started.notify_one();
            finish.notified().await;
            ok("before")
        })
    });
    started.notified().await;
    let id = line.lease.lock().unwrap().expect("a claim hangs on it");
    call(&*line.store, command::CloseLease { id }).await.unwrap();
    // The node tries to renew, and learns that its lease is over.
    tokio::time::sleep(LEASE).await;
    finish.notify_one();
    arrived.notified().await;
    reset(&line.other_node(), 1).await;
    // Another effect makes it open a new lease; the answer comes only then.
    hapax.effect(key(2)).run(|_| async { ok("else") }).await.unwrap();
    go.notify_one();
    assert_eq!(before.await.unwrap().unwrap().body(), Some(&b"before"[..]));
    let after = hapax.effect(key(1)).run(|_| async { ok("after") }).await.unwrap();
    assert_eq!((after.how, after.body()), (How::Executed, Some(&b"after"[..])));
}

/// Proves K-11: a node whose lease may be over cannot know of a reset, so no caller shares an
/// execution that began before.
#[tokio::test]
async fn no_caller_joins_a_flight_while_the_lease_is_in_doubt() {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (line, _) = Line::new(SettleFault::None);
    let brief = || Hapax::builder().lease(Duration::from_millis(150));
    let hapax = brief().on(line.clone());
    hapax.effect(key(3)).run(|_| async { ok("on a lease") }).await.unwrap();
    *line.fault.lock().unwrap() = SettleFault::Late(arrived.clone(), go.clone());
    let before = tokio::spawn(hapax.effect(key(1)).run(|_| async { ok("before") }));
    arrived.notified().await;
    *line.renewals.lock().unwrap() = Some(Vec::new());
    // The other node's reset waits until the lease has lapsed.
    let other = brief().on(line.store.clone());
    other.effect(key(2)).run(|_| async { ok("alive") }).await.unwrap();
    tokio::time::timeout(LONG, reset(&other, 1)).await.expect("it waits no longer than that");
    let after = hapax.effect(key(1)).run(|_| async { ok("after") });
    let after = tokio::time::timeout(LONG, after).await.expect("it does not wait for ever");
    assert!(matches!(after, Err(Error::Store(StoreError::Unavailable(_)))), "{after:?}");
    go.notify_one();
    assert_eq!(before.await.unwrap().unwrap().body(), Some(&b"before"[..]));
}

/// Proves K-5: a caller gets no "did not happen" for an effect that may have happened, even if an operator decided
/// before the caller's own report was answered.
#[tokio::test(start_paused = true)]
async fn a_decision_before_the_answer_is_what_the_caller_gets() {
    use hapax::Resolution;
    let decisions = [
        (Resolution::Happened("receipt".into()), "receipt"),
        (Resolution::DidNotHappen, "failed: seen"),
        (Resolution::Skip, "refused: an operator skipped it: seen"),
    ];
    for (resolution, expected) in decisions {
        let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (line, hapax) = Line::new(SettleFault::Late(arrived.clone(), go.clone()));
        let ambiguous = |_| async { Err::<&str, _>(Failure::ambiguous("the reply was lost")) };
        let caller = tokio::spawn(hapax.effect(key(1)).run(ambiguous));
        arrived.notified().await;
        let operator = line.other_node();
        let seen = operator.effects().show(key(1)).await.unwrap().expect("a record").seen();
        operator
            .effects()
            .resolve(key(1), seen, resolution, "ada", "seen")
            .await
            .expect("it is decided");
        go.notify_one();
        let answer = match caller.await.unwrap() {
            Ok(done) => String::from_utf8_lossy(done.body().expect("a body")).into_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(answer, expected);
    }
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (line, hapax) = Line::new(SettleFault::Late(arrived.clone(), go.clone()));
    let ambiguous = |_| async { Err::<&str, _>(Failure::ambiguous("the reply was lost")) };
    let caller = tokio::spawn(hapax.effect(key(1)).run(ambiguous));
    arrived.notified().await;
    reset(&line.other_node(), 1).await;
    go.notify_one();
    let answer = caller.await.unwrap();
    assert!(matches!(answer, Err(Error::Fenced(_))), "{answer:?}");
}

/// Proves K-18: a holder that cannot renew its lease stops transactional and reconcilable work by its own clock,
/// before the lease can have lapsed at the store. Opaque work goes on.
#[tokio::test]
async fn a_holder_that_is_cut_off_stops_by_its_own_clock() {
    use hapax::{Safety, Settling};
    let (line, _) = Line::new(SettleFault::None);
    // Long enough that an eighth of it outlasts a busy machine.
    let term = Duration::from_secs(4);
    let hapax = Hapax::builder().lease(term).on(line.clone());
    hapax.effect(key(9)).run(|_| async { ok("on a lease") }).await.unwrap();
    *line.renewals.lock().unwrap() = Some(Vec::new());
    let since = std::time::Instant::now();
    let forever = |n, safety| {
        let effect = hapax.effect(key(n)).safety(safety);
        tokio::spawn(effect.run(|_| std::future::pending::<Result<&str, Failure>>()))
    };
    let reconcilable = Safety::Reconcilable(Settling::AfterMs(1));
    let stopped = [forever(1, Safety::Transactional), forever(2, reconcilable)];
    let opaque = hapax.effect(key(3)).run(move |_| async move {
        tokio::time::sleep(term + Duration::from_millis(100)).await;
        ok("done")
    });
    let opaque = tokio::spawn(opaque);
    for one in stopped {
        let answer: Result<hapax::Done, Error> = one.await.unwrap();
        assert!(matches!(answer, Err(Error::LeaseLost)), "{answer:?}");
        assert!(since.elapsed() < term, "{:?}", since.elapsed());
    }
    assert_eq!(opaque.await.unwrap().unwrap().body(), Some(&b"done"[..]));
}
