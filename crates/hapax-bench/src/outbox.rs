//! The outbox on PostgreSQL, beside a queue as people write it by hand, on the same server in the same run.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hapax::Hapax;
use hapax::outbox::{Acks, Delivery, OutboxConfig, Sink, SinkSettings};
use hapax::tokio_postgres::{self, Client, NoTls};

use crate::load::runtime;
use crate::postgres::Scratch;
use crate::report::{Bar, Report, human};
use crate::{Error, Options, ROUNDS, median, say};

/// How many events are drained, and how many datasets they are about.
const EVENTS: usize = 200_000;
const DATASETS: usize = 1_000;

/// How many events a second are emitted while the time to their delivery is measured.
const STEADY: usize = 1_000;

pub(crate) fn measure(
    options: &Options,
    url: &str,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let scratch = Scratch::make(url, directory)?;
    let runtime = runtime()?;
    scratch.sql(JOBS)?;
    runtime.block_on(async {
        let hapax = Hapax::open(scratch.url()).await?;
        hapax.outbox().configure(&nowhere()?).await?;
        Ok::<_, Error>(hapax.close().await?)
    })?;
    say("the cost of an event in a caller's transaction, in turns with the same without it");
    scratch.sql(ORDERS)?;
    let mut rounds = [(0.0, 0.0); ROUNDS];
    for round in &mut rounds {
        *round =
            (scratch.pgbench(WITHOUT, 8, options.time)?, scratch.pgbench(WITH, 8, options.time)?);
    }
    let (without, with) = (median(rounds.map(|r| r.0)), median(rounds.map(|r| r.1)));
    report.fact("transactions with an event, 8 callers", "outbox.emit.per_s", with, "a second");
    report.figure("outbox.emit.without.per_s", without);
    let cost = median(rounds.map(|(without, with)| without / with));
    let beside = format!("× the same without {}", human(without));
    report.ratio("", "outbox.emit_cost", cost, beside, Bar::Below(1.5));
    // Events emitted so far would be drained with the rest.
    drain(&scratch, &runtime, 0)?;

    say("drain, in turns with a loop over SKIP LOCKED");
    let mut rounds = [(0.0, 0.0); ROUNDS];
    for round in &mut rounds {
        scratch.sql(&FILL_JOBS.replace(":size", &EVENTS.to_string()))?;
        scratch.quiet()?;
        let by_hand = skip_locked(&scratch, &runtime)?;
        let ours = filled_drain(&scratch, &runtime)?;
        *round = (ours, by_hand);
    }
    let (ours, by_hand) = (median(rounds.map(|r| r.0)), median(rounds.map(|r| r.1)));
    report.fact("drained to a sink that does nothing", "outbox.drain.per_s", ours, "events/s");
    report.figure("outbox.skip_locked.per_s", by_hand);
    let ratio = median(rounds.map(|(ours, by_hand)| ours / by_hand));
    let beside = format!("× SKIP LOCKED, 4 workers {}", human(by_hand));
    report.ratio("", "outbox.drain.vs_skip_locked", ratio, beside, Bar::AtLeast(1.5));

    say("from commit to delivery, 1,000 events a second");
    let p99 = runtime.block_on(steady(&scratch, options.time.max(Duration::from_secs(5))))?;
    report.ratio("commit to delivery, p99", "outbox.p99_ms", p99, "ms".into(), Bar::Below(50.0));

    if let Some(size) = options.size {
        say(&format!("with {size} delivered events and a snapshot held open"));
        scratch.sql(&FILL_DELIVERED.replace(":size", &size.to_string()))?;
        let mut rounds = [0.0; ROUNDS];
        let holder = runtime.block_on(hold_snapshot(&scratch))?;
        for round in &mut rounds {
            *round = filled_drain(&scratch, &runtime)?;
        }
        drop(holder);
        let ratio = median(rounds) / ours;
        let name = format!("outbox.drain.{}_vs_empty", crate::short(size));
        report.ratio("", &name, ratio, format!("× empty {}", human(ours)), Bar::AtLeast(0.8));
    }
    Ok(())
}

/// Records events as the library would, and drains them.
fn filled_drain(scratch: &Scratch, runtime: &tokio::runtime::Runtime) -> Result<f64, Error> {
    let fill = FILL.replace(":size", &EVENTS.to_string());
    scratch.sql(&fill.replace(":datasets", &DATASETS.to_string()))?;
    scratch.quiet()?;
    drain(scratch, runtime, EVENTS)
}

/// A sink that takes everything at once.
struct Nothing(Arc<AtomicUsize>);

impl Sink for Nothing {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        for nth in 0..deliveries.len() {
            acks.delivered(nth);
        }
        self.0.fetch_add(deliveries.len(), Ordering::Relaxed);
    }
}

