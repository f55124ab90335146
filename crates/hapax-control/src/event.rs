//! One structured event for each decision. Names, keys and epochs; never a payload.

use hapax::Key;

use crate::error::Error;

/// The subject of an event.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) computation: &'a str,
    pub(crate) epoch: u64,
    pub(crate) key: Option<Key>,
}

macro_rules! log_event {
    ($level:ident, $name:literal, $code:literal, $about:expr, $text:literal) => {{
        let About { computation, epoch, key } = $about;
        let key = key.map(|key| key.to_string()).unwrap_or_default();
        tracing::$level!(name: $name, target: "hapax::control", code = $code, computation, epoch, key, $text);
    }};
}

pub(crate) fn derived(about: About<'_>) {
    log_event!(debug, "IDP-001", "IDP-001", about, "idempotency key derived");
}

pub(crate) fn replayed(about: About<'_>) {
    log_event!(info, "IDP-002", "IDP-002", about, "dedup hit: the recorded outcome is returned");
}

pub(crate) fn committed(about: About<'_>) {
    log_event!(info, "IDP-005", "IDP-005", about, "new request committed");
}

/// Logs a refusal, if it is one that has a code.
pub(crate) fn refused(about: About<'_>, error: &Error) {
    match error {
        Error::Conflict { .. } => {
            log_event!(
                warn,
                "IDP-003",
                "IDP-003",
                about,
                "conflict: the key came with another payload"
            );
        }
        Error::Epoch(_) => {
            log_event!(warn, "IDP-004", "IDP-004", about, "refused: a key of another epoch");
        }
        _ => {}
    }
}
