//! The normal form of a piece of a script, without matters of taste.
//!
//! Two pieces with the same normal form do the same, as far as names from outside mean the same.
//! The form leaves out layout, comments, parentheses, quotes, trailing commas, semicolons, and the
//! names that the script declares: those are numbered as they appear.

use std::collections::HashMap;

use crate::scope::{Binding, is_identifier};
use crate::script::{Callee, Script};
use crate::syntax::Node;

/// The part of a value that matters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Facet {
    Whole,
    /// One property of it.
    Field(String),
    /// Its elements, in any selection and order.
    Elements,
    /// Only writes to it: it is handed a value that matters.
    Handed,
    /// Its calls and when they happen: a call writes to a value that matters.
    Calls,
}

/// Numbers of declared names.
pub(crate) type Numbers = HashMap<Binding, usize>;

pub(crate) struct NormalForm<'a, 's> {
    pub(crate) script: &'a Script<'s>,
    pub(crate) numbers: &'a mut Numbers,
    /// The node to normalize. Names declared inside need no following.
    pub(crate) root: Node,
    /// Nodes that are normalized elsewhere.
    pub(crate) holes: &'a [Node],
    /// Also normalize the arguments of tools, without subkeys, and keep the script's own names.
    pub(crate) payloads: bool,
    /// Names from outside of the root, as they were met.
    pub(crate) met: Vec<(Binding, Facet)>,
    /// Calls of tools whose arguments are omitted.
    pub(crate) calls: Vec<Node>,
    /// A `this` that belongs to code around the root was met.
    pub(crate) selfish: bool,
    pub(crate) out: String,
}

/// The arguments of a tool call, without the subkey.
pub(crate) fn payload(script: &Script<'_>, call: Node) -> String {
    let Some(root) = script.syntax.child(call, "arguments") else { return String::new() };
    let mut numbers = Numbers::new();
    let mut normal_form =
        NormalForm { payloads: true, ..NormalForm::new(script, &mut numbers, root, &[]) };
    normal_form.put(root);
    normal_form.out
}

const OPERATORS: [&str; 13] = [
    "arrow_function",
    "assignment_expression",
    "augmented_assignment_expression",
    "await_expression",
    "binary_expression",
    "class",
    "function_expression",
    "new_expression",
    "sequence_expression",
    "ternary_expression",
    "unary_expression",
    "update_expression",
    "yield_expression",
];

impl<'a, 's> NormalForm<'a, 's> {
    pub(crate) fn new(
        script: &'a Script<'s>,
        numbers: &'a mut Numbers,
        root: Node,
        holes: &'a [Node],
    ) -> Self {
        let (met, calls, out) = Default::default();
        Self { script, numbers, root, holes, payloads: false, met, calls, selfish: false, out }
    }

    pub(crate) fn put(&mut self, node: Node) {
        if !self.script.step() {
            return;
        }
        let syntax = &self.script.syntax;
        if node != self.root && self.holes.contains(&node) {
            return self.out.push('◆');
        }
        if is_identifier(syntax, node) {
            return self.name(node);
        }
        match syntax.kind(node) {
            "string" => match syntax.string(node) {
                Some(text) => self.out.push_str(&format!("{text:?}")),
                None => self.out.push_str(syntax.text(node)),
            },
            "template_string" => self.template(node),
            "regex" => self.out.push_str(syntax.text(node)),
            "parenthesized_expression" => self.put(syntax.bare(node)),
            "call_expression" => self.call(node),
            "member_expression" | "subscript_expression" => self.member(node),
            "pair" | "pair_pattern" => self.pair(node),
            "empty_statement" if syntax.field(node).is_none() => {}
            kind => {
                if matches!(kind, "this" | "super") && !self.owns_self(node) {
                    self.selfish = true;
                }
                let wrap = OPERATORS.contains(&kind) && syntax.is_named(node);
                self.out.push_str(if wrap { "(" } else { "" });
                self.children(node);
                self.out.push_str(if wrap { ")" } else { "" });
                let ends = kind.ends_with("_statement") || kind.ends_with("_declaration");
                if ends || kind == "field_definition" {
                    self.out.push(';');
                }
            }
        }
    }

