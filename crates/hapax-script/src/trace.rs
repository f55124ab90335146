//! The pieces that an item id or a subkey is built from.
//!
//! From the expression back through everything it is computed from: names to their declarations,
//! functions to their bodies, parameters to the calls, loop variables to the list of the loop. It
//! ends at inputs from outside: tools, handlers, globals.
//!
//! If a value on the way is written to after its declaration, order matters, and the pieces are
//! listed in the order of the script. A piece that writes includes all statements around it that do
//! not contain the expression itself, so conditions, loops and early exits are part of it.
//!
//! Where tracing gives up (an outer `this`, parameters of methods), the whole script is the piece:
//! then every change but one of layout, names and payloads is a difference.

use std::collections::{HashSet, VecDeque};

use crate::normal_form::{Facet, NormalForm, Numbers, payload};
use crate::reach;
use crate::scope::{Binding, Declaration, Origin};
use crate::script::{Callee, Script};
use crate::syntax::Node;

mod around;
mod event;
mod flow;
mod shape;

/// One thing that an id or a subkey is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// For comparison.
    pub(crate) normal_form: String,
    /// For people.
    pub(crate) shown: String,
    /// It only decides how often other pieces run.
    pub(crate) beside: bool,
    /// The questions to tools in it. A repair may ask another question, but none that the script
    /// before has elsewhere.
    pub(crate) questions: Vec<String>,
}

pub(crate) struct Trace<'a, 's> {
    script: &'a Script<'s>,
    /// The expression, and calls through which its inputs come. A write is listed with all code
    /// around it that contains none of them.
    anchors: Vec<Node>,
    numbers: Numbers,
    queue: VecDeque<(Binding, Facet)>,
    seen: HashSet<(Binding, Facet)>,
    listed: Vec<Node>,
    pieces: Vec<(Node, Piece)>,
    /// The scopes of the names that are written to. If there are any, order matters.
    written: HashSet<Node>,
    /// Tool calls in the normal forms since the last piece.
    calls: Vec<Node>,
    /// Statements around the expression whose heads are listed.
    heads: HashSet<Node>,
    /// Statements around the expression whose exits are listed, as seen from inside a function.
    exits: HashSet<(Node, Option<Node>)>,
    everything: bool,
}

impl<'a, 's> Trace<'a, 's> {
    /// The pieces that `expression`, or only its property `field`, is built from. The expression
    /// comes first.
    pub(crate) fn of(script: &'a Script<'s>, expression: Node, field: Option<&str>) -> Vec<Piece> {
        let mut trace = Self {
            script,
            anchors: vec![expression],
            numbers: Numbers::new(),
            queue: VecDeque::new(),
            seen: HashSet::new(),
            listed: Vec::new(),
            pieces: Vec::new(),
            written: HashSet::new(),
            calls: Vec::new(),
            heads: HashSet::new(),
            exits: HashSet::new(),
            everything: false,
        };
        let facet = field.map_or(Facet::Whole, |field| Facet::Field(field.into()));
        let normal_form = trace.normalize_facet(expression, &facet);
        let questions = trace.take_questions();
        let shown = trace.shown(expression, field);
        let first = Piece { normal_form, shown, beside: false, questions };
        trace.run();
        trace.finish(first, expression)
    }

    fn run(&mut self) {
        loop {
            while let Some((binding, facet)) = self.queue.pop_front() {
                if !self.script.step() {
                    return;
                }
                self.follow(binding, &facet);
            }
            // Once order matters, so does the time at which the enclosing functions are called.
            if self.written.is_empty() {
                return;
            }
            for anchor in self.anchors.clone() {
                self.watch_callers(anchor);
            }
            if self.queue.is_empty() {
                return;
            }
        }
    }

