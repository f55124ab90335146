//! Rule `retry-loop`: a loop that goes on after a failure, ends after a success, and counts its
//! tries or sleeps between them.

use std::sync::LazyLock;

use regex::Regex;

use super::effect::{self, Effect};
use super::table::Patterns;
use super::{Line, Lines, fixed};
use crate::rule::Rule;
use crate::scan::Hit;
use crate::source::Language;
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

/// `except`, `catch`.
static CAUGHT: LazyLock<Regex> = LazyLock::new(|| fixed(r"^\s*\}?\s*(?:except|catch)\b"));

/// A function that a decorator stands above.
static FUNCTION: LazyLock<Regex> = LazyLock::new(|| fixed(r"^\s*(?:async\s+)?def\s+(\w+)\s*\("));

/// `while not done:`, `while (!done)`.
static UNTIL: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^\s*while\b\s*\(?\s*(?:not\s+|!)\s*([A-Za-z_$][\w$]*)\s*[):]"));

/// A pause that is different each time: `for delay in (1, 2, 4):`.
static PAUSES: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"^\s*(?:async\s+)?for\s*\(?\s*(?:(?:const|let|var)\s+)?\w*(?:delay|wait|pause|backoff)\w*\s+(?:in|of)\b",
    )
});

/// A loop that only a `break` or a `return` ends.
static COUNTLESS: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^\s*(?:async\s+)?for\b.*\b(?:itertools\.)?count\("));

/// A status that asks for another try.
static BAD_STATUS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"(?i)\bif\b.*(?:(?:not\s+|!)\s*\w+\.ok\b|status\w*(?:\(\))?\s*(?:(?:>=?|!={1,2}|(?:not\s+)?in\b)\s*[\w({\[]|={2,3}\s*(?:[45]\d\d|http)))",
    )
});

pub(super) fn find(lines: &Lines<'_>, patterns: &Patterns, language: Language) -> Vec<Hit> {
    let calls = Calls { patterns, language };
    let mut hits = Vec::new();
    for (nth, line) in lines.iter() {
        if let Some(library) = patterns.library.find(line.text)
            && calls.are_repeated_by_library(lines, nth)
        {
            let name = library.as_str().trim().trim_end_matches(['(', ' ']);
            let why = format!("`{name}` retries calls without a record in a ledger");
            let at = library.start() + library.as_str().len() - library.as_str().trim_start().len();
            hits.push(line.hit(Rule::RetryLoop, nth, at, why));
        } else if LOOP.is_match(line.text) && retries(lines, nth, line, &calls) {
            let why = "this loop makes a remote call again when it fails".to_owned();
            hits.push(line.hit(Rule::RetryLoop, nth, line.indent, why));
        }
    }
    hits
}

/// The calls of a language that a loop should not repeat.
struct Calls<'a> {
    patterns: &'a Patterns,
    language: Language,
}

impl Calls<'_> {
    /// Whether effects are known by their names too, and failures are caught by blocks.
    fn are_named(&self) -> bool {
        matches!(self.language, Language::Python | Language::Script)
    }

    fn stand_in(&self, line: Line<'_>) -> bool {
        self.patterns.remote.is_match(line.text) || self.write_in(line)
    }

    /// Whether a line has an effect that is known by its name.
    fn write_in(&self, line: Line<'_>) -> bool {
        self.are_named() && effect::of(line.text) == Some(Effect::Sure)
    }

    /// Whether the code that a library's name applies to makes such a call.
    fn are_repeated_by_library(&self, lines: &Lines<'_>, nth: usize) -> bool {
        if self.language == Language::Python && lines.lines[nth].code().starts_with('@') {
            let Some((at, name)) = decorated(lines, nth) else { return false };
            let indent = lines.lines[at].indent;
            // The end of a long signature is as far left as its beginning.
            let inside = |line: &Line<'_>| {
                line.indent > indent || line.code().is_empty() || line.code().starts_with(')')
            };
            let after = lines.iter().skip(at + 1).take(BODY).map(|(_, line)| line);
            return effect::judge(name, false) == Some(Effect::Sure)
                || after.take_while(inside).any(|line| self.stand_in(line));
        }
        near(lines, nth).any(|line| self.stand_in(line))
    }
}

/// The function below a decorator, which may take several lines and have others beneath it.
fn decorated<'a>(lines: &Lines<'a>, nth: usize) -> Option<(usize, &'a str)> {
    let indent = lines.lines[nth].indent;
    let below = lines.iter().skip(nth + 1).take(BODY);
    let beside = below.filter(|(_, line)| line.indent == indent && !line.code().is_empty());
    let mut functions = beside.take_while(|(_, line)| !line.code().starts_with("class "));
    functions.find_map(|(at, line)| Some((at, FUNCTION.captures(line.text)?.get(1)?.as_str())))
}

/// The lines that a library's name applies to: those that follow, or those before a bare `retry`.
fn near<'a>(lines: &'a Lines<'_>, nth: usize) -> impl Iterator<Item = Line<'a>> {
    let code = lines.lines[nth].code();
    let bare = code == "retry" || code.starts_with("retry ");
    let range = if bare { nth.saturating_sub(NEAR)..nth + 1 } else { nth..nth + NEAR };
    lines.iter().skip(range.start).take(range.len()).map(|(_, line)| line)
}

