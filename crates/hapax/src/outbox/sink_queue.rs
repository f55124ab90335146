//! The queue of one sink, in memory: which delivery is next, and which must wait.
//!
//! A track is one ordering key. Its deliveries leave one after the other, or several in one batch
//! and in order. Tracks do not wait for each other, and namespaces take turns.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use hapax_core::delivery::{
    Buckets, DeliveryRefusal, Next, OnExhausted, Retryability, Sent, judge,
};
use hapax_core::guard::redact;
use hapax_core::name::Namespace;
use hapax_core::outbox::OrderingKeyHash;
use hapax_core::outcome::bounded;
use hapax_core::route::SinkName;
use hapax_core::time::Timestamp;
use hapax_store::outbox::{
    Cursor, DeliveryResult, Disposition, FetchRequest, Page, QueuedDelivery,
};
use tokio::time::Instant;

use super::breaker::Breaker;
use super::pending::{Past, PendingDelivery};
use super::sink::{Delivery, SinkSettings};
use crate::budget::Budget;

/// How many deliveries of one namespace are kept here, and of one track.
const LINE: usize = 8_192;
const TRACK: usize = 1_024;

pub(super) struct SinkQueue {
    pub(super) sink: SinkName,
    settings: SinkSettings,
    lines: BTreeMap<Namespace, Feed>,
    tracks: HashMap<OrderingKeyHash, Queue>,
    /// The tracks of each namespace that may leave; `turns` says which namespace is next.
    ready: HashMap<Namespace, VecDeque<OrderingKeyHash>>,
    turns: VecDeque<Namespace>,
    waiting: BTreeSet<(Instant, OrderingKeyHash)>,
    /// Tracks whose next delivery is sent alone.
    alone: VecDeque<OrderingKeyHash>,
    /// The sequence numbers of all deliveries that are here, or were until recently.
    known: HashSet<u64>,
    /// Feeds and sequence numbers: once a later feed has been read, the number leaves `known`.
    leaving: VecDeque<(u64, u64)>,
    /// Tracks that wait for an operator. Once that is durable, each with the newest look that may
    /// not know of it.
    parked: HashMap<OrderingKeyHash, Option<u64>>,
    /// The failed deliveries that parked them, until that is durable.
    parking: HashMap<u64, OrderingKeyHash>,
    aloft: usize,
    breaker: Breaker,
    budget: Budget,
    pub(super) paused: bool,
}

#[derive(Default)]
struct Feed {
    mark: Cursor,
    letters: usize,
}

struct Queue {
    namespace: Namespace,
    letters: VecDeque<PendingDelivery>,
    /// How many of them are in flight, from the front.
    aloft: usize,
    /// Where it is listed: in `ready`, in `alone`, or in `waiting` until then.
    listed: Option<Listed>,
    /// Whether there are more than were taken in.
    left_out: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Listed {
    Ready,
    Alone,
    Until(Instant),
}

impl SinkQueue {
    pub(super) fn new(sink: SinkName, settings: SinkSettings, now: Instant) -> Self {
        Self {
            sink,
            settings,
            lines: BTreeMap::new(),
            tracks: HashMap::new(),
            ready: HashMap::new(),
            turns: VecDeque::new(),
            waiting: BTreeSet::new(),
            alone: VecDeque::new(),
            known: HashSet::new(),
            leaving: VecDeque::new(),
            parked: HashMap::new(),
            parking: HashMap::new(),
            aloft: 0,
            breaker: Breaker::new(),
            budget: Budget::new(now),
            paused: false,
        }
    }

    /// The same queue, empty.
    pub(super) fn anew(&self, now: Instant) -> Self {
        Self::new(self.sink.clone(), self.settings, now)
    }

    /// Adds a line for each of these namespaces.
    pub(super) fn serve(&mut self, namespaces: &[Namespace]) {
        for namespace in namespaces {
            self.lines.entry(namespace.clone()).or_default();
        }
    }

    /// Reads everything anew, because an operator changed something or this process gained buckets.
    pub(super) fn look_anew(&mut self, parked: Vec<OrderingKeyHash>, look: u64) {
        self.parked.retain(|_, known_by| known_by.is_none_or(|last| last >= look));
        for track in parked {
            self.parked.entry(track).or_insert(Some(0));
        }
        self.read_anew();
    }

    /// Reads everything anew, because a pending read is lost, and with it the refills that it was to bring.
    pub(super) fn read_anew(&mut self) {
        self.lines.values_mut().for_each(|line| line.mark = Cursor::default());
    }

