//! Events that a program under `hapax run` emits: JSON lines in a file of its own.

use std::io::Read as _;

use hapax::outbox::{Event, Trace};
use hapax_server::wire;
use tempfile::NamedTempFile;

/// The largest file that is read.
const LARGEST: u64 = 16 * 1024 * 1024;

/// Reads the events that the program wrote. An error names its line.
pub(crate) fn read(file: &NamedTempFile) -> Result<Vec<Event>, String> {
    let mut text = String::new();
    let opened = file.reopen().map_err(|error| error.to_string())?;
    opened.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("more than {LARGEST} bytes of events"));
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    // The variable by which programs hand a trace to those they start.
    let trace = std::env::var("TRACEPARENT").ok().and_then(|text| Trace::parse(&text));
    let event = |(nth, line): (usize, &str)| {
        let event = wire::event(line);
        let event = event.map(|event| Event { trace: trace.clone(), ..event });
        event.map_err(|why| format!("line {} of HAPAX_EVENTS: {why}", nth + 1))
    };
    lines.map(event).collect()
}
