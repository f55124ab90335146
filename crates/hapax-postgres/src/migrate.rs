//! The schema and its versions.

use hapax_core::planted::{Bug, planted};
use hapax_store::StoreError;

use crate::connect::Link;
use crate::error::PgFailure;

/// Every version of the schema, as the statements that lead to it from the one before.
pub(crate) const MIGRATIONS: [&str; 13] = [
    concat!(include_str!("sql/1_ledger.sql"), include_str!("sql/1_callers.sql")),
    include_str!("sql/2_outbox.sql"),
    include_str!("sql/3_dataset.sql"),
    include_str!("sql/4_token.sql"),
    concat!(include_str!("sql/5_epoch.sql"), include_str!("sql/5_callers.sql")),
    include_str!("sql/6_pipeline.sql"),
    include_str!("sql/7_extraction.sql"),
    include_str!("sql/8_items.sql"),
    concat!(include_str!("sql/9_months.sql"), include_str!("sql/9_quick.sql")),
    include_str!("sql/10_judged.sql"),
    include_str!("sql/11_emit.sql"),
    include_str!("sql/12_rows.sql"),
    include_str!("sql/13_attempts.sql"),
];

/// The schema and the table that the first migration needs.
const GROUND: &str = "CREATE SCHEMA IF NOT EXISTS hapax;
CREATE TABLE IF NOT EXISTS hapax.migration (
    version int PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now()
);";

/// The advisory lock under which the schema is changed: \"hapax\" in ASCII.
const LOCK: i64 = 0x68_61_70_61_78;

/// The oldest server version that is supported.
const OLDEST: i32 = 150_000;

/// Checks that the server and its schema are supported. A database without a schema gets one.
pub(crate) fn check(link: &Link) -> Result<(), PgFailure> {
    let row = link.one(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
             to_regclass('hapax.migration') IS NOT NULL",
        &[],
    )?;
    let (number, version): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    if number < OLDEST {
        let what = format!("this is PostgreSQL {version}; 15 or newer is needed");
        return Err(StoreError::Incompatible(what).into());
    }
    if !row.try_get::<_, bool>(2)? {
        return migrate(link).map(|_| ());
    }
    match at(link)?.cmp(&MIGRATIONS.len()) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(StoreError::Incompatible(format!(
            "its schema is version {}, this hapax needs {}; run: hapax migrate",
            at(link)?,
            MIGRATIONS.len()
        ))
        .into()),
        std::cmp::Ordering::Greater => Err(StoreError::Incompatible(format!(
            "its schema is version {}, this hapax knows {}; use a newer hapax",
            at(link)?,
            MIGRATIONS.len()
        ))
        .into()),
    }
}

fn at(link: &Link) -> Result<usize, PgFailure> {
    let row = link.one("SELECT coalesce(max(version), 0) FROM hapax.migration", &[])?;
    Ok(row.try_get::<_, i32>(0)? as usize)
}

/// Brings the schema to the newest version, in one transaction. Returns how many versions it
/// went up.
pub(crate) fn migrate(link: &Link) -> Result<usize, PgFailure> {
    link.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK}); {GROUND}"))?;
    let from = at(link)?;
    for (version, sql) in MIGRATIONS.iter().enumerate().skip(from) {
        match planted(Bug::QuickUnconditional) {
            true => link.run(&sql.replace("AND e.entry = s.entry AND e.state = 0", ""))?,
            false => link.run(sql)?,
        }
        link.run(&format!("INSERT INTO hapax.migration (version) VALUES ({})", version + 1))?;
    }
    link.run("COMMIT")?;
    Ok(MIGRATIONS.len().saturating_sub(from))
}

/// All statements, for an operator who runs them by hand.
pub fn script() -> String {
    let mut script = format!("BEGIN;\n{GROUND}\n");
    for (version, sql) in MIGRATIONS.iter().enumerate() {
        script += sql;
        script += &format!("INSERT INTO hapax.migration (version) VALUES ({});\n", version + 1);
    }
    script + "COMMIT;\n"
}
