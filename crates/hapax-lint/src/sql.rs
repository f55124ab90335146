//! Finds dedupe tables, in SQL files and in the SQL inside other languages.

use std::sync::LazyLock;

use regex::Regex;

use crate::words::{Lives, key_name, store_name, words};

/// How much of a statement is read past the table's name.
const STATEMENT_CHARS: usize = 2000;

static CREATE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern =
        r#"(?i)\bcreate\s+(?:\w+\s+){0,3}?table\s+(?:if\s+not\s+exists\s+)?([\w$."`\[\]\\{}]+)"#;
    Regex::new(pattern).expect("a fixed pattern")
});
static INSERT: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?i)\binsert\s+(ignore\s+|or\s+ignore\s+)?into\s+([\w$."`\[\]\\{}]+)"#;
    Regex::new(pattern).expect("a fixed pattern")
});
static IGNORES: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?i)\bon[\s\\]+conflict[\s\\]*(\([^)]*\))?[^;]{0,200}?\bdo[\s\\]+nothing\b|\bon[\s\\]+duplicate[\s\\]+key\b";
    Regex::new(pattern).expect("a fixed pattern")
});
static UNIQUE_REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?i)\brequest_(?:id|key|hash)\b[^,]*\b(?:unique|primary\s+key)\b|\b(?:unique|primary\s+key)\s*\(\s*request_(?:id|key|hash)\b|\bidempotency";
    Regex::new(pattern).expect("a fixed pattern")
});

/// An idempotency key with a unique constraint, in any table.
static UNIQUE_KEY: LazyLock<Regex> = LazyLock::new(|| {
    let key = r#"["`\[]?\b(?:idempotency_?(?:key|id|token)|dedupe?_(?:key|id))\b["`\]]?"#;
    let column = format!(r"{key}\s[^,;()\n]*\b(?:unique|primary\s+key)\b");
    let constraint = format!(r"\bunique\b[^;,(){{}}=\n]{{0,100}}\(\s*(?:\w+\s*,\s*)?{key}\s*[,)]");
    Regex::new(&format!("(?i){column}|{constraint}")).expect("a fixed pattern")
});

/// The places where a text creates or fills a dedupe table: the offset, and the reason.
pub(crate) fn find(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for made in CREATE.captures_iter(text) {
        let table = &made[1];
        if is_store(table) || is_log_of_requests(table, rest(text, made.get_match().end())) {
            found.push((
                made.get_match().start(),
                format!("table `{}` remembers what was done", bare(table)),
            ));
        }
    }
    for unique in UNIQUE_KEY.find_iter(text) {
        let is_same_statement =
            |(at, _): &(usize, String)| text[*at..unique.start()].find([';']).is_none();
        if !found.iter().filter(|(at, _)| *at <= unique.start()).any(is_same_statement) {
            found.push((unique.start(), "a unique key remembers what was done".into()));
        }
    }
    for filled in INSERT.captures_iter(text) {
        let table = &filled[2];
        let ignores = IGNORES.captures(rest(text, filled.get_match().end()));
        if !is_hapax(table) && (filled.get(1).is_some() || ignores.is_some()) {
            let target = ignores.and_then(|ignores| ignores.get(1));
            let by_key = target.is_some_and(|by| key_name(by.as_str()).is_some());
            if is_store(table) || by_key {
                let why = format!("`{}` drops what it has had before", bare(table));
                found.push((filled.get_match().start(), why));
            }
        }
    }
    found
}

/// The rest of a statement: up to its end, or to an empty line where nothing ends it.
fn rest(text: &str, from: usize) -> &str {
    let rest = &text[from..];
    let rest = rest.char_indices().nth(STATEMENT_CHARS).map_or(rest, |(end, _)| &rest[..end]);
    let rest = rest.split(';').next().unwrap_or(rest);
    rest.split("\n\n").next().unwrap_or(rest)
}

fn is_store(table: &str) -> bool {
    !is_hapax(table) && store_name(bare(table), Lives::Long)
}

/// A log of requests is a dedupe table if no request can be in it twice.
fn is_log_of_requests(table: &str, columns: &str) -> bool {
    let words = words(bare(table));
    words.windows(2).any(|pair| matches!(&*pair[0], "request" | "requests") && pair[1] == "log")
        && UNIQUE_REQUEST.is_match(columns)
}

/// The ledger's own tables.
fn is_hapax(table: &str) -> bool {
    words(table).iter().any(|word| word == "hapax")
}

/// A table's name without its schema and quotes.
fn bare(table: &str) -> &str {
    table.rsplit('.').next().unwrap_or(table).trim_matches(|c: char| "\"`[]\\{}".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trips(text: &str) -> bool {
        !find(text).is_empty()
    }

    #[test]
    fn dedupe_tables_are_known_by_name() {
        for sql in [
            "CREATE TABLE IF NOT EXISTS idempotency_keys (k text primary key)",
            "create unlogged table app.\"processed_events\" (id uuid)",
            "create table request_log (request_id uuid primary key)",
            "insert into processed_messages (id) values ($1) on conflict do nothing",
            "INSERT IGNORE INTO dedup VALUES (?)",
            "ALTER TABLE orders ADD COLUMN idempotency_key text UNIQUE",
            "create unique index on orders (tenant, idempotency_key)",
            "create table orders (id int, idempotency_key text not null unique)",
            "insert into payment (id, idempotency_key) values (1, 2) on conflict (idempotency_key) do nothing",
        ] {
            assert!(trips(sql), "{sql}");
        }
        for sql in [
            "create table request_metrics (id int)",
            "create table request_log (id bigint primary key, path text)",
            "create table hapax.processed_events (id uuid)",
            "insert into users (id) values (1) on conflict do nothing",
            "insert into processed_events (id) values (1)",
            "select hapax.claim($1)",
            "create table orders (id int unique, idempotency_key text)",
            "create index on orders (idempotency_key)",
            "insert into a values (1); insert into processed_events values (1)",
        ] {
            assert!(!trips(sql), "{sql}");
        }
    }
}
