//! Resolves names to their declarations.
//!
//! Scripts are modules, hence strict: functions in blocks stay in their block, and nothing can
//! add a name to a scope while the script runs.

use std::collections::HashMap;

use crate::syntax::{Node, Syntax};

pub(crate) const FUNCTIONS: [&str; 6] = [
    "function_declaration",
    "function_expression",
    "generator_function_declaration",
    "generator_function",
    "arrow_function",
    "method_definition",
];

/// A declared name, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Binding(usize);

/// The kind of declaration that introduces a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Variable,
    Loop,
    Parameter,
    Function,
    Class,
    Import,
    Caught,
}

/// The place where a name is introduced: its identifier, the kind of declaration, and its node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declaration {
    pub(crate) name: Node,
    pub(crate) origin: Origin,
    /// The declarator, loop, function, class, import or catch clause.
    pub(crate) by: Node,
}

pub(crate) struct Bound {
    pub(crate) scope: Node,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) reads: Vec<Node>,
    pub(crate) writes: Vec<Node>,
}

/// The role of an identifier.
enum Role {
    Declares(Origin, Node),
    Writes,
    Reads,
    /// Part of an import that the script itself does not see.
    Foreign,
}

pub(crate) struct Scopes {
    bound: Vec<Bound>,
    meaning: HashMap<Node, Binding>,
    /// Names that the script does not declare, in order of appearance.
    pub(crate) globals: Vec<Node>,
}

impl Scopes {
    pub(crate) fn of(syntax: &Syntax<'_>) -> Self {
        let mut scopes = Self { bound: Vec::new(), meaning: HashMap::new(), globals: Vec::new() };
        let mut names: HashMap<(Node, &str), Binding> = HashMap::new();
        let mut uses = Vec::new();
        for node in syntax.all().filter(|node| is_identifier(syntax, *node)) {
            let (origin, by) = match role(syntax, node) {
                Role::Declares(origin, by) => (origin, by),
                Role::Foreign => continue,
                role => {
                    uses.push((node, matches!(role, Role::Writes)));
                    continue;
                }
            };
            let name = syntax.text(node);
            let mut scope = home(syntax, node, origin, by);
            // `var x` in a function that has a parameter x is that parameter.
            if let Some(function) = syntax.parent(scope)
                && is_var(syntax, by)
                && names.contains_key(&(function, name))
            {
                scope = function;
            }
            let binding = *names.entry((scope, name)).or_insert_with(|| {
                let (declarations, reads, writes) = Default::default();
                scopes.bound.push(Bound { scope, declarations, reads, writes });
                Binding(scopes.bound.len() - 1)
            });
            scopes.bound[binding.0].declarations.push(Declaration { name: node, origin, by });
            scopes.meaning.insert(node, binding);
        }
        for (node, writes) in uses {
            let name = syntax.text(node);
            let found = syntax.ancestors(node).find_map(|scope| names.get(&(scope, name)));
            let Some(binding) = found else {
                scopes.globals.push(node);
                continue;
            };
            scopes.meaning.insert(node, *binding);
            let bound = &mut scopes.bound[binding.0];
            if writes { bound.writes.push(node) } else { bound.reads.push(node) }
        }
        scopes
    }

    pub(crate) fn bound(&self, binding: Binding) -> &Bound {
        &self.bound[binding.0]
    }

    /// The declaration an identifier belongs to. None for globals and for nodes that are no
    /// identifiers.
    pub(crate) fn meaning(&self, node: Node) -> Option<Binding> {
        self.meaning.get(&node).copied()
    }
}

pub(crate) fn is_identifier(syntax: &Syntax<'_>, node: Node) -> bool {
    matches!(
        syntax.kind(node),
        "identifier"
            | "undefined"
            | "shorthand_property_identifier"
            | "shorthand_property_identifier_pattern"
    )
}

fn role(syntax: &Syntax<'_>, node: Node) -> Role {
    let mut inner = node;
    for outer in syntax.ancestors(node) {
        let field = syntax.field(inner);
        match syntax.kind(outer) {
            "object_pattern" | "array_pattern" | "rest_pattern" => {}
            "parenthesized_expression" => {}
            "pair_pattern" if field == Some("value") => {}
            "assignment_pattern" | "object_assignment_pattern" if field == Some("left") => {}
            "variable_declarator" if field == Some("name") => {
                return Role::Declares(Origin::Variable, outer);
            }
            "formal_parameters" => {
                let function = syntax.parent(outer).unwrap_or(outer);
                return Role::Declares(Origin::Parameter, function);
            }
            "arrow_function" if field == Some("parameter") => {
                return Role::Declares(Origin::Parameter, outer);
            }
            "catch_clause" if field == Some("parameter") => {
                return Role::Declares(Origin::Caught, outer);
            }
            "for_in_statement" if field == Some("left") => {
                return match syntax.child(outer, "kind") {
                    Some(_) => Role::Declares(Origin::Loop, outer),
                    None => Role::Writes,
                };
            }
            "assignment_expression" | "augmented_assignment_expression"
                if field == Some("left") =>
            {
                return Role::Writes;
            }
            "update_expression" => return Role::Writes,
            "class_declaration" | "class" if field == Some("name") => {
                return Role::Declares(Origin::Class, outer);
            }
            kind if FUNCTIONS.contains(&kind) && field == Some("name") => {
                return Role::Declares(Origin::Function, outer);
            }
            "import_clause" | "namespace_import" => {
                return Role::Declares(Origin::Import, outer);
            }
            "import_specifier" => {
                let local = syntax.child(outer, "alias").or(syntax.child(outer, "name"));
                return match local == Some(node) {
                    true => Role::Declares(Origin::Import, outer),
                    false => Role::Foreign,
                };
            }
            "export_specifier" if field == Some("alias") => return Role::Foreign,
            _ => return Role::Reads,
        }
        inner = outer;
    }
    Role::Reads
}

/// The node whose scope a declared name belongs to.
fn home(syntax: &Syntax<'_>, name: Node, origin: Origin, by: Node) -> Node {
    let around = |node: Node, wanted: &dyn Fn(Node) -> bool| {
        syntax.ancestors(node).find(|outer| wanted(*outer)).unwrap_or(Node::PROGRAM)
    };
    let is_block = |node: Node| {
        matches!(
            syntax.kind(node),
            "program" | "statement_block" | "switch_body" | "for_statement" | "for_in_statement"
        )
    };
    match origin {
        Origin::Parameter | Origin::Caught => by,
        Origin::Import => Node::PROGRAM,
        Origin::Variable | Origin::Loop if is_var(syntax, by) => around(name, &|node| {
            let holder = syntax.parent(node).map(|holder| syntax.kind(holder));
            let body = holder.is_some_and(|holder| {
                FUNCTIONS.contains(&holder) || holder == "class_static_block"
            });
            syntax.kind(node) == "program" || (syntax.kind(node) == "statement_block" && body)
        }),
        Origin::Loop => by,
        Origin::Variable => around(name, &is_block),
        Origin::Function | Origin::Class => match syntax.kind(by).ends_with("_declaration") {
            true => around(by, &is_block),
            // The name of a function or class expression is visible only inside it.
            false => by,
        },
    }
}

fn is_var(syntax: &Syntax<'_>, by: Node) -> bool {
    match syntax.kind(by) {
        "variable_declarator" => {
            syntax.parent(by).is_some_and(|list| syntax.kind(list) == "variable_declaration")
        }
        "for_in_statement" => {
            syntax.child(by, "kind").is_some_and(|kind| syntax.text(kind) == "var")
        }
        _ => false,
    }
}