    fn watch_callers(&mut self, anchor: Node) {
        let script = self.script;
        let syntax = &script.syntax;
        for function in syntax.ancestors(anchor).filter(|outer| script.is_function(*outer)) {
            // A value that does not outlive a call does not depend on when the function is called.
            if self.written.iter().all(|scope| syntax.contains(function, *scope)) {
                continue;
            }
            let holder = syntax.parent(syntax.wrapped(function));
            let in_place = holder.is_some_and(|holder| {
                matches!(syntax.kind(holder), "arguments" | "call_expression" | "export_statement")
            });
            match script.name_of(function) {
                Some(name) if script.function(name) == Some(function) => {
                    self.enqueue(name, Facet::Calls);
                }
                _ if in_place => {}
                _ => self.list_script(),
            }
        }
    }

    fn finish(mut self, first: Piece, expression: Node) -> Vec<Piece> {
        if !self.written.is_empty() {
            let shown = first.shown.clone();
            let questions = Vec::new();
            let here = Piece { normal_form: "◆".into(), shown, beside: true, questions };
            self.pieces.push((expression, here));
            self.pieces.sort_by_key(|(node, _)| *node);
        }
        std::iter::once(first).chain(self.pieces.into_iter().map(|(_, piece)| piece)).collect()
    }

    /// The expression, for people. Of an object literal, only the entries that decide `field`.
    fn shown(&self, expression: Node, field: Option<&str>) -> String {
        let syntax = &self.script.syntax;
        match field.and_then(|field| self.script.entries(expression, field)) {
            Some(entries) => {
                let texts: Vec<_> = entries.into_iter().map(|entry| syntax.text(entry)).collect();
                shown(&texts.join(", "))
            }
            None => shown(syntax.text(expression)),
        }
    }

    fn enqueue(&mut self, binding: Binding, facet: Facet) {
        let entry = (binding, facet);
        if !self.seen.contains(&entry) {
            self.seen.insert(entry.clone());
            self.queue.push_back(entry);
        }
    }

    fn follow(&mut self, binding: Binding, facet: &Facet) {
        let bound = self.script.scopes.bound(binding);
        if *facet == Facet::Calls {
            for read in &bound.reads {
                self.event(*read, bound.scope);
            }
            return;
        }
        if *facet != Facet::Handed {
            for declaration in &bound.declarations {
                self.declared(*declaration, facet);
            }
            for write in &bound.writes {
                self.event(*write, bound.scope);
            }
        }
        let field = match facet {
            Facet::Field(field) => Some(field.as_str()),
            _ => None,
        };
        for write in reach::written(self.script, binding, field) {
            self.event(write, bound.scope);
        }
    }

    fn declared(&mut self, declaration: Declaration, facet: &Facet) {
        let syntax = &self.script.syntax;
        let Declaration { name, origin, by } = declaration;
        match origin {
            Origin::Function | Origin::Class => self.definition(by),
            Origin::Import => {
                let statement =
                    syntax.ancestors(by).find(|outer| syntax.kind(*outer) == "import_statement");
                self.list_node(statement.unwrap_or(by));
            }
            Origin::Caught => {
                let path = self.path(syntax.child(by, "parameter").unwrap_or(name), name);
                self.list(name, format!("{path} caught"), syntax.text(name));
                let body = syntax.parent(by).and_then(|attempt| syntax.child(attempt, "body"));
                self.list_node(body.unwrap_or(by));
            }
            Origin::Parameter => self.parameter(by, name, facet),
            Origin::Loop if self.is_anchored(by) => self.looped(by, name),
            Origin::Variable if self.is_anchored(self.block(by)) => {
                self.variable(by, name, facet);
            }
            // Declared in a block without the expression: a `var` in some branch.
            Origin::Loop | Origin::Variable => self.event(name, Node::PROGRAM),
        }
    }

    /// The block that a declarator, function or class stands in.
    fn block(&self, by: Node) -> Node {
        let syntax = &self.script.syntax;
        let declaration = |node: &Node| {
            let kind = syntax.kind(*node);
            !kind.ends_with("_declaration") && kind != "export_statement"
        };
        syntax.ancestors(by).find(declaration).unwrap_or(Node::PROGRAM)
    }

