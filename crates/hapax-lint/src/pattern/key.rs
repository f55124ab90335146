//! Rule `key-derivation`: a hash, the clock or a random value on the right of an idempotency key.

use std::sync::LazyLock;

use regex::Regex;

use super::table::Patterns;
use super::{Line, Lines, is_quoted};
use crate::rule::Rule;
use crate::scan::Hit;
use crate::words::{KeyName, key_name};

/// How far a local is followed, and how much of a function's body is read, in lines.
const WINDOW: usize = 12;

/// A name that gets a value: `name = `, `"name": `, `"name", `.
static GIVEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"([A-Za-z_$][\w$-]*)(["'`]?\]?)\s*(:=|=>|==|=|:|,)"#).expect("a fixed pattern")
});

/// Matches a value that only encodes another one.
static ENCODES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)hex|encode|base64|string|format|^f["']|^`|\bstr\(|join|slice"#)
        .expect("a fixed pattern")
});

static FUNCTION: LazyLock<Regex> = LazyLock::new(|| {
    let named = r"\b(?:def|function|func|fun|fn)\s+(?:\([^)]*\)\s*)?([\w$.]+)\s*[(<]";
    let typed = r"^\s*(?:(?:public|private|protected|internal|static|final|async)\s+)+[\w<>\[\]?,. ]*?\b([\w$]+)\s*\(";
    Regex::new(&format!("{named}|{typed}")).expect("a fixed pattern")
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Hashed,
    ByChance,
}

/// A name that holds a hashed or random value.
struct Local {
    name: String,
    line: usize,
    made: Origin,
}

pub(super) fn find(lines: &Lines<'_>, patterns: &Patterns) -> Vec<Hit> {
    let mut hits: Vec<Hit> = Vec::new();
    let mut locals: Vec<Local> = Vec::new();
    for (nth, line) in lines.iter() {
        for given in GIVEN.captures_iter(line.text) {
            let (name, close, separator) = (&given[1], &given[2], &given[3]);
            let start = given.get_match().start();
            let rest = &line.text[given.get_match().end()..];
            let listed = separator == "," && close.is_empty();
            let named = !close.is_empty() || separator == ":";
            if separator == "=="
                || listed
                || rest.starts_with(':')
                || is_quoted(line.text, start, named)
            {
                continue;
            }
            let Some(made) = made(&value(lines, nth, rest), nth, &locals, patterns) else {
                continue;
            };
            match judge(name, made) {
                Some(why) => hits.push(line.hit(Rule::KeyDerivation, nth, start, why)),
                // A reported key is not reported again where it is used.
                None => locals.push(Local { name: name.to_owned(), line: nth, made }),
            }
        }
    }
    let functions: Vec<Hit> =
        lines.iter().filter_map(|at| function(lines, at, &locals, patterns, &hits)).collect();
    hits.extend(functions);
    hits
}

/// A function that is named like a key and returns a hashed or random value.
fn function(
    lines: &Lines<'_>,
    (nth, line): (usize, Line<'_>),
    locals: &[Local],
    patterns: &Patterns,
    hits: &[Hit],
) -> Option<Hit> {
    let head = FUNCTION.captures(line.text)?;
    let name = head.get(1).or_else(|| head.get(2))?;
    key_name(name.as_str())?;
    let body = lines.block(nth, WINDOW);
    // A hit inside the function is more exact.
    if body.iter().any(|(nth, _)| hits.iter().any(|hit| hit.line == nth + 1)) {
        return None;
    }
    let returned = body.iter().find_map(|(nth, line)| {
        let rest = line.code().strip_prefix("return")?;
        made(&value(lines, *nth, rest), *nth, locals, patterns)
    });
    let why = judge(name.as_str(), returned?)?;
    Some(line.hit(Rule::KeyDerivation, nth, name.start(), why))
}

fn judge(name: &str, made: Origin) -> Option<String> {
    match (key_name(name)?, made) {
        (_, Origin::Hashed) => Some(format!("`{name}` is hashed by hand")),
        (KeyName::Full, Origin::ByChance) => Some(format!(
            "`{name}` is made from the clock or by chance, so a second try has another key"
        )),
        (KeyName::Bare, Origin::ByChance) => None,
    }
}

fn made(value: &str, nth: usize, locals: &[Local], patterns: &Patterns) -> Option<Origin> {
    if value.contains("hapax") || value.contains("derive") {
        return None;
    }
    if patterns.hash.is_match(value) {
        return Some(Origin::Hashed);
    }
    if patterns.chance.is_match(value) {
        return Some(Origin::ByChance);
    }
    let near = locals.iter().rev().skip_while(|local| local.line >= nth);
    let near = near.take_while(|local| nth - local.line <= WINDOW);
    let held = near.into_iter().find(|local| {
        let first = value.trim_start_matches('$').strip_prefix(local.name.trim_start_matches('$'));
        let alone =
            first.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
        alone || ENCODES.is_match(value) && mentions(value, &local.name)
    });
    held.map(|local| local.made)
}

fn mentions(value: &str, name: &str) -> bool {
    value.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).any(|word| word == name)
}

/// The value that starts here: up to the comma or bracket that ends it, over a few lines.
fn value(lines: &Lines<'_>, nth: usize, rest: &str) -> String {
    let following = lines.iter().skip(nth + 1).take(5).map(|(_, line)| line.text);
    let mut value = String::new();
    let mut depth = 0_i32;
    let mut quote = None;
    for text in std::iter::once(rest).chain(following) {
        for c in text.chars() {
            match (quote, c) {
                (Some(open), c) if open == c => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'' | '`') => quote = Some(c),
                (None, '(' | '[' | '{') => depth += 1,
                (None, ')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            if depth < 0 || depth == 0 && quote.is_none() && matches!(c, ',' | ';') {
                return value;
            }
            if !(value.is_empty() && c.is_whitespace()) {
                value.push(c);
            }
        }
        // A value goes on where its line ends with an operator, a dot or a backslash.
        if depth == 0 && !value.is_empty() && !value.ends_with(['=', '+', '.', '\\']) {
            break;
        }
        quote = None;
        value.push(' ');
    }
    value
}
