//! The report of a scan, and its output: for people, as JSON, and as SARIF.

use std::fmt::Write;

use serde::Serialize;

use crate::rule::Rule;
use crate::sarif;
use crate::scan::Hit;
use crate::source::Source;
use crate::walk::SourceFile;

/// How much of a line is shown, in characters.
const EXCERPT_CHARS: usize = 160;

/// The report of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The findings that are not allowed.
    pub findings: Vec<Finding>,
    /// The findings that are allowed, each with its reason.
    pub allowed: Vec<Allowed>,
    /// Allows that no finding needs any more.
    pub unused_allows: Vec<UnusedAllow>,
    /// Rust that does not parse and was read by pattern.
    pub unparsed: Vec<Unparsed>,
    /// How many files were read.
    pub files: usize,
    /// The source files that were not read.
    pub skipped: Skipped,
}

/// One place where a rule trips.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The file, with forward slashes.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The line, trimmed and shortened.
    pub excerpt: String,
    /// The reason for the finding.
    pub why: String,
    /// The remedy.
    pub instead: &'static str,
}

/// A finding with the reason it is allowed for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowed {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// The reason that the allow gives.
    pub reason: String,
    /// Where the allow is written.
    pub by: Suppression,
}

/// Where an allow is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suppression {
    /// In `hapax-lint.toml`.
    Config,
    /// In a comment of the source.
    Inline,
}

/// An allow that allowed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnusedAllow {
    /// The rule.
    pub rule: Rule,
    /// The glob of a configured allow, the file of one in a comment.
    pub path: String,
    /// The line on which it is written: of the configuration, or of the file.
    pub line: usize,
    /// Where it is written.
    pub by: Suppression,
}

/// Rust that could not be read by its syntax tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unparsed {
    /// The file.
    pub path: String,
    /// Where the parser stopped.
    pub line: usize,
    /// The parser's message.
    pub problem: String,
}

/// Source files that were not read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Longer than [`FILE_MAX_BYTES`](crate::FILE_MAX_BYTES).
    pub large: Vec<String>,
    /// Not text.
    pub binary: Vec<String>,
}

impl Finding {
    pub(crate) fn new(file: &SourceFile, source: &Source, hit: Hit) -> Self {
        let Hit { rule, line, column, why } = hit;
        let excerpt = shorten(source.line(line).trim());
        Self { rule, path: file.name.clone(), line, column, excerpt, why, instead: rule.instead() }
    }
}

impl Report {
    /// Whether all findings are allowed.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// For people: one paragraph for each finding, then notes, then counts.
    pub fn human(&self) -> String {
        let mut text = String::new();
        for Finding { rule, path, line, column, excerpt, why, instead } in &self.findings {
            text += &format!("{path}:{line}:{column}: {rule}: {why}\n");
            text += &format!("    {excerpt}\n    instead: {instead}\n\n");
        }
        for UnusedAllow { rule, path, line, by } in &self.unused_allows {
            text += &match by {
                Suppression::Config => format!(
                    "note: hapax-lint.toml:{line}: nothing in {path} needs its allow of {rule}; remove it\n"
                ),
                Suppression::Inline => {
                    format!(
                        "note: {path}:{line}: nothing here needs its allow of {rule}; remove it\n"
                    )
                }
            };
        }
        for Unparsed { path, line, problem } in &self.unparsed {
            text += &format!(
                "note: {path}:{line}: not Rust that parses ({problem}); read by pattern\n"
            );
        }
        let skipped = self.skipped.large.iter().map(|path| (path, "larger than 2 MiB"));
        let skipped = skipped.chain(self.skipped.binary.iter().map(|path| (path, "not text")));
        for (path, why) in skipped {
            text += &format!("note: {path}: not read, {why}\n");
        }
        text + &self.counts()
    }

    fn counts(&self) -> String {
        let counted = |count: usize, noun: &str| match count {
            1 => format!("1 {noun}"),
            _ => format!("{count} {noun}s"),
        };
        let mut text = counted(self.findings.len(), "finding");
        text += &format!(" in {}, ", counted(self.files, "file"));
        text += &format!("{} allowed", self.allowed.len());
        let skipped = self.skipped.large.len() + self.skipped.binary.len();
        let rest = [(skipped, "not read"), (self.unparsed.len(), "read by pattern only")];
        for (count, what) in rest.into_iter().filter(|(count, _)| *count > 0) {
            text += &format!(", {count} {what}");
        }
        if !self.unused_allows.is_empty() {
            text += &format!(", {}", counted(self.unused_allows.len(), "unused allow"));
        }
        text + "\n"
    }

    /// For programs: everything, as JSON.
    pub fn json(&self) -> String {
        pretty(&serde_json::json!(self))
    }

    /// For code scanning services: SARIF 2.1.0. Allowed findings are in it, suppressed.
    pub fn sarif(&self) -> String {
        pretty(&sarif::log(self))
    }
}

fn pretty(value: &serde_json::Value) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{value:#}");
    text
}

/// A line that is safe to show: shortened, and without characters that move the cursor.
fn shorten(line: &str) -> String {
    let mut chars = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut text: String = chars.by_ref().take(EXCERPT_CHARS).collect();
    if chars.next().is_some() {
        text.pop();
        text.push('…');
    }
    text
}