    fn definition(&mut self, by: Node) {
        // The own name of a function expression is visible only inside it.
        let expression = !self.script.syntax.kind(by).ends_with("_declaration");
        match expression || self.is_anchored(self.block(by)) {
            true => self.list_node(by),
            false => self.event(by, Node::PROGRAM),
        }
    }

    fn variable(&mut self, by: Node, name: Node, facet: &Facet) {
        let syntax = &self.script.syntax;
        if self.is_anchored(by) {
            return self.list_node(by);
        }
        let Some(pattern) = syntax.child(by, "name") else { return };
        let path = self.path(pattern, name);
        let facet = self.facet_through(pattern, name, facet);
        let value = match syntax.child(by, "value") {
            Some(value) => self.normalize_facet(value, &facet),
            None => "undefined".into(),
        };
        self.list(by, format!("{path} = {value}"), syntax.text(by));
    }

    fn looped(&mut self, by: Node, name: Node) {
        let syntax = &self.script.syntax;
        let (Some(left), Some(right)) = (syntax.child(by, "left"), syntax.child(by, "right"))
        else {
            return;
        };
        let operator = syntax.child(by, "operator").map(|node| syntax.text(node));
        let path = self.path(left, name);
        let source = match operator {
            Some("of") => self.elements(right),
            _ => self.normalize(right),
        };
        let waits = syntax.children(by).any(|child| syntax.kind(child) == "await");
        let operator =
            format!("{}{}", if waits { "await " } else { "" }, operator.unwrap_or_default());
        let shown = format!("{} {operator} {}", syntax.text(left), syntax.text(right));
        self.list(left, format!("{path} {operator} {source}"), &shown);
    }

    fn is_anchored(&self, node: Node) -> bool {
        self.script.spend(self.anchors.len() / 16);
        self.anchors.iter().any(|anchor| self.script.syntax.contains(node, *anchor))
    }

    fn normalize(&mut self, root: Node) -> String {
        let mut normal_form =
            NormalForm::new(self.script, &mut self.numbers, root, &self.anchors[..1]);
        normal_form.put(root);
        let NormalForm { met, calls, selfish, out, .. } = normal_form;
        self.calls.extend(calls);
        for (binding, facet) in met {
            self.enqueue(binding, facet);
        }
        if selfish {
            self.list_script();
        }
        out
    }

    /// Lists a whole node as a piece, once.
    fn list_node(&mut self, node: Node) {
        let syntax = &self.script.syntax;
        let known = self.listed.iter().any(|listed| syntax.contains(*listed, node));
        if known || !self.script.spend(1 + self.listed.len() / 64) {
            return;
        }
        self.listed.push(node);
        let normal_form = self.normalize(node);
        self.list(node, normal_form, syntax.text(node));
    }

    fn list(&mut self, node: Node, normal_form: String, text: &str) {
        let questions = self.take_questions();
        self.pieces
            .push((node, Piece { normal_form, shown: shown(text), beside: false, questions }));
    }

    fn take_questions(&mut self) -> Vec<String> {
        let calls = std::mem::take(&mut self.calls);
        calls.into_iter().map(|call| question(self.script, call)).collect()
    }

    fn list_script(&mut self) {
        if !self.everything {
            self.everything = true;
            let normal_form = self.normalize(Node::PROGRAM);
            self.list(Node::PROGRAM, normal_form, "(the whole script)");
        }
    }
}

/// The operation of a tool call and its payload.
pub(crate) fn question(script: &Script<'_>, call: Node) -> String {
    match script.callee(call) {
        Callee::Tool(tool, operation) => format!("{tool}.{operation}{}", payload(script, call)),
        _ => String::new(),
    }
}

/// Source on one line.
fn shown(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
