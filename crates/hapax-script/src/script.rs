//! A parsed script, and queries on it: the meaning of names, the callee of a call, writes.

use std::cell::Cell;
use std::collections::HashSet;

use crate::methods::Methods;
use crate::scope::{Binding, FUNCTIONS, Origin, Scopes, is_identifier};
use crate::syntax::{Node, Syntax, Unreadable};

/// The function that opens an item.
pub(crate) const WITH_ITEM: &str = "withItem";

/// The property that separates mutations of the same identity.
pub(crate) const SUBKEY: &str = "subkey";

/// How many steps may be spent on one script. Sound scripts need a few thousand.
const STEPS: usize = 2_000_000;

pub(crate) struct Script<'s> {
    pub(crate) syntax: Syntax<'s>,
    pub(crate) scopes: Scopes,
    tools: HashSet<&'s str>,
    pub(crate) methods: Methods,
    steps: Cell<usize>,
}

/// The callee of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Callee {
    Tool(String, String),
    Item,
    Local(Binding),
    /// `String`, or `Object.keys`.
    Global(String),
    /// A method of a value of the script. The name is None if it is computed.
    Method(Node, Option<String>),
    /// A function written in place.
    Inline(Node),
    Unknown,
}

impl<'s> Script<'s> {
    pub(crate) fn of(source: &'s str, tools: &[&'s str]) -> Result<Self, Unreadable> {
        let syntax = Syntax::of(source)?;
        let scopes = Scopes::of(&syntax);
        let mut script = Self {
            syntax,
            scopes,
            tools: tools.iter().copied().collect(),
            methods: Methods::default(),
            steps: Cell::new(STEPS),
        };
        script.methods = Methods::of(&script);
        Ok(script)
    }

    /// Counts one step of work. False once the limit is reached; findings up to then are not used.
    pub(crate) fn step(&self) -> bool {
        self.spend(1)
    }

    /// Counts that many steps of work.
    pub(crate) fn spend(&self, steps: usize) -> bool {
        self.steps.set(self.steps.get().saturating_sub(steps));
        self.steps.get() > 0
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    pub(crate) fn is_tool(&self, name: &str) -> bool {
        self.tools.contains(name)
    }

    pub(crate) fn meaning(&self, node: Node) -> Option<Binding> {
        self.scopes.meaning(node)
    }

    /// The name of a global that the node is.
    pub(crate) fn global(&self, node: Node) -> Option<&'s str> {
        let global = is_identifier(&self.syntax, node) && self.meaning(node).is_none();
        global.then(|| self.syntax.text(node))
    }

    pub(crate) fn is_function(&self, node: Node) -> bool {
        FUNCTIONS.contains(&self.syntax.kind(node))
    }

    pub(crate) fn arguments(&self, call: Node) -> Vec<Node> {
        let arguments = self.syntax.child(call, "arguments");
        arguments.map(|list| self.syntax.named(list).collect()).unwrap_or_default()
    }

    pub(crate) fn callee(&self, call: Node) -> Callee {
        let syntax = &self.syntax;
        let field = if syntax.kind(call) == "new_expression" { "constructor" } else { "function" };
        let Some(callee) = syntax.child(call, field).map(|node| syntax.bare(node)) else {
            return Callee::Unknown;
        };
        let listed = |call| syntax.child(call, "arguments").map(|list| syntax.kind(list));
        if listed(call) == Some("template_string") {
            return Callee::Unknown;
        }
        if let Some(binding) = self.meaning(callee) {
            return Callee::Local(binding);
        }
        if let Some(name) = self.global(callee) {
            return if name == WITH_ITEM { Callee::Item } else { Callee::Global(name.into()) };
        }
        if self.is_function(callee) {
            return Callee::Inline(callee);
        }
        if !matches!(syntax.kind(callee), "member_expression" | "subscript_expression") {
            return Callee::Unknown;
        }
        let Some(object) = syntax.child(callee, "object").map(|node| syntax.bare(node)) else {
            return Callee::Unknown;
        };
        match (self.global(object), syntax.property(callee)) {
            (Some(tool), Some(operation)) if self.is_tool(tool) => {
                Callee::Tool(tool.into(), operation)
            }
            (Some(global), Some(name)) => Callee::Global(format!("{global}.{name}")),
            (Some(_), None) => Callee::Unknown,
            (None, name) => Callee::Method(object, name),
        }
    }

    /// The function that a name stands for, if it always stands for the same one.
    pub(crate) fn function(&self, binding: Binding) -> Option<Node> {
        let bound = self.scopes.bound(binding);
        let [declaration] = bound.declarations[..] else { return None };
        if !bound.writes.is_empty() {
            return None;
        }
        let function = match declaration.origin {
            Origin::Function => declaration.by,
            _ => self.syntax.bare(self.initial(binding)?),
        };
        self.is_function(function).then_some(function)
    }

    /// A variable's initial value, if it is declared once, by its name alone.
    pub(crate) fn initial(&self, binding: Binding) -> Option<Node> {
        let [declaration] = self.scopes.bound(binding).declarations[..] else { return None };
        let named = self.syntax.child(declaration.by, "name") == Some(declaration.name);
        let variable = declaration.origin == Origin::Variable && named;
        self.syntax.child(declaration.by, "value").filter(|_| variable)
    }

    /// The name that a function is declared under.
    pub(crate) fn name_of(&self, function: Node) -> Option<Binding> {
        let own = self.syntax.child(function, "name").and_then(|name| self.meaning(name));
        let holder = self.syntax.parent(self.syntax.wrapped(function))?;
        if self.syntax.kind(holder) != "variable_declarator" {
            return own;
        }
        self.meaning(self.syntax.child(holder, "name")?)
    }

    /// Parameters in order, as patterns.
    pub(crate) fn parameters(&self, function: Node) -> Vec<Node> {
        match self.syntax.child(function, "parameters") {
            Some(list) => self.syntax.named(list).collect(),
            None => self.syntax.child(function, "parameter").into_iter().collect(),
        }
    }

    /// Whether an assignment, `++`, `delete` or a loop writes to the node.
    pub(crate) fn is_written(&self, node: Node) -> bool {
        let syntax = &self.syntax;
        let mut inner = node;
        for outer in syntax.ancestors(node) {
            let left = syntax.field(inner) == Some("left");
            match syntax.kind(outer) {
                "parenthesized_expression"
                | "array_pattern"
                | "object_pattern"
                | "rest_pattern" => {}
                "pair_pattern" if syntax.field(inner) == Some("value") => {}
                "assignment_pattern" if left => {}
                "assignment_expression"
                | "augmented_assignment_expression"
                | "for_in_statement" => return left,
                "update_expression" => return true,
                "unary_expression" => {
                    let operator = syntax.child(outer, "operator");
                    return operator.is_some_and(|operator| syntax.text(operator) == "delete");
                }
                _ => return false,
            }
            inner = outer;
        }
        false
    }

    /// Whether the expression always has a primitive value.
    pub(crate) fn is_primitive(&self, node: Node) -> bool {
        let node = self.syntax.bare(node);
        match self.syntax.kind(node) {
            "string" | "template_string" | "number" | "true" | "false" | "null"
            | "unary_expression" | "update_expression" => true,
            "binary_expression" => !self.is_choice(node),
            _ => self.global(node) == Some("undefined"),
        }
    }

    /// Whether a binary expression is one of its sides: `a ?? b`.
    pub(crate) fn is_choice(&self, node: Node) -> bool {
        let operator = self.syntax.child(node, "operator").map(|node| self.syntax.text(node));
        matches!(operator, Some("??" | "||" | "&&"))
    }

    /// The entries of an object literal that could decide a property. None if the node is no
    /// literal.
    pub(crate) fn entries(&self, object: Node, field: &str) -> Option<Vec<Node>> {
        let syntax = &self.syntax;
        let decides = |entry: &Node| {
            let key = match syntax.kind(*entry) {
                "pair" => syntax.child(*entry, "key"),
                "method_definition" => syntax.child(*entry, "name"),
                "shorthand_property_identifier" => Some(*entry),
                _ => return true,
            };
            key.and_then(|key| syntax.key(key)).is_none_or(|key| key == field)
        };
        let literal = syntax.kind(object) == "object";
        literal.then(|| syntax.named(object).filter(decides).collect())
    }

    /// Whether the scope of a name lies inside the node.
    pub(crate) fn is_inside(&self, identifier: Node, root: Node) -> bool {
        self.meaning(identifier)
            .is_some_and(|binding| self.syntax.contains(root, self.scopes.bound(binding).scope))
    }
}
