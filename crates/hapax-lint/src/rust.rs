//! Rust, read by its syntax tree.
//!
//! Tests are cut out first and macros are unfolded where their arguments are expressions; then each
//! rule walks the rest of the tree.

mod key;
mod names;
mod prune;
mod retry;
mod store;

use proc_macro2::{Span, TokenStream, TokenTree};

use crate::rule::Rule;
use crate::scan::Hit;
use crate::source::Source;
use names::Names;

/// How deep a tree may be, in tokens that can nest; past this it is not read by recursion.
const DEPTH_MAX: usize = 50_000;

/// The depth that a pair of brackets adds: many more frames than an operator.
const BRACKET_DEPTH: usize = 10;

/// Why a file has no syntax tree.
#[derive(Debug)]
pub(crate) struct NotRead {
    pub(crate) line: usize,
    pub(crate) problem: String,
}

/// The hits of all rules in a file.
pub(crate) fn find(source: &Source, include_tests: bool) -> Result<Vec<Hit>, NotRead> {
    let found = read(&source.text).map(|mut file| {
        prune::prune(&mut file, include_tests);
        let names = Names::of(&file);
        let mut hits = key::find(&file, &names);
        hits.extend(store::find(&file, &names));
        hits.extend(retry::find(&file, &names));
        hits
    });
    // `proc_macro2` keeps every text that was ever parsed for its spans; this file's are not used
    // from here on.
    proc_macro2::extra::invalidate_current_thread_spans();
    found
}

fn read(text: &str) -> Result<syn::File, NotRead> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let script = text.starts_with("#!") && !text.starts_with("#![");
    let text = if script { text.replacen("#!", "//", 1) } else { text.to_owned() };
    let too_deep = || NotRead { line: 1, problem: "nested too deeply".to_owned() };
    if brackets(&text) > DEPTH_MAX / BRACKET_DEPTH {
        return Err(too_deep());
    }
    let tokens: TokenStream = text.parse().map_err(|e: proc_macro2::LexError| NotRead {
        line: e.span().start().line,
        problem: e.to_string(),
    })?;
    if is_too_deep(tokens.clone(), 0) {
        return Err(too_deep());
    }
    syn::parse2(tokens).map_err(|e| NotRead { line: e.span().start().line, problem: e.to_string() })
}

/// The depth of nested brackets; those in string literals count as well.
fn brackets(text: &str) -> usize {
    let depths = text.bytes().scan(0_usize, |depth, byte| {
        match byte {
            b'(' | b'[' | b'{' => *depth += 1,
            b')' | b']' | b'}' => *depth = depth.saturating_sub(1),
            _ => {}
        }
        Some(*depth)
    });
    depths.max().unwrap_or_default()
}

/// A bound on how deep the tree of these tokens can be: operators, calls and `else if` nest
/// until something ends the run.
fn is_too_deep(tokens: TokenStream, above: usize) -> bool {
    let mut run = above;
    for token in tokens {
        match token {
            TokenTree::Punct(mark) if matches!(mark.as_char(), ';' | ',') => run = above,
            TokenTree::Group(group) => {
                run += BRACKET_DEPTH;
                if run <= DEPTH_MAX && is_too_deep(group.stream(), run) {
                    return true;
                }
                // An item's body ends the run, but the arm of an `if` looks the same.
                run -= BRACKET_DEPTH - 1;
            }
            _ => run += 1,
        }
        if run > DEPTH_MAX {
            return true;
        }
    }
    false
}

fn hit(rule: Rule, span: Span, why: String) -> Hit {
    let start = span.start();
    Hit { rule, line: start.line, column: start.column + 1, why }
}
