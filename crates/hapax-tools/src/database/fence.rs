//! The rules for a script's statements on the ledger's file.
//!
//! SQLite has each action of a statement authorized, in whatever way the statement causes it:
//! through a view, a subquery, a foreign key's action. Unknown actions are refused.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use hapax_items::ToolError;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, Transaction};

use super::fault::Fault as _;

/// The author of the statements that are prepared and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// hapax itself.
    Ours,
    /// A script, which may read.
    Reading,
    /// A script, which may read and write.
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

/// Whether a name is the ledger's. A name that begins with `hapax` may be one day.
fn is_owned(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OWNED.is_empty() || name.starts_with("hapax") || OWNED.contains(&name)
}

/// SQLite's catalog of tables. SQLite itself refuses writes to it.
const CATALOG: [&str; 4] =
    ["sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_sequence"];

/// Tables that show pages or settings of the file as a whole.
fn shows_the_file(table: &str) -> bool {
    let table = table.to_ascii_lowercase();
    let reserved = table.starts_with("sqlite_") && !CATALOG.contains(&table.as_str());
    reserved || table.starts_with("pragma_") || table == "dbstat"
}

/// Authorizes an action for SQLite.
pub(crate) fn permits(scope: Scope, context: AuthContext<'_>) -> Authorization {
    let reads = match context.action {
        _ if scope == Scope::Ours => true,
        AuthAction::Select | AuthAction::Recursive => true,
        AuthAction::Read { table_name, .. } => !is_owned(table_name) && !shows_the_file(table_name),
        AuthAction::Function { function_name } => !["load_extension", "fts3_tokenizer"]
            .iter()
            .any(|name| function_name.eq_ignore_ascii_case(name)),
        _ => false,
    };
    if reads || scope == Scope::Writing && changes_own(context) {
        Authorization::Allow
    } else {
        Authorization::Deny
    }
}

/// Whether an action changes an object that scripts may change: tables, views and indexes that are
/// not the ledger's.
///
/// Triggers are refused, because programs other than scripts also write to these tables and would
/// run them. Temporary objects are refused, because their names hide the ledger's own from the
/// statements that settle.
fn changes_own(context: AuthContext<'_>) -> bool {
    let names: [&str; 2] = match context.action {
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

/// Whether an allowed action may have changed the set of tables.
pub(crate) fn is_schema(action: &AuthAction<'_>) -> bool {
    matches!(action, AuthAction::CreateTable { .. } | AuthAction::AlterTable { .. })
}

/// Refuses tables that refer to the ledger's: a reference keeps rows from being deleted, and SQLite
/// has nothing authorized when it is declared.
pub(crate) fn check_references(tx: &Transaction<'_>) -> Result<(), ToolError> {
    let all = "SELECT m.name, f.\"table\" FROM sqlite_schema m, pragma_foreign_key_list(m.name) f
         WHERE m.type = 'table'";
    let mut all = tx.prepare(all).map_err(rusqlite::Error::tool_error)?;
    let mut rows = all.query([]).map_err(rusqlite::Error::tool_error)?;
    while let Some(row) = rows.next().map_err(rusqlite::Error::tool_error)? {
        let name = |column| row.get::<_, String>(column).map_err(rusqlite::Error::tool_error);
        let (from, to) = (name(0)?, name(1)?);
        if is_owned(&to) && !is_owned(&from) {
            return Err(ToolError::permission(format!("{from} refers to {to}, which is hapax's")));
        }
    }
    Ok(())
}
