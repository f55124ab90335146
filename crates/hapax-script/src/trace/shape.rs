//! The part of a value that is taken: patterns, properties, elements.

use super::{Facet, Node, Trace};
use crate::scope::Origin;
use crate::script::{Callee, SUBKEY};

/// Nested expressions and variables are followed this many steps.
const HOPS: usize = 16;

impl Trace<'_, '_> {
    /// The way through a pattern to one of its names. Its other names do not matter.
    pub(super) fn path(&mut self, pattern: Node, name: Node) -> String {
        let script = self.script;
        let syntax = &script.syntax;
        let inner = |field| syntax.child(pattern, field);
        let step = syntax.named(pattern).find(|child| syntax.contains(*child, name));
        match (syntax.kind(pattern), step) {
            ("object_pattern", Some(entry)) if syntax.kind(entry) == "rest_pattern" => {
                // The rest depends on the properties that are taken.
                self.normalize(pattern)
            }
            ("object_pattern", Some(entry)) => format!("{{{}}}", self.path(entry, name)),
            ("array_pattern", Some(entry)) => {
                let before = syntax.children(pattern).take_while(|child| *child != entry);
                let place = before.filter(|child| syntax.kind(*child) == ",").count();
                format!("[{place}: {}]", self.path(entry, name))
            }
            ("rest_pattern", Some(entry)) => format!("...{}", self.path(entry, name)),
            ("pair_pattern", Some(entry)) => {
                let Some(key) = inner("key") else { return self.normalize(pattern) };
                let key = match syntax.key(key) {
                    Some(key) => format!("{key:?}"),
                    None => self.normalize(key),
                };
                format!("{key}: {}", self.path(entry, name))
            }
            ("assignment_pattern" | "object_assignment_pattern", Some(entry)) => {
                let default = inner("right").map(|right| self.normalize(right)).unwrap_or_default();
                format!("{} ?= {default}", self.path(entry, name))
            }
            ("shorthand_property_identifier_pattern", _) => {
                let number = self.number(name);
                format!("{:?}: {number}", syntax.text(name))
            }
            ("identifier" | "undefined", _) => self.number(name),
            _ => self.normalize(pattern),
        }
    }

    pub(super) fn number(&mut self, name: Node) -> String {
        let Some(binding) = self.script.meaning(name) else { return String::new() };
        let next = self.numbers.len();
        format!("#{}", self.numbers.entry(binding).or_insert(next))
    }

    /// The facet of a value that matters if `facet` of one name in the pattern does.
    pub(super) fn facet_through(&self, pattern: Node, name: Node, facet: &Facet) -> Facet {
        let syntax = &self.script.syntax;
        if pattern == name {
            return facet.clone();
        }
        let entry = syntax.named(pattern).find(|child| syntax.contains(*child, name));
        let Some(entry) = entry else { return Facet::Whole };
        match syntax.kind(pattern) {
            "assignment_pattern" => self.facet_through(entry, name, facet),
            "object_pattern" if syntax.kind(entry) != "rest_pattern" => {
                let key = syntax.child(entry, "key").or(syntax.child(entry, "left"));
                match syntax.key(key.unwrap_or(entry)) {
                    Some(key) if self.script.stands_alone(&key) => Facet::Field(key),
                    _ => Facet::Whole,
                }
            }
            _ => Facet::Whole,
        }
    }

    pub(super) fn normalize_facet(&mut self, node: Node, facet: &Facet) -> String {
        let script = self.script;
        let node = script.syntax.bare(node);
        match facet {
            Facet::Elements => self.elements(node),
            Facet::Field(field) => {
                if let Some(binding) = script.meaning(node) {
                    self.enqueue(binding, facet.clone());
                    return self.number(node);
                }
                self.project(node, field).unwrap_or_else(|| self.normalize(node))
            }
            Facet::Whole | Facet::Handed | Facet::Calls => self.normalize(node),
        }
    }

    /// Words the entries of an object literal that decide one property. None if the node is no
    /// literal, or if something besides its entries could decide.
    fn project(&mut self, object: Node, field: &str) -> Option<String> {
        let entries = self.script.entries(object, field)?;
        let syntax = &self.script.syntax;
        let inherited = entries.is_empty() && field != SUBKEY;
        let selfish = entries.iter().any(|entry| {
            syntax.below(*entry).any(|node| matches!(syntax.kind(node), "this" | "super"))
        });
        if inherited || selfish {
            return None;
        }
        let facet = Facet::Field(field.into());
        let words = entries.into_iter().map(|entry| match syntax.kind(entry) {
            "spread_element" => match syntax.named(entry).next() {
                Some(inner) => format!("...{}", self.normalize_facet(inner, &facet)),
                None => String::new(),
            },
            _ => self.normalize(entry),
        });
        Some(format!("{{{}}}", words.collect::<Vec<_>>().join(", ")))
    }

