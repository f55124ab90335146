//! The real engine on the in-memory store, in virtual time, with everything going wrong.
//!
//! Several engines share one store over lines that lose, delay and stall; nodes are paused and
//! killed; clocks are set; callers give up. All of it follows from one seed. Afterwards the
//! targets record each execution, and the ledger and every answer are compared with them.

mod faulty;
mod judge;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::{
    Error, Failure, Finding, Hapax, Judged, Key, OnLock, Outcome, Safety, Settling, State,
};
use hapax_store::MemoryStore;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::history::{Reply, Request};
use crate::report::Report;
use faulty::{FaultyStore, Line, LineFaults, Switch, VirtualClock, When};
use judge::{Call, Log, Targets};

/// How long a node may be silent.
const LEASE: Duration = Duration::from_secs(2);
/// The longest pause of a node: longer than the lease and the settling time that is declared, so that
/// only its own clock keeps a node that was paused from sending.
const PAUSE_MS: u64 = 8_000;
const SETTLING_MS: u64 = 1_000;
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longer than any caller waits, in virtual time.
const HUNG: Duration = Duration::from_secs(3600);

/// The kinds of effects. Each seed has one key of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Transactional,
    Keyed,
    Fenced,
    Settling,
    Opaque,
    OpaqueLocked,
    TransactionalLocked,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Transactional,
        Self::Keyed,
        Self::Fenced,
        Self::Settling,
        Self::Opaque,
        Self::OpaqueLocked,
        Self::TransactionalLocked,
    ];

    fn safety(self) -> Safety {
        match self {
            Self::Transactional | Self::TransactionalLocked => Safety::Transactional,
            Self::Keyed | Self::Fenced => Safety::Reconcilable(Settling::TargetRefusesLate),
            Self::Settling => Safety::Reconcilable(Settling::AfterMs(SETTLING_MS)),
            Self::Opaque | Self::OpaqueLocked => Safety::Opaque,
        }
    }

    fn key(self) -> Key {
        Key::from_bytes([self as u8 + 1; 32])
    }

    fn is_transactional(self) -> bool {
        self.safety() == Safety::Transactional
    }

    fn is_locked(self) -> bool {
        matches!(self, Self::OpaqueLocked | Self::TransactionalLocked)
    }

    /// Whether an operator may reset it: if the target itself remembers, a reset does not let the
    /// effect happen again.
    fn can_be_reset(self) -> bool {
        !matches!(self, Self::Keyed | Self::Fenced | Self::Settling)
    }
}

/// The scenario of a seed.
#[derive(Debug, Clone)]
struct Scenario {
    seed: u64,
    line_faults: LineFaults,
    nodes: usize,
    calls: usize,
    resets: usize,
    crashes: usize,
    pauses: usize,
    stalls: usize,
    clock_steps: usize,
    /// Whether work may fail by itself.
    failures: bool,
}

impl Scenario {
    fn of(seed: u64) -> Self {
        let mut dice = SmallRng::seed_from_u64(seed);
        let calm = Self {
            seed,
            line_faults: LineFaults::default(),
            nodes: dice.random_range(2..=3),
            calls: dice.random_range(16..=40),
            resets: dice.random_range(0..=2),
            crashes: 0,
            pauses: 0,
            stalls: 0,
            clock_steps: 1,
            failures: false,
        };
        let storm = |dice: &mut SmallRng| LineFaults {
            before: dice.random_range(0..80),
            after: dice.random_range(0..80),
            late: dice.random_range(0..300),
            late_ms: dice.random_range(1..3_000),
            exactly: None,
        };
        match seed % 4 {
            // The store stalls, and nothing else is wrong: no effect may be given up because of it.
            0 => Self { stalls: dice.random_range(1..=3), resets: 0, ..calm },
            1 => Self { line_faults: storm(&mut dice), failures: true, ..calm },
            2 => {
                Self { crashes: dice.random_range(1..=2), pauses: dice.random_range(0..=2), ..calm }
            }
            _ => Self {
                line_faults: storm(&mut dice),
                crashes: dice.random_range(0..=2),
                pauses: dice.random_range(0..=2),
                stalls: dice.random_range(0..=1),
                failures: true,
                ..calm
            },
        }
    }
}

/// Simulates one seed.
pub fn simulate_one(seed: u64, report: &mut Report) {
    silence_expected_panics();
    report.count("seeds", 1);
    run(Scenario::of(seed), report);
}

