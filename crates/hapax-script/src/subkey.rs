//! The pieces that the subkey of a tool call is built from.

use crate::reach;
use crate::script::{SUBKEY, Script};
use crate::syntax::Node;
use crate::trace::{Piece, Trace};

/// Variables and spreads are followed this many steps. Beyond that, they may hold a subkey.
const HOPS: usize = 16;

/// Empty if the call certainly has none.
pub(crate) fn subkey(script: &Script<'_>, call: Node) -> Vec<Piece> {
    let arguments = script.arguments(call).into_iter().enumerate();
    let mut pieces = Vec::new();
    for (index, argument) in arguments.filter(|(_, one)| !is_absent(script, *one, HOPS)) {
        let mut found = Trace::of(script, script.syntax.bare(argument), Some(SUBKEY));
        if let Some(first) = found.first_mut() {
            first.normal_form = format!("{index}: {}", first.normal_form);
        }
        pieces.extend(found);
    }
    pieces
}

/// Whether a value certainly has no subkey.
fn is_absent(script: &Script<'_>, node: Node, hops: usize) -> bool {
    let syntax = &script.syntax;
    let node = syntax.bare(node);
    if hops == 0 || !script.step() {
        return false;
    }
    let inner = |node: Option<Node>| node.is_some_and(|node| is_absent(script, node, hops - 1));
    if let Some(entries) = script.entries(node, SUBKEY) {
        return entries.into_iter().all(|entry| {
            syntax.kind(entry) == "spread_element" && inner(syntax.named(entry).next())
        });
    }
    if let Some(binding) = script.meaning(node) {
        return script.scopes.bound(binding).writes.is_empty()
            && inner(script.initial(binding))
            && reach::written(script, binding, Some(SUBKEY)).is_empty();
    }
    match syntax.kind(node) {
        "regex" | "array" => true,
        "ternary_expression" => {
            inner(syntax.child(node, "consequence")) && inner(syntax.child(node, "alternative"))
        }
        "binary_expression" if script.is_choice(node) => {
            inner(syntax.child(node, "left")) && inner(syntax.child(node, "right"))
        }
        _ => script.is_primitive(node) || script.is_function(node),
    }
}
