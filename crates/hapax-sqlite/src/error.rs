//! SQLite's errors, sorted by what the caller does next.

use hapax_store::StoreError;
use rusqlite::types::Type;
use rusqlite::{ErrorCode, Row, ffi};

/// Maps the error of a statement or a commit.
pub(crate) fn store_error(error: rusqlite::Error) -> StoreError {
    let text = error.to_string();
    let Some(sqlite) = error.sqlite_error() else { return StoreError::Corrupt(text) };
    match sqlite.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Unavailable(text),
        ErrorCode::DiskFull => StoreError::Full(text),
        ErrorCode::SystemIoFailure => io_failure(sqlite.extended_code, text),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt(text),
        ErrorCode::ConstraintViolation => StoreError::Invalid(text),
        ErrorCode::TooBig => StoreError::Invalid(text),
        ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
            StoreError::Unavailable(text)
        }
        _ => StoreError::Unavailable(text),
    }
}

/// A failed read can be retried. A failed write or sync may have lost data that the system had
/// acknowledged, so nothing after it can be trusted.
fn io_failure(extended: i32, text: String) -> StoreError {
    match extended {
        ffi::SQLITE_IOERR_FSYNC
        | ffi::SQLITE_IOERR_DIR_FSYNC
        | ffi::SQLITE_IOERR_WRITE
        | ffi::SQLITE_IOERR_TRUNCATE
        | ffi::SQLITE_IOERR_CLOSE => StoreError::Stopped(format!("its disk failed: {text}")),
        // The index of the write-ahead log is a file too, and grows first.
        ffi::SQLITE_IOERR_SHMSIZE => StoreError::Full(text),
        _ => StoreError::Unavailable(text),
    }
}

/// The value that the code in this column stands for. A code without a value is corruption.
pub(crate) fn decoded<T>(
    row: &Row<'_>,
    at: usize,
    what: &str,
    value: impl FnOnce(u8) -> Option<T>,
) -> rusqlite::Result<T> {
    let code = row.get(at)?;
    value(code).ok_or_else(|| {
        let error = format!("{code} is not the code of a {what}").into();
        rusqlite::Error::FromSqlConversionFailure(at, Type::Integer, error)
    })
}

/// `?` on rusqlite's results.
pub(crate) trait OrStoreError<T> {
    fn or_store_error(self) -> Result<T, StoreError>;
}

impl<T> OrStoreError<T> for rusqlite::Result<T> {
    fn or_store_error(self) -> Result<T, StoreError> {
        self.map_err(store_error)
    }
}