    /// The lines to read next: those with room for more.
    pub(super) fn wants(&self) -> Vec<FetchRequest> {
        let roomy = self.lines.iter().filter(|(_, line)| line.letters < LINE / 2);
        let line = |(namespace, line): (&Namespace, &Feed)| FetchRequest {
            sink: self.sink.clone(),
            namespace: namespace.clone(),
            mark: line.mark,
            // Deliveries that are here already may be read again.
            limit: line.letters + (LINE - line.letters).min(2_000),
        };
        roomy.map(line).collect()
    }

    /// Takes in the deliveries that were read. Returns whether any was new.
    pub(super) fn fed(
        &mut self,
        namespace: &Namespace,
        fed: Page,
        mine: &Buckets,
        at: (Instant, Timestamp),
    ) -> bool {
        if let Some(line) = self.lines.get_mut(namespace) {
            line.mark = fed.mark;
        }
        let mut new = false;
        for parcel in fed.parcels {
            new |= self.take_in(namespace, parcel, mine, at);
        }
        new
    }

    /// Takes in one delivery, unless it is here already, its bucket is not ours, or its track is parked.
    pub(super) fn take_in(
        &mut self,
        namespace: &Namespace,
        parcel: QueuedDelivery,
        mine: &Buckets,
        (now, wall): (Instant, Timestamp),
    ) -> bool {
        let (track, seq) = (parcel.track, parcel.record.seq);
        let foreign = !mine.contains(track.bucket()) || self.parked.contains_key(&track);
        if foreign || self.known.contains(&seq) {
            return false;
        }
        let queue = self.tracks.entry(track).or_insert_with(|| Queue {
            namespace: namespace.clone(),
            letters: VecDeque::new(),
            aloft: 0,
            listed: None,
            left_out: false,
        });
        if queue.left_out || queue.letters.len() >= TRACK {
            queue.left_out = true;
            return false;
        }
        let letter = PendingDelivery::of(parcel, (now, wall));
        // Records of overlapping transactions may come in any order; here they are sorted.
        let behind = queue.letters.iter().skip(queue.aloft);
        let at = queue.aloft + behind.take_while(|other| other.record.seq < seq).count();
        queue.letters.insert(at, letter);
        self.known.insert(seq);
        if let Some(line) = self.lines.get_mut(namespace) {
            line.letters += 1;
        }
        self.list(track, now);
        true
    }

    /// Tracks that have room again for deliveries that were left out, and the place these lie after.
    pub(super) fn take_refills(&mut self) -> Vec<(OrderingKeyHash, u64)> {
        let thin = |queue: &Queue| queue.left_out && queue.letters.len() <= TRACK / 2;
        let tracks = self.tracks.iter_mut().filter(|(_, queue)| thin(queue));
        let refill = tracks.map(|(track, queue)| {
            queue.left_out = false;
            (*track, queue.letters.back().map_or(0, |letter| letter.record.seq))
        });
        refill.collect()
    }

    /// Takes in deliveries that were left out of a track. There are more if these are as many as were asked for.
    pub(super) fn refilled(
        &mut self,
        track: OrderingKeyHash,
        parcels: Vec<QueuedDelivery>,
        asked: usize,
        mine: &Buckets,
        at: (Instant, Timestamp),
    ) {
        let more = parcels.len() == asked;
        for parcel in parcels {
            let namespace = parcel.record.name.namespace.clone();
            self.take_in(&namespace, parcel, mine, at);
        }
        if let Some(queue) = self.tracks.get_mut(&track) {
            queue.left_out |= more;
        }
        self.list(track, at.0);
    }

