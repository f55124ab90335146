//! All experiments, how often each is tried, and which of them catch each planted bug.

use hapax_core::planted::Bug;
use hapax_testkit::Postgres;

use crate::field::Field;
use crate::report::Report;
use crate::{
    attack, constructed, crowd, cut_off, disk, failpoints, fuzz, lineage, model, network,
    operations, outbox, overlap, processes, sealing, simulation,
};

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// The tier of every change: a few minutes.
    Quick,
    /// The published tier.
    Full,
    /// As much as it takes to catch a planted bug.
    Bug,
}

macro_rules! experiments {
    ($($(#[$doc:meta])* $experiment:ident = $name:literal,)*) => {
        /// One experiment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Experiment {
            $($(#[$doc])* $experiment,)*
        }

        impl Experiment {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$experiment,)*];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$experiment => $name,)*
                }
            }
        }
    };
}

experiments! {
    /// The protocol, walked through exhaustively.
    Model = "model",
    /// The election of leaders, walked through exhaustively.
    Flights = "flights",
    /// The engine in virtual time.
    Simulation = "simulation",
    /// The engine in virtual time, each call to the store failing once.
    EachCall = "each-call",
    /// Many callers for one key.
    Crowd = "crowd",
    /// Fields, JSON, entries and proofs, mangled.
    Fuzzing = "fuzzing",
    /// Each step failing, on SQLite.
    FailpointsFile = "failpoints-file",
    /// Each step failing, on PostgreSQL.
    FailpointsPostgres = "failpoints-postgres",
    /// Several sealers on one file.
    SealingFile = "sealing-file",
    /// Several sealers in one database, with entries out of order.
    SealingPostgres = "sealing-postgres",
    /// kill -9, on SQLite.
    KillsFile = "kills-file",
    /// kill -9, on PostgreSQL.
    KillsPostgres = "kills-postgres",
    /// kill -9 of writers and dispatchers, on SQLite.
    OutboxFile = "outbox-file",
    /// kill -9 of writers and dispatchers, on PostgreSQL.
    OutboxPostgres = "outbox-postgres",
    /// kill -9 around the claim and the settle of operations, on SQLite.
    OperationsFile = "operations-file",
    /// kill -9 around the claim and the settle of operations, on PostgreSQL.
    OperationsPostgres = "operations-postgres",
    /// kill -9 of projectors, on SQLite.
    LineageFile = "lineage-file",
    /// kill -9 of projectors, on PostgreSQL.
    LineagePostgres = "lineage-postgres",
    /// Many operations at once, on SQLite.
    OverlapFile = "overlap-file",
    /// Many operations at once, on PostgreSQL.
    OverlapPostgres = "overlap-postgres",
    /// SIGSTOP, on SQLite.
    StopsFile = "stops-file",
    /// SIGSTOP, on PostgreSQL.
    StopsPostgres = "stops-postgres",
    /// Power cuts, on SQLite.
    PowerFile = "power-file",
    /// Power cuts, on PostgreSQL.
    PowerPostgres = "power-postgres",
    /// fdatasync that fails.
    Syncs = "syncs",
    /// Full disks.
    FullDisks = "full-disks",
    /// Replies to commits that are lost.
    CommitCuts = "commit-cuts",
    /// Sessions that are ended behind a pooler.
    Sessions = "sessions",
    /// PostgreSQL servers that are killed.
    Servers = "servers",
    /// Primaries that are killed.
    Failovers = "failovers",
    /// Older copies of a file, restored while it is in use.
    Restores = "restores",
    /// Holders that settle without knowing that they were overtaken, on SQLite.
    OvertakenFile = "overtaken-file",
    /// Holders that settle without knowing that they were overtaken, on PostgreSQL.
    OvertakenPostgres = "overtaken-postgres",
    /// Resets of effects that were shown as running.
    UnseenResets = "unseen-resets",
    /// Reloads that turn durability settings off.
    Reloads = "reloads",
    /// Commits that outlive their connection.
    Orphans = "orphans",
    /// Holders whose connection is frozen.
    FrozenConnections = "frozen-connections",
    /// Holders whose process is stopped while their program works.
    StoppedRuns = "stopped-runs",
    /// Dead holders with leases of different lengths.
    ShortLeases = "short-leases",
    /// Attempts that are granted twice.
    AttemptsGrantedTwice = "attempts-granted-twice",
    /// Callers from outside, on SQLite.
    AttackFile = "attack-file",
    /// Callers from outside, on PostgreSQL.
    AttackPostgres = "attack-postgres",
}

