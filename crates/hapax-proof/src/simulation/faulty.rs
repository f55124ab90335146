//! The in-memory store as seen over a bad line: late, silent, or down.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_store::{Clock, Job, MemoryStore, Reading, Store, StoreError};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Virtual time: the runtime's, and a wall clock that can be set.
pub(super) struct VirtualClock {
    start: Instant,
    wall_steps_ms: AtomicU64,
}

impl VirtualClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), wall_steps_ms: AtomicU64::new(0) })
    }

    /// Sets the wall clock ahead; the store notices that it cannot be right.
    pub(super) fn step(&self, ms: u64) {
        self.wall_steps_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Now {
        let passed = self.start.elapsed().as_millis() as u64;
        let stepped = self.wall_steps_ms.load(Ordering::Relaxed);
        Now {
            wall: Timestamp(1_800_000_000_000).plus_ms(passed + stepped),
            lease: LeaseInstant { era: 1, ms: 1_000_000 + passed },
            wall_trusted: stepped == 0,
        }
    }
}

/// The faults of the line.
#[derive(Debug, Clone, Default)]
pub(super) struct LineFaults {
    /// How many of 1,000 calls fail before they take effect.
    pub(super) before: u32,
    /// How many take effect and lose their reply.
    pub(super) after: u32,
    /// How many are late, and by how much at most.
    pub(super) late: u32,
    pub(super) late_ms: u64,
    /// This one call fails, before or after it takes effect.
    pub(super) exactly: Option<(u64, When)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Before,
    After,
}

/// The line to the store that all nodes share.
pub(super) struct Line {
    pub(super) store: Arc<MemoryStore>,
    faults: Mutex<LineFaults>,
    dice: Mutex<SmallRng>,
    /// Until when the store answers no call.
    stalled: Mutex<Option<Instant>>,
    pub(super) tally: Tally,
}

/// Counts of calls and faults.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) calls: AtomicU64,
    pub(super) before: AtomicU64,
    pub(super) after: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) at_work: AtomicU64,
    /// Faults that struck while a call was at work.
    pub(super) overlapping: AtomicU64,
}

impl Line {
    pub(super) fn new(store: Arc<MemoryStore>, faults: LineFaults, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            store,
            faults: Mutex::new(faults),
            dice: Mutex::new(SmallRng::seed_from_u64(seed)),
            stalled: Mutex::new(None),
            tally: Tally::default(),
        })
    }

    pub(super) fn clear_faults(&self) {
        *self.faults.lock().expect("one thread") = LineFaults::default();
    }

    pub(super) fn stall(&self, for_ms: u64) {
        let until = Instant::now() + Duration::from_millis(for_ms);
        let mut stalled = self.stalled.lock().expect("one thread");
        *stalled = (*stalled).max(Some(until));
    }

    async fn wait_for_the_stall(&self) {
        let until = *self.stalled.lock().expect("one thread");
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }

    /// The fault of the next call, and its delays there and back.
    fn draw_fault(&self) -> (Option<When>, [Duration; 2]) {
        let faults = self.faults.lock().expect("one thread");
        let mut dice = self.dice.lock().expect("one thread");
        let nth = self.tally.calls.fetch_add(1, Ordering::Relaxed);
        let roll = dice.random_range(0..1000);
        let fault = match faults.exactly {
            Some((exactly, when)) => (exactly == nth).then_some(when),
            None if roll < faults.before => Some(When::Before),
            None if roll < faults.before + faults.after => Some(When::After),
            None => None,
        };
        let late = |dice: &mut SmallRng| match dice.random_range(0..1000) < faults.late {
            true => Duration::from_millis(dice.random_range(0..=faults.late_ms)),
            false => Duration::ZERO,
        };
        let delays = [late(&mut dice), late(&mut dice)];
        match fault {
            Some(When::Before) => self.strikes(&self.tally.before),
            Some(When::After) => self.strikes(&self.tally.after),
            None if delays != [Duration::ZERO; 2] => self.strikes(&self.tally.late),
            None => {}
        }
        (fault, delays)
    }

    pub(super) fn strikes(&self, kind: &AtomicU64) {
        kind.fetch_add(1, Ordering::Relaxed);
        if self.tally.at_work.load(Ordering::Relaxed) > 0 {
            self.tally.overlapping.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A node that can be paused, or killed at once.
#[derive(Default)]
pub(super) struct Switch {
    dead: AtomicBool,
    paused: AtomicBool,
    changed: Notify,
}

impl Switch {
    pub(super) fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.pause(false);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Returns once the node is not paused.
    pub(super) async fn moving(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.paused.load(Ordering::Relaxed) {
                return;
            }
            changed.await;
        }
    }
}

enum StoreCall {
    Job(Box<Job>),
    Read(Reading),
}

/// The store as one node sees it. The calls of a node arrive in order.
pub(super) struct FaultyStore {
    calls: mpsc::UnboundedSender<StoreCall>,
}

impl FaultyStore {
    pub(super) fn new(line: Arc<Line>, switch: Arc<Switch>) -> Arc<Self> {
        let (calls, mut queue) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(call) = queue.recv().await {
                let (fault, [there, back]) = line.draw_fault();
                tokio::time::sleep(there).await;
                switch.moving().await;
                line.wait_for_the_stall().await;
                if switch.is_dead() {
                    continue;
                }
                run(call, &line, &switch, fault, back);
            }
        });
        Arc::new(Self { calls })
    }
}

fn run(
    call: StoreCall,
    line: &Arc<Line>,
    switch: &Arc<Switch>,
    fault: Option<When>,
    back: Duration,
) {
    match call {
        StoreCall::Read(reading) => match fault {
            Some(_) => reading(Err(StoreError::Unavailable("the line is bad".into()))),
            None => line.store.read(reading),
        },
        StoreCall::Job(mut job) => {
            if fault != Some(When::Before) {
                line.store.carry_out(&mut job);
            }
            match fault {
                Some(When::Before) => job.fail(StoreError::Unavailable("the line is bad".into())),
                Some(_) => job.fail(StoreError::CommitUnknown("the line is bad".into())),
                None => {}
            }
            let switch = switch.clone();
            tokio::spawn(async move {
                tokio::time::sleep(back).await;
                switch.moving().await;
                if !switch.is_dead() {
                    job.reply();
                }
            });
        }
    }
}

impl Store for FaultyStore {
    fn submit(&self, jobs: Vec<Job>) {
        for job in jobs {
            let _ = self.calls.send(StoreCall::Job(Box::new(job)));
        }
    }

    fn read(&self, reading: Reading) {
        let _ = self.calls.send(StoreCall::Read(reading));
    }
}