    /// The deliveries of the next batch, tracks in turns and each in order. Deliveries that are not
    /// tried any more are added to `given_up`.
    pub(super) fn depart(
        &mut self,
        now: Instant,
        given_up: &mut Vec<DeliveryResult>,
    ) -> Vec<Delivery> {
        while let Some((due, track)) = self.waiting.first().copied().filter(|(due, _)| *due <= now)
        {
            self.waiting.remove(&(due, track));
            if let Some(queue) = self.tracks.get_mut(&track) {
                queue.listed = None;
                self.list(track, now);
            }
        }
        if self.paused {
            return Vec::new();
        }
        let room = self.settings.window.saturating_sub(self.aloft).min(self.settings.batch);
        let mut room = self.breaker.admits(now, room);
        if let Some(track) = self.alone.pop_front() {
            // It waits until nothing else is in flight, and keeps all other tracks from leaving until then.
            match self.aloft {
                0 => self.list_first(track),
                _ => {
                    self.alone.push_front(track);
                    room = 0;
                }
            }
        }
        let mut letters = Vec::new();
        let mut put_off = Vec::new();
        while letters.len() < room
            && let Some(namespace) = self.turns.pop_front()
        {
            let Some(track) = self.ready.get_mut(&namespace).and_then(VecDeque::pop_front) else {
                self.ready.remove(&namespace);
                continue;
            };
            self.turns.push_back(namespace);
            let Some(queue) = self.tracks.get_mut(&track) else { continue };
            queue.listed = None;
            let attempts = self.settings.policy.attempts;
            let Some(past) = queue.letters.front().map(|letter| letter.past(attempts)) else {
                continue;
            };
            match past {
                Past::Refused if !self.breaker.is_open() && !self.budget.retry(now) => {
                    put_off.push((track, Duration::from_millis(200)));
                    continue;
                }
                Past::Suspect if self.aloft > 0 || !letters.is_empty() => {
                    queue.listed = Some(Listed::Alone);
                    self.alone.push_back(track);
                    continue;
                }
                Past::Barred => {
                    given_up.extend(self.give_up(track, now));
                    continue;
                }
                Past::Deadly if self.settings.policy.poison != OnExhausted::Block => {
                    given_up.extend(self.give_up(track, now));
                    continue;
                }
                _ => {}
            }
            let clean = past == Past::Clean;
            // A delivery that failed before leaves without those behind it: it may fail again.
            let most = if clean { room - letters.len() } else { 1 };
            let with = |letter: &&PendingDelivery| {
                !clean || letter.past(attempts) == Past::Clean && letter.due <= now
            };
            let leaving = queue.letters.iter().take(most).take_while(with);
            let before = letters.len();
            letters.extend(leaving.map(|letter| Delivery {
                record: letter.record.clone(),
                track,
                attempt: letter.tried + 1,
            }));
            queue.aloft = letters.len() - before;
            if past != Past::Refused {
                self.budget.first(queue.aloft);
            }
            if past == Past::Suspect {
                break;
            }
        }
        for (track, pause) in put_off {
            self.wait(track, now + pause);
        }
        if !letters.is_empty() {
            self.breaker.sends();
        }
        self.aloft += letters.len();
        letters
    }

    /// The result of a delivery, to be recorded. `None` if there is nothing to record.
    pub(super) fn landed(
        &mut self,
        letter: &Delivery,
        sent: &Sent,
        now: Instant,
        dice: u64,
    ) -> Option<DeliveryResult> {
        let aloft = |one: &&PendingDelivery| one.record.seq == letter.record.seq;
        let queue = self.tracks.get(&letter.track)?;
        queue.letters.iter().take(queue.aloft).find(aloft)?;
        match sent {
            Sent::Delivered { .. } => self.breaker.answered(),
            Sent::Refused(refusal) if refusal.heals == Retryability::SinkDown => {
                let knew = self.breaker.is_open();
                self.breaker.down(now, dice);
                if self.breaker.is_open() && !knew {
                    let reason = redact(&refusal.reason);
                    tracing::warn!(name: "sink_down", sink = %self.sink, reason, "a sink is down and left alone");
                }
            }
            Sent::Refused(_) => self.breaker.answered(),
            Sent::Held => {}
        }
        self.became(letter, sent, now, dice)
    }

    /// The same for a delivery that may not have been sent, so that it says nothing about the sink.
    fn became(
        &mut self,
        letter: &Delivery,
        sent: &Sent,
        now: Instant,
        dice: u64,
    ) -> Option<DeliveryResult> {
        let seq = letter.record.seq;
        let queue = self.tracks.get_mut(&letter.track)?;
        let at = queue.letters.iter().take(queue.aloft).position(|one| one.record.seq == seq)?;
        let PendingDelivery { transaction, row, .. } = queue.letters[at];
        let policy = &self.settings.policy;
        let next = judge(policy, letter.attempt, sent, self.breaker.is_open(), dice);
        let landing = match (sent, next) {
            (Sent::Delivered { duplicate }, _) => Disposition::Delivered { duplicate: *duplicate },
            (Sent::Held, _) => {
                self.ground(letter.track, now);
                return None;
            }
            (Sent::Refused(refusal), Next::Fail { park }) => {
                Disposition::Failed { error: bounded(redact(&refusal.reason)), park }
            }
            (Sent::Refused(refusal), Next::Again { ms }) => {
                Disposition::Again { in_ms: ms, error: bounded(redact(&refusal.reason)) }
            }
            (Sent::Refused(_), Next::Done) => return None,
        };
        match &landing {
            Disposition::Delivered { .. } => {
                queue.letters.remove(at);
                queue.aloft -= 1;
                self.gone(letter.track, 1, 1);
            }
            Disposition::Again { in_ms, .. } => {
                let one = &mut queue.letters[at];
                (one.tried, one.refused, one.row) = (letter.attempt, true, 0);
                one.due = now + Duration::from_millis(*in_ms);
                self.ground(letter.track, now);
            }
            Disposition::Failed { park: false, .. } => {
                queue.letters.remove(at);
                queue.aloft -= 1;
                self.gone(letter.track, 1, 1);
                self.ground(letter.track, now);
            }
            Disposition::Failed { park: true, .. } => {
                let (letters, aloft) = (queue.letters.len(), queue.aloft);
                for other in queue.letters.iter().filter(|other| other.record.seq != seq) {
                    self.known.remove(&other.record.seq);
                }
                self.parked.insert(letter.track, None);
                self.parking.insert(seq, letter.track);
                self.gone(letter.track, letters, aloft);
                self.tracks.remove(&letter.track);
            }
        }
        self.list(letter.track, now);
        let (sink, tried) = (self.sink.clone(), letter.attempt);
        let namespace = letter.record.name.namespace.clone();
        Some(DeliveryResult { sink, namespace, transaction, row, seq, tried, landing })
    }

