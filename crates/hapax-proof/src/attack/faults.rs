//! The faults of an attack, one after the other.

use std::time::{Duration, Instant};

use hapax_testkit::Postgres;
use rand::Rng as _;
use rand::rngs::SmallRng;
use rustix::process::Signal;

use super::client::LEASE_MS;
use super::service::Services;
use super::{Attack, Kind, LEASE, signal};
use crate::relay::Relay;
use crate::report::Report;

const KILLED: &str = "callers killed at work";
const STOPPED: &str = "callers stopped for longer than their lease";
const SERVERS_KILLED: &str = "servers killed";
const SERVERS_STOPPED: &str = "servers stopped";
const FROZEN: &str = "times that connections were frozen for longer than a lease";
const CUT: &str = "sessions of PostgreSQL ended";
const RESTARTED: &str = "times that PostgreSQL was killed and restarted";

/// How often each fault must have met work, or the attack means nothing.
pub(super) fn least(postgres: bool, seconds: u64) -> Vec<(&'static str, u64)> {
    let mut least = vec![
        (KILLED, seconds / 2),
        (STOPPED, seconds / 10),
        (SERVERS_KILLED, seconds / 20),
        (SERVERS_STOPPED, seconds / 40),
    ];
    if postgres {
        least.extend([(FROZEN, seconds / 40), (CUT, seconds / 20), (RESTARTED, seconds / 60)]);
    }
    least
}

/// A stopped caller, server or relay, and when it goes on.
enum Pause {
    Caller(u32, Instant),
    Server(usize, Instant),
    Relay(Instant),
}

impl Pause {
    fn until(&self) -> Instant {
        match self {
            Self::Caller(_, until) | Self::Server(_, until) | Self::Relay(until) => *until,
        }
    }
}

/// Injects faults until the attack is over; at the end, everything that is stopped goes on.
pub(super) fn strike(
    attack: &Attack,
    services: &mut Services<'_>,
    mut server: Option<&mut Postgres>,
    relay: Option<&Relay>,
    mut dice: SmallRng,
    until: Instant,
    report: &mut Report,
) {
    let mut pauses: Vec<Pause> = Vec::new();
    for nth in 0..3 {
        report.expect(services.is_up(nth), || {
            format!("one of the {} does not start", Services::name(nth))
        });
    }
    let mut restarted = Instant::now();
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(dice.random_range(20..300)));
        end_pauses(attack, services, relay, &mut pauses, Instant::now());
        report.count("servers that ended by themselves, and were started again", services.revive());
        let pause = |lease: Duration, dice: &mut SmallRng| {
            Instant::now() + lease * dice.random_range(150..300) / 100
        };
        match dice.random_range(0..100) {
            0..=54 => {
                let killed = victim(attack, &mut dice, |_| true, Signal::KILL);
                report.count(KILLED, u64::from(killed.is_some()));
            }
            55..=74 => {
                if let Some((pid, kind)) =
                    victim(attack, &mut dice, Kind::may_be_stopped, Signal::STOP)
                {
                    let lease = if kind.is_run() { LEASE } else { Duration::from_millis(LEASE_MS) };
                    pauses.push(Pause::Caller(pid, pause(lease, &mut dice)));
                    report.count(STOPPED, 1);
                }
            }
            75..=81 => {
                let nth = dice.random_range(0..3);
                pauses
                    .retain(|pause| !matches!(pause, Pause::Server(stopped, _) if *stopped == nth));
                services.restart(nth);
                report.count(SERVERS_KILLED, 1);
            }
            82..=86 => {
                let nth = dice.random_range(0..3);
                services.stop(nth, true);
                pauses.push(Pause::Server(nth, pause(LEASE, &mut dice)));
                report.count(SERVERS_STOPPED, 1);
            }
            87..=92 => {
                if let Some(relay) = relay
                    && !pauses.iter().any(|pause| matches!(pause, Pause::Relay(_)))
                {
                    relay.freeze(true);
                    pauses.push(Pause::Relay(pause(LEASE, &mut dice)));
                    report.count(FROZEN, 1);
                }
            }
            _ => {
                let Some(server) = &mut server else { continue };
                if restarted.elapsed() > Duration::from_secs(15) && dice.random_bool(0.5) {
                    server.kill();
                    server.up();
                    restarted = Instant::now();
                    report.count(RESTARTED, 1);
                    continue;
                }
                let ended = server.try_sql(
                    "postgres",
                    "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
                     WHERE datname = 'attack' ORDER BY random() LIMIT 2) s",
                );
                report.count(CUT, ended.ok().and_then(|text| text.parse().ok()).unwrap_or(0));
            }
        }
    }
    let all = pauses.iter().map(Pause::until).max().unwrap_or_else(Instant::now);
    end_pauses(attack, services, relay, &mut pauses, all);
}

/// Sends this signal to a caller at work whose kind fits.
fn victim(
    attack: &Attack,
    dice: &mut SmallRng,
    fits: impl Fn(Kind) -> bool,
    sent: Signal,
) -> Option<(u32, Kind)> {
    let progress = attack.progress();
    let fitting: Vec<(u32, Kind)> = progress
        .live
        .iter()
        .map(|(pid, n)| (*pid, attack.kind(*n)))
        .filter(|(_, kind)| fits(*kind))
        .collect();
    let victim = *fitting.get(dice.random_range(0..fitting.len().max(1)))?;
    signal(victim.0, sent);
    Some(victim)
}

/// Ends the pauses that are over by `now`.
fn end_pauses(
    attack: &Attack,
    services: &Services<'_>,
    relay: Option<&Relay>,
    pauses: &mut Vec<Pause>,
    now: Instant,
) {
    pauses.retain(|pause| {
        if pause.until() > now {
            return true;
        }
        match pause {
            Pause::Caller(pid, _) => {
                let progress = attack.progress();
                if progress.live.contains_key(pid) {
                    signal(*pid, Signal::CONT);
                }
            }
            Pause::Server(nth, _) => services.stop(*nth, false),
            Pause::Relay(_) => relay.into_iter().for_each(|relay| relay.freeze(false)),
        }
        false
    });
}
