//! Rule `retry-loop`: a loop that goes on after a failure, ends after a success, and counts its
//! tries or sleeps between them.

use std::sync::LazyLock;

use regex::Regex;

use super::table::Patterns;
use super::{Line, Lines};
use crate::rule::Rule;
use crate::scan::Hit;
use crate::words::has_any;

/// How many lines of a loop or another block are read.
const BODY: usize = 60;

/// How far from a library's name its call may be, in lines.
const NEAR: usize = 12;

const COUNTERS: &str = "attempt attempts retry retries tries backoff";

static LOOP: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"^\s*(?:\w+:\s*)?(?:async\s+)?(for|while|until|loop|do|foreach|repeat)\b|\b(loop\s+do|times\s+do)\b",
    )
});
static ENDLESS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"^\s*(?:\w+:\s*)?(?:while|until|loop|do)\b|^\s*for\s*(?:\{|\(\s*;\s*;)|\bloop\s+do\b")
});
static NUMBERED: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"\brange\(|[<>]=?|\.\.|\btimes\b|\bseq\b|\bin\s+\d"));
static ITEMS: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"(?i)length|len\(|size|count\b|\bof\b|:=\s*range|\beach\b"));
static SLEEPS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(?i)sleep\w*\s*\(|\bsleep\s+[\d$]|setTimeout|\bdelay\(|backoff|time\.After|Task\.Delay")
});
static FAILED: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^\s*\}?\s*(?:except|catch|rescue)\b|\berr\s*!=\s*nil\b|\bErr\("));
static WELL: LazyLock<Regex> = LazyLock::new(|| fixed(r"\berr\s*==\s*nil\b"));
static WELL_BY_STATUS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"(?i)\bif\b.*(?:\.ok\b|is_?success\w*|status\w*(?:\(\))?\s*(?:<|={2,3})\s*(?:\d|http)|raise_for_status)",
    )
});
static LEAVES: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^(?:return|raise|throw|break|panic|exit|os\.Exit)\b"));
static SHORT_LEAVES: LazyLock<Regex> = LazyLock::new(|| fixed(r"\b(?:return|break)\b"));

fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a fixed pattern")
}

pub(super) fn find(lines: &Lines<'_>, patterns: &Patterns) -> Vec<Hit> {
    let mut hits = Vec::new();
    for (nth, line) in lines.iter() {
        if let Some(library) = patterns.library.find(line.text)
            && near(lines, nth).any(|line| patterns.remote.is_match(line.text))
        {
            let name = library.as_str().trim().trim_end_matches(['(', ' ']);
            let why = format!("`{name}` retries calls without a record in a ledger");
            let at = library.start() + library.as_str().len() - library.as_str().trim_start().len();
            hits.push(line.hit(Rule::RetryLoop, nth, at, why));
        } else if LOOP.is_match(line.text) && retries(lines, nth, line, patterns) {
            let why = "this loop makes a remote call again when it fails".to_owned();
            hits.push(line.hit(Rule::RetryLoop, nth, line.indent, why));
        }
    }
    hits
}

/// The lines that a library's name applies to: those that follow, or those before a bare `retry`.
fn near<'a>(lines: &'a Lines<'_>, nth: usize) -> impl Iterator<Item = Line<'a>> {
    let bare = lines.lines[nth].code().starts_with("retry");
    let range = if bare { nth.saturating_sub(NEAR)..nth + 1 } else { nth..nth + NEAR };
    lines.iter().skip(range.start).take(range.len()).map(|(_, line)| line)
}

fn retries(lines: &Lines<'_>, nth: usize, head: Line<'_>, patterns: &Patterns) -> bool {
    let counted = has_any(head.text, COUNTERS);
    let endless = ENDLESS.is_match(head.text);
    let numbered = NUMBERED.is_match(head.text) && !ITEMS.is_match(head.text);
    if !counted && !endless && !numbered {
        return false;
    }
    let body = own(lines, lines.block(nth, BODY));
    let calls = |line: &Line<'_>| patterns.remote.is_match(line.text);
    let Some(call) = body.iter().position(|(_, line)| calls(line)) else {
        // `until curl -X POST ..; do`: the call is the condition.
        return head.code().starts_with("until") && calls(&head);
    };
    let counts = counted || numbered || body.iter().any(|(_, line)| has_any(line.text, COUNTERS));
    let sleeps = body.iter().any(|(_, line)| SLEEPS.is_match(line.text));
    if !counts && !sleeps {
        return false;
    }
    let well = body.iter().any(|(nth, line)| {
        let checks_success =
            WELL.is_match(line.text) || counts && WELL_BY_STATUS.is_match(line.text);
        checks_success
            && (SHORT_LEAVES.is_match(line.text) || leaves_loop(&lines.block(*nth, BODY)))
    });
    let round =
        body.iter().any(|(nth, line)| FAILED.is_match(line.text) && goes_round(lines, *nth));
    let shell = body[call].1.text.contains("&& break");
    well || shell || round && success_leaves(&body, call)
}

/// The lines of a body that are not in loops of their own.
fn own<'a>(lines: &Lines<'a>, body: Vec<(usize, Line<'a>)>) -> Vec<(usize, Line<'a>)> {
    let inner = body.iter().filter(|(_, line)| LOOP.is_match(line.text));
    let inner: Vec<usize> =
        inner.flat_map(|(nth, _)| lines.block(*nth, BODY)).map(|(nth, _)| nth).collect();
    body.into_iter().filter(|(nth, _)| !inner.contains(nth)).collect()
}

/// Whether the loop goes on after a failure is handled.
fn goes_round(lines: &Lines<'_>, nth: usize) -> bool {
    let block = lines.block(nth, BODY);
    if block.is_empty() {
        let after = lines.lines[nth].text.rsplit([':', '{', '>']).next().unwrap_or_default();
        return !LEAVES.is_match(after.trim());
    }
    !leaves_loop(&block)
}

/// Whether a block's last statement leaves the loop.
fn leaves_loop(block: &[(usize, Line<'_>)]) -> bool {
    let shallow = block.iter().map(|(_, line)| line.indent).min();
    let last = block.iter().rev().find(|(_, line)| Some(line.indent) == shallow);
    last.is_some_and(|(_, line)| LEAVES.is_match(line.code()))
}

/// Whether the loop is left right after the call, in its own block or at the end.
fn success_leaves(body: &[(usize, Line<'_>)], call: usize) -> bool {
    let (_, made) = body[call];
    let after = body[call + 1..].iter().map(|(_, line)| line);
    // A line with less indentation is in another block: that of `except`, say.
    let beside = after.take_while(|line| line.indent >= made.indent);
    let mut beside = beside.filter(|line| line.indent == made.indent);
    LEAVES.is_match(made.code())
        || beside.any(|line| LEAVES.is_match(line.code()))
        || leaves_loop(body)
}