    /// The remaining deliveries of a track's batch are not in flight any more.
    fn ground(&mut self, track: OrderingKeyHash, now: Instant) {
        if let Some(queue) = self.tracks.get_mut(&track) {
            self.aloft -= std::mem::take(&mut queue.aloft);
            self.list(track, now);
        }
    }

    fn gone(&mut self, track: OrderingKeyHash, letters: usize, aloft: usize) {
        self.aloft -= aloft;
        if let Some(queue) = self.tracks.get(&track)
            && let Some(line) = self.lines.get_mut(&queue.namespace)
        {
            line.letters -= letters;
        }
    }

    /// The result of a delivery is durable. The newest feed and the newest look may have begun before that.
    pub(super) fn settled(&mut self, seq: u64, feed: u64, look: u64) {
        self.leaving.push_back((feed, seq));
        if let Some(track) = self.parking.remove(&seq) {
            self.parked.insert(track, Some(look));
        }
    }

    /// This feed was read: it includes everything that was durable when it began.
    pub(super) fn read(&mut self, feed: u64) {
        while self.leaving.front().is_some_and(|(last, _)| *last < feed) {
            if let Some((_, seq)) = self.leaving.pop_front() {
                self.known.remove(&seq);
            }
        }
    }

    /// Gives up the first delivery of a track: its dispatchers died of it, or a guard bars it.
    fn give_up(&mut self, track: OrderingKeyHash, now: Instant) -> Option<DeliveryResult> {
        let queue = self.tracks.get_mut(&track)?;
        let letter = queue.letters.front()?;
        let barred = letter.barred.clone();
        let letter = Delivery { record: letter.record.clone(), track, attempt: letter.tried };
        queue.aloft = 1;
        self.aloft += 1;
        let died = "whoever tried to deliver it ended before it could say what became of it";
        let reason = match barred {
            Some(against) => {
                tracing::warn!(name: "event_barred", sink = %self.sink, outbox_id = %letter.record.id, against, "an event must not leave");
                format!("it must not leave: {against}")
            }
            None => died.to_owned(),
        };
        let sent = Sent::Refused(DeliveryRefusal { reason, heals: Retryability::Never });
        self.became(&letter, &sent, now, 0)
    }

    /// Puts a track before all others.
    fn list_first(&mut self, track: OrderingKeyHash) {
        let Some(queue) = self.tracks.get_mut(&track) else { return };
        queue.listed = Some(Listed::Ready);
        let namespace = queue.namespace.clone();
        self.ready.entry(namespace.clone()).or_default().push_front(track);
        self.turns.push_front(namespace);
    }

    /// Lists a track where it belongs.
    fn list(&mut self, track: OrderingKeyHash, now: Instant) {
        let Some(queue) = self.tracks.get_mut(&track) else { return };
        if queue.aloft > 0 || matches!(queue.listed, Some(Listed::Ready | Listed::Alone)) {
            return;
        }
        match queue.letters.front() {
            None if queue.left_out => {}
            None => {
                self.tracks.remove(&track);
            }
            Some(letter) if letter.due > now => {
                let due = letter.due;
                self.wait(track, due);
            }
            Some(_) => {
                if let Some(Listed::Until(due)) = queue.listed.replace(Listed::Ready) {
                    self.waiting.remove(&(due, track));
                }
                let namespace = queue.namespace.clone();
                let ready = self.ready.entry(namespace.clone()).or_default();
                ready.push_back(track);
                if !self.turns.contains(&namespace) {
                    self.turns.push_back(namespace);
                }
            }
        }
    }

