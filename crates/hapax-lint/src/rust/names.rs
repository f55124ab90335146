//! Resolves the names in a file: imports, renamed or not, and type aliases.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Expr, ItemType, ItemUse, Pat, Path, Type, UseTree};

/// The imports and aliases of a file, from all its modules.
#[derive(Default)]
pub(super) struct Names<'a> {
    imports: BTreeMap<String, Vec<String>>,
    aliases: BTreeMap<String, &'a Type>,
    /// The declared types of parameters, fields and locals; none where two declarations differ.
    declared: BTreeMap<String, Option<Vec<String>>>,
}

impl<'a> Names<'a> {
    pub(super) fn of(file: &'a syn::File) -> Self {
        let mut names = Self::default();
        names.visit_file(file);
        names
    }

    /// A path's segments, with the first replaced by the path that was imported under its name.
    pub(super) fn resolve(&self, path: &Path) -> Vec<String> {
        let mut segments = path.segments.iter().map(|segment| segment.ident.to_string());
        let Some(first) = segments.next() else { return Vec::new() };
        let mut full = self.imports.get(&first).cloned().unwrap_or_else(|| vec![first]);
        full.extend(segments);
        full
    }

    /// The type that an alias of this file stands for.
    pub(super) fn alias(&self, path: &Path) -> Option<&'a Type> {
        self.aliases.get(&path.get_ident()?.to_string()).copied()
    }

    /// The path of the type that a name is declared with in this file.
    pub(super) fn declared(&self, name: &str) -> Option<&[String]> {
        self.declared.get(name)?.as_deref()
    }

    fn declare(&mut self, name: &syn::Ident, ty: &Type) {
        let path = declared_path(ty).map(|path| self.resolve(path));
        let known = self.declared.entry(name.to_string()).or_insert_with(|| path.clone());
        if *known != path {
            *known = None;
        }
    }

    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            UseTree::Name(name) => {
                let path = before.iter().cloned().chain([name.ident.to_string()]).collect();
                self.imports.insert(name.ident.to_string(), path);
            }
            UseTree::Rename(name) => {
                let path = before.iter().cloned().chain([name.ident.to_string()]).collect();
                self.imports.insert(name.rename.to_string(), path);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before);
                }
            }
            UseTree::Glob(_) => {}
        }
    }
}

impl<'a> Visit<'a> for Names<'a> {
    fn visit_item_use(&mut self, item: &'a ItemUse) {
        self.import(&item.tree, &mut Vec::new());
    }

    fn visit_item_type(&mut self, item: &'a ItemType) {
        self.aliases.insert(item.ident.to_string(), &item.ty);
        visit::visit_item_type(self, item);
    }

    fn visit_pat_type(&mut self, pat: &'a syn::PatType) {
        if let Some(name) = bound(&pat.pat) {
            self.declare(name, &pat.ty);
        }
    }

    fn visit_field(&mut self, field: &'a syn::Field) {
        if let Some(name) = &field.ident {
            self.declare(name, &field.ty);
        }
    }
}

/// The path of a type, behind its references.
fn declared_path(ty: &Type) -> Option<&Path> {
    match ty {
        Type::Path(ty) => Some(&ty.path),
        Type::Reference(ty) => declared_path(&ty.elem),
        _ => None,
    }
}

/// The name that a pattern binds, if it binds just one.
pub(super) fn bound(pat: &Pat) -> Option<&syn::Ident> {
    match pat {
        Pat::Ident(pat) => Some(&pat.ident),
        Pat::Type(pat) => bound(&pat.pat),
        Pat::Reference(pat) => bound(&pat.pat),
        _ => None,
    }
}

/// The last name of a place: of `self.a.b`, b.
pub(super) fn place(expr: &Expr) -> Option<&syn::Ident> {
    match expr {
        Expr::Path(expr) => expr.path.segments.last().map(|segment| &segment.ident),
        Expr::Field(expr) => match &expr.member {
            syn::Member::Named(name) => Some(name),
            syn::Member::Unnamed(_) => None,
        },
        Expr::Paren(expr) => place(&expr.expr),
        Expr::Reference(expr) => place(&expr.expr),
        Expr::Unary(expr) => place(&expr.expr),
        _ => None,
    }
}
