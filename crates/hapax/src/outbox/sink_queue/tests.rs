//! Cases of the queue that need an exact order of steps.

use std::ops::Range;

use hapax_core::delivery::{DeliveryRefusal, OnExhausted, Retryability, Sent};
use hapax_core::key::Key;
use hapax_core::name::Name;
use hapax_core::outbox::{Event, OutboxId, Payload, Record};
use hapax_store::outbox::{DeliveryResult, Disposition, GuardCheck};

use super::*;
use crate::outbox::sink::Delivery;

const DELIVERED: Sent = Sent::Delivered { duplicate: false };

fn queued(seq: u64) -> QueuedDelivery {
    queued_about(seq, "flow")
}

fn queued_about(seq: u64, dataset: &str) -> QueuedDelivery {
    let name = Name { namespace: Namespace::default(), key: Key::from_bytes([1; 32]) };
    let event = Event::new("e", dataset, Payload::parse(b"1").unwrap());
    let id = OutboxId::from_bytes([0; 16]);
    let record = Record { id, seq, name, ordinal: 0, event, created: Timestamp(0) };
    let ordering_hash = record.ordering_hash();
    let (guards, due) = (GuardCheck::Passed, Timestamp(0));
    let (transaction, row, tried, refused) = (0, 0, 0, false);
    QueuedDelivery { record, ordering_hash, transaction, row, tried, refused, guards, due }
}

fn queue(now: Instant) -> SinkQueue {
    let settings = SinkSettings { batch: 600, ..Default::default() };
    let mut queue = SinkQueue::new(SinkName::new("s").unwrap(), settings, now);
    queue.serve(&[Namespace::default()]);
    queue
}

fn fetch(queue: &mut SinkQueue, seqs: Range<u64>, now: Instant) -> bool {
    let cursor = Cursor { seq: seqs.end - 1, ..Cursor::default() };
    let page = Page { deliveries: seqs.map(queued).collect(), cursor, more: false };
    queue.take_page(&Namespace::default(), page, &Buckets::all(), (now, Timestamp(0)))
}

/// Takes in these deliveries, which one page brings.
fn take(queue: &mut SinkQueue, deliveries: Vec<QueuedDelivery>, now: Instant) {
    let page = Page { deliveries, ..Page::default() };
    queue.take_page(&Namespace::default(), page, &Buckets::all(), (now, Timestamp(0)));
}

fn next_batch(queue: &mut SinkQueue, now: Instant) -> Vec<Delivery> {
    queue.next_batch(now, &mut Vec::new())
}

/// Proves O-4: deliveries left out of a long backlog are not passed over when the read that was
/// to bring them is lost.
#[test]
fn a_lost_read_passes_nothing_over() {
    let now = Instant::now();
    let mut queue = queue(now);
    fetch(&mut queue, 1..2_001, now);
    for delivery in &next_batch(&mut queue, now) {
        queue.result(delivery, &DELIVERED, now, 0);
    }
    assert_eq!(queue.refill_requests().len(), 1);
    queue.fetch_anew();
    assert_eq!(queue.fetch_requests()[0].cursor, Cursor::default(), "it begins at the beginning");
    fetch(&mut queue, 601..2_101, now);
    let mut sent = Vec::new();
    for _ in 0..2 {
        for delivery in next_batch(&mut queue, now) {
            queue.result(&delivery, &DELIVERED, now, 0);
            sent.push(delivery.record.seq);
        }
    }
    assert_eq!(sent, (601..601 + sent.len() as u64).collect::<Vec<_>>());
    assert!(sent.len() >= 1_000, "{}", sent.len());
}

/// Proves O-4: a key stays parked until a share request that began after its failure was durable finds it
/// redriven.
#[test]
fn a_share_request_that_missed_a_failure_does_not_unpark_its_key() {
    let now = Instant::now();
    let mut queue = queue(now);
    fetch(&mut queue, 1..4, now);
    let batch = next_batch(&mut queue, now);
    assert_eq!((batch.len(), queue.in_flight()), (3, 3));
    queue.result(&batch[0], &DELIVERED, now, 0);
    let refusal = DeliveryRefusal { reason: "no".into(), retryability: Retryability::Never };
    let failed = queue.result(&batch[1], &Sent::Refused(refusal), now, 0).unwrap();
    assert!(matches!(failed.disposition, Disposition::Failed { park: true, .. }));
    assert_eq!((queue.in_flight(), queue.len(), queue.is_empty()), (0, 0, true));
    let hash = batch[0].ordering_hash;
    // Another delivery of the key becomes durable first. That says nothing about the failure.
    queue.mark_durable((hash, 1), 0, 4);
    assert!(queue.start_over(&[], 5), "only a later request can say more");
    assert!(!fetch(&mut queue, 3..4, now), "the failure is not durable yet");
    queue.mark_durable((hash, 2), 0, 5);
    assert!(queue.start_over(&[], 5));
    assert!(!fetch(&mut queue, 3..4, now), "this request began before the failure was durable");
    assert!(!queue.start_over(&[hash], 6));
    assert!(!fetch(&mut queue, 3..4, now), "it is still parked");
    assert!(!queue.start_over(&[], 7));
    assert!(fetch(&mut queue, 3..4, now), "an operator has redriven it");
    assert_eq!(next_batch(&mut queue, now).len(), 1);
}