fn nowhere() -> Result<OutboxConfig, Error> {
    to(Nothing(Arc::default()))
}

fn to(sink: impl Sink) -> Result<OutboxConfig, Error> {
    let settings = SinkSettings { batch: 2_000, window: 8_000, ..SinkSettings::default() };
    let outbox = OutboxConfig::new().sink_with("bench", sink, settings);
    let outbox = outbox.and_then(|outbox| outbox.route("*", "*", &["bench"]));
    outbox.map_err(|error| Error::Invalid(error.to_string()))
}

/// Drains the outbox; events a second.
fn drain(
    scratch: &Scratch,
    runtime: &tokio::runtime::Runtime,
    events: usize,
) -> Result<f64, Error> {
    runtime.block_on(async {
        let hapax = Hapax::builder().background(false).open(scratch.url()).await?;
        let count: Arc<AtomicUsize> = Arc::default();
        let start = Instant::now();
        let dispatcher = hapax.outbox().dispatch(to(Nothing(count))?).await?;
        while events > 0 && dispatcher.status().delivered < events as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = start.elapsed();
        dispatcher.idle().await;
        dispatcher.stop().await?;
        hapax.close().await?;
        Ok(events as f64 / took.as_secs_f64())
    })
}

/// Four workers that claim a hundred jobs, and then complete them.
fn skip_locked(scratch: &Scratch, runtime: &tokio::runtime::Runtime) -> Result<f64, Error> {
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(client(scratch).await?);
        }
        let start = Instant::now();
        let workers: Vec<_> = clients
            .into_iter()
            .map(|client| tokio::spawn(async move { claim_and_complete(&client).await }))
            .collect();
        for worker in workers {
            let done = worker.await.map_err(|error| unreachable(&error))?;
            done.map_err(|error| unreachable(&error))?;
        }
        Ok(EVENTS as f64 / start.elapsed().as_secs_f64())
    })
}

async fn claim_and_complete(client: &Client) -> Result<(), tokio_postgres::Error> {
    let claim = client
        .prepare(
            "UPDATE job SET state = 1, attempts = attempts + 1 WHERE id IN (
                 SELECT id FROM job WHERE state = 0 ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)
             RETURNING id, payload",
        )
        .await?;
    let complete = client.prepare("DELETE FROM job WHERE id = ANY ($1)").await?;
    loop {
        let rows = client.query(&claim, &[]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        client.execute(&complete, &[&ids]).await?;
    }
}

async fn client(scratch: &Scratch) -> Result<Client, Error> {
    let connected = tokio_postgres::connect(scratch.url(), NoTls).await;
    let (client, connection) = connected.map_err(|error| unreachable(&error))?;
    tokio::spawn(connection);
    Ok(client)
}

fn unreachable(error: &dyn std::error::Error) -> Error {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Error::Unreachable(format!("{error}{cause}"))
}

/// A snapshot that keeps the server from cleaning up, until it is dropped.
async fn hold_snapshot(scratch: &Scratch) -> Result<Client, Error> {
    let client = client(scratch).await?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hapax.sink";
    client.batch_execute(begin).await.map_err(|error| unreachable(&error))?;
    Ok(client)
}

/// When events arrived, in milliseconds after they were committed.
#[derive(Clone, Default)]
struct Stopwatch(Arc<Mutex<Vec<f64>>>);

impl Sink for Stopwatch {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        let now = micros();
        for (nth, delivery) in deliveries.iter().enumerate() {
            // The payload says when the commit was requested.
            let sent: u64 = delivery.record.event.payload.as_str().parse().unwrap_or(now);
            let mut times = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            times.push(now.saturating_sub(sent) as f64 / 1_000.0);
            acks.delivered(nth);
        }
    }
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Emits at a steady rate in a caller's transaction, and measures until the sink has each.
async fn steady(scratch: &Scratch, time: Duration) -> Result<f64, Error> {
    let hapax = Hapax::builder().background(false).open(scratch.url()).await?;
    let watch = Stopwatch::default();
    let dispatcher = hapax.outbox().dispatch(to(watch.clone())?).await?;
    dispatcher.idle().await;
    // Ten transactions at a time, ten events each, ten times a second.
    let client = client(scratch).await?;
    let emit = client.prepare(STEADILY).await.map_err(|error| unreachable(&error))?;
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let (start, mut n) = (Instant::now(), 0i64);
    while start.elapsed() < time {
        tick.tick().await;
        let now = micros().to_string();
        let emitted = client.execute(&emit, &[&n, &((STEADY / 100) as i64), &now]).await;
        emitted.map_err(|error| unreachable(&error))?;
        n += (STEADY / 100) as i64;
    }
    dispatcher.idle().await;
    dispatcher.stop().await?;
    hapax.close().await?;
    let mut times = watch.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN))
}