/// Simulates these seeds.
pub fn simulate(seeds: std::ops::Range<u64>, report: &mut Report) {
    for seed in seeds {
        simulate_one(seed, report);
    }
    for fault in [
        "calls to the store that failed before they took effect",
        "calls to the store whose reply was lost",
        "calls to the store that were late",
        "nodes killed",
        "nodes paused",
        "stalls of the store",
    ] {
        report.at_least(fault, 1);
    }
    let (calls, done) = (report.figure("calls"), report.figure("calls answered with an outcome"));
    report.expect(done * 2 >= calls, || format!("vacuous: {done} of {calls} calls succeeded"));
    let struck = report.figure("faults that struck while a caller was at work");
    report.at_least("faults that struck while a caller was at work", struck.max(1) / 2);
}

/// Simulates these seeds until something is wrong.
pub fn search(seeds: std::ops::Range<u64>, report: &mut Report) {
    for seed in seeds {
        simulate_one(seed, report);
        if !report.violations.is_empty() {
            return;
        }
    }
}

/// Lets each call to the store fail, or one in `step`: before and after it takes effect.
pub fn enumerate(seeds: std::ops::Range<u64>, step: usize, report: &mut Report) {
    silence_expected_panics();
    for seed in seeds {
        let mut scenario = Scenario { stalls: 0, resets: 1, ..Scenario::of(seed * 4) };
        scenario.line_faults = LineFaults::default();
        let calls = run(scenario.clone(), report);
        for nth in (0..calls).step_by(step) {
            for when in [When::Before, When::After] {
                scenario.line_faults.exactly = Some((nth, when));
                run(scenario.clone(), report);
                report.count("runs in which exactly one call failed", 1);
            }
        }
    }
}

/// Simulates a scenario and judges it. Returns how often the store was called.
fn run(scenario: Scenario, report: &mut Report) -> u64 {
    hapax::proof::seed(scenario.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async move {
        let world = World::new(&scenario);
        world.live(&scenario).await;
        judge::judge(
            &world,
            &scenario_name(&scenario),
            scenario.stalls > 0 && scenario.seed.is_multiple_of(4),
            report,
        )
        .await;
        world.line.tally.calls.load(Ordering::Relaxed)
    })
}

fn scenario_name(scenario: &Scenario) -> String {
    match scenario.line_faults.exactly {
        Some((nth, when)) => format!("seed {}, call {nth} fails {when:?}", scenario.seed),
        None => format!("seed {}", scenario.seed),
    }
}

pub(crate) struct World {
    clock: Arc<VirtualClock>,
    line: Arc<Line>,
    targets: Arc<Targets>,
    log: Arc<Log>,
    nodes: Mutex<Vec<Node>>,
    faults: Faults,
}

#[derive(Default)]
struct Faults {
    crashes: AtomicU64,
    pauses: AtomicU64,
    stalls: AtomicU64,
}

struct Node {
    switch: Arc<Switch>,
    hapax: Hapax,
    calls: JoinSet<()>,
}

impl World {
    fn new(scenario: &Scenario) -> Arc<Self> {
        let clock = VirtualClock::new();
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let line = Line::new(store, scenario.line_faults.clone(), scenario.seed);
        let world = Arc::new(Self {
            clock,
            line,
            targets: Arc::default(),
            log: Arc::default(),
            nodes: Mutex::default(),
            faults: Faults::default(),
        });
        for _ in 0..scenario.nodes {
            let node = world.node();
            world.nodes.lock().expect("one thread").push(node);
        }
        world
    }

    fn node(&self) -> Node {
        let switch = Arc::new(Switch::default());
        let store = FaultyStore::new(self.line.clone(), switch.clone());
        let hapax = Hapax::builder().lease(LEASE).on_clock(store, self.clock.clone());
        Node { switch, hapax, calls: JoinSet::new() }
    }

