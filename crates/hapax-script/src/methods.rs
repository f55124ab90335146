//! Properties that may do more than hold a value.
//!
//! `list.filter(f)` counts as the language's own method unless the script itself gives a property
//! that name. Types are not known here, so a name counts wherever it stands.

use std::collections::HashSet;

use crate::known;
use crate::script::{Callee, Script};
use crate::syntax::Node;

/// Methods that the language itself calls where no call is written.
const UNWRITTEN: [&str; 4] = ["then", "toJSON", "toString", "valueOf"];

#[derive(Debug, Default)]
pub(crate) struct Methods {
    /// Properties that the script gives functions to, or might.
    named: HashSet<String>,
    /// Properties that are assigned somewhere.
    assigned: HashSet<String>,
    /// Properties that run code when they are written.
    setters: HashSet<String>,
    /// Properties that run code when they are read.
    getters: HashSet<String>,
    /// Some method has a computed name, or is one that the language calls unwritten: trust no name.
    any: bool,
}

impl Methods {
    pub(crate) fn of(script: &Script<'_>) -> Self {
        let mut methods = Self::default();
        for node in script.syntax.all() {
            methods.collect(script, node);
        }
        methods
    }

    fn collect(&mut self, script: &Script<'_>, node: Node) {
        let syntax = &script.syntax;
        let (key, value) = match syntax.kind(node) {
            "pair" => (syntax.child(node, "key"), syntax.child(node, "value")),
            "method_definition" => (syntax.child(node, "name"), Some(node)),
            "field_definition" => (syntax.child(node, "property"), syntax.child(node, "value")),
            "shorthand_property_identifier" => (Some(node), None),
            "member_expression" | "subscript_expression" if script.is_written(node) => {
                let assignment = syntax.parent(syntax.wrapped(node));
                (Some(node), assignment.and_then(|outer| syntax.child(outer, "right")))
            }
            _ => return,
        };
        let Some(key) = key else { return };
        let Some(name) = syntax.property(key).or_else(|| syntax.key(key)) else {
            self.any |= value.is_some_and(|value| is_function(script, value));
            return;
        };
        if is_for_tool(script, node) || value.is_some_and(|value| is_plain(script, value)) {
            return;
        }
        let has = |word| syntax.children(node).any(|child| syntax.kind(child) == word);
        self.any |= UNWRITTEN.contains(&name.as_str());
        if has("get") {
            self.getters.insert(name.clone());
        }
        if has("set") {
            self.setters.insert(name.clone());
        }
        if key == node {
            self.assigned.insert(name.clone());
        }
        self.named.insert(name);
    }
}

impl Script<'_> {
    /// Whether a method of that name is the language's own, on any object.
    pub(crate) fn trusts(&self, method: &str) -> bool {
        !self.methods.any && !self.methods.named.contains(method)
    }

    /// Whether a property is assigned anywhere, apart from where its object is written down.
    pub(crate) fn assigns(&self, property: &str) -> bool {
        self.methods.any || self.methods.assigned.contains(property)
    }

    /// Whether writing that property writes that property and nothing else. None is a property
    /// whose name is computed.
    pub(crate) fn writes_only(&self, property: Option<&str>) -> bool {
        let setters = &self.methods.setters;
        let setter = property.map_or(!setters.is_empty(), |name| setters.contains(name));
        !self.methods.any && !setter
    }

    /// Whether a property is independent of the rest of its object. The length of an array is not,
    /// nor are its elements.
    pub(crate) fn stands_alone(&self, property: &str) -> bool {
        let methods = &self.methods;
        let entangled = matches!(property, "length" | "size") || methods.getters.contains(property);
        !methods.any && !entangled && !property.starts_with(|first: char| first.is_numeric())
    }

    /// Whether evaluating the node writes to nothing that outlives it. Looks into every function of
    /// the script that the node could call.
    pub(crate) fn is_quiet(&self, root: Node) -> bool {
        let Methods { setters, getters, any, .. } = &self.methods;
        if *any || !setters.is_empty() || !getters.is_empty() {
            return false;
        }
        let mut found = vec![root];
        let mut next = 0;
        while let Some(part) = found.get(next).copied() {
            next += 1;
            for node in self.syntax.below(part) {
                if !self.step() || !self.quiet_node(node, part) {
                    return false;
                }
                let function = self.meaning(node).and_then(|binding| self.function(binding));
                if let Some(function) = function
                    && self.spend(found.len())
                    && !found.iter().any(|known| self.syntax.contains(*known, function))
                {
                    found.push(function);
                }
            }
        }
        true
    }

    fn quiet_node(&self, node: Node, part: Node) -> bool {
        match self.syntax.kind(node) {
            "identifier" | "shorthand_property_identifier_pattern" => {
                !self.is_written(node) || self.is_inside(node, part)
            }
            "member_expression" | "subscript_expression" => !self.is_written(node),
            "call_expression" | "new_expression" => match self.callee(node) {
                Callee::Tool(..) | Callee::Inline(_) => true,
                Callee::Local(binding) => self.function(binding).is_some(),
                Callee::Global(name) => known::pure(&name) || known::holding(&name),
                Callee::Method(_, Some(name)) => self.trusts(&name) && known::harmless(&name),
                Callee::Method(_, None) | Callee::Item | Callee::Unknown => false,
            },
            "yield_expression" | "this" | "super" => false,
            _ => true,
        }
    }
}

/// Whether an entry is part of an object that is passed to a tool. Tools do not call it.
fn is_for_tool(script: &Script<'_>, entry: Node) -> bool {
    let call = script.syntax.ancestors(entry).nth(2);
    call.is_some_and(|call| {
        script.syntax.kind(call) == "call_expression"
            && matches!(script.callee(call), Callee::Tool(..))
    })
}

/// Whether a value cannot be a function.
fn is_plain(script: &Script<'_>, value: Node) -> bool {
    script.is_primitive(value) || matches!(script.syntax.kind(value), "array" | "object" | "regex")
}

/// Whether a value is written as a function, or as the name of one.
fn is_function(script: &Script<'_>, value: Node) -> bool {
    let value = script.syntax.bare(value);
    let named = script.meaning(value).and_then(|binding| script.function(binding));
    script.is_function(value) || named.is_some()
}
