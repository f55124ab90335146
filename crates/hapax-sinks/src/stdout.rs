//! Standard output: one line an event, for pipes and for looking.

use std::io::Write as _;

use hapax::outbox::{Acks, Delivery, Retryability, Sink};

use crate::envelope;

/// Prints each event as a line of JSON.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stdout;

impl Sink for Stdout {
    async fn send(&self, letters: &[Delivery], told: &Acks) {
        let mut out = std::io::stdout().lock();
        for (nth, letter) in letters.iter().enumerate() {
            if let Err(error) = writeln!(out, "{}", envelope::text(&letter.record)) {
                told.refused(nth, format!("standard output: {error}"), Retryability::SinkDown);
                return;
            }
            told.delivered(nth);
        }
        let _ = out.flush();
    }
}
