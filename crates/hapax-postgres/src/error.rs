//! PostgreSQL's errors, sorted by what the caller does next.

use hapax_store::StoreError;
use tokio_postgres::error::SqlState;

/// Why a statement did not take effect, sorted by what this store does next.
#[derive(Debug)]
pub(crate) enum PgFailure {
    /// The connection is gone. A statement in flight may have been committed.
    Lost(String),
    /// Another transaction was in the way for too long, or a row moved on. Nothing was written;
    /// retry this command alone.
    Busy(String),
    /// A retry will fail in the same way. Nothing was written.
    Refused(StoreError),
}

impl PgFailure {
    /// The harness injected this failure of the connection.
    pub(crate) fn lost(error: StoreError) -> Self {
        Self::Lost(error.to_string())
    }

    /// The error that a caller gets when no retry is left.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Lost(text) | Self::Busy(text) => StoreError::Unavailable(text),
            Self::Refused(error) => error,
        }
    }
}

impl From<StoreError> for PgFailure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<tokio_postgres::Error> for PgFailure {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = described(&error);
        let Some(state) = error.code() else {
            return if error.is_closed() || std::error::Error::source(&error).is_some_and(is_io) {
                Self::Lost(text)
            } else {
                // A value that could not be encoded or decoded.
                Self::Refused(StoreError::Corrupt(text))
            };
        };
        match state {
            &SqlState::LOCK_NOT_AVAILABLE
            | &SqlState::T_R_DEADLOCK_DETECTED
            | &SqlState::T_R_SERIALIZATION_FAILURE
            // A statement timeout: no other process cancels our statements.
            | &SqlState::QUERY_CANCELED => Self::Busy(text),
            &SqlState::DISK_FULL => Self::Refused(StoreError::Full(text)),
            &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => {
                Self::Refused(StoreError::Corrupt(text))
            }
            state => match &state.code()[..2] {
                // Connections, shutdowns, a server that is starting or no longer the primary.
                "08" | "57" => Self::Lost(text),
                // Resources, read-only, invalid transaction state.
                "53" | "25" | "58" => Self::Lost(text),
                // Raised by our own functions and triggers.
                "HX" if state.code() == "HX106" => Self::Refused(StoreError::Invalid(text)),
                "HX" => Self::Refused(StoreError::Corrupt(text)),
                "22" | "23" => Self::Refused(StoreError::Invalid(text)),
                "28" | "3D" | "42" | "3F" => Self::Refused(StoreError::Incompatible(text)),
                "XX" => Self::Refused(StoreError::Corrupt(text)),
                _ => Self::Refused(StoreError::Unavailable(text)),
            },
        }
    }
}

/// The value that a stored code stands for. A code without a value is corruption.
pub(crate) fn decoded<T>(
    code: i16,
    what: &str,
    value: impl FnOnce(u8) -> Option<T>,
) -> Result<T, StoreError> {
    let value = u8::try_from(code).ok().and_then(value);
    value.ok_or_else(|| StoreError::Corrupt(format!("{code} is not the code of a {what}")))
}

fn is_io(source: &(dyn std::error::Error + 'static)) -> bool {
    source.downcast_ref::<std::io::Error>().is_some()
}

/// The message with its cause: the driver itself says only "db error".
pub(crate) fn described(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(db), _) => format!("{} ({})", db.message(), db.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
