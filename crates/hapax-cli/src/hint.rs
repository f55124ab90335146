//! Commands that are printed for a person to paste: with the ledger they are about, quoted for a shell.

use std::borrow::Cow;
use std::sync::OnceLock;

use hapax::{AttemptId, StateName};
use hapax_server::wire;

use crate::args::Global;
use crate::output;

/// The options that name the ledger of this process.
static LEDGER: OnceLock<String> = OnceLock::new();

/// Remembers which ledger this command is about, so that the commands that it prints are about the same.
pub(crate) fn set_ledger(global: &Global) {
    let _ = LEDGER.set(options(global, std::env::var("HAPAX_DB").ok().as_deref()));
}

/// A command line of ours, to be pasted into a shell.
pub(crate) fn command<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let mut line = String::from("hapax");
    for word in words {
        line.push(' ');
        line.push_str(&quoted(word.as_ref()));
    }
    line.push_str(LEDGER.get().map_or("", String::as_str));
    line
}

/// The command that shows an effect.
pub(crate) fn show(key: &str) -> String {
    command(["effects", "show", &key_word(key)])
}

/// The three commands that decide an outcome, for a person who has found out.
pub(crate) fn resolve(key: &str, attempt: AttemptId, state: StateName) -> String {
    let (key, attempt) = (key_word(key), attempt.to_string());
    let mut text = String::from("Find out whether it happened, then say so with one of:");
    for decision in ["--happened", "--did-not-happen", "--skip"] {
        let words = ["effects", "resolve", &key, "--attempt", &attempt, "--saw", state.as_str()];
        text.push_str("\n  ");
        text.push_str(&command(words.into_iter().chain([decision, "--note", "WHY"])));
    }
    text
}

/// A key as a person gave it. One that a terminal would not show as it is is printed as its digest.
fn key_word(key: &str) -> Cow<'_, str> {
    match wire::key(key) {
        Ok(digest) if output::plain(Some(key)) != key => Cow::Owned(digest.to_string()),
        _ => Cow::Borrowed(key),
    }
}

/// Options that are as they are by default are left out.
fn options(global: &Global, variable: Option<&str>) -> String {
    let mut options = String::new();
    let db = global.db.to_string_lossy();
    if db != "hapax.db" {
        // A password is not printed. The shell that gave it in a variable gives it again.
        let db = match has_password(&db) {
            true if variable == Some(&db) => "\"$HAPAX_DB\"".to_owned(),
            true => quoted(&without_password(&db)),
            false => quoted(&db),
        };
        options.push_str(" --db ");
        options.push_str(&db);
    }
    if let Some(key) = &global.signing_key {
        options.push_str(" --signing-key ");
        options.push_str(&quoted(&key.to_string_lossy()));
    }
    if global.namespace != "default" {
        options.push_str(" --namespace ");
        options.push_str(&quoted(&global.namespace));
    }
    options
}

fn quoted(word: &str) -> String {
    shlex::Quoter::new().allow_nul(true).quote(word).map_or_else(|_| "''".into(), Into::into)
}

/// The parts of a URL around its password, if it has one.
fn around_password(db: &str) -> Option<(&str, &str)> {
    let scheme = db.find("://")? + 3;
    let authority = db[scheme..].find('/').map_or(db.len(), |end| scheme + end);
    let at = scheme + db[scheme..authority].rfind('@')?;
    let colon = scheme + db[scheme..at].find(':')?;
    Some((&db[..colon], &db[at..]))
}

fn has_password(db: &str) -> bool {
    around_password(db).is_some() || db.contains("password=")
}

fn without_password(db: &str) -> String {
    let db = match around_password(db) {
        Some((before, after)) => format!("{before}{after}"),
        None => db.to_owned(),
    };
    match db.split_once("password=") {
        Some((before, rest)) => {
            let rest = rest.find('&').map_or("", |end| &rest[end..]);
            format!("{before}password={rest}")
        }
        None => db,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn of(db: &str, namespace: &str, variable: Option<&str>) -> String {
        let (db, namespace) = (PathBuf::from(db), namespace.to_owned());
        options(&Global { db, signing_key: None, namespace, json: false }, variable)
    }

    /// A printed command names the ledger, and no secret.
    #[test]
    fn a_printed_command_names_the_ledger() {
        assert_eq!(of("hapax.db", "default", None), "");
        assert_eq!(of("a b.db", "shop", None), " --db 'a b.db' --namespace shop");
        let url = "postgres://ann:s3cret@db.example/shop";
        assert_eq!(of(url, "default", None), " --db postgres://ann@db.example/shop");
        assert_eq!(of(url, "default", Some(url)), " --db \"$HAPAX_DB\"");
        let url = "postgres://db.example/shop?user=ann&password=s3cret&sslmode=require";
        assert!(!of(url, "default", None).contains("s3cret"));
        assert!(of(url, "default", None).contains("sslmode=require"));
        let url = "postgres://ann@db.example/shop";
        assert_eq!(of(url, "default", None), format!(" --db {url}"));
    }

    #[test]
    fn what_a_shell_would_run_is_quoted() {
        for word in ["a`touch x`", "$(id)", "it's", "a b", "!x", "", "a\nb", "\u{1b}[2J"] {
            let line = quoted(word);
            assert_eq!(shlex::split(&line), Some(vec![word.to_owned()]), "{line}");
        }
    }
}