    fn wait(&mut self, track: OrderingKeyHash, until: Instant) {
        let Some(queue) = self.tracks.get_mut(&track) else { return };
        if let Some(Listed::Until(before)) = queue.listed.replace(Listed::Until(until)) {
            self.waiting.remove(&(before, track));
        }
        self.waiting.insert((until, track));
    }

    /// Drops everything outside these buckets that is not in flight. Returns whether nothing there is in flight.
    pub(super) fn shed(&mut self, keep: &Buckets) -> bool {
        let outside = |track: &OrderingKeyHash| !keep.contains(track.bucket());
        let tracks: Vec<OrderingKeyHash> = self.tracks.keys().copied().filter(outside).collect();
        let mut clear = true;
        for track in tracks {
            let Some(queue) = self.tracks.get_mut(&track) else { continue };
            let aloft = queue.aloft;
            let dropped: Vec<_> = queue.letters.drain(aloft..).collect();
            for letter in &dropped {
                self.known.remove(&letter.record.seq);
            }
            if let Some(Listed::Until(due)) = queue.listed.take() {
                self.waiting.remove(&(due, track));
            }
            self.gone(track, dropped.len(), 0);
            if aloft == 0 {
                self.tracks.remove(&track);
            }
            clear &= aloft == 0;
        }
        for ready in self.ready.values_mut() {
            ready.retain(|track| !outside(track));
        }
        self.alone.retain(|track| !outside(track));
        clear
    }

    /// When a delivery may be sent that may not be sent now.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = self.waiting.first().map(|(due, _)| *due);
        let breaker = self.breaker.next();
        [due, breaker].into_iter().flatten().min()
    }

    /// Whether nothing is in flight, and nothing waits that could be sent without an operator.
    pub(super) fn is_empty(&self) -> bool {
        self.aloft == 0 && self.tracks.is_empty()
    }

    pub(super) fn aloft(&self) -> usize {
        self.aloft
    }

    pub(super) fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    pub(super) fn letters(&self) -> usize {
        self.lines.values().map(|line| line.letters).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::key::Key;
    use hapax_core::name::Name;
    use hapax_core::outbox::{Event, OutboxId, Payload, Record};
    use hapax_store::outbox::GuardCheck;

    fn parcel(seq: u64) -> QueuedDelivery {
        let name = Name { namespace: Namespace::default(), key: Key::from_bytes([1; 32]) };
        let event = Event::new("e", "flow", Payload::parse(b"1").unwrap());
        let id = OutboxId::from_bytes([0; 16]);
        let record = Record { id, seq, name, ordinal: 0, event, created: Timestamp(0) };
        let track = record.track();
        let (passage, due) = (GuardCheck::Free, Timestamp(0));
        QueuedDelivery {
            record,
            track,
            transaction: 0,
            row: 0,
            tried: 0,
            refused: false,
            passage,
            due,
        }
    }

    /// Proves O-4: deliveries left out of a long backlog are not passed over when the read that was
    /// to bring them is lost.
    #[test]
    fn a_lost_read_passes_nothing_over() {
        let now = Instant::now();
        let sink = SinkName::new("s").unwrap();
        let mut desk = SinkQueue::new(sink, SinkSettings { batch: 600, ..Default::default() }, now);
        desk.serve(&[Namespace::default()]);
        let feed = |desk: &mut SinkQueue, seqs: std::ops::Range<u64>| {
            let mark = Cursor { seq: seqs.end - 1, ..Cursor::default() };
            let fed = Page { parcels: seqs.map(parcel).collect(), mark, more: false };
            desk.fed(&Namespace::default(), fed, &Buckets::all(), (now, Timestamp(0)))
        };
        feed(&mut desk, 1..2_001);
        let letters = desk.depart(now, &mut Vec::new());
        for letter in &letters {
            desk.landed(letter, &Sent::Delivered { duplicate: false }, now, 0);
        }
        assert_eq!(desk.take_refills().len(), 1);
        desk.read_anew();
        assert_eq!(desk.wants()[0].mark, Cursor::default(), "it begins at the beginning");
        feed(&mut desk, 601..2_101);
        let mut sent = Vec::new();
        for _ in 0..2 {
            for letter in desk.depart(now, &mut Vec::new()) {
                desk.landed(&letter, &Sent::Delivered { duplicate: false }, now, 0);
                sent.push(letter.record.seq);
            }
        }
        assert_eq!(sent, (601..601 + sent.len() as u64).collect::<Vec<_>>());
        assert!(sent.len() >= 1_000, "{}", sent.len());
    }
}