/// The events of several transactions in one, with the time of the request as payload.
const STEADILY: &str = "SELECT hapax.emit(k.key, c.attempt_id, 'ticked', 'd' || (k.n % 100),
        $3::text::json), hapax.settle(k.key, c.attempt_id, c.fence, 'x')
    FROM (SELECT n, 'sha256:' || encode(sha256(convert_to('steady' || n, 'UTF8')), 'hex') AS key
          FROM generate_series($1::bigint, $1::bigint + $2::bigint - 1) n) k,
    LATERAL hapax.claim(k.key, sha256(''), safety => 'transactional') c";

const JOBS: &str = "CREATE TABLE job (id bigserial PRIMARY KEY, state int NOT NULL DEFAULT 0,
    attempts int NOT NULL DEFAULT 0, payload json NOT NULL);
CREATE INDEX job_ready ON job (id) WHERE state = 0";

const FILL_JOBS: &str = "INSERT INTO job (payload)
    SELECT '{\"order\":42,\"text\":\"what there is to say of it\"}' FROM generate_series(1, :size)";

/// The rows that the library writes, for many events at once.
const FILL: &str = "WITH e AS (
    INSERT INTO hapax.outbox_record (created_at, ordering_hash, namespace, ordinal, ordering, outbox_id,
        idempotency_key, event_name, dataset_id, judged, payload)
    SELECT hapax.now_ms(), hapax.ordering_hash('default', 0, 'd' || n % :datasets, NULL), 1, 0, 0,
        hapax.outbox_id('default', sha256(int8send(n)), hapax.now_ms(), 1, 0), sha256(int8send(n)),
        'filled', 'd' || n % :datasets, true,
        '{\"order\":42,\"text\":\"what there is to say of it\"}'
    FROM generate_series(1, :size) n RETURNING seq, outbox_id, ordering_hash)
INSERT INTO hapax.delivery (seq, outbox_id, xid, ordering_hash, due, updated, namespace, sink)
    SELECT e.seq, e.outbox_id, pg_current_xact_id()::text::bigint, e.ordering_hash, 0, 0, 1, s.id FROM e, hapax.sink s";

/// Events that were delivered long ago, a thousand at a time.
const FILL_DELIVERED: &str =
    "INSERT INTO hapax.outbox_record (created_at, ordering_hash, namespace, ordinal, ordering,
        outbox_id, idempotency_key, event_name, dataset_id, judged, payload)
    SELECT hapax.now_ms(), n, 1, 0, 0,
        hapax.outbox_id('default', sha256(int8send(n)), hapax.now_ms(), 2, 0), sha256(int8send(n)), 'old', 'd', true,
        '{\"order\":42,\"text\":\"what there is to say of it\"}'
    FROM generate_series(1, :size) n;
INSERT INTO hapax.dispatched (sink, at, span, seqs, tried)
    SELECT 1, hapax.now_ms(), int8range(min(seq), max(seq), '[]'), array_agg(seq), array_agg(1)
    FROM hapax.outbox_record WHERE event_name = 'old' GROUP BY seq / 1000";

const ORDERS: &str = "CREATE TABLE orders (id bigserial PRIMARY KEY, what text NOT NULL,
    at timestamptz NOT NULL DEFAULT now())";

/// A caller's transaction without an event: an effect of its own, claimed and settled.
const WITHOUT: &str = "\\set n random(1, 9000000000000000000)
BEGIN;
INSERT INTO orders (what) VALUES ('a book');
SELECT attempt_id, fence FROM hapax.claim('sha256:' || encode(sha256(int8send(:n)), 'hex'), sha256(''),
    safety => 'transactional') \\gset
SELECT hapax.settle('sha256:' || encode(sha256(int8send(:n)), 'hex'), :attempt_id, :fence, 'done');
COMMIT;
";

/// The same with an event.
const WITH: &str = "\\set n random(1, 9000000000000000000)
BEGIN;
INSERT INTO orders (what) VALUES ('a book');
SELECT attempt_id, fence FROM hapax.claim('sha256:' || encode(sha256(int8send(:n)), 'hex'), sha256(''),
    safety => 'transactional') \\gset
SELECT hapax.emit('sha256:' || encode(sha256(int8send(:n)), 'hex'), :attempt_id, 'ordered', 'orders',
    '{\"order\":42,\"text\":\"what there is to say of it\"}', order_key => (:n::bigint % 1000)::text);
SELECT hapax.settle('sha256:' || encode(sha256(int8send(:n)), 'hex'), :attempt_id, :fence, 'done');
COMMIT;
";
