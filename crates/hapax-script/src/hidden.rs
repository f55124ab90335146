//! Code that could change ids, subkeys or tools without showing in them.
//!
//! Such code is always a difference, also if the script before had it. Some of it remains out of
//! sight, above all computed property names. The runtime makes no code out of text, but it does not
//! freeze the language's own objects.

use std::collections::BTreeMap;

use crate::known;
use crate::script::{Callee, Script, WITH_ITEM};
use crate::syntax::Node;

#[derive(Debug, Clone, Default)]
pub(crate) struct Hidden {
    /// A description, and its line.
    pub(crate) found: Vec<(String, usize)>,
    /// Globals that are neither tools nor of the language, with their first line.
    pub(crate) foreign: BTreeMap<String, usize>,
    /// Imports, in order.
    pub(crate) imports: Vec<String>,
}

impl Hidden {
    pub(crate) fn of(script: &Script<'_>) -> Self {
        let mut hidden = Self::default();
        for global in &script.scopes.globals {
            hidden.global(script, *global);
        }
        for node in script.syntax.all() {
            if let Some(what) = hidden.node(script, node) {
                hidden.found.push((what, script.syntax.line(node)));
            }
        }
        hidden.found.sort_by_key(|(_, line)| *line);
        hidden.found.dedup();
        hidden
    }

    fn global(&mut self, script: &Script<'_>, node: Node) {
        let syntax = &script.syntax;
        let name = syntax.text(node);
        let what = if name == WITH_ITEM {
            is_item(script, node).map(|()| format!("`{name}` is not simply called with an id"))
        } else if script.is_tool(name) {
            let plain = syntax.ancestors(node).nth(1).is_some_and(|call| {
                matches!(script.callee(call), Callee::Tool(..)) && is_object_of_callee(script, node)
            });
            (!plain).then(|| format!("the tool `{name}` is not simply called"))
        } else if known::master_key(name) {
            Some(format!("`{name}` can reach or make anything"))
        } else if script.is_written(node) {
            Some(format!("the global `{name}` is written to"))
        } else if !known::standard(name) {
            self.foreign.entry(name.into()).or_insert(syntax.line(node));
            None
        } else {
            (!is_plain_use(script, node)).then(|| format!("`{name}` is passed around"))
        };
        self.found.extend(what.map(|what| (what, syntax.line(node))));
    }

    fn node(&mut self, script: &Script<'_>, node: Node) -> Option<String> {
        let syntax = &script.syntax;
        match syntax.kind(node) {
            "member_expression" | "subscript_expression" => {
                let Some(name) = syntax.property(node) else {
                    let what = "a method is called by a computed name".into();
                    return is_called_by_chance(script, node).then_some(what);
                };
                let written = script.is_written(node);
                let object = syntax.child(node, "object").map(|object| syntax.bare(object));
                let global = object.and_then(|object| script.global(object));
                match global.filter(|_| written) {
                    Some(global) => Some(format!("`{global}.{name}` is written to")),
                    None => known::back_door(&name).then(|| format!("`{name}` is a back door")),
                }
            }
            "pair_pattern" | "pair" | "shorthand_property_identifier_pattern" => {
                let key = syntax.key(syntax.child(node, "key").unwrap_or(node))?;
                let reads = syntax.kind(node) != "pair" || key == "__proto__";
                (reads && known::back_door(&key)).then(|| format!("`{key}` is a back door"))
            }
            "import_statement" => {
                self.imports.push(import(script, node));
                None
            }
            "export_statement" if syntax.child(node, "source").is_some() => {
                self.imports.push(import(script, node));
                None
            }
            "import" if syntax.is_named(node) => Some("code is loaded while it runs".into()),
            "with_statement" => Some("`with` changes what names mean".into()),
            "decorator" => Some("a decorator changes what it stands at".into()),
            kind if kind.starts_with("jsx") => Some("JSX calls what is not seen".into()),
            "identifier" if syntax.text(node) == WITH_ITEM && script.meaning(node).is_some() => {
                Some(format!("`{WITH_ITEM}` is declared by the script itself"))
            }
            _ => None,
        }
    }
}

/// None if `withItem` is called plainly, with an id.
fn is_item(script: &Script<'_>, node: Node) -> Option<()> {
    let syntax = &script.syntax;
    let call = syntax.parent(node).filter(|_| syntax.field(node) == Some("function"));
    let first = call.and_then(|call| match script.callee(call) {
        Callee::Item => script.arguments(call).first().copied(),
        _ => None,
    });
    let plain = first.is_some_and(|first| syntax.kind(first) != "spread_element");
    (!plain).then_some(())
}

fn is_object_of_callee(script: &Script<'_>, node: Node) -> bool {
    let syntax = &script.syntax;
    let member = syntax.parent(node).filter(|_| syntax.field(node) == Some("object"));
    member.is_some_and(|member| syntax.field(member) == Some("function"))
}

/// Whether a global of the language is called, constructed, or read for a constant.
fn is_plain_use(script: &Script<'_>, node: Node) -> bool {
    let syntax = &script.syntax;
    if matches!(syntax.text(node), "undefined" | "NaN" | "Infinity") {
        return true;
    }
    let outer = syntax.wrapped(node);
    let Some(parent) = syntax.parent(outer) else { return false };
    let field = syntax.field(outer);
    match syntax.kind(parent) {
        "call_expression" => field == Some("function"),
        "new_expression" => field == Some("constructor"),
        "class_heritage" | "unary_expression" => true,
        "binary_expression" => {
            let operator = syntax.child(parent, "operator").map(|node| syntax.text(node));
            operator == Some("instanceof") && field == Some("right")
        }
        "member_expression" | "subscript_expression" => {
            let called = syntax.field(syntax.wrapped(parent)) == Some("function");
            syntax.property(parent).is_some_and(|name| {
                let constant = name.chars().all(|c| !c.is_lowercase());
                called || constant || syntax.text(node) == "Symbol"
            })
        }
        "arguments" => {
            let call = syntax.parent(parent);
            call.is_some_and(|call| match script.callee(call) {
                Callee::Method(_, Some(name)) => {
                    known::each(&name) && script.trusts(&name) && known::pure(syntax.text(node))
                }
                _ => false,
            })
        }
        _ => false,
    }
}

/// `table[name]()` is plain if the table is a literal. Elsewhere the name could be that of a
/// constructor, which makes functions out of text.
fn is_called_by_chance(script: &Script<'_>, member: Node) -> bool {
    let syntax = &script.syntax;
    if syntax.field(syntax.wrapped(member)) != Some("function") {
        return false;
    }
    let object = syntax.child(member, "object").map(|object| syntax.bare(object));
    let binding = object.and_then(|object| script.meaning(object));
    let literal = binding.and_then(|binding| script.initial(binding));
    !literal.is_some_and(|literal| matches!(syntax.kind(literal), "object" | "array"))
}

/// An import, without layout.
fn import(script: &Script<'_>, node: Node) -> String {
    let syntax = &script.syntax;
    let leaves = syntax.below(node).filter(|node| syntax.is_leaf(*node));
    let words =
        leaves.map(|node| syntax.text(node)).filter(|text| !matches!(*text, ";" | "'" | "\""));
    words.collect::<Vec<_>>().join(" ")
}