/// Proves O-4: buckets are given up once nothing in them is in flight, and what was dropped comes
/// back if they do.
#[test]
fn buckets_are_shed_once_nothing_in_them_is_in_flight() {
    let now = Instant::now();
    let mut queue = queue(now);
    fetch(&mut queue, 1..2, now);
    let batch = next_batch(&mut queue, now);
    fetch(&mut queue, 2..4, now);
    assert!(!queue.shed(&Buckets::default()), "one is in flight");
    assert_eq!((queue.in_flight(), queue.len()), (1, 1));
    queue.result(&batch[0], &DELIVERED, now, 0);
    assert!(queue.shed(&Buckets::default()));
    assert!(queue.is_empty() && next_batch(&mut queue, now).is_empty());
    assert!(fetch(&mut queue, 2..4, now));
    let seqs: Vec<u64> = next_batch(&mut queue, now).iter().map(|one| one.record.seq).collect();
    assert_eq!(seqs, [2, 3]);
}

/// A key that lost its place in the schedule and got another is sent once, also if the retry budget
/// grows in between.
#[test]
fn a_key_that_is_scheduled_twice_is_sent_once() {
    let now = Instant::now();
    let mut queue = queue(now);
    let refused = || QueuedDelivery { tried: 1, refused: true, ..queued_about(1, "refused") };
    let all = || {
        let clean = (2..42).map(|seq| queued_about(seq, &format!("clean {seq}")));
        std::iter::once(refused()).chain(clean).collect::<Vec<_>>()
    };
    take(&mut queue, all(), now);
    assert!(queue.shed(&Buckets::default()));
    take(&mut queue, all(), now);
    while queue.budget.retry(now) {}
    let batch = next_batch(&mut queue, now);
    let in_flight: usize = queue.keys.values().map(OrderingKey::in_flight).sum();
    assert_eq!((queue.in_flight(), in_flight), (batch.len(), batch.len()));
}

/// Proves O-4: a delivery that its transaction recorded late is not passed over, though its key was
/// full when it came.
#[test]
fn a_late_delivery_of_a_full_key_is_not_passed_over() {
    let now = Instant::now();
    let mut queue = queue(now);
    fetch(&mut queue, 501..2_001, now);
    take(&mut queue, vec![queued(500)], now);
    for delivery in &next_batch(&mut queue, now) {
        queue.result(delivery, &DELIVERED, now, 0);
    }
    let [(_, after)] = queue.refill_requests()[..] else { panic!("one key has room") };
    assert_eq!(after, 499);
}

/// A barred delivery is tried again after a pause, where a failed one would block its key.
#[test]
fn a_barred_delivery_that_blocks_its_key_is_not_tried_at_once() {
    let now = Instant::now();
    let mut queue = queue(now);
    queue.settings.policy.on_exhausted = OnExhausted::Block;
    take(
        &mut queue,
        vec![QueuedDelivery { guards: GuardCheck::Barred("a name".into()), ..queued(1) }],
        now,
    );
    let mut given_up = Vec::new();
    assert!(queue.next_batch(now, &mut given_up).is_empty());
    assert!(matches!(
        given_up[..],
        [(_, DeliveryResult { disposition: Disposition::Again { in_ms: 1.., .. }, .. })]
    ));
    assert!(queue.next_due().is_some_and(|due| due > now));
}

/// A delivery whose dispatchers ended again and again is alone until it has its result.
#[test]
fn a_suspect_is_alone_until_it_has_its_result() {
    let now = Instant::now();
    let mut queue = queue(now);
    let suspect = QueuedDelivery { tried: 3, ..queued_about(1, "suspect") };
    take(&mut queue, vec![suspect, queued_about(2, "clean")], now);
    let batch = next_batch(&mut queue, now);
    assert_eq!(batch.len(), 1);
    assert!(next_batch(&mut queue, now).is_empty(), "the other waits");
    queue.result(&batch[0], &DELIVERED, now, 0);
    assert_eq!(next_batch(&mut queue, now).len(), 1);
}
