//! The value in calls: as an argument, in callbacks, as a result.

use super::{Held, Node, Reach};
use crate::known;
use crate::script::Callee;

impl Reach<'_, '_> {
    /// Follows the value as an argument. Returns the expression to follow next.
    pub(super) fn argument(
        &mut self,
        call: Node,
        argument: Node,
        held: Held,
    ) -> Option<(Node, Held)> {
        let script = self.script;
        let spread = script.syntax.kind(argument) == "spread_element";
        let place = script.arguments(call).iter().position(|other| *other == argument)?;
        let hand_over = |reach: &mut Self, function: Node| {
            for (index, parameter) in script.parameters(function).into_iter().enumerate() {
                let rest = script.syntax.kind(parameter) == "rest_pattern";
                if spread || rest || index == place {
                    let part = Held { below: 0, rooted: false };
                    reach.pattern(parameter, if spread || rest { part } else { held });
                }
            }
        };
        match script.callee(call) {
            Callee::Tool(..) | Callee::Item => return None,
            // The function's result is followed from inside the function.
            Callee::Inline(function) => {
                hand_over(self, function);
                return None;
            }
            Callee::Local(binding) => {
                match script.function(binding) {
                    Some(function) => hand_over(self, function),
                    None => self.write(call),
                }
                return None;
            }
            Callee::Global(name) if known::pure(&name) => return None,
            Callee::Global(name) if known::holding(&name) => {}
            Callee::Global(name) if name == "Array.from" && script.arguments(call).len() == 1 => {}
            Callee::Method(object, Some(name)) if script.trusts(&name) => {
                return self.method_argument(call, object, &name, place, held);
            }
            _ => {
                self.write(call);
                return None;
            }
        }
        Some((call, held.copied().part()))
    }

    fn method_argument(
        &mut self,
        call: Node,
        object: Node,
        name: &str,
        place: usize,
        held: Held,
    ) -> Option<(Node, Held)> {
        match name {
            "test" | "exec" => None,
            "reduce" | "reduceRight" if place == 1 => {
                let fold = self.script.arguments(call)[0];
                self.callback(call, fold, Held { below: 0, rooted: false });
                Some((call, held.copied().part()))
            }
            // The value as `this` of a callback.
            name if known::calls_back(name) && place > 0 => {
                self.write(call);
                None
            }
            name if known::copies(name) => Some((call, held.copied().part())),
            name if known::harmless(name) => None,
            name if known::container(name) => {
                match self.root(object) {
                    Some(binding) => self.name(binding, held.contained()),
                    None => self.write(call),
                }
                Some((call, held.copied().part()))
            }
            _ => {
                self.write(call);
                None
            }
        }
    }

    /// Follows a function's result to its calls.
    pub(super) fn result(&mut self, function: Node, held: Held) {
        if !self.results.insert((function, held)) {
            return;
        }
        let script = self.script;
        let syntax = &script.syntax;
        let outer = syntax.wrapped(function);
        let Some(parent) = syntax.parent(outer) else { return };
        match syntax.kind(parent) {
            "arguments" => return self.returned(parent, held),
            "call_expression" => return self.queue.push((parent, held)),
            "export_statement" => return,
            _ => {}
        }
        let Some(binding) = script.name_of(function) else { return self.write(function) };
        if script.function(binding) != Some(function) {
            return self.write(function);
        }
        for read in &script.scopes.bound(binding).reads {
            let Some(parent) = syntax.parent(syntax.wrapped(*read)) else { continue };
            match syntax.kind(parent) {
                "call_expression" => self.queue.push((parent, held)),
                "arguments" => self.returned(parent, held),
                "export_specifier" | "export_statement" => {}
                _ => self.write(parent),
            }
        }
    }

    /// The function that returns the value is an argument of a call.
    fn returned(&mut self, arguments: Node, held: Held) {
        let script = self.script;
        let Some(call) = script.syntax.parent(arguments) else { return };
        match script.callee(call) {
            Callee::Item => self.queue.push((call, held)),
            Callee::Method(_, Some(name)) if script.trusts(&name) => match name.as_str() {
                "map" => self.queue.push((call, held.contained())),
                "flatMap" | "then" | "catch" | "finally" | "reduce" | "reduceRight" => {
                    self.queue.push((call, held.part()));
                }
                name if known::each(name) => {}
                "toSorted" | "sort" | "replace" | "replaceAll" => {}
                _ => self.write(call),
            },
            _ => self.write(call),
        }
    }

    /// Follows the value into a callback's parameters.
    pub(super) fn callback(&mut self, call: Node, argument: Node, held: Held) {
        let script = self.script;
        let argument = script.syntax.bare(argument);
        let named = script.meaning(argument).and_then(|binding| script.function(binding));
        let inline = script.is_function(argument).then_some(argument);
        match inline.or(named) {
            Some(function) => {
                for parameter in script.parameters(function) {
                    self.pattern(parameter, held);
                }
            }
            None if script.is_primitive(argument) || script.global(argument).is_some() => {}
            None if matches!(script.syntax.kind(argument), "array" | "object" | "regex") => {}
            // Anything else may be a function.
            None => self.write(call),
        }
    }
}