    /// Carries out the plan, then clears the faults and lets everything come to rest.
    async fn live(self: &Arc<Self>, scenario: &Scenario) {
        let mut dice = SmallRng::seed_from_u64(scenario.seed ^ 0xca11);
        // The planned events, by time.
        let mut plan: BTreeMap<(u64, usize), PlannedEvent> = BTreeMap::new();
        let mut add = |dice: &mut SmallRng, event: PlannedEvent| {
            let nth = plan.len();
            plan.insert((dice.random_range(0..30_000), nth), event);
        };
        (0..scenario.calls).for_each(|_| add(&mut dice, PlannedEvent::Call));
        (0..scenario.resets).for_each(|_| add(&mut dice, PlannedEvent::Reset));
        (0..scenario.crashes).for_each(|_| add(&mut dice, PlannedEvent::Crash));
        (0..scenario.pauses).for_each(|_| add(&mut dice, PlannedEvent::Pause));
        (0..scenario.stalls).for_each(|_| add(&mut dice, PlannedEvent::Stall));
        (0..scenario.clock_steps).for_each(|_| add(&mut dice, PlannedEvent::ClockStep));
        let mut now = 0;
        let mut others = JoinSet::new();
        for ((at, _), event) in plan {
            tokio::time::sleep(Duration::from_millis(at - now)).await;
            now = at;
            let n = dice.random_range(0..scenario.nodes);
            match event {
                PlannedEvent::Call => self.call(n, scenario, &mut dice),
                PlannedEvent::Reset => {
                    let world = self.clone();
                    let kinds = Kind::ALL.map(|kind| kind.can_be_reset().then_some(kind));
                    let kinds: Vec<_> = kinds.into_iter().flatten().collect();
                    let kind = kinds[dice.random_range(0..kinds.len())];
                    let hapax = self.hapax(n);
                    others.spawn(async move { world.reset(hapax, kind).await });
                }
                PlannedEvent::Crash => self.crash(n),
                PlannedEvent::Pause => {
                    self.line.strikes(&self.faults.pauses);
                    let switch = self.nodes.lock().expect("one thread")[n].switch.clone();
                    let pause = Duration::from_millis(dice.random_range(0..PAUSE_MS));
                    switch.pause(true);
                    others.spawn(async move {
                        tokio::time::sleep(pause).await;
                        switch.pause(false);
                    });
                }
                PlannedEvent::Stall => {
                    self.line.strikes(&self.faults.stalls);
                    self.line.stall(dice.random_range(0..10_000));
                }
                PlannedEvent::ClockStep => self.clock.step(10 * YEAR.as_millis() as u64),
            }
        }
        self.rest(others).await;
    }

    fn hapax(&self, n: usize) -> Hapax {
        self.nodes.lock().expect("one thread")[n].hapax.clone()
    }

    fn crash(&self, n: usize) {
        self.line.strikes(&self.faults.crashes);
        let fresh = self.node();
        let dead = std::mem::replace(&mut self.nodes.lock().expect("one thread")[n], fresh);
        dead.switch.kill();
    }

    /// Waits until every call has ended and passes have dealt with every lapsed effect.
    async fn rest(&self, mut others: JoinSet<()>) {
        while others.join_next().await.is_some() {}
        let nodes = std::mem::take(&mut *self.nodes.lock().expect("one thread"));
        let mut open = Vec::new();
        for mut node in nodes {
            while node.calls.join_next().await.is_some() {}
            open.push(node);
        }
        self.line.clear_faults();
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let pass = open[0].hapax.pass().await;
            pass.expect("the faults are cleared");
        }
        *self.nodes.lock().expect("one thread") = open;
    }

    /// A caller wants an effect.
    fn call(self: &Arc<Self>, n: usize, scenario: &Scenario, dice: &mut SmallRng) {
        let kind = Kind::ALL[dice.random_range(0..Kind::ALL.len())];
        let payload = u8::from(dice.random_range(0..10) == 0);
        let ending = match dice.random_range(0..100) {
            _ if !scenario.failures => WorkEnding::Well,
            0..10 => WorkEnding::NotDone,
            10..16 => WorkEnding::LostBefore,
            16..26 => WorkEnding::LostAfter,
            26..30 => WorkEnding::Panics,
            30..34 => WorkEnding::Hangs,
            _ => WorkEnding::Well,
        };
        let work = [(); 2].map(|()| Duration::from_millis(dice.random_range(0..1_500)));
        let wait = Duration::from_millis(dice.random_range(0..40_000));
        // Some callers give up before they are answered.
        let timeout = match dice.random_range(0..20) {
            0 if scenario.failures => Duration::from_millis(dice.random_range(0..2_000)),
            _ if ending == WorkEnding::Hangs => Duration::from_secs(60),
            _ => HUNG,
        };
        let cannot_tell = scenario.failures && dice.random_range(0..8) == 0;
        let world = self.clone();
        let mut nodes = self.nodes.lock().expect("one thread");
        let node = &mut nodes[n];
        let (hapax, switch) = (node.hapax.clone(), node.switch.clone());
        node.calls.spawn(async move {
            let id = world.log.begin(kind, payload);
            let _at_work = AtWork::enter(&world.line.tally.at_work);
            let job = Work { kind, id, ending, work, switch: switch.clone(), world: world.clone() };
            let call =
                world.effect(&hapax, kind, payload, wait, cannot_tell).run(|c| job.perform(c));
            // In a task of its own, because its work may panic; dropped with this one.
            let mut task = JoinSet::new();
            task.spawn(call);
            match tokio::time::timeout(timeout, task.join_next()).await {
                Ok(Some(Ok(result))) => {
                    let early =
                        result.as_ref().is_ok_and(|done| !judge::recorded(&world, kind, done));
                    world.log.end(id, result, early);
                }
                Err(_) if timeout == HUNG => world.log.hung(id),
                _ => {}
            }
        });
    }

    fn effect(
        &self,
        hapax: &Hapax,
        kind: Kind,
        payload: u8,
        wait: Duration,
        cannot_tell: bool,
    ) -> hapax::EffectBuilder {
        let effect = hapax.effect(kind.key()).payload(&[payload]).safety(kind.safety()).wait(wait);
        let targets = self.targets.clone();
        let effect = effect.reconcile(move |lookup| {
            let targets = targets.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                match targets.look(kind, lookup.fence) {
                    _ if cannot_tell => Finding::CannotTell("503".into()),
                    Some(by) => Finding::Happened(outcome(by)),
                    None => Finding::NotFound,
                }
            }
        });
        let effect =
            if kind.is_locked() { effect.lock(&["one"]).on_lock(OnLock::Wait) } else { effect };
        // Kept for a year, which a clock that is ten years ahead must not end.
        if kind == Kind::Opaque { effect.ttl(YEAR) } else { effect }
    }

    /// An operator resets the effect, if it has succeeded.
    async fn reset(&self, hapax: Hapax, kind: Kind) {
        let Ok(Some(effect)) = hapax.effects().show(kind.key()).await else { return };
        if !matches!(effect.state, State::Succeeded(_)) {
            return;
        }
        let id = self.log.begin_reset(kind);
        match hapax.effects().reset(kind.key(), effect.seen(), "operator", "again").await {
            Ok(Judged::Decided(_)) => self.log.end_reset(id),
            Ok(_) => self.log.void(id),
            Err(_) => {}
        }
    }
}

