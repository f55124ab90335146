//! The schema of a database and its versions. A version is the number of the newest migration that
//! the database has; the table `hapax.migration` names them.
//!
//!   no schema ────┐
//!                 ├── the missing migrations, in one transaction ──▶ newest version
//!   older version ┘
//!
//! Refused and left as they are: a newer version, and a ledger of a development version of hapax
//! from before 0.1.0, whose numbers meant other schemas.

use hapax_store::StoreError;

use crate::connect::Link;
use crate::error::PgFailure;
use crate::statements;

macro_rules! migrations {
    ($($name:literal),+ $(,)?) => {
        /// The names of all migrations, and the statements that lead to each from the one before.
        const MIGRATIONS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../migrations/", $name, ".sql")))),+];
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

/// The schema, and the table that names its migrations. The column `name` is new in 0.1.0: the table
/// of development versions before it has only `version` and `at`.
const MIGRATION_TABLE: &str = "CREATE SCHEMA IF NOT EXISTS hapax;
CREATE TABLE IF NOT EXISTS hapax.migration (
    version int PRIMARY KEY,
    name    text NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);";

/// The advisory lock under which a process changes the schema: "hapax" in ASCII.
const SCHEMA_LOCK: i64 = 0x68_61_70_61_78;

/// The oldest server version that is supported.
const OLDEST_SERVER: i32 = 150_000;

/// Checks that the server and its schema are supported. A database without a schema gets one.
pub(crate) fn check(link: &Link) -> Result<(), PgFailure> {
    let row = link.one(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version')",
        &[],
    )?;
    let (number, server): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    if number < OLDEST_SERVER {
        let what = format!("this is PostgreSQL {server}; 15 or newer is needed");
        return Err(StoreError::Incompatible(what).into());
    }
    let newest = MIGRATIONS.len();
    match version(link)? {
        None => migrate(link).map(|_| ()),
        Some(version) if version < newest => Err(StoreError::Incompatible(format!(
            "the schema of the database is version {version}, this hapax needs {newest}; run: hapax \
             migrate"
        ))
        .into()),
        Some(_) => Ok(()),
    }
}

/// The version of the schema, if there is one. A schema that these migrations cannot continue is an
/// error.
fn version(link: &Link) -> Result<Option<usize>, PgFailure> {
    let row = link.one(
        "SELECT current_database()::text, to_regclass('hapax.migration') IS NOT NULL, EXISTS (
             SELECT FROM pg_attribute WHERE attrelid = to_regclass('hapax.migration')
                 AND attname = 'name' AND NOT attisdropped)",
        &[],
    )?;
    let (database, is_there, is_named): (String, bool, bool) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if !is_there {
        return Ok(None);
    }
    if !is_named {
        return Err(StoreError::Incompatible(format!(
            "the database {database} has a ledger of a development version of hapax before 0.1.0, \
             whose format was never released; start a new ledger in another database, and read this \
             one with the version that made it"
        ))
        .into());
    }
    let row = link.one("SELECT coalesce(max(version), 0) FROM hapax.migration", &[])?;
    let (version, newest) = (row.try_get::<_, i32>(0)? as usize, MIGRATIONS.len());
    if version > newest {
        return Err(StoreError::Incompatible(format!(
            "the database {database} has schema version {version}, this hapax knows versions up to \
             {newest}; use a newer hapax"
        ))
        .into());
    }
    Ok(Some(version))
}

/// Brings the schema to the newest version, in one transaction. Returns how many versions it
/// went up.
pub(crate) fn migrate(link: &Link) -> Result<usize, PgFailure> {
    apply(link, MIGRATIONS)
}

fn apply(link: &Link, migrations: &[(&str, &str)]) -> Result<usize, PgFailure> {
    link.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({SCHEMA_LOCK})"))?;
    let from = version(link)?.unwrap_or(0);
    link.run(MIGRATION_TABLE)?;
    for (number, (name, sql)) in (1..).zip(migrations).skip(from) {
        link.run(&statements::filled(sql))?;
        link.run(&applied(number, name))?;
    }
    link.run("COMMIT")?;
    Ok(migrations.len().saturating_sub(from))
}

fn applied(number: usize, name: &str) -> String {
    format!("INSERT INTO hapax.migration (version, name) VALUES ({number}, '{name}');\n")
}

/// All statements, for an operator who runs them by hand.
pub fn script() -> String {
    let mut script = format!("BEGIN;\n{MIGRATION_TABLE}\n");
    for (number, (name, sql)) in (1..).zip(MIGRATIONS) {
        script += &statements::filled(sql);
        script += &applied(number, name);
    }
    script + "COMMIT;\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_testkit::Postgres;

    fn link(server: &Postgres, database: &str) -> Link {
        let address = crate::connect::Address::parse(&server.url(database)).unwrap();
        Link::connect(&address).unwrap()
    }

    #[test]
    fn an_older_version_gets_the_migrations_that_it_lacks() {
        let server = Postgres::start();
        server.database("older");
        let link = link(&server, "older");
        assert_eq!(apply(&link, &MIGRATIONS[..8]).unwrap(), 8);
        assert!(matches!(
            check(&link),
            Err(PgFailure::Refused(StoreError::Incompatible(what))) if what.contains("run: hapax migrate")
        ));
        assert_eq!(migrate(&link).unwrap(), MIGRATIONS.len() - 8);
        check(&link).unwrap();
        assert_eq!(migrate(&link).unwrap(), 0);
        let named = "SELECT count(*), min(name), max(name) FROM hapax.migration";
        assert_eq!(server.sql("older", named), "10|0001_ledger|0010_views");
    }

    #[test]
    fn a_migration_that_fails_leaves_the_database_as_it_was() {
        let server = Postgres::start();
        server.database("broken");
        let link = link(&server, "broken");
        let broken = [MIGRATIONS[0], ("0002_broken", "CREATE TABLE hapax.effect (a int);")];
        assert!(apply(&link, &broken).is_err());
        link.run("ROLLBACK").unwrap();
        assert_eq!(version(&link).unwrap(), None);
        assert_eq!(migrate(&link).unwrap(), MIGRATIONS.len());
    }
}
