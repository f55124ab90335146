//! Standard output: one line an event, for pipes and for looking.

use std::io::Write as _;

use hapax::outbox::{Acks, Delivery, Retryability, Sink};

use crate::envelope;

/// Prints each event as a line of JSON.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stdout;

impl Sink for Stdout {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        let mut out = std::io::stdout().lock();
        for (nth, delivery) in deliveries.iter().enumerate() {
            if let Err(error) = writeln!(out, "{}", envelope::text(&delivery.record)) {
                acks.refused(nth, format!("standard output: {error}"), Retryability::SinkDown);
                return;
            }
            acks.delivered(nth);
        }
        let _ = out.flush();
    }
}
