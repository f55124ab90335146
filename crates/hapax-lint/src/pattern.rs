//! Other languages, and Rust that does not parse: by pattern, line by line with a small window.
//!
//! Comments are blank here. Blocks are recognised by their indentation, which holds for every
//! language that people format.

mod effect;
mod key;
mod memory;
mod retry;
mod store;
mod table;

use regex::Regex;

use crate::rule::Rule;
use crate::scan::Hit;
use crate::source::Source;
use crate::sql;
use table::Patterns;

/// The longest line that is read. A longer line comes from a bundler.
const LINE_BYTES: usize = 2000;

/// The hits of all rules in a source.
pub(crate) fn find(source: &Source) -> Vec<Hit> {
    let mut hits: Vec<Hit> = sql::find(&source.code)
        .into_iter()
        .map(|(at, why)| {
            let (line, column) = source.place(at);
            Hit { rule: Rule::DedupeStore, line, column, why }
        })
        .collect();
    if let Some(patterns) = Patterns::of(source.language) {
        let lines: Vec<Line<'_>> = source.code.lines().map(Line::new).collect();
        let lines = Lines { lines: &lines };
        hits.extend(key::find(&lines, patterns));
        hits.extend(store::find(&lines));
        hits.extend(memory::find(&lines, source.language));
        hits.extend(retry::find(&lines, patterns, source.language));
    }
    hits
}

fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a fixed pattern")
}

/// A line of code.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    text: &'a str,
    indent: usize,
}

impl<'a> Line<'a> {
    fn new(text: &'a str) -> Self {
        let text = if text.len() > LINE_BYTES { "" } else { text };
        Self { text, indent: text.len() - text.trim_start().len() }
    }

    fn code(&self) -> &'a str {
        self.text.trim()
    }

    fn hit(&self, rule: Rule, nth: usize, at: usize, why: String) -> Hit {
        Hit { rule, line: nth + 1, column: 1 + self.text[..at].chars().count(), why }
    }
}

/// Whether an offset of a line is inside quotes; a name may come first in them.
fn is_quoted(line: &str, at: usize, named: bool) -> bool {
    let before = &line[..at];
    let quote = |c: char| matches!(c, '"' | '\'' | '`');
    !(named && before.ends_with(quote)) && before.matches(quote).count() % 2 == 1
}

struct Lines<'a> {
    lines: &'a [Line<'a>],
}

impl<'a> Lines<'a> {
    fn iter(&self) -> impl Iterator<Item = (usize, Line<'a>)> {
        self.lines.iter().copied().enumerate()
    }

    /// The lines of the block that a line opens, at most this many.
    fn block(&self, head: usize, most: usize) -> Vec<(usize, Line<'a>)> {
        let indent = self.lines[head].indent;
        let after = self.iter().skip(head + 1);
        // A brace may have a line of its own.
        let opened = after.skip_while(|(_, line)| line.code() == "{" && line.indent == indent);
        let inside = |(_, line): &(usize, Line<'_>)| line.indent > indent || line.code().is_empty();
        let block = opened.take_while(inside).filter(|(_, line)| !line.code().is_empty());
        block.take(most).collect()
    }
}
