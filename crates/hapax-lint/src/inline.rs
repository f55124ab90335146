//! Allows written into the source: `hapax-lint: allow(rule) why`, in a comment on the line or
//! above it.

use crate::rule::Rule;
use crate::scan::Hit;
use crate::source::Source;

/// An allow in a comment.
#[derive(Debug)]
pub(crate) struct Inline {
    pub(crate) rule: Rule,
    pub(crate) reason: String,
    /// Where it is written.
    pub(crate) line: usize,
    /// The line that it allows.
    pub(crate) covers: usize,
}

/// The allows of a source, and a hit for each faulty one.
pub(crate) fn allows(source: &Source) -> (Vec<Inline>, Vec<Hit>) {
    let mut allows = Vec::new();
    let mut faults = Vec::new();
    for comment in &source.comments {
        // An allow in documentation does not count.
        let text = comment.text.trim_start();
        if text.starts_with("///") || text.starts_with("//!") {
            continue;
        }
        let text = text.trim_start_matches(['/', '*', '#', '-', ' ']).trim_end_matches("*/");
        let Some(text) = text.strip_prefix("hapax-lint:") else { continue };
        let mut fault = |why: String| {
            faults.push(Hit {
                rule: Rule::AllowWithoutReason,
                line: comment.line,
                column: comment.column,
                why,
            });
        };
        let Some((rules, reason)) =
            text.trim_start().strip_prefix("allow(").and_then(|text| text.split_once(')'))
        else {
            fault("this is not of the form `allow(rule) reason`".to_owned());
            continue;
        };
        let reason = reason.trim_matches(|c: char| c.is_whitespace() || ":-–—".contains(c));
        for name in rules.split(',').map(str::trim) {
            match Rule::allowable(name) {
                None => fault(format!("there is no rule `{name}` to allow")),
                Some(rule) if reason.is_empty() => {
                    fault(format!("`{rule}` is allowed here without a reason"));
                }
                Some(rule) => allows.push(Inline {
                    rule,
                    reason: reason.to_owned(),
                    line: comment.line,
                    covers: covered(source, comment.line),
                }),
            }
        }
    }
    (allows, faults)
}

/// The line itself if it has code, else the next that has.
fn covered(source: &Source, line: usize) -> usize {
    let from = source.code.lines().skip(line - 1);
    line + from.take_while(|code| code.trim().is_empty()).count()
}