    fn children(&mut self, node: Node) {
        let script = self.script;
        let syntax = &script.syntax;
        if syntax.is_leaf(node) {
            return self.out.push_str(syntax.text(node));
        }
        let children: Vec<Node> = syntax.children(node).collect();
        let header = syntax.kind(node) == "for_statement";
        for (index, child) in children.iter().enumerate() {
            let kind = syntax.kind(*child);
            let before = index.checked_sub(1).map(|index| syntax.is_named(children[index]));
            let trailing = index + 2 == children.len() && before == Some(true);
            let listed = self.payloads && syntax.kind(node) == "object";
            if (kind == ";" && !header)
                || (kind == "," && (trailing || listed))
                || self.is_subkey(*child)
            {
                continue;
            }
            if index > 0 {
                self.out.push(' ');
            }
            let lone = syntax.field(*child) == Some("parameter") && kind == "identifier";
            if lone && syntax.kind(node) == "arrow_function" {
                self.out.push_str("( ");
                self.put(*child);
                self.out.push_str(" )");
            } else {
                self.put(*child);
            }
        }
    }

    /// Whether an entry is omitted because the subkey is normalized elsewhere.
    fn is_subkey(&self, entry: Node) -> bool {
        let syntax = &self.script.syntax;
        let key = match syntax.kind(entry) {
            "pair" => syntax.child(entry, "key"),
            "shorthand_property_identifier" => Some(entry),
            _ => None,
        };
        self.payloads && key.and_then(|key| syntax.key(key)).as_deref() == Some("subkey")
    }

    fn template(&mut self, node: Node) {
        let script = self.script;
        self.out.push('`');
        for part in script.syntax.named(node) {
            match script.syntax.kind(part) {
                "template_substitution" => {
                    self.out.push_str("${");
                    for inner in script.syntax.named(part) {
                        self.put(inner);
                    }
                    self.out.push('}');
                }
                _ => self.out.push_str(script.syntax.text(part)),
            }
        }
        self.out.push('`');
    }

    /// A repair may change a question to a tool, although the answer depends on it. So arguments
    /// are omitted, unless evaluating them has an effect.
    fn call(&mut self, node: Node) {
        let arguments = self.script.syntax.child(node, "arguments");
        if let Callee::Tool(tool, operation) = self.script.callee(node)
            && !self.payloads
            && arguments.is_some_and(|arguments| self.script.is_quiet(arguments))
        {
            self.calls.push(node);
            return self.out.push_str(&format!("{tool}.{operation}(…)"));
        }
        self.children(node);
    }

    fn member(&mut self, node: Node) {
        let syntax = &self.script.syntax;
        let (Some(property), Some(object)) = (syntax.property(node), syntax.child(node, "object"))
        else {
            return self.children(node);
        };
        self.put(object);
        let optional = syntax.child(node, "optional_chain").is_some();
        self.out.push_str(if optional { "?." } else { "." });
        self.key(&property);
    }

    fn pair(&mut self, node: Node) {
        let syntax = &self.script.syntax;
        let key = syntax.child(node, "key").and_then(|key| syntax.key(key));
        let (Some(key), Some(value)) = (key, syntax.child(node, "value")) else {
            return self.children(node);
        };
        self.key(&key);
        self.out.push_str(": ");
        self.put(value);
    }

    fn key(&mut self, key: &str) {
        let plain = key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '#'));
        match plain {
            true => self.out.push_str(key),
            false => self.out.push_str(&format!("{key:?}")),
        }
    }

    fn name(&mut self, node: Node) {
        let syntax = &self.script.syntax;
        let name = syntax.text(node);
        if syntax.kind(node).starts_with("shorthand") {
            self.out.push_str(&format!("{name}: "));
        }
        let Some(binding) = self.script.meaning(node).filter(|_| !self.payloads) else {
            return self.out.push_str(name);
        };
        let next = self.numbers.len();
        let number = *self.numbers.entry(binding).or_insert(next);
        self.out.push_str(&format!("#{number}"));
        if !self.script.is_inside(node, self.root) {
            self.met.push((binding, self.facet(node)));
        }
    }

    /// The facet of a name's value that matters here: `a.b` needs no more of `a` than `b`.
    fn facet(&self, node: Node) -> Facet {
        let syntax = &self.script.syntax;
        let member = syntax.parent(node).filter(|_| syntax.field(node) == Some("object"));
        let called = |member| {
            let outer = syntax.wrapped(member);
            syntax.field(outer) == Some("function")
        };
        let property = member.filter(|member| !called(*member)).and_then(|m| syntax.property(m));
        match property {
            Some(property) if self.script.stands_alone(&property) => Facet::Field(property),
            _ => Facet::Whole,
        }
    }

    /// Whether the `this` that is met belongs to something inside the root.
    fn owns_self(&self, node: Node) -> bool {
        let syntax = &self.script.syntax;
        let mut around =
            syntax.ancestors(node).take_while(|outer| syntax.contains(self.root, *outer));
        around.any(|outer| match syntax.kind(outer) {
            "arrow_function" => false,
            // A method alone, without its object, is not enough.
            "method_definition" => outer != self.root,
            kind => self.script.is_function(outer) || kind == "class_body",
        })
    }
}
