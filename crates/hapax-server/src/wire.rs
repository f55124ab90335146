//! The JSON documents of the API. The command line prints the same documents.

mod control;
mod effect;
mod epoch;
mod extraction;
mod items;
mod journal;
mod lease;
mod outbox;
mod pipeline;
mod workflow;

pub(crate) use control::pauses_ms;
pub use control::{Computation, ControlClaim, ControlReceive, ControlVerdict};
pub use effect::{
    Claim, Decision, Effect, Judged, Liveness, LookResult, Looked, Outcome, ReportName, Reset,
    Resolve, Safety, Settle, Settled, Step, Undo, Undone, Verdict,
};
pub use epoch::{Advance, Current, Epoch, Transition};
pub(crate) use extraction::{
    CacheStats, ExtractionRequest, ExtractionResult, KeyExplained, OntologyChange, OntologyInfo,
    OntologyList, OntologyShown, Removed,
};
pub use items::{
    Act, Acted, ActionName, Escalation, HeldRepair, Item, ItemFailure, ItemShown, ItemStateName,
    Mutation, Reprocess, UnknownMutation,
};
pub use journal::{Checkpoint, Entry, Leaf, Proof, Verification};
pub use lease::{Lease, OpenLease};
pub use outbox::{
    Artifact, DeliveryStatus, Event, Record, Redrive, Redriven, Sink, event, last_error,
};

pub(crate) use pipeline::documents;
pub use pipeline::{
    Dataset, Decide, Escalate, Escalated, LockPolicy, OperationClaim, OperationSettle,
    OperationVerdict, Product, Retries, Review, Slo, Source, Sovereignty,
};
pub use workflow::{
    BeginRun, Publish, Published, Repair, Run, RunSummary, ScriptVersion, Tool, ToolOperation,
    Workflow, WorkflowShown,
};

use std::time::{Duration, UNIX_EPOCH};

use hapax::key::ParseError;
use hapax::{Key, Timestamp};

/// The last millisecond of the year 9999, the end of the text format.
const END_OF_9999: i64 = 253_402_300_799_999;

/// A time as text, to the millisecond.
pub fn time(at: Timestamp) -> String {
    let since = Duration::from_millis(at.0.clamp(0, END_OF_9999).unsigned_abs());
    humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string()
}

/// The key that a text stands for: a printed key (`sha256:…`), or the name that a client chose.
pub fn key(text: &str) -> Result<Key, String> {
    if text.trim().is_empty() {
        return Err("it is blank".into());
    }
    match text.starts_with("sha256:") {
        true => text.parse().map_err(|error: ParseError| error.to_string()),
        false => {
            Key::derive("run.v1", &[("name", text.as_bytes())]).map_err(|error| error.to_string())
        }
    }
}

/// The text as a label, unless it is a printed key or longer than 256 bytes.
pub fn label(text: &str) -> Option<String> {
    let fits = !text.starts_with("sha256:") && text.len() <= 256;
    fits.then(|| text.to_owned())
}
