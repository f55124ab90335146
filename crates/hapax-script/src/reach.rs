//! Where a value gets to, and where it is written to on the way.
//!
//!   const rows = await http.get(…);
//!   const first = rows[0];            first is a part of rows
//!   const all = [first];              all holds it, one level down
//!   all[0].id = "x";                  written: the id of an item made from rows changes
//!   all.push(1);                      not written: only the list around it changes
//!
//! A use that is not understood counts as written. That costs a false alarm at worst.

use std::collections::{BTreeSet, HashMap};

use crate::known;
use crate::scope::{Binding, is_identifier};
use crate::script::Script;
use crate::syntax::Node;

mod call;

/// Everything that could write to the value of `binding`, or only to its property `field` if one is
/// given. Assignments to the name itself are not included.
pub(crate) fn written(script: &Script<'_>, binding: Binding, field: Option<&str>) -> Vec<Node> {
    if script.initial(binding).is_some_and(|value| script.is_primitive(value))
        && script.scopes.bound(binding).writes.is_empty()
    {
        return Vec::new();
    }
    let mut reach = Reach {
        script,
        field,
        queue: Vec::new(),
        seen: HashMap::new(),
        results: BTreeSet::new(),
        written: BTreeSet::new(),
    };
    reach.name(binding, Held { below: 0, rooted: field.is_some() });
    while let Some((node, held)) = reach.queue.pop() {
        reach.flow(node, held);
    }
    reach.written.into_iter().collect()
}

/// How an expression contains the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    /// The number of containers around the value. In doubt, fewer is safe.
    below: u8,
    /// The value is the object whose property `field` is followed, not a part of it.
    rooted: bool,
}

impl Held {
    fn part(self) -> Self {
        Self { below: self.below.saturating_sub(1), rooted: false }
    }

    fn contained(self) -> Self {
        Self { below: self.below.saturating_add(1), rooted: false }
    }

    /// A new container with the same parts.
    fn copied(self) -> Self {
        Self { below: self.below.max(1), rooted: false }
    }
}

struct Reach<'a, 's> {
    script: &'a Script<'s>,
    field: Option<&'a str>,
    /// Expressions that contain the value and are still to be followed. A queue, not recursion:
    /// chains can be long.
    queue: Vec<(Node, Held)>,
    seen: HashMap<(Binding, bool), u8>,
    /// Functions whose results were followed already.
    results: BTreeSet<(Node, Held)>,
    written: BTreeSet<Node>,
}

impl Reach<'_, '_> {
    fn name(&mut self, binding: Binding, held: Held) {
        let key = (binding, held.rooted);
        if self.seen.get(&key).is_none_or(|below| held.below < *below) {
            self.seen.insert(key, held.below);
            let reads = &self.script.scopes.bound(binding).reads;
            self.queue.extend(reads.iter().map(|read| (*read, held)));
        }
    }

    /// All names in a pattern.
    fn pattern(&mut self, pattern: Node, held: Held) {
        let syntax = &self.script.syntax;
        if let Some(binding) = self.script.meaning(syntax.bare(pattern)) {
            return self.name(binding, held);
        }
        for node in syntax.below(pattern) {
            if is_identifier(syntax, node)
                && !(held.rooted && self.is_beside(pattern, node))
                && let Some(binding) = self.script.meaning(node)
            {
                self.name(binding, Held { below: 0, rooted: false });
            }
        }
    }

    /// Whether a name in a pattern takes a property other than `field`.
    fn is_beside(&self, pattern: Node, name: Node) -> bool {
        let syntax = &self.script.syntax;
        let entry = syntax.named(pattern).find(|entry| syntax.contains(*entry, name));
        let Some(entry) = entry.filter(|_| syntax.kind(pattern) == "object_pattern") else {
            return false;
        };
        let key = syntax.child(entry, "key").or(syntax.child(entry, "left")).unwrap_or(entry);
        syntax.kind(entry) != "rest_pattern"
            && syntax.key(key).is_some_and(|key| Some(key.as_str()) != self.field)
    }

    /// Follows an expression that has the value to wherever it goes.
    fn flow(&mut self, mut node: Node, mut held: Held) {
        let script = self.script;
        let syntax = &script.syntax;
        while script.step() {
            let Some(parent) = syntax.parent(node) else { return };
            let field = syntax.field(node);
            let kind = syntax.kind(parent);
            match kind {
                "parenthesized_expression" | "await_expression" | "sequence_expression" => {}
                "member_expression" | "subscript_expression" if field == Some("object") => {
                    let Some(next) = self.property(parent, held) else { return };
                    (node, held) = next;
                    continue;
                }
                "binary_expression" if script.is_choice(parent) => {}
                "ternary_expression" if field != Some("condition") => {}
                "array" => held = held.contained(),
                "pair" if field == Some("value") => held = held.contained(),
                // A shorthand property: its parent is the object.
                "object" => held = held.contained(),
                "spread_element" => held = held.copied().part(),
                "variable_declarator" => {
                    let Some(name) = syntax.child(parent, "name") else { return };
                    return self.pattern(name, held);
                }
                "assignment_pattern" | "object_assignment_pattern" => {
                    let Some(left) = syntax.child(parent, "left") else { return };
                    return self.pattern(left, held);
                }
                "assignment_expression" | "augmented_assignment_expression"
                    if field == Some("right") =>
                {
                    self.assigned(parent, held);
                }
                "for_in_statement" => {
                    let operator = syntax.child(parent, "operator").map(|node| syntax.text(node));
                    let Some(left) = syntax.child(parent, "left") else { return };
                    if operator == Some("of") {
                        self.pattern(left, held.part());
                    }
                    return;
                }
                "arguments" => {
                    let Some(call) = syntax.parent(parent) else { return };
                    let Some(next) = self.argument(call, node, held) else { return };
                    (node, held) = next;
                    continue;
                }
                "call_expression" | "new_expression" => return,
                "template_substitution" if self.is_tagged(parent) => return self.write(parent),
                "return_statement" | "arrow_function" => {
                    let function = std::iter::once(parent)
                        .chain(syntax.ancestors(parent))
                        .find(|node| script.is_function(*node));
                    return match function {
                        Some(function) => self.result(function, held),
                        None => self.write(parent),
                    };
                }
                // Here the value is only read.
                "binary_expression"
                | "unary_expression"
                | "template_substitution"
                | "ternary_expression"
                | "subscript_expression"
                | "computed_property_name"
                | "augmented_assignment_expression"
                | "expression_statement"
                | "if_statement"
                | "while_statement"
                | "do_statement"
                | "for_statement"
                | "switch_statement"
                | "switch_case"
                | "export_statement"
                | "export_specifier" => return,
                _ => return self.write(parent),
            }
            // An object's pair has the object around it.
            node = if kind == "pair" { syntax.parent(parent).unwrap_or(parent) } else { parent };
        }
    }

