//! Opening the file: settings, read back; versions, asserted.

use std::path::Path;
use std::time::Duration;

use hapax_core::planted::{Bug, planted};
use hapax_store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::OrStoreError;
use crate::migrate;

/// Older libraries can corrupt a write-ahead log that is reset while being read.
const OLDEST_SQLITE: i32 = 3_051_003;

/// How much of the file readers map into memory, in bytes.
const MAPPED_BYTES: i64 = 2 * 1024 * 1024 * 1024 - 64 * 1024;

/// The size of the writer's page cache. It is small: the system's own cache returns pages quickly,
/// and SQLite walks its whole cache after it has split an index page.
const WRITER_CACHE_KIB: i64 = 8 * 1024;

/// How long to wait for another process that is writing.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the file for writing, creates or migrates it if need be, and checks every setting
/// that a promise rests on.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        let version = rusqlite::version();
        return Err(StoreError::Incompatible(format!("SQLite {version} is older than 3.51.3")));
    }
    let connection = Connection::open(path)
        .map_err(|error| StoreError::Unavailable(format!("{}: {error}", path.display())))?;
    migrate::prepare(path, &connection)?;
    configure(&connection, WRITER_CACHE_KIB)?;
    Ok(connection)
}

/// Opens the file for reading; `query_only` refuses writes.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).or_store_error()?;
    configure(&connection, 32 * 1024)?;
    connection.pragma_update(None, "query_only", true).or_store_error()?;
    // Readers map the file: when they read many rows in no order, copying each page costs as much
    // as the rest. A mapped page that the disk cannot read ends the process, as a crash would.
    connection.pragma_update(None, "mmap_size", MAPPED_BYTES).or_store_error()?;
    Ok(connection)
}

/// The settings that every connection needs, a caller's own included.
pub(crate) fn configure(connection: &Connection, cache_kib: i64) -> Result<(), StoreError> {
    connection.busy_timeout(BUSY_TIMEOUT).or_store_error()?;
    connection.set_prepared_statement_cache_capacity(128);
    // A query plan must not depend on the bound values, and must not be made again for them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).or_store_error()?;
    let full = if planted(Bug::SyncNormal) { 1 } else { 2 };
    for (pragma, value) in [
        ("synchronous", full),
        ("wal_autocheckpoint", 0),
        ("foreign_keys", 1),
        ("trusted_schema", 0),
        ("temp_store", 2),
        ("cache_size", -cache_kib),
    ] {
        connection.pragma_update(None, pragma, value).or_store_error()?;
    }
    let (mode, synchronous) =
        (text(connection, "journal_mode")?, number(connection, "synchronous")?);
    if mode != "wal" || synchronous < full {
        return Err(StoreError::Incompatible(format!(
            "the file system does not allow a durable write-ahead log \
             (journal_mode {mode}, synchronous {synchronous})"
        )));
    }
    Ok(())
}

pub(crate) fn number(connection: &Connection, pragma: &str) -> Result<i64, StoreError> {
    connection.pragma_query_value(None, pragma, |row| row.get(0)).or_store_error()
}

fn text(connection: &Connection, pragma: &str) -> Result<String, StoreError> {
    connection.pragma_query_value(None, pragma, |row| row.get(0)).or_store_error()
}

pub(crate) fn text_after(
    connection: &Connection,
    pragma: &str,
    value: &str,
) -> Result<String, StoreError> {
    connection.pragma_update_and_check(None, pragma, value, |row| row.get(0)).or_store_error()
}