    /// Words the elements of a list. Selecting elements does not change them: `xs.filter(f)` has
    /// the elements of `xs`, and `xs ?? []` has no additional ones.
    pub(super) fn elements(&mut self, list: Node) -> String {
        let script = self.script;
        let syntax = &script.syntax;
        let mut list = syntax.bare(list);
        while let Some(inner) = self.selected(list) {
            list = syntax.bare(inner);
        }
        if let Some(binding) = script.meaning(list) {
            self.enqueue(binding, Facet::Elements);
            return self.number(list);
        }
        // `a?.b` has the elements of `a.b`, or fails.
        let (object, property) = (syntax.child(list, "object"), syntax.property(list));
        match (object, property) {
            (Some(object), Some(property)) => {
                let facet = match script.stands_alone(&property) {
                    true => Facet::Field(property.clone()),
                    false => Facet::Whole,
                };
                format!("{}.{property:?}", self.normalize_facet(object, &facet))
            }
            _ => self.normalize(list),
        }
    }

    fn selected(&mut self, list: Node) -> Option<Node> {
        let script = self.script;
        let syntax = &script.syntax;
        let is_empty = |node: Node| {
            let node = syntax.bare(node);
            syntax.kind(node) == "array" && syntax.named(node).next().is_none()
        };
        match syntax.kind(list) {
            "binary_expression" if script.is_choice(list) => {
                let operator = syntax.child(list, "operator").map(|node| syntax.text(node));
                let left = syntax.child(list, "left")?;
                (operator != Some("&&") && is_empty(syntax.child(list, "right")?)).then_some(left)
            }
            "ternary_expression" => {
                let consequence = syntax.child(list, "consequence")?;
                let alternative = syntax.child(list, "alternative")?;
                match (is_empty(consequence), is_empty(alternative)) {
                    (true, _) => Some(alternative),
                    (_, true) => Some(consequence),
                    _ => None,
                }
            }
            "call_expression" => self.filtered(list),
            _ => None,
        }
    }

    fn filtered(&mut self, call: Node) -> Option<Node> {
        let script = self.script;
        let Callee::Method(object, Some(name)) = script.callee(call) else { return None };
        if !script.trusts(&name) || !self.is_data(object, HOPS) {
            return None;
        }
        let arguments = script.arguments(call);
        if name == "slice" {
            return Some(object);
        }
        let [test] = arguments[..] else { return None };
        if name != "filter" {
            return None;
        }
        let test = script.syntax.bare(test);
        if script.global(test) == Some("Boolean") {
            return Some(object);
        }
        let named = script.meaning(test).and_then(|binding| script.function(binding));
        let function = script.is_function(test).then_some(test).or(named)?;
        // A filter that writes to its elements is no filter, so its parameters are traced.
        for parameter in script.parameters(function) {
            for node in script.syntax.below(parameter) {
                if let Some(binding) = script.meaning(node) {
                    self.enqueue(binding, Facet::Handed);
                }
            }
        }
        Some(object)
    }

    /// Whether a value is data from outside, or a list: then `filter` is the method of lists.
    fn is_data(&self, node: Node, hops: usize) -> bool {
        let script = self.script;
        let syntax = &script.syntax;
        let node = syntax.bare(node);
        let all = |fields: [&str; 2]| {
            hops > 0
                && fields.iter().all(|field| {
                    syntax.child(node, field).is_some_and(|side| self.is_data(side, hops - 1))
                })
        };
        match syntax.kind(node) {
            "array" => true,
            "await_expression" => syntax
                .named(node)
                .next()
                .is_some_and(|inner| hops > 0 && self.is_data(inner, hops - 1)),
            "member_expression" | "subscript_expression" => all(["object", "object"]),
            "binary_expression" => script.is_choice(node) && all(["left", "right"]),
            "ternary_expression" => all(["consequence", "alternative"]),
            "call_expression" => match script.callee(node) {
                Callee::Tool(..) => true,
                Callee::Method(object, Some(name)) => {
                    let selects = matches!(name.as_str(), "filter" | "slice");
                    selects && script.trusts(&name) && hops > 0 && self.is_data(object, hops - 1)
                }
                _ => false,
            },
            _ => script.meaning(node).filter(|_| script.step()).is_some_and(|binding| {
                let bound = script.scopes.bound(binding);
                let outside = bound.declarations.iter().all(|one| {
                    matches!(one.origin, Origin::Loop | Origin::Parameter | Origin::Caught)
                });
                let part = bound.declarations.iter().all(|one| {
                    let value = syntax.child(one.by, "value");
                    one.origin == Origin::Variable
                        && value.is_some_and(|value| hops > 0 && self.is_data(value, hops - 1))
                });
                outside || part
            }),
        }
    }
}
