//! The syntax tree of a script, flat.
//!
//! Nodes are numbered as they appear, so a node's subtree is a range and containment is two
//! comparisons. Comments are gone. This file refuses code that tree-sitter and a JavaScript engine
//! could read differently, so the other modules need not consider it.

use std::ops::ControlFlow;

use tree_sitter::{ParseOptions, ParseState, Parser, TreeCursor};

/// Longer scripts are refused.
const BYTES: usize = 256 * 1024;

/// Deeper nesting is refused. It bounds every recursion over the tree.
const DEPTH: usize = 300;

/// How often the parser may report progress before it is stopped. Sound scripts of the greatest
/// length stay far below.
const MOST_STEPS: usize = 100_000;

/// A script that cannot be read, so nothing is known about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct Unreadable {
    /// Counted from one.
    pub line: usize,
    /// Counted from one, in bytes.
    pub column: usize,
    /// The reason.
    pub what: String,
}

/// A node, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node(usize);

impl Node {
    pub(crate) const PROGRAM: Self = Self(0);
}

struct Entry {
    kind: &'static str,
    field: Option<&'static str>,
    parent: Option<Node>,
    /// One past the last node below.
    end: usize,
    start: usize,
    stop: usize,
    line: usize,
    last_line: usize,
    named: bool,
}

pub(crate) struct Syntax<'s> {
    source: &'s str,
    entries: Vec<Entry>,
}