fn retries(lines: &Lines<'_>, nth: usize, head: Line<'_>, calls: &Calls<'_>) -> bool {
    let pauses = calls.are_named() && PAUSES.is_match(head.text);
    let counted = pauses || has_any(head.text, COUNTERS);
    let endless = ENDLESS.is_match(head.text) || COUNTLESS.is_match(head.text);
    let numbered = NUMBERED.is_match(head.text) && !ITEMS.is_match(head.text);
    if !counted && !endless && !numbered {
        return false;
    }
    let body = own(lines, lines.block(nth, BODY));
    let Some(call) = body.iter().position(|(_, line)| calls.stand_in(*line)) else {
        // `until curl -X POST ..; do`: the call is the condition.
        return head.code().starts_with("until") && calls.stand_in(head);
    };
    let counts = counted || numbered || body.iter().any(|(_, line)| has_any(line.text, COUNTERS));
    let sleeps = body.iter().any(|(_, line)| SLEEPS.is_match(line.text));
    let round =
        body.iter().any(|(nth, line)| FAILED.is_match(line.text) && goes_round(lines, *nth));
    let leaves = success_leaves(lines, &body, call);
    let caught = calls.are_named() && is_caught(lines, &body, call);
    if !counts && !sleeps {
        // `while True: try .. except X: continue` neither counts nor waits.
        return endless && caught && leaves;
    }
    let writes = body.iter().any(|(_, line)| calls.write_in(*line));
    let well = body.iter().any(|(nth, line)| {
        let checks_success =
            WELL.is_match(line.text) || (counts || writes) && WELL_BY_STATUS.is_match(line.text);
        checks_success
            && (SHORT_LEAVES.is_match(line.text) || leaves_loop(&lines.block(*nth, BODY)))
    });
    let again = calls.are_named()
        && body.iter().any(|(nth, line)| {
            BAD_STATUS.is_match(line.text) && says_again(line, &lines.block(*nth, BODY))
        });
    let shell = body[call].1.text.contains("&& break");
    // By its name it is no loop over things, even if nothing ends it after a success.
    let tries = counted && sleeps && (numbered || endless || pauses);
    well || shell
        || (round || again) && leaves
        || caught && (ends_by_flag(head, &body[call..]) || tries)
}

/// Whether a `try` around a call goes on with the loop when the call fails.
fn is_caught(lines: &Lines<'_>, body: &[(usize, Line<'_>)], call: usize) -> bool {
    let (_, made) = body[call];
    body[call + 1..].iter().any(|(nth, line)| {
        line.indent < made.indent && CAUGHT.is_match(line.text) && goes_round(lines, *nth)
    })
}

/// Whether the loop runs until a flag is set, and a line after the call sets it: `while not sent`,
/// `sent = True`.
fn ends_by_flag(head: Line<'_>, after: &[(usize, Line<'_>)]) -> bool {
    let Some(flag) = UNTIL.captures(head.text).and_then(|until| until.get(1)) else {
        return false;
    };
    let mut beside = after.iter().take_while(|(_, line)| line.indent >= after[0].1.indent);
    beside.any(|(_, line)| {
        let value = line.code().strip_prefix(flag.as_str()).map(str::trim_start);
        value.is_some_and(|value| value.starts_with('=') && !value.starts_with("=="))
    })
}

/// Whether a branch ends with the next round of the loop.
fn says_again(branch: &Line<'_>, block: &[(usize, Line<'_>)]) -> bool {
    let last = block.last().map_or(branch.code(), |(_, line)| line.code());
    last.trim_end_matches([';', '}', ' ']).ends_with("continue")
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
    if block.iter().any(|(_, line)| line.code().trim_end_matches(';') == "continue") {
        return true;
    }
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

/// Whether the loop is left right after the call: in its own block, in the block that it opens, in
/// the `else` of its `try`, or at the end.
fn success_leaves(lines: &Lines<'_>, body: &[(usize, Line<'_>)], call: usize) -> bool {
    let (nth, made) = body[call];
    let ends = |nth: usize, line: &Line<'_>| {
        line.code().ends_with(':') && leaves_loop(&lines.block(nth, BODY))
    };
    // A line with less indentation is in another block: that of `except`, say.
    let after = body[call + 1..].iter();
    let beside = after.clone().take_while(|(_, line)| line.indent >= made.indent);
    let mut beside = beside.filter(|(_, line)| line.indent == made.indent);
    let mut outside = after.filter(|(_, line)| line.indent < made.indent);
    LEAVES.is_match(made.code())
        || ends(nth, &made)
        || beside.any(|(nth, line)| {
            LEAVES.is_match(line.code()) || line.code().starts_with(')') && ends(*nth, line)
        })
        || outside.any(|(nth, line)| line.code() == "else:" && ends(*nth, line))
        || leaves_loop(body)
}
