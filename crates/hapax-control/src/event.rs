//! One structured event for each decision. Names, keys and epochs; never a payload.

use hapax::Key;

use crate::error::Error;

/// The subject of an event.
#[derive(Clone, Copy)]
pub(crate) struct EventSubject<'a> {
    pub(crate) computation: &'a str,
    pub(crate) epoch: u64,
    pub(crate) key: Option<Key>,
}

macro_rules! log_event {
    ($level:ident, $name:literal, $code:literal, $subject:expr, $text:literal) => {{
        let EventSubject { computation, epoch, key } = $subject;
        let key = key.map(|key| key.to_string()).unwrap_or_default();
        tracing::$level!(name: $name, target: "hapax::control", code = $code, computation, epoch, key, $text);
    }};
}

pub(crate) fn derived(subject: EventSubject<'_>) {
    log_event!(info, "IDP-001", "IDP-001", subject, "idempotency key derived");
}

pub(crate) fn replayed(subject: EventSubject<'_>) {
    log_event!(info, "IDP-002", "IDP-002", subject, "dedup hit: the recorded outcome is returned");
}

pub(crate) fn committed(subject: EventSubject<'_>) {
    log_event!(info, "IDP-005", "IDP-005", subject, "new request committed");
}

/// Logs a refusal, if it is one that has a code.
pub(crate) fn refused(subject: EventSubject<'_>, error: &Error) {
    match error {
        Error::Conflict { .. } => {
            log_event!(
                warn,
                "IDP-003",
                "IDP-003",
                subject,
                "conflict: the key came with another payload"
            );
        }
        Error::Epoch(_) => {
            log_event!(warn, "IDP-004", "IDP-004", subject, "refused: a key of another epoch");
        }
        _ => {}
    }
}
