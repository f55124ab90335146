//! Identical requests in one process share one execution.
//!
//! The first caller leads; the rest follow. When a leader is dropped or panics, it has no result,
//! and its followers elect another.

use std::sync::{Arc, Mutex};

use hapax_core::fingerprint::Fingerprint;
use hapax_core::name::Name;
use tokio::sync::watch;

use crate::cache::{AskedAt, Cache};
use crate::effect::Done;
use crate::election::{Board, Role};
use crate::error::Error;

type FlightResult = Option<Result<Done, Error>>;

/// A flight, and the state of the cache when it began.
type OpenFlight = (AskedAt, watch::Receiver<FlightResult>);

#[derive(Default)]
pub(crate) struct Flights {
    board: Mutex<Board<OpenFlight>>,
}

/// The role of a caller.
pub(crate) enum Seat {
    /// No other caller in this process is doing it: do it, and tell the followers.
    Leader(Leader),
    /// Another caller is doing it.
    Follower(watch::Receiver<FlightResult>),
    /// The flight is for another payload, or began before a reset; only the store can judge.
    Stranger,
}

pub(crate) struct Leader {
    flights: Arc<Flights>,
    name: Name,
    landing: watch::Sender<FlightResult>,
}

impl Flights {
    /// A caller that comes after a reset does not follow a flight that began before it, which may
    /// bring the outcome that was reset. No caller follows while this process may have missed a reset.
    pub(crate) fn board(
        self: &Arc<Self>,
        name: &Name,
        fingerprint: Fingerprint,
        cache: &Cache,
    ) -> Seat {
        let (asked, in_doubt) = (cache.asked(), cache.is_in_doubt());
        let mut landing = None;
        let place = self.lock().come(name, fingerprint, || {
            let (sender, receiver) = watch::channel(None);
            landing = Some(sender);
            (asked, receiver)
        });
        match (place, landing) {
            (Role::Follow((left, landing)), _) if left.is_as_good_as(asked) && !in_doubt => {
                Seat::Follower(landing)
            }
            (Role::Lead, Some(landing)) => {
                Seat::Leader(Leader { flights: self.clone(), name: name.clone(), landing })
            }
            _ => Seat::Stranger,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Board<OpenFlight>> {
        self.board.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Leader {
    /// Tells the followers.
    pub(crate) fn land(self, result: &Result<Done, Error>) {
        let followed = self.landing.receiver_count() > 1;
        if followed {
            self.landing.send_replace(Some(result.clone()));
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.flights.lock().leave(&self.name);
    }
}

/// The leader's result; `None` if it ended without one.
pub(crate) async fn follow(mut landing: watch::Receiver<FlightResult>) -> FlightResult {
    let landed = landing.wait_for(Option::is_some).await;
    landed.ok().and_then(|result| result.clone())
}