    /// A template's tag is a function that receives the substituted values.
    fn is_tagged(&self, substitution: Node) -> bool {
        let syntax = &self.script.syntax;
        let holder = syntax.ancestors(substitution).nth(1);
        holder.is_some_and(|holder| syntax.kind(holder) == "call_expression")
    }

    fn write(&mut self, node: Node) {
        self.written.insert(node);
    }

    /// Follows `value.name` or `value[index]`, perhaps called. Returns the expression to follow
    /// next.
    fn property(&mut self, member: Node, held: Held) -> Option<(Node, Held)> {
        let syntax = &self.script.syntax;
        let name = syntax.property(member);
        let outer = syntax.wrapped(member);
        let call = syntax.parent(outer).filter(|call| {
            syntax.kind(*call) == "call_expression" && syntax.field(outer) == Some("function")
        });
        if let Some(call) = call {
            let Some(name) = name else {
                self.write(call);
                return None;
            };
            return self.method(call, member, &name, held);
        }
        let writes_only = self.script.writes_only(name.as_deref());
        if held.rooted && writes_only && name.is_some() && name.as_deref() != self.field {
            return None;
        }
        if self.script.is_written(member) {
            // A write to a container does not change its contents, unless it runs a setter.
            if held.below == 0 || !writes_only {
                self.write(member);
            }
            return None;
        }
        (name.as_deref() != Some("length")).then(|| (member, held.part()))
    }

    fn method(&mut self, call: Node, member: Node, name: &str, held: Held) -> Option<(Node, Held)> {
        let script = self.script;
        if self.is_selfless(member, name) {
            return None;
        }
        let known = script.trusts(name)
            && (known::harmless(name) || (known::container(name) && held.below > 0));
        if !known {
            self.write(call);
            return None;
        }
        if known::calls_back(name) {
            for argument in script.arguments(call) {
                self.callback(call, argument, held.part());
            }
        }
        let held = match name {
            "map" | "flatMap" => return None,
            name if known::answers(name) => return None,
            name if known::copies(name) => held.copied(),
            _ => held.part(),
        };
        Some((call, held))
    }

    /// Whether the method is a function of an object literal that does not use `this`.
    fn is_selfless(&self, member: Node, name: &str) -> bool {
        let syntax = &self.script.syntax;
        let object = syntax.child(member, "object").map(|object| syntax.bare(object));
        let binding = object.and_then(|object| self.script.meaning(object));
        let literal = binding.and_then(|binding| self.script.initial(binding));
        let Some(literal) = literal.filter(|literal| syntax.kind(*literal) == "object") else {
            return false;
        };
        let entries = self.script.entries(literal, name).unwrap_or_default();
        let [function] = entries[..] else { return false };
        !self.script.assigns(name)
            && matches!(syntax.kind(function), "method_definition" | "pair")
            && syntax.below(function).all(|node| !matches!(syntax.kind(node), "this" | "super"))
    }

    fn assigned(&mut self, assignment: Node, held: Held) {
        let syntax = &self.script.syntax;
        let operator = syntax.child(assignment, "operator").map(|node| syntax.text(node));
        if !matches!(operator, None | Some("??=" | "||=" | "&&=")) {
            return;
        }
        let Some(left) = syntax.child(assignment, "left").map(|left| syntax.bare(left)) else {
            return;
        };
        match self.root(left) {
            Some(binding) if left == self.innermost(left) => self.name(binding, held),
            Some(binding) => self.name(binding, held.contained()),
            None if syntax.kind(left).ends_with("_pattern") => self.pattern(left, held.part()),
            None => self.write(assignment),
        }
    }

    fn innermost(&self, node: Node) -> Node {
        let syntax = &self.script.syntax;
        let mut node = syntax.bare(node);
        while matches!(syntax.kind(node), "member_expression" | "subscript_expression") {
            let Some(object) = syntax.child(node, "object") else { break };
            node = syntax.bare(object);
        }
        node
    }

    /// The name that `a.b[c]` begins with.
    fn root(&self, node: Node) -> Option<Binding> {
        self.script.meaning(self.innermost(node))
    }
}
