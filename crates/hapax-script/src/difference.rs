//! Differences that keep a repaired script from replacing the one before, and their messages.

use std::fmt::{Display, Formatter, Result};

use crate::trace::Piece;

/// At most this many characters of a piece are shown.
const SHOWN: usize = 120;

/// One reason why a script may not replace another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// An item's id is built in another way: items that are done would be done again.
    ItemId {
        /// How it was built.
        before: String,
        /// How it would be built.
        after: String,
        /// Where, in the new script.
        line: usize,
    },
    /// An item was added.
    ItemAdded {
        /// How its id is built.
        id: String,
        /// Where, in the new script.
        line: usize,
    },
    /// An item was removed.
    ItemRemoved {
        /// How its id was built.
        id: String,
        /// Where, in the script before.
        line: usize,
    },
    /// A subkey appears, disappears or is built in another way: a mutation that happened would
    /// happen again.
    Subkey {
        /// The tool.
        tool: String,
        /// The operation.
        operation: String,
        /// How it was built. None if there was none.
        before: Option<String>,
        /// How it would be built. None if there is none.
        after: Option<String>,
        /// Where, in the new script; in the script before, if the call is gone.
        line: usize,
    },
    /// Calls of an operation were added or removed and others of it changed, so it is unknown which
    /// call kept its subkey.
    Calls {
        /// The tool.
        tool: String,
        /// The operation.
        operation: String,
        /// The first that changed, in the new script.
        line: usize,
    },
    /// A call moved from one item into another: what happened for the one would happen again for
    /// the other.
    Moved {
        /// The tool.
        tool: String,
        /// The operation.
        operation: String,
        /// Where, in the new script.
        line: usize,
    },
    /// A tool or an operation is used that was not used before.
    NewTool {
        /// The tool.
        tool: String,
        /// The operation, if only that is new.
        operation: Option<String>,
        /// Where, in the new script.
        line: usize,
    },
    /// Code could change ids, subkeys or tools without showing in them.
    Hidden {
        /// A description of the code.
        what: String,
        /// Where, in the new script.
        line: usize,
    },
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::ItemId { before, after, line } => write!(
                f,
                "line {line}: the item id is built differently, so done items would be done \
                 again; before: {before}; now: {after}"
            ),
            Self::ItemAdded { id, line } => {
                write!(f, "line {line}: an item was added; its id: {id}")
            }
            Self::ItemRemoved { id, line } => {
                write!(f, "line {line} of the script before: an item was removed; its id: {id}")
            }
            Self::Subkey { tool, operation, before, after, line } => {
                let none = || "none".to_owned();
                write!(
                    f,
                    "line {line}: the subkey of {tool}.{operation} is another, so it would \
                     happen again; before: {}; now: {}",
                    before.clone().unwrap_or_else(none),
                    after.clone().unwrap_or_else(none),
                )
            }
            Self::Calls { tool, operation, line } => write!(
                f,
                "line {line}: calls of {tool}.{operation} were added or removed and others \
                 changed; which of them kept its subkey is unknown"
            ),
            Self::Moved { tool, operation, line } => write!(
                f,
                "line {line}: {tool}.{operation} moved into another item, so it would happen again"
            ),
            Self::NewTool { tool, operation: None, line } => {
                write!(f, "line {line}: the tool {tool} was not used before")
            }
            Self::NewTool { tool, operation: Some(operation), line } => {
                write!(f, "line {line}: {tool}.{operation} was not used before")
            }
            Self::Hidden { what, line } => {
                write!(f, "line {line}: {what}, so what it does to ids or tools does not show")
            }
        }
    }
}

/// The difference between two constructions, for people: the expressions if they differ, else the
/// first differing piece, preferring one that decides a value.
pub(crate) fn contrast<'a>(before: &'a [Piece], after: &'a [Piece]) -> (String, String) {
    let differs = |index: &usize| {
        let content = |piece: &'a Piece| (&piece.normal_form, &piece.questions);
        before.get(*index).map(content) != after.get(*index).map(content)
    };
    let index = (0..before.len().max(after.len())).find(differs).unwrap_or(0);
    let missing = |pieces: &'a [Piece], others: &[Piece]| {
        let missing =
            |piece: &&Piece| others.iter().all(|other| other.normal_form != piece.normal_form);
        pieces.iter().filter(missing).min_by_key(|piece| piece.beside)
    };
    let (mut old, mut new) = (missing(before, after), missing(after, before));
    if index == 0 || (old.is_none() && new.is_none()) {
        (old, new) = (before.get(index), after.get(index));
    }
    let shown =
        |piece: Option<&Piece>| piece.map_or("nothing more", |piece| &piece.shown).to_owned();
    let (mut left, mut right) = (shown(old), shown(new));
    if left == right {
        let normal_form = |piece: Option<&Piece>| piece.map(|piece| piece.normal_form.clone());
        left = normal_form(old).unwrap_or_default();
        right = normal_form(new).unwrap_or_default();
    }
    let (left, right) = excerpts(&left, &right);
    if index == 0 {
        return (format!("`{left}`"), format!("`{right}`"));
    }
    let located = |pieces: &[Piece], detail: String| format!("{}, where `{detail}`", whole(pieces));
    (located(before, left), located(after, right))
}

/// A construction for people, as far as its expression shows.
pub(crate) fn whole(pieces: &[Piece]) -> String {
    let expression = pieces.first().map(|piece| piece.shown.as_str()).unwrap_or_default();
    format!("`{}`", excerpt(expression, 0))
}

/// Excerpts of both texts, from shortly before their first difference.
fn excerpts(left: &str, right: &str) -> (String, String) {
    let same = left.chars().zip(right.chars()).take_while(|(a, b)| a == b).count();
    let longest = left.chars().count().max(right.chars().count());
    let start = if longest <= SHOWN { 0 } else { same.saturating_sub(SHOWN / 3) };
    (excerpt(left, start), excerpt(right, start))
}

fn excerpt(text: &str, start: usize) -> String {
    let middle: String = text.chars().skip(start).take(SHOWN).collect();
    let opening = if start > 0 { "…" } else { "" };
    let closing = if text.chars().count() > start + SHOWN { "…" } else { "" };
    format!("{opening}{middle}{closing}")
}