/// The lease of workers that are stopped for longer, in milliseconds.
const BRIEF_LEASE_MS: u64 = 400;

impl Experiment {
    /// Its title in the report.
    pub fn title(self) -> &'static str {
        match self {
            Self::Model => "Model: claim, lease, fence, takeover, settle, reconcile; every order",
            Self::Flights => "Model: the election of a flight's leader; every order",
            Self::Simulation => "Simulation: the engine in virtual time, everything going wrong",
            Self::EachCall => {
                "Simulation: each call to the store fails, before and after it takes effect"
            }
            Self::Crowd => "64 callers at once for each key, one with another payload",
            Self::Fuzzing => "Fuzzing: keys, canonical JSON, journal entries, proofs",
            Self::FailpointsFile => "Failpoints, SQLite: abort, error, stall past the lease",
            Self::FailpointsPostgres => {
                "Failpoints, PostgreSQL: abort, error, stall past the lease"
            }
            Self::SealingFile => "Several sealers, SQLite",
            Self::SealingPostgres => "Several sealers and entries out of order, PostgreSQL",
            Self::KillsFile => "kill -9 under load, SQLite",
            Self::KillsPostgres => "kill -9 under load, PostgreSQL",
            Self::OutboxFile => "Outbox: writers and dispatchers killed, SQLite",
            Self::OutboxPostgres => "Outbox: writers and dispatchers killed, PostgreSQL",
            Self::OperationsFile => "Operations killed around claim and settle, SQLite",
            Self::OperationsPostgres => "Operations killed around claim and settle, PostgreSQL",
            Self::LineageFile => "Lineage: killed at every step of telling it, SQLite",
            Self::LineagePostgres => "Lineage: killed at every step of telling it, PostgreSQL",
            Self::OverlapFile => "100 operations at once in four processes, SQLite",
            Self::OverlapPostgres => "100 operations at once in four processes, PostgreSQL",
            Self::StopsFile => "SIGSTOP for 1.5 to 3 leases, SQLite",
            Self::StopsPostgres => "SIGSTOP for 1.5 to 3 leases, PostgreSQL",
            Self::PowerFile => "Power cuts, SQLite (ext4 shut down without flushing its log)",
            Self::PowerPostgres => {
                "Power cuts, PostgreSQL (ext4 shut down without flushing its log)"
            }
            Self::Syncs => "The nth fdatasync fails, and all after it",
            Self::FullDisks => "Full disks",
            Self::CommitCuts => "COMMIT carried out, reply and connection lost",
            Self::Sessions => "Sessions ended behind PgBouncer in transaction mode",
            Self::Servers => "PostgreSQL killed or stopped under load",
            Self::Failovers => "Failover: Patroni, synchronous, primary killed under load",
            Self::Restores => "An older copy restored over a file that two processes use",
            Self::OvertakenFile => {
                "A settle of a holder that was overtaken without knowing, SQLite"
            }
            Self::OvertakenPostgres => {
                "A settle of a holder that was overtaken without knowing, PostgreSQL"
            }
            Self::UnseenResets => "A reset of what was shown as running",
            Self::Reloads => "synchronous_commit turned off by a reload",
            Self::Orphans => "A commit that waits for a standby and outlives its caller",
            Self::FrozenConnections => {
                "A holder's connection frozen while its program works, PostgreSQL"
            }
            Self::StoppedRuns => "`hapax run` stopped while its program works, SQLite",
            Self::ShortLeases => "A dead holder with a very short lease, PostgreSQL",
            Self::AttemptsGrantedTwice => "One attempt of a client, granted twice",
            Self::AttackFile => "Attack from outside, SQLite: callers, servers, an operator",
            Self::AttackPostgres => {
                "Attack from outside, PostgreSQL: callers, servers, an operator"
            }
        }
    }

    /// How often it is tried: in the quick tier, in the full one, for a planted bug. `None` if the
    /// tier leaves it out.
    fn times(self, tier: Tier) -> Option<u64> {
        let (quick, full, bug) = match self {
            Self::Model | Self::Flights => (1, 1, 1),
            Self::Simulation => (2_000, 100_000, 4_000),
            Self::EachCall => (1, 20, 1),
            Self::Crowd => (200, 10_000, 100),
            Self::Fuzzing => (20_000, 1_000_000, 2_000),
            Self::FailpointsFile => (2, 50, 24),
            Self::FailpointsPostgres => (2, 12, 1),
            Self::SealingFile => (60, 1_000, 200),
            Self::SealingPostgres => (100, 1_000, 300),
            Self::KillsFile => (100, 1_000, 100),
            Self::KillsPostgres => (30, 1_000, 100),
            Self::OutboxFile => (16, 400, 16),
            Self::OutboxPostgres => (16, 200, 40),
            Self::OperationsFile => (1, 20, 1),
            Self::OperationsPostgres => (1, 10, 1),
            Self::LineageFile => (1, 10, 1),
            Self::LineagePostgres => (1, 5, 1),
            Self::OverlapFile | Self::OverlapPostgres => (1, 20, 1),
            Self::StopsFile => (6, 160, 20),
            Self::StopsPostgres => (0, 160, 20),
            Self::PowerFile => (20, 300, 20),
            Self::PowerPostgres => (0, 30, 3),
            Self::Syncs => (12, 60, 4),
            Self::FullDisks => (1, 20, 1),
            Self::CommitCuts => (100, 1_000, 200),
            Self::Sessions => (20, 500, 50),
            Self::Servers => (2, 40, 2),
            Self::Failovers => (0, 10, 0),
            Self::Restores => (2, 50, 2),
            Self::OvertakenFile | Self::OvertakenPostgres => (2, 50, 2),
            Self::UnseenResets => (2, 50, 2),
            Self::Reloads => (1, 10, 1),
            Self::Orphans => (0, 3, 1),
            Self::FrozenConnections | Self::StoppedRuns => (1, 10, 1),
            Self::ShortLeases => (1, 5, 1),
            Self::AttemptsGrantedTwice => (1, 10, 1),
            // Seconds.
            Self::AttackFile => (20, 900, 30),
            Self::AttackPostgres => (20, 1_200, 40),
        };
        let times = match tier {
            Tier::Quick => quick,
            Tier::Full => full,
            Tier::Bug => bug,
        };
        (times > 0).then_some(times)
    }

    /// Whether it attacks the program from outside.
    pub fn is_attack(self) -> bool {
        matches!(self, Self::AttackFile | Self::AttackPostgres)
    }

    /// Whether this tier tries it.
    pub fn is_in(self, tier: Tier) -> bool {
        self.times(tier).is_some()
    }

    /// Runs it. Workers have the bug, if there is one.
    pub fn run(self, tier: Tier, seed: u64, bug: Option<&str>) -> Report {
        let mut report = Report::new(self.title());
        let Some(times) = self.times(tier) else { return report };
        let server = Postgres::start;
        let with = |mut field: Field, lease_ms: u64| {
            (field.lease_ms, field.bug) = (lease_ms, bug.map(str::to_owned));
            field
        };
        let file = |lease_ms: u64| with(Field::in_file(), lease_ms);
        let database =
            |server: &Postgres, lease_ms: u64| with(Field::at(server.database("proof")), lease_ms);
        let found = &mut report;
        match self {
            Self::Model => {
                for (name, protocol) in model::protocols(tier == Tier::Full) {
                    model::check(&name, protocol, found);
                }
            }
            Self::Flights => {
                let callers = if tier == Tier::Full { 7 } else { 5 };
                model::check_flight(model::Flight { callers, deaths: 2 }, found);
            }
            Self::Simulation if tier == Tier::Bug => simulation::search(seed..seed + times, found),
            Self::Simulation => simulation::simulate(seed..seed + times, found),
            Self::EachCall => {
                let step = if tier == Tier::Full { 1 } else { 16 };
                simulation::enumerate(seed..seed + times, step, found);
            }
            Self::Crowd => crowd::crowd(times, found),
            Self::Fuzzing => {
                fuzz::key_fields(times, seed, found);
                fuzz::canonical_json(times, seed, found);
                fuzz::journal_entries(times, seed, found);
                fuzz::proofs(times / 200, seed, found);
            }
            Self::FailpointsFile => failpoints::failpoints(None, times, bug, found),
            Self::FailpointsPostgres => failpoints::failpoints(Some(&server()), times, bug, found),
            Self::SealingFile => sealing::sealing(None, times, seed, found),
            Self::SealingPostgres => sealing::sealing(Some(&server()), times, seed, found),
            Self::KillsFile => processes::kills(&file(1_000), times, seed, found),
            Self::KillsPostgres => {
                let server = server();
                processes::kills(&database(&server, 1_000), times, seed, found);
            }
            Self::OutboxFile => outbox::outbox(None, times, seed, bug, found),
            Self::OutboxPostgres => outbox::outbox(Some(&server()), times, seed, bug, found),
            Self::OperationsFile => operations::operations(None, times, bug, found),
            Self::OperationsPostgres => {
                operations::operations(Some(&server()), times, bug, found);
            }
            Self::LineageFile => lineage::lineage(None, times, found),
            Self::LineagePostgres => lineage::lineage(Some(&server()), times, found),
            Self::OverlapFile => overlap::overlap(None, times, found),
            Self::OverlapPostgres => overlap::overlap(Some(&server()), times, found),
            Self::StopsFile => processes::stops(&file(BRIEF_LEASE_MS), times, seed, found),
            Self::StopsPostgres => {
                let server = server();
                processes::stops(&database(&server, BRIEF_LEASE_MS), times, seed, found);
            }
            Self::PowerFile => disk::power_cuts(times, seed, bug, found),
            Self::PowerPostgres => disk::postgres_power_cuts(times, seed, found),
            Self::Syncs => disk::failing_syncs(times, found),
            Self::FullDisks => disk::full_disks(times, found),
            Self::CommitCuts => network::commit_cuts(times, bug, found),
            Self::Sessions => network::ended_sessions(times, found),
            Self::Servers => network::server_kills(times, found),
            Self::Failovers => network::failovers(times, found),
            Self::Restores => constructed::restores(times, found),
            Self::OvertakenFile => constructed::overtaken(None, times, found),
            Self::OvertakenPostgres => constructed::overtaken(Some(&server()), times, found),
            Self::UnseenResets => constructed::unseen_resets(times, found),
            Self::Reloads => constructed::reloads(times, found),
            Self::Orphans => constructed::orphans(times, found),
            Self::FrozenConnections => cut_off::frozen_connections(times, bug, found),
            Self::StoppedRuns => cut_off::stopped_runs(times, bug, found),
            Self::ShortLeases => cut_off::short_leases(times, bug, found),
            Self::AttemptsGrantedTwice => cut_off::attempts_granted_twice(times, bug, found),
            Self::AttackFile => attack::attack(None, times, seed, bug, found),
            Self::AttackPostgres => attack::attack(Some(server()), times, seed, bug, found),
        }
        report
    }
}

