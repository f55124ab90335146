//! The statements that a script may send, by the words they begin with.
//!
//! Only statements on rows, tables, views, indexes and sequences. No statement that ends a
//! transaction, takes a role or changes a setting; and none that brings code along which could do
//! so unseen: no functions, triggers, rules or blocks, and no cursors that outlive the transaction.

use hapax_items::ToolError;

use crate::database::Scope;

pub(super) fn check(sql: &str, scope: Scope) -> Result<(), ToolError> {
    let words = first_words(sql);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let allowed = match words.as_slice() {
        ["SELECT" | "WITH" | "VALUES" | "TABLE", ..] => true,
        _ if scope != Scope::Writing => false,
        ["INSERT" | "UPDATE" | "DELETE" | "MERGE" | "TRUNCATE", ..] => true,
        ["CREATE", "OR", "REPLACE", "VIEW", ..] => true,
        ["CREATE", "UNIQUE", "INDEX", ..] | ["CREATE", "UNLOGGED", "TABLE", ..] => true,
        ["CREATE" | "ALTER" | "DROP", "TABLE" | "VIEW" | "INDEX" | "SEQUENCE", ..] => true,
        _ => false,
    };
    if allowed {
        return Ok(());
    }
    let begins = words.into_iter().take(2).collect::<Vec<_>>().join(" ");
    Err(ToolError::permission(format!("no script may send a statement that begins {begins:?}")))
}

/// How many words are looked at.
const WORDS: usize = 4;

/// The words that a statement begins with, in upper case, without comments and parentheses.
fn first_words(sql: &str) -> Vec<String> {
    let (mut rest, mut words) = (sql, Vec::new());
    while words.len() < WORDS {
        rest = after_space(rest);
        if words.is_empty() {
            while let Some(inside) = rest.strip_prefix('(') {
                rest = after_space(inside);
            }
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii();
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        words.push(rest[..end].to_ascii_uppercase());
        rest = &rest[end..];
    }
    words
}

/// The text after white space and comments, as the server skips them.
fn after_space(mut sql: &str) -> &str {
    loop {
        sql = sql.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        if let Some(comment) = sql.strip_prefix("--") {
            sql = comment.find(['\n', '\r']).map_or("", |end| &comment[end..]);
        } else if sql.starts_with("/*") {
            sql = after_comment(sql);
        } else {
            return sql;
        }
    }
}

/// The text after a comment, which may hold comments.
fn after_comment(sql: &str) -> &str {
    let (mut depth, mut rest) = (0_usize, sql);
    loop {
        if let Some(inside) = rest.strip_prefix("/*") {
            (depth, rest) = (depth + 1, inside);
        } else if let Some(outside) = rest.strip_prefix("*/") {
            (depth, rest) = (depth - 1, outside);
            if depth == 0 {
                return rest;
            }
        } else {
            let mut chars = rest.chars();
            if chars.next().is_none() {
                return "";
            }
            rest = chars.as_str();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_on_rows_and_tables_are_sent() {
        for sql in [
            "select 1",
            " -- why\n(SELECT 1)",
            "/* a /* b */ */ WITH x AS (SELECT 1) TABLE x",
            "VALUES (1)",
        ] {
            for scope in [Scope::Reading, Scope::Writing] {
                assert!(check(sql, scope).is_ok(), "{sql}");
            }
        }
        for sql in [
            "INSERT INTO t VALUES (1)",
            "create/**/table t (n int)",
            "CREATE UNIQUE INDEX i ON t (n)",
            "CREATE OR REPLACE VIEW v AS SELECT 1",
            "ALTER TABLE t ADD m int",
            "DROP TABLE t",
            "TRUNCATE t",
        ] {
            assert!(check(sql, Scope::Writing).is_ok(), "{sql}");
            assert!(check(sql, Scope::Reading).is_err(), "{sql}");
        }
        for sql in [
            "",
            ";",
            "COMMIT",
            "commit;",
            "END",
            "ABORT",
            "ROLLBACK",
            "BEGIN",
            "START TRANSACTION",
            "SAVEPOINT s",
            "RELEASE s",
            "PREPARE TRANSACTION 'x'",
            "SET ROLE postgres",
            "RESET ROLE",
            "/*SELECT*/ RESET ROLE",
            "-- SELECT\rRESET ROLE",
            "; RESET ROLE",
            "SET LOCAL ROLE x",
            "SET SESSION AUTHORIZATION x",
            "DISCARD ALL",
            "DO $$ $$",
            "CALL p()",
            "EXECUTE p",
            "PREPARE p AS SELECT 1",
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
            "COPY t FROM STDIN",
            "CREATE FUNCTION f() RETURNS int",
            "CREATE OR REPLACE FUNCTION f()",
            "CREATE TRIGGER t",
            "CREATE CONSTRAINT TRIGGER t",
            "CREATE RULE r",
            "CREATE TEMP TABLE t (n int)",
            "CREATE EXTENSION dblink",
            "CREATE SCHEMA s",
            "CREATE ROLE r",
            "ALTER ROLE r SUPERUSER",
            "GRANT app TO x",
            "LOAD 'x'",
            "LISTEN x",
            "NOTIFY x",
            "EXPLAIN ANALYZE SELECT 1",
            "SELECT_ 1",
            "U&\"SELECT\" 1",
            "\"SELECT\" 1",
            "\u{a0}SELECT 1",
            "/* SELECT 1",
        ] {
            assert!(check(sql, Scope::Writing).is_err(), "{sql}");
        }
    }
}
