//! Identical requests in one process share one execution.
//!
//! The first to come leads; the rest follow. When a leader ends without a result, because it
//! was dropped or panicked, its followers elect another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hapax_core::fingerprint::Fingerprint;
use hapax_core::name::Name;
use tokio::sync::watch;

use crate::effect::Done;
use crate::error::Error;

type Landing = Option<Result<Done, Error>>;

#[derive(Default)]
pub(crate) struct Flights {
    aloft: Mutex<HashMap<Name, (Fingerprint, watch::Receiver<Landing>)>>,
}

/// What a caller finds when it comes.
pub(crate) enum Seat {
    /// Nobody is doing it here: do it, and tell the others.
    Leader(Leader),
    /// Somebody is.
    Follower(watch::Receiver<Landing>),
    /// Somebody is doing something else under this key; only the store can judge.
    Stranger,
}

pub(crate) struct Leader {
    flights: Arc<Flights>,
    name: Name,
    landing: watch::Sender<Landing>,
}

impl Flights {
    pub(crate) fn board(self: &Arc<Self>, name: &Name, fingerprint: Fingerprint) -> Seat {
        let mut aloft = self.lock();
        match aloft.get(name) {
            Some((known, landing)) if *known == fingerprint => Seat::Follower(landing.clone()),
            Some(_) => Seat::Stranger,
            None => {
                let (landing, receiver) = watch::channel(None);
                aloft.insert(name.clone(), (fingerprint, receiver));
                Seat::Leader(Leader { flights: self.clone(), name: name.clone(), landing })
            }
        }
    }

    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<Name, (Fingerprint, watch::Receiver<Landing>)>> {
        self.aloft.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        self.flights.lock().remove(&self.name);
    }
}

/// What the leader brought; `None` if it ended without a result.
pub(crate) async fn follow(mut landing: watch::Receiver<Landing>) -> Landing {
    let landed = landing.wait_for(Option::is_some).await;
    landed.ok().and_then(|result| result.clone())
}
