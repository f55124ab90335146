//! What a script's statements may do to the ledger's file.
//!
//! SQLite asks for each thing that a statement would do, in whatever way it would do it: through
//! a view, a subquery, a foreign key's action. What is not known here is refused.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, Transaction};

use super::fault::Fault as _;
use crate::tool::ToolError;

/// Whose statements are prepared and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Our own.
    Ours,
    /// A script's, which may read.
    Reading,
    /// A script's, which may read and write.
    Writing,
}

/// The tables, views, indexes and triggers that are the ledger's, in lower case.
static OWNED: LazyLock<BTreeSet<String>> = LazyLock::new(|| owned().unwrap_or_default());

fn owned() -> rusqlite::Result<BTreeSet<String>> {
    let db = Connection::open_in_memory()?;
    db.execute_batch(hapax::Hapax::schema())?;
    let mut names = db.prepare("SELECT lower(name) FROM sqlite_schema")?;
    names.query_map([], |row| row.get(0))?.collect()
}

/// Whether a name is the ledger's. What begins with `hapax` may be one day.
fn is_owned(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OWNED.is_empty() || name.starts_with("hapax") || OWNED.contains(&name)
}

/// Where SQLite keeps what tables there are. It refuses by itself to have it written to by hand.
const CATALOG: [&str; 4] =
    ["sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_sequence"];

/// Tables that show pages or settings of the file as a whole.
fn shows_the_file(table: &str) -> bool {
    let table = table.to_ascii_lowercase();
    let reserved = table.starts_with("sqlite_") && !CATALOG.contains(&table.as_str());
    reserved || table.starts_with("pragma_") || table == "dbstat"
}

/// Answers SQLite.
pub(crate) fn permits(scope: Scope, asked: AuthContext<'_>) -> Authorization {
    let reads = match asked.action {
        _ if scope == Scope::Ours => true,
        AuthAction::Select | AuthAction::Recursive => true,
        AuthAction::Read { table_name, .. } => !is_owned(table_name) && !shows_the_file(table_name),
        AuthAction::Function { function_name } => !["load_extension", "fts3_tokenizer"]
            .iter()
            .any(|name| function_name.eq_ignore_ascii_case(name)),
        _ => false,
    };
    if reads || scope == Scope::Writing && changes_own(asked) {
        Authorization::Allow
    } else {
        Authorization::Deny
    }
}

/// Whether it is a change of what scripts may change: tables, views and indexes that are not the
/// ledger's.
///
/// No triggers, for others than scripts write to these tables and would run them. Nothing
/// temporary, for a name there hides the ledger's own from the statements that settle.
fn changes_own(asked: AuthContext<'_>) -> bool {
    let names: [&str; 2] = match asked.action {
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            return !is_owned(table_name) && !shows_the_file(table_name);
        }
        AuthAction::CreateTable { table_name }
        | AuthAction::DropTable { table_name }
        | AuthAction::AlterTable { table_name, .. } => [table_name, ""],
        AuthAction::CreateView { view_name } | AuthAction::DropView { view_name } => {
            [view_name, ""]
        }
        AuthAction::CreateIndex { index_name, table_name }
        | AuthAction::DropIndex { index_name, table_name } => [index_name, table_name],
        // CREATE INDEX fills it.
        AuthAction::Reindex { index_name } => [index_name, ""],
        _ => return false,
    };
    !names.into_iter().any(is_owned)
}

/// Whether something that was allowed may have changed what tables there are.
pub(crate) fn is_schema(asked: &AuthAction<'_>) -> bool {
    matches!(asked, AuthAction::CreateTable { .. } | AuthAction::AlterTable { .. })
}

/// Refuses tables that refer to the ledger's: a reference keeps rows from being deleted, and SQLite
/// asks nobody when it is declared.
pub(crate) fn check_references(tx: &Transaction<'_>) -> Result<(), ToolError> {
    let all = "SELECT m.name, f.\"table\" FROM sqlite_schema m, pragma_foreign_key_list(m.name) f
         WHERE m.type = 'table'";
    let mut all = tx.prepare(all).map_err(rusqlite::Error::told)?;
    let mut rows = all.query([]).map_err(rusqlite::Error::told)?;
    while let Some(row) = rows.next().map_err(rusqlite::Error::told)? {
        let name = |column| row.get::<_, String>(column).map_err(rusqlite::Error::told);
        let (from, to) = (name(0)?, name(1)?);
        if is_owned(&to) && !is_owned(&from) {
            return Err(ToolError::permission(format!("{from} refers to {to}, which is hapax's")));
        }
    }
    Ok(())
}
