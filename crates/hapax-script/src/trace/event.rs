//! Writes on the way to an id.

use super::{Facet, Node, Trace};

impl Trace<'_, '_> {
    /// Lists a write to a value that lives in `scope`, with all code that decides whether and when
    /// it happens.
    pub(super) fn event(&mut self, node: Node, scope: Node) {
        let script = self.script;
        let syntax = &script.syntax;
        self.written.insert(scope);
        self.surroundings(node, scope);
        let assignment = self.assignment(node);
        if self.is_anchored(assignment) && !self.is_anchored(node) {
            return self.list_assignment(assignment);
        }
        let mut outermost = node;
        for outer in syntax.ancestors(node) {
            if self.is_anchored(outer) {
                break;
            }
            outermost = outer;
        }
        match script.meaning(outermost) {
            // A call through which inputs come: everything but its position is listed already.
            Some(_) => {
                let number = self.number(outermost);
                self.list(outermost, number, syntax.text(outermost));
            }
            None => self.list_node(outermost),
        }
        // A write inside a function happens when the function is called. The names that could call
        // it are declared here, or it is assigned to them.
        let function = syntax
            .ancestors(node)
            .take_while(|outer| syntax.contains(outermost, *outer))
            .find(|outer| script.is_function(*outer));
        let Some(function) = function else { return };
        for inner in syntax.below(outermost).take_while(|_| script.step()) {
            let Some(binding) = script.meaning(inner) else { continue };
            let bound = script.scopes.bound(binding);
            let declares = bound.declarations.iter().any(|declared| declared.name == inner);
            let mut around =
                syntax.ancestors(inner).take_while(|outer| syntax.contains(outermost, *outer));
            let assigned = around.any(|outer| {
                syntax.kind(outer) == "assignment_expression"
                    && syntax.child(outer, "right").is_some_and(|right| {
                        syntax.contains(right, function) && !syntax.contains(right, inner)
                    })
            });
            if (declares || assigned) && !syntax.contains(outermost, bound.scope) {
                self.enqueue(binding, Facet::Calls);
            }
        }
    }

    /// The assignment around the node that writes to it, or else the node.
    fn assignment(&self, node: Node) -> Node {
        let syntax = &self.script.syntax;
        let written = self.script.is_written(node);
        let assigns = |outer: &Node| {
            matches!(syntax.kind(*outer), "for_in_statement" | "update_expression")
                || syntax.kind(*outer).ends_with("assignment_expression")
        };
        syntax.ancestors(node).find(assigns).filter(|_| written).unwrap_or(node)
    }

    /// Lists an assignment around the expression. Its statement would say too much, the written
    /// name alone too little.
    fn list_assignment(&mut self, assignment: Node) {
        let syntax = &self.script.syntax;
        let sides = (syntax.child(assignment, "left"), syntax.child(assignment, "right"));
        match (syntax.kind(assignment), sides) {
            ("for_in_statement", (Some(left), Some(right))) => {
                let normal_form = format!("{} of {}", self.normalize(left), self.normalize(right));
                self.list(left, normal_form, syntax.text(right));
            }
            _ => self.list_node(assignment),
        }
    }
}