impl<'s> Syntax<'s> {
    pub(crate) fn of(source: &'s str) -> Result<Self, Unreadable> {
        let unreadable = |what: &str| Unreadable { line: 1, column: 1, what: what.into() };
        if source.len() > BYTES {
            return Err(unreadable(&format!("the script is longer than {BYTES} bytes")));
        }
        refuse_odd_lines(source)?;
        let mut parser = Parser::new();
        parser
            .set_language(&tree_sitter_javascript::LANGUAGE.into())
            .map_err(|error| unreadable(&format!("the grammar does not fit: {error}")))?;
        let mut steps = MOST_STEPS;
        let mut progress = |_: &ParseState| {
            steps = steps.saturating_sub(1);
            if steps == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let tree = parser
            .parse_with_options(
                &mut |byte, _| source.as_bytes().get(byte..).unwrap_or_default(),
                None,
                Some(ParseOptions::new().progress_callback(&mut progress)),
            )
            .ok_or_else(|| unreadable("the script takes too long to parse"))?;
        let mut syntax = Self { source, entries: Vec::new() };
        syntax.copy(tree.walk())?;
        syntax.refuse_broken_lines()?;
        Ok(syntax)
    }

    fn copy(&mut self, mut cursor: TreeCursor<'_>) -> Result<(), Unreadable> {
        let mut open: Vec<Node> = Vec::new();
        loop {
            let node = cursor.node();
            let place = node.start_position();
            let refuse = |what: String| {
                Err(Unreadable { line: place.row + 1, column: place.column + 1, what })
            };
            let text = self.source.get(node.byte_range()).unwrap_or_default();
            if node.is_error() {
                let near: String = text.chars().take(40).collect();
                return refuse(format!("no JavaScript: {near:?}"));
            }
            if node.is_missing() {
                return refuse(format!("`{}` is missing", node.kind()));
            }
            if node.kind() == "html_comment" {
                return refuse("in a module, <!-- opens no comment".into());
            }
            if node.kind().ends_with("identifier") && text.contains('\\') {
                return refuse("a name is written with escapes".into());
            }
            if open.len() > DEPTH {
                return refuse(format!("nested deeper than {DEPTH} levels"));
            }
            let skipped = matches!(node.kind(), "comment" | "hash_bang_line");
            if !skipped {
                let number = Node(self.entries.len());
                self.entries.push(Entry {
                    kind: node.kind(),
                    field: cursor.field_name(),
                    parent: open.last().copied(),
                    end: number.0 + 1,
                    start: node.start_byte(),
                    stop: node.end_byte(),
                    line: place.row + 1,
                    last_line: node.end_position().row + 1,
                    named: node.is_named(),
                });
                if cursor.goto_first_child() {
                    open.push(number);
                    continue;
                }
            }
            while !cursor.goto_next_sibling() {
                let Some(closed) = open.pop() else { return Ok(()) };
                self.entries[closed.0].end = self.entries.len();
                if !cursor.goto_parent() {
                    return Ok(());
                }
            }
        }
    }

    /// `return` at the end of a line returns nothing. The grammar recognises that only before some
    /// tokens.
    fn refuse_broken_lines(&self) -> Result<(), Unreadable> {
        for node in self.all() {
            let restricted = matches!(
                self.kind(node),
                "return_statement"
                    | "throw_statement"
                    | "yield_expression"
                    | "break_statement"
                    | "continue_statement"
                    | "update_expression"
            );
            let mut children = self.children(node).filter(|child| self.kind(*child) != ";");
            let (Some(first), Some(second)) = (children.next(), children.next()) else { continue };
            let postfix = self.kind(node) != "update_expression" || self.is_named(first);
            if restricted && postfix && self.entries[first.0].last_line != self.line(second) {
                return Err(Unreadable {
                    line: self.line(node),
                    column: 1,
                    what: format!("the line ends after {}", self.text(first)),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Node> + use<> {
        (0..self.entries.len()).map(Node)
    }

    /// The node and everything below it.
    pub(crate) fn below(&self, node: Node) -> impl Iterator<Item = Node> + use<> {
        (node.0..self.entries[node.0].end).map(Node)
    }

    pub(crate) fn children(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        let end = self.entries[node.0].end;
        let mut next = node.0 + 1;
        std::iter::from_fn(move || {
            let child = (next < end).then_some(Node(next))?;
            next = self.entries[next].end;
            Some(child)
        })
    }

    /// Children without punctuation.
    pub(crate) fn named(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        self.children(node).filter(|child| self.is_named(*child))
    }

    pub(crate) fn child(&self, node: Node, field: &str) -> Option<Node> {
        self.children(node).find(|child| self.field(*child) == Some(field))
    }

    pub(crate) fn ancestors(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        std::iter::successors(self.parent(node), |node| self.parent(*node))
    }

    pub(crate) fn kind(&self, node: Node) -> &'static str {
        self.entries[node.0].kind
    }

    pub(crate) fn field(&self, node: Node) -> Option<&'static str> {
        self.entries[node.0].field
    }

    pub(crate) fn parent(&self, node: Node) -> Option<Node> {
        self.entries[node.0].parent
    }

    pub(crate) fn line(&self, node: Node) -> usize {
        self.entries[node.0].line
    }

    pub(crate) fn is_named(&self, node: Node) -> bool {
        self.entries[node.0].named
    }

    pub(crate) fn is_leaf(&self, node: Node) -> bool {
        self.entries[node.0].end == node.0 + 1
    }

    pub(crate) fn text(&self, node: Node) -> &'s str {
        let entry = &self.entries[node.0];
        self.source.get(entry.start..entry.stop).unwrap_or_default()
    }

    /// Whether `inner` is `outer` or somewhere below it.
    pub(crate) fn contains(&self, outer: Node, inner: Node) -> bool {
        outer <= inner && inner.0 < self.entries[outer.0].end
    }

    /// The node without the parentheses around it.
    pub(crate) fn bare(&self, mut node: Node) -> Node {
        while self.kind(node) == "parenthesized_expression" {
            let Some(inner) = self.named(node).next() else { break };
            node = inner;
        }
        node
    }

    /// The node with the parentheses around it.
    pub(crate) fn wrapped(&self, mut node: Node) -> Node {
        while let Some(parent) = self.parent(node) {
            if self.kind(parent) != "parenthesized_expression" {
                break;
            }
            node = parent;
        }
        node
    }
}

/// Refuses characters that end a line (and a comment) in JavaScript but not in every other reader.
fn refuse_odd_lines(source: &str) -> Result<(), Unreadable> {
    for (row, text) in source.split('\n').enumerate() {
        let text = text.strip_suffix('\r').unwrap_or(text);
        if let Some(column) = text.find(['\r', '\u{2028}', '\u{2029}']) {
            let what = "a line ends in an unusual way".into();
            return Err(Unreadable { line: row + 1, column: column + 1, what });
        }
    }
    Ok(())
}
