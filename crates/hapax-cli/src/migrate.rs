//! `hapax migrate`: the schema of a ledger in a database.

use hapax_postgres::PgStore;
use serde_json::json;

use crate::args::{Global, Migrate};
use crate::exit::{Exit, Failed};
use crate::output;

pub(crate) fn main(global: &Global, migrate: &Migrate) -> Result<Exit, Failed> {
    if migrate.print {
        output::print(hapax_postgres::script().trim_end());
        return Ok(Exit::Done);
    }
    let url = global.db.to_str().filter(|url| url.starts_with("postgres"));
    let url = url.ok_or_else(|| {
        Failed::usage("migrate is for PostgreSQL: --db postgres://…")
            .next("A ledger in a file is brought up to date when it is opened.")
    })?;
    let went_up = PgStore::migrate(url).map_err(|error| Failed::from(hapax::Error::from(error)))?;
    match went_up {
        _ if global.json => output::json(&json!({ "versions": went_up })),
        0 => output::print("the schema is up to date"),
        n => output::print(&format!(
            "the schema went up {n} version{}",
            if n == 1 { "" } else { "s" }
        )),
    }
    Ok(Exit::Done)
}
