//! `hapax-lint.toml`: the excluded paths, and the allows with their reasons.
//!
//! ```toml
//! include_tests = false
//! exclude = ["generated/**"]
//!
//! [[allow]]
//! rule = "retry-loop"
//! path = "src/legacy/**"
//! reason = "replaced with the importer in May"
//! ```

use std::ops::Range;

use globset::{Glob, GlobBuilder, GlobMatcher};
use serde::Deserialize;
use toml::Spanned;

use crate::rule::Rule;

/// The largest configuration that is read.
pub const CONFIG_MAX_BYTES: usize = 64 * 1024;

/// The most `[[allow]]` entries.
pub const ALLOWS_MAX: usize = 256;

/// The most `exclude` globs.
pub const EXCLUDES_MAX: usize = 256;

/// The exclusions and the allows of a scan.
#[derive(Debug, Clone, Default)]
pub struct Config {
    pub(crate) include_tests: bool,
    pub(crate) exclude: Vec<GlobMatcher>,
    pub(crate) allow: Vec<Allow>,
}

/// One rule, allowed in some files for a reason.
#[derive(Debug, Clone)]
pub(crate) struct Allow {
    pub(crate) rule: Rule,
    pub(crate) path: GlobMatcher,
    pub(crate) reason: String,
    pub(crate) line: usize,
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It is longer than [`CONFIG_MAX_BYTES`].
    #[error("{bytes} bytes of configuration, at most {CONFIG_MAX_BYTES} are read; use wider globs")]
    TooLarge {
        /// How long it is.
        bytes: usize,
    },
    /// It is not TOML, or has a field that does not exist.
    #[error("line {line}: {problem}")]
    Syntax {
        /// The line.
        line: usize,
        /// The problem, and what was expected.
        problem: String,
    },
    /// More entries than one reviewer can answer for.
    #[error("{count} entries of `{field}`, at most {most} are taken; use wider globs")]
    TooMany {
        /// The field.
        field: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// There is no such rule to allow.
    #[error(
        "line {line}: there is no rule {rule:?} to allow; \
         write `key-derivation`, `dedupe-store` or `retry-loop`"
    )]
    Rule {
        /// The line.
        line: usize,
        /// The unknown rule.
        rule: String,
    },
    /// The reason is missing or blank.
    #[error("line {line}: this allow has no reason; write `reason = \"why it is right here\"`")]
    NoReason {
        /// The line.
        line: usize,
    },
    /// A glob cannot be read.
    #[error("line {line}: {glob:?} is not a glob, {problem}; write one such as \"src/legacy/**\"")]
    Glob {
        /// The line.
        line: usize,
        /// The glob.
        glob: String,
        /// The problem with it.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    include_tests: bool,
    #[serde(default)]
    exclude: Vec<Spanned<String>>,
    #[serde(default)]
    allow: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    rule: Spanned<String>,
    path: Spanned<String>,
    reason: Option<Spanned<String>>,
}

impl Config {
    /// Reads a configuration.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.len() > CONFIG_MAX_BYTES {
            return Err(ConfigError::TooLarge { bytes: text.len() });
        }
        let file: File = toml::from_str(text).map_err(|e| ConfigError::Syntax {
            line: line_of(text, &e.span().unwrap_or_default()),
            problem: e.message().to_owned(),
        })?;
        at_most("exclude", file.exclude.len(), EXCLUDES_MAX)?;
        at_most("allow", file.allow.len(), ALLOWS_MAX)?;
        let exclude = file.exclude.iter().map(|pattern| glob(text, pattern));
        let allow = file.allow.iter().map(|entry| Allow::read(text, entry));
        Ok(Self {
            include_tests: file.include_tests,
            exclude: exclude.collect::<Result<_, _>>()?,
            allow: allow.collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn excludes(&self, name: &str) -> bool {
        self.exclude.iter().any(|glob| glob.is_match(name))
    }
}

impl Allow {
    fn read(text: &str, entry: &Spanned<Entry>) -> Result<Self, ConfigError> {
        let line = line_of(text, &entry.span());
        let Entry { rule, path, reason } = entry.get_ref();
        let known = Rule::allowable(rule.get_ref()).ok_or_else(|| ConfigError::Rule {
            line: line_of(text, &rule.span()),
            rule: rule.get_ref().clone(),
        })?;
        let reason_line = reason.as_ref().map_or(line, |reason| line_of(text, &reason.span()));
        let reason = reason.as_ref().map_or("", |reason| reason.get_ref().trim());
        if reason.is_empty() {
            return Err(ConfigError::NoReason { line: reason_line });
        }
        Ok(Self { rule: known, path: glob(text, path)?, reason: reason.to_owned(), line })
    }
}

fn at_most(field: &'static str, count: usize, most: usize) -> Result<(), ConfigError> {
    if count > most { Err(ConfigError::TooMany { field, count, most }) } else { Ok(()) }
}

/// A glob in which `*` stays in its directory and `**` does not.
fn glob(text: &str, pattern: &Spanned<String>) -> Result<GlobMatcher, ConfigError> {
    let given = pattern.get_ref();
    let refuse = |problem: String| ConfigError::Glob {
        line: line_of(text, &pattern.span()),
        glob: given.clone(),
        problem,
    };
    let bare = given.trim_start_matches("./").trim_end_matches('/');
    if bare.is_empty() {
        return Err(refuse("it is empty".to_owned()));
    }
    let glob: Result<Glob, _> = GlobBuilder::new(bare).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|e| refuse(e.kind().to_string()))
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.as_bytes().iter().take(span.start);
    1 + before.filter(|byte| **byte == b'\n').count()
}