enum PlannedEvent {
    Call,
    Reset,
    Crash,
    Pause,
    Stall,
    ClockStep,
}

/// How the work of a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkEnding {
    Well,
    NotDone,
    LostBefore,
    LostAfter,
    Panics,
    Hangs,
}

/// The outcome of a call's work is its number, which names the author.
fn outcome(by: u64) -> Outcome {
    Outcome::new(by.to_be_bytes().to_vec())
}

fn author(outcome: &Outcome) -> Option<u64> {
    Some(u64::from_be_bytes(outcome.body()?.try_into().ok()?))
}

struct Work {
    kind: Kind,
    id: u64,
    ending: WorkEnding,
    work: [Duration; 2],
    switch: Arc<Switch>,
    world: Arc<World>,
}

impl Work {
    async fn perform(self, claim: hapax::Claim) -> Result<Outcome, Failure> {
        let Self { kind, id, ending, work: [before, after], switch, world } = self;
        world.log.offer(id);
        tokio::time::sleep(before).await;
        switch.moving().await;
        match ending {
            WorkEnding::NotDone => return Err(Failure::not_done("refused")),
            WorkEnding::LostBefore => return Err(Failure::ambiguous("timeout")),
            _ => {}
        }
        let by = world.targets.execute(kind, id, claim.fence());
        let by = by.ok_or_else(|| Failure::not_done("the target refused it"))?;
        tokio::time::sleep(after).await;
        switch.moving().await;
        match ending {
            WorkEnding::LostAfter => Err(Failure::ambiguous("timeout")),
            WorkEnding::Panics => std::panic::panic_any(Expected),
            WorkEnding::Hangs => std::future::pending().await,
            _ => Ok(outcome(by)),
        }
    }
}

/// The payload of the panics that handlers are meant to raise.
struct Expected;

fn silence_expected_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.payload().is::<Expected>() {
                usual(panic);
            }
        }));
    });
}

/// A call at work, counted as long as this value lives.
struct AtWork<'a>(&'a AtomicU64);

impl<'a> AtWork<'a> {
    fn enter(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Call {
    /// The certain answer in a result, if there is one.
    fn reply_in(result: &Result<hapax::Done, Error>) -> Option<Reply> {
        Some(match result {
            Ok(done) => author(&done.outcome).map_or(Reply::Nothing, Reply::Outcome),
            Err(_) => return None,
        })
    }

    fn request(&self) -> Request {
        match self.reset {
            true => Request::Reset,
            false => Request::Run { payload: self.payload, offer: self.offered.then_some(self.id) },
        }
    }
}
