//! Subscribers in this process.

use std::sync::{Arc, Mutex};

use hapax::outbox::{Heals, Letter, Record, Sink, Told};
use tokio::sync::mpsc;

/// How many events a subscriber may be behind.
const BEHIND: usize = 1_024;

/// Hands each event to every subscriber of this process, in order.
///
/// An event counts as delivered once every subscriber's queue has it; a subscriber that is far
/// behind holds up the bus, not its memory. Without subscribers events wait.
#[derive(Debug, Clone, Default)]
pub struct Bus {
    subscribers: Arc<Mutex<Vec<mpsc::Sender<Arc<Record>>>>>,
}

impl Bus {
    /// A bus without subscribers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything that is delivered from now on. Dropping it unsubscribes.
    pub fn subscribe(&self) -> mpsc::Receiver<Arc<Record>> {
        let (sender, receiver) = mpsc::channel(BEHIND);
        self.lock().push(sender);
        receiver
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<mpsc::Sender<Arc<Record>>>> {
        self.subscribers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Those who still listen.
    fn listening(&self) -> Vec<mpsc::Sender<Arc<Record>>> {
        let mut subscribers = self.lock();
        subscribers.retain(|subscriber| !subscriber.is_closed());
        subscribers.clone()
    }
}

impl Sink for Bus {
    async fn send(&self, letters: &[Letter], told: &Told) {
        let subscribers = self.listening();
        if subscribers.is_empty() {
            return told.refused(0, "nobody has subscribed", Heals::SinkDown);
        }
        for (nth, letter) in letters.iter().enumerate() {
            for subscriber in &subscribers {
                // One that has left does not count.
                let _ = subscriber.send(letter.record.clone()).await;
            }
            told.delivered(nth);
        }
    }
}
