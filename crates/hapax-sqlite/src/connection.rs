//! Opening the file: settings, read back; schema, migrated; versions, asserted.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use hapax_core::planted::{Bug, planted};
use hapax_store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::OrStoreError;

/// The schema of a new file, as SQL.
pub const SCHEMA: &str = concat!(
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("schema_7.sql"),
    include_str!("schema_8.sql"),
    include_str!("schema_9.sql"),
    include_str!("schema_10.sql"),
    include_str!("schema_11.sql"),
    include_str!("schema_12.sql"),
    include_str!("schema_13.sql")
);

/// Each migration brings the schema from its place in this list to the next.
const MIGRATIONS: [&str; 13] = [
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("schema_7.sql"),
    include_str!("schema_8.sql"),
    include_str!("schema_9.sql"),
    include_str!("schema_10.sql"),
    include_str!("schema_11.sql"),
    include_str!("schema_12.sql"),
    include_str!("schema_13.sql"),
];

/// "hapx": marks the file as ours.
const APPLICATION_ID: i32 = 0x6861_7078;

/// Older libraries can corrupt a write-ahead log that is reset while being read.
const OLDEST_SQLITE: i32 = 3_051_003;

/// How much of the file readers map into memory, in bytes.
const MAPPED: i64 = 2 * 1024 * 1024 * 1024 - 64 * 1024;

/// The size of the writer's page cache. It is small: the system's own cache returns pages quickly,
/// and SQLite walks its whole cache after it has split an index page.
const WRITER_CACHE_KIB: i64 = 8 * 1024;

/// How long to wait for another process that is writing.
pub(crate) const BUSY: Duration = Duration::from_secs(10);

/// Opens the file for writing, creates or migrates it if need be, and checks every setting
/// that a promise rests on.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        let version = rusqlite::version();
        return Err(StoreError::Incompatible(format!("SQLite {version} is older than 3.51.3")));
    }
    let connection = Connection::open(path)
        .map_err(|error| StoreError::Unavailable(format!("{}: {error}", path.display())))?;
    prepare(path, &connection)?;
    configure(&connection, WRITER_CACHE_KIB)?;
    Ok(connection)
}

/// Opens the file for reading only.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).or_store_error()?;
    configure(&connection, 32 * 1024)?;
    connection.pragma_update(None, "query_only", true).or_store_error()?;
    // Readers map the file: when they read many rows in no order, copying each page costs as much
    // as the rest. A mapped page that the disk cannot read ends the process, as a crash would.
    connection.pragma_update(None, "mmap_size", MAPPED).or_store_error()?;
    Ok(connection)
}

/// The settings that every connection needs, a caller's own included.
pub(crate) fn configure(connection: &Connection, cache_kib: i64) -> Result<(), StoreError> {
    connection.busy_timeout(BUSY).or_store_error()?;
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

/// Creates or migrates the schema, one process at a time.
fn prepare(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    connection.busy_timeout(BUSY).or_store_error()?;
    if is_current(connection)? {
        return Ok(());
    }
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push("-open");
    let io =
        |error: std::io::Error| StoreError::Unavailable(format!("{}: {error}", path.display()));
    let lock =
        File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(io)?;
    lock.lock().map_err(io)?;
    if !is_current(connection)? {
        text_after(connection, "journal_mode", "wal")?;
        migrate(connection)?;
    }
    // A process that waits for the lock holds the old file open, and then finds the schema current.
    let _ = std::fs::remove_file(&lock_path);
    Ok(())
}

fn is_current(connection: &Connection) -> Result<bool, StoreError> {
    let version = number(connection, "user_version")?;
    let newest = MIGRATIONS.len() as i64;
    if version > newest {
        return Err(StoreError::Incompatible(format!(
            "the file has schema version {version}; this program knows versions up to {newest}"
        )));
    }
    let application = number(connection, "application_id")?;
    let empty = version == 0 && number(connection, "schema_version")? == 0;
    if !empty && application != i64::from(APPLICATION_ID) {
        return Err(StoreError::Incompatible(
            "the file is a database, but not a hapax ledger".into(),
        ));
    }
    Ok(version == newest)
}

fn migrate(connection: &Connection) -> Result<(), StoreError> {
    let from = number(connection, "user_version")? as usize;
    for (version, migration) in MIGRATIONS.iter().enumerate().skip(from) {
        let next = version + 1;
        let unguarded = migration
            .replace("OR EXISTS (SELECT 1 FROM key_", "OR FALSE AND EXISTS (SELECT 1 FROM key_")
            .replace("INSERT INTO key_tail", "INSERT OR REPLACE INTO key_tail");
        let migration = if planted(Bug::KeysUnguarded) { unguarded.as_str() } else { migration };
        connection
            .execute_batch(&format!(
                "BEGIN IMMEDIATE; {migration}
                 PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {next}; COMMIT;"
            ))
            .or_store_error()?;
    }
    Ok(())
}

pub(crate) fn number(connection: &Connection, pragma: &str) -> Result<i64, StoreError> {
    connection.pragma_query_value(None, pragma, |row| row.get(0)).or_store_error()
}

fn text(connection: &Connection, pragma: &str) -> Result<String, StoreError> {
    connection.pragma_query_value(None, pragma, |row| row.get(0)).or_store_error()
}

fn text_after(connection: &Connection, pragma: &str, value: &str) -> Result<String, StoreError> {
    connection.pragma_update_and_check(None, pragma, value, |row| row.get(0)).or_store_error()
}
