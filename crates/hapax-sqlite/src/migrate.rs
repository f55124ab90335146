//! The schema of a file and its versions. A version is the number of the newest migration that the
//! file has.
//!
//!   empty file ───┐
//!                 ├── the missing migrations, in one transaction ──▶ newest version
//!   older version ┘
//!
//! Refused and left as they are: another program's database, a newer version, and a ledger of a
//! development version of hapax from before 0.1.0, whose numbers meant other schemas.

use std::fs::File;
use std::path::Path;

use hapax_core::planted::{Bug, planted};
use hapax_store::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::connection::{BUSY_TIMEOUT, number, text_after};
use crate::error::OrStoreError;

macro_rules! migrations {
    ($($name:literal),+ $(,)?) => {
        /// The schema of a new file, as SQL: all migrations.
        pub const SCHEMA: &str =
            concat!($(include_str!(concat!("../migrations/", $name, ".sql"))),+);

        /// All migrations. Each brings the schema from the version before to its own.
        const MIGRATIONS: &[&str] =
            &[$(include_str!(concat!("../migrations/", $name, ".sql"))),+];
    };
}

migrations!(
    "0001_ledger",
    "0002_journal",
    "0003_outbox",
    "0004_dataset",
    "0005_token",
    "0006_epoch",
    "0007_extraction",
    "0008_items",
    "0009_rules",
    "0010_views",
);

/// "hap1": marks the file as a ledger whose versions are the numbers of these migrations.
const APPLICATION_ID: i64 = 0x6861_7031;

/// "hapx": the mark of development versions before 0.1.0.
const DEVELOPMENT_ID: i64 = 0x6861_7078;

/// Creates or migrates the schema, one process at a time.
pub(crate) fn prepare(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    connection.busy_timeout(BUSY_TIMEOUT).or_store_error()?;
    if is_current(path, connection)? {
        return Ok(());
    }
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push("-open");
    let io =
        |error: std::io::Error| StoreError::Unavailable(format!("{}: {error}", path.display()));
    let lock =
        File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(io)?;
    lock.lock().map_err(io)?;
    if !is_current(path, connection)? {
        text_after(connection, "journal_mode", "wal")?;
        migrate(connection, MIGRATIONS)?;
    }
    // A process that waits for the lock holds the old file open, and then finds the schema current.
    let _ = std::fs::remove_file(&lock_path);
    Ok(())
}

/// Whether the file has the newest version. A file that these migrations cannot continue is an error.
fn is_current(path: &Path, connection: &Connection) -> Result<bool, StoreError> {
    let (path, newest) = (path.display(), MIGRATIONS.len() as i64);
    let version = number(connection, "user_version")?;
    let refused = match number(connection, "application_id")? {
        APPLICATION_ID if version <= newest => return Ok(version == newest),
        APPLICATION_ID => format!(
            "{path} has schema version {version}, this hapax knows versions up to {newest}; use a \
             newer hapax"
        ),
        DEVELOPMENT_ID => format!(
            "{path} is a ledger of a development version of hapax before 0.1.0, whose format was \
             never released; start a new ledger in another file, and read this one with the version \
             that made it"
        ),
        _ if version == 0 && number(connection, "schema_version")? == 0 => return Ok(false),
        _ => format!("{path} is a database, but not a hapax ledger"),
    };
    Err(StoreError::Incompatible(refused))
}

/// Applies the migrations that the file does not have yet.
fn migrate(connection: &Connection, migrations: &[&str]) -> Result<(), StoreError> {
    let transaction =
        Transaction::new_unchecked(connection, TransactionBehavior::Immediate).or_store_error()?;
    let version = number(&transaction, "user_version")? as usize;
    for migration in migrations.iter().skip(version) {
        let unguarded = migration
            .replace("OR EXISTS (SELECT 1 FROM key_", "OR FALSE AND EXISTS (SELECT 1 FROM key_")
            .replace("INSERT INTO key_tail", "INSERT OR REPLACE INTO key_tail");
        let migration = if planted(Bug::KeysUnguarded) { unguarded.as_str() } else { migration };
        transaction.execute_batch(migration).or_store_error()?;
    }
    for (pragma, value) in
        [("application_id", APPLICATION_ID), ("user_version", migrations.len() as i64)]
    {
        transaction.pragma_update(None, pragma, value).or_store_error()?;
    }
    transaction.commit().or_store_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(db: &Connection) -> Vec<(String, Option<String>)> {
        let mut all =
            db.prepare("SELECT type || ' ' || name, sql FROM sqlite_master ORDER BY 1").unwrap();
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn an_older_version_gets_the_migrations_that_it_lacks() {
        let fresh = Connection::open_in_memory().unwrap();
        migrate(&fresh, MIGRATIONS).unwrap();
        for version in 0..MIGRATIONS.len() {
            let db = Connection::open_in_memory().unwrap();
            migrate(&db, &MIGRATIONS[..version]).unwrap();
            assert_eq!(number(&db, "user_version").unwrap(), version as i64);
            assert!(!is_current(Path::new("older.db"), &db).unwrap());
            migrate(&db, MIGRATIONS).unwrap();
            assert!(is_current(Path::new("older.db"), &db).unwrap());
            assert_eq!(objects(&db), objects(&fresh));
        }
    }

    #[test]
    fn a_migration_that_fails_leaves_the_file_as_it_was() {
        let db = Connection::open_in_memory().unwrap();
        let broken = [MIGRATIONS[0], "CREATE TABLE later (a); CREATE TABLE later (a);"];
        assert!(migrate(&db, &broken).is_err());
        assert_eq!(objects(&db), []);
        assert_eq!(number(&db, "user_version").unwrap(), 0);
        assert_eq!(number(&db, "application_id").unwrap(), 0);
    }
}