/// The experiments that catch a planted bug, each by itself.
pub fn catches(bug: Bug) -> &'static [Experiment] {
    match bug {
        Bug::HolderWorksOn => &[Experiment::Model, Experiment::FrozenConnections],
        Bug::WatchdogWaits => &[Experiment::StoppedRuns],
        Bug::ShortestTermForAll => &[Experiment::ShortLeases],
        Bug::FenceUnnamed => &[Experiment::Model, Experiment::AttemptsGrantedTwice],
        Bug::OpaqueAgain => &[Experiment::Model, Experiment::AttackFile],
        Bug::RepeatedSettleCommits
        | Bug::DeadLeaseRenewed
        | Bug::NoAtOnce
        | Bug::LockWithoutExpiry => &[Experiment::Model],
        Bug::LeaderStays => &[Experiment::Flights],
        Bug::StaleSettle
        | Bug::ReplayBeforeConflict
        | Bug::StallKills
        | Bug::Unjournalled
        | Bug::FailOpen
        | Bug::SettleBeforeRun
        | Bug::AmbiguousIsFailure
        | Bug::RememberBeforeSettle
        | Bug::ResetUnawaited => &[Experiment::Simulation],
        Bug::StaleRows => &[Experiment::OvertakenFile],
        Bug::ColonJoin | Bug::RootUnchecked => &[Experiment::Fuzzing],
        Bug::KeysUnguarded | Bug::AnchorUnchecked => &[Experiment::Restores],
        Bug::UnseenReset => &[Experiment::UnseenResets],
        Bug::CommitFollowsReload => &[Experiment::Reloads],
        Bug::OrphanKept => &[Experiment::Orphans],
        Bug::AnswerBeforeCommit | Bug::HalfCommand => &[Experiment::FailpointsFile],
        Bug::PanicEscapes => &[Experiment::FailpointsFile, Experiment::FailpointsPostgres],
        Bug::IdCursor => &[Experiment::SealingPostgres],
        Bug::SyncNormal => &[Experiment::PowerFile],
        Bug::QuickUnconditional => &[Experiment::OvertakenPostgres],
        Bug::LostCommitIsDone => &[Experiment::CommitCuts],
        Bug::PassedOver | Bug::MarkedBeforeSent => &[Experiment::OutboxPostgres],
    }
}
