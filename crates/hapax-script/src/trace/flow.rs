//! How parameters get their values.

use super::{Facet, Node, Trace};
use crate::known;
use crate::script::Callee;

/// A parameter, on the way to the calls that fill it.
struct Slot<'s> {
    /// The part of it that is used: `{id: #0}`.
    path: String,
    name: &'s str,
    index: usize,
    /// It takes all arguments from here on.
    rest: bool,
    facet: Facet,
}

impl<'s> Trace<'_, 's> {
    pub(super) fn parameter(&mut self, function: Node, name: Node, facet: &Facet) {
        let script = self.script;
        let syntax = &script.syntax;
        let parameters = script.parameters(function);
        let Some(index) = parameters.iter().position(|one| syntax.contains(*one, name)) else {
            return self.list_script();
        };
        let parameter = parameters[index];
        let slot = Slot {
            path: self.path(parameter, name),
            name: syntax.text(name),
            index,
            rest: syntax.kind(parameter) == "rest_pattern",
            facet: self.facet_through(parameter, name, facet),
        };
        let outer = syntax.wrapped(function);
        let Some(parent) = syntax.parent(outer) else { return };
        match syntax.kind(parent) {
            "arguments" => return self.handed(&slot, parent, outer),
            "call_expression" | "new_expression" => return self.passed(&slot, parent),
            "export_statement" if syntax.kind(function).ends_with("_expression") => {
                return self.list(name, format!("{} from outside", slot.path), syntax.text(name));
            }
            _ => {}
        }
        let Some(binding) = script.name_of(function) else { return self.list_script() };
        if script.function(binding) != Some(function) {
            return self.list_script();
        }
        let exported = syntax
            .ancestors(function)
            .take(3)
            .take_while(|outer| syntax.kind(*outer) != "statement_block")
            .any(|outer| syntax.kind(outer) == "export_statement");
        let reads = &script.scopes.bound(binding).reads;
        if exported || reads.is_empty() {
            self.list(name, format!("{} from outside", slot.path), syntax.text(name));
        }
        for read in reads {
            let outer = syntax.wrapped(*read);
            let Some(parent) = syntax.parent(outer) else { continue };
            match syntax.kind(parent) {
                "call_expression" | "new_expression" => self.passed(&slot, parent),
                "arguments" => self.handed(&slot, parent, outer),
                _ => {
                    // The function escapes: other code may call it with any argument.
                    self.event(*read, Node::PROGRAM);
                    self.list(*read, format!("{} escapes", slot.path), syntax.text(*read));
                }
            }
        }
    }

    /// The function is called by its name.
    fn passed(&mut self, slot: &Slot<'s>, call: Node) {
        let script = self.script;
        let syntax = &script.syntax;
        if !self.anchors.contains(&call) {
            self.anchors.push(call);
        }
        let arguments = script.arguments(call);
        let spread = |node: &Node| syntax.kind(*node) == "spread_element";
        let value = if arguments.iter().take(slot.index + 1).any(spread) {
            arguments.iter().map(|one| self.normalize(*one)).collect::<Vec<_>>().join(", ")
        } else if slot.rest {
            let rest = arguments.iter().skip(slot.index);
            rest.map(|one| self.normalize(*one)).collect::<Vec<_>>().join(", ")
        } else {
            match arguments.get(slot.index) {
                Some(argument) => self.normalize_facet(*argument, &slot.facet),
                None => "undefined".into(),
            }
        };
        let given = arguments.get(slot.index).map_or("undefined", |one| syntax.text(*one));
        let shown = format!("{} = {given}", slot.name);
        self.list(call, format!("{} = {value}", slot.path), &shown);
    }

    /// The function is passed to another function, which calls it.
    fn handed(&mut self, slot: &Slot<'s>, arguments: Node, given: Node) {
        let script = self.script;
        let syntax = &script.syntax;
        let Some(call) = syntax.parent(arguments) else { return };
        if !self.is_around_expression(call) && !self.anchors.contains(&call) {
            self.anchors.push(call);
        }
        let list = script.arguments(call);
        let (source, shown) = match script.callee(call) {
            Callee::Item => (format!("handler {}", slot.index), "withItem"),
            Callee::Method(object, Some(name))
                if known::each(&name)
                    && script.trusts(&name)
                    && slot.index == 0
                    && !slot.rest
                    && list.first() == Some(&given) =>
            {
                (format!("of {}", self.elements(object)), syntax.text(object))
            }
            _ => {
                let callee = syntax.child(call, "function").or(syntax.child(call, "constructor"));
                let shown = callee.map_or("", |callee| syntax.text(callee));
                let callee = callee.map(|callee| self.normalize(callee)).unwrap_or_default();
                let others: Vec<_> = list
                    .iter()
                    .map(|one| if *one == given { "here".into() } else { self.normalize(*one) })
                    .collect();
                (format!("{} of {callee}({})", slot.index, others.join(", ")), shown)
            }
        };
        let shown = format!("{} from {shown}", slot.name);
        self.list(given, format!("{} {source}", slot.path), &shown);
    }

    fn is_around_expression(&self, node: Node) -> bool {
        self.script.syntax.contains(node, self.anchors[0])
    }
}
