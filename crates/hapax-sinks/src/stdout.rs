//! Standard output: one line an event, for pipes and for looking.

use std::io::Write as _;

use hapax::outbox::{Heals, Letter, Sink, Told};

use crate::envelope;

/// Prints each event as a line of JSON.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stdout;

impl Sink for Stdout {
    async fn send(&self, letters: &[Letter], told: &Told) {
        let mut out = std::io::stdout().lock();
        for (nth, letter) in letters.iter().enumerate() {
            if let Err(error) = writeln!(out, "{}", envelope::text(&letter.record)) {
                told.refused(nth, format!("standard output: {error}"), Heals::SinkDown);
                return;
            }
            told.delivered(nth);
        }
        let _ = out.flush();
    }
}
