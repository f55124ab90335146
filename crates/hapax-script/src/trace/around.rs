//! Code that decides how often a value is written that outlives the statements around it.
//!
//!   let n = 0;
//!   for (const row of rows) {
//!     if (!row.paid) continue;        decides n for all rows that follow
//!     n++;
//!     await withItem(`row-${n}`, …);
//!   }

use super::{Node, Piece, Trace, shown};

impl Trace<'_, '_> {
    /// Statements that contain both the write and the expression cannot be listed whole. Their
    /// heads are listed, and so is every exit from them. A value that does not outlive the
    /// statements needs neither.
    pub(super) fn surroundings(&mut self, node: Node, scope: Node) {
        let script = self.script;
        let syntax = &script.syntax;
        let shared: Vec<Node> = syntax
            .ancestors(node)
            .take_while(|outer| *outer != scope)
            .filter(|outer| self.is_anchored(*outer))
            .collect();
        let Some(outermost) = shared.last().copied().filter(|_| syntax.contains(scope, node))
        else {
            return;
        };
        for outer in shared {
            self.list_head(outer);
        }
        let function = syntax.ancestors(node).find(|outer| script.is_function(*outer));
        if !self.exits.insert((outermost, function)) {
            return;
        }
        let exits: Vec<Node> =
            syntax.below(outermost).filter(|inner| self.is_exit(*inner, node)).collect();
        for exit in exits {
            let around: Vec<Node> = syntax
                .ancestors(exit)
                .take_while(|outer| syntax.contains(outermost, *outer))
                .collect();
            let whole = around.iter().take_while(|outer| !self.is_anchored(**outer)).last();
            let whole = whole.copied().unwrap_or(exit);
            for outer in around {
                if self.is_anchored(outer) {
                    self.list_head(outer);
                }
            }
            self.list_node(whole);
        }
    }

    /// Whether `exit` leaves a function that contains the write, or a loop in such a function.
    fn is_exit(&self, exit: Node, write: Node) -> bool {
        let syntax = &self.script.syntax;
        let kind = syntax.kind(exit);
        let leaves = matches!(
            kind,
            "return_statement" | "break_statement" | "continue_statement" | "throw_statement"
        );
        leaves && self.script.step() && {
            let function = syntax.ancestors(exit).find(|outer| self.script.is_function(*outer));
            function.is_none_or(|function| syntax.contains(function, write))
        }
    }

    /// Lists a statement or expression around the traced expression, without the part that contains
    /// it.
    fn list_head(&mut self, node: Node) {
        let syntax = &self.script.syntax;
        let lists = matches!(syntax.kind(node), "program" | "statement_block");
        if lists || self.anchors.contains(&node) || !self.heads.insert(node) {
            return;
        }
        let children: Vec<Node> = syntax.children(node).collect();
        let words: Vec<String> = children
            .into_iter()
            .filter(|child| syntax.kind(*child) != ";")
            .map(|child| match syntax.field(child) {
                _ if self.is_anchored(child) => "◆".into(),
                Some("name") => self.path(child, child),
                _ => self.normalize(child),
            })
            .collect();
        let text = syntax.text(node).lines().next().unwrap_or_default();
        let normal_form = format!("{}: {}", syntax.kind(node), words.join(" "));
        let questions = self.take_questions();
        self.pieces
            .push((node, Piece { normal_form, shown: shown(text), beside: true, questions }));
    }
}
