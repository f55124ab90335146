//! Decides which calls leave the machine.

use syn::visit::{self, Visit};
use syn::{Block, Expr};

use crate::rust::names::Names;
use crate::words::has_any;

/// Words in the names of remote services and their clients.
const FAR: &str = "\
    client http https channel stub conn connection api peer rpc grpc remote gateway upstream \
    webhook reqwest ureq surf hyper tonic";

/// Words in the names of requests to them.
const VERBS: &str = "\
    send get post put patch delete execute call request fetch invoke publish submit charge query \
    head perform deliver notify upload create";

/// Waiting, and upkeep of a connection: repeating these changes nothing.
const HARMLESS: &str = "\
    connect reconnect connected accept recv receive next read poll tick subscribe listen ready \
    changed lock acquire join sleep wait close bind ping flush fs file notified conn connection \
    session";

/// Which calls count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Callee {
    /// Calls through a name that means a remote.
    Remote,
    /// All awaited calls, too.
    Awaited,
}

/// Looks for a remote call whose failure does not leave the function, unlike that of `call()?`.
pub(super) struct Remote<'a> {
    names: &'a Names<'a>,
    callee: Callee,
    awaited: bool,
    /// Whether `?` ends only a closure or async block.
    enclosed: bool,
    /// Whether calls under `?` count.
    tried: bool,
    found: Option<String>,
}

impl<'a> Remote<'a> {
    pub(super) fn new(names: &'a Names<'a>, callee: Callee) -> Self {
        Self { names, callee, awaited: false, enclosed: false, tried: false, found: None }
    }

    /// Counts the calls under `?` too, for code that runs inside a retry.
    pub(super) fn within(names: &'a Names<'a>, callee: Callee) -> Self {
        Self { tried: true, ..Self::new(names, callee) }
    }

    pub(super) fn in_expr(mut self, expr: &Expr) -> Option<String> {
        self.visit_expr(expr);
        self.found
    }

    pub(super) fn in_block(mut self, block: &Block) -> Option<String> {
        self.visit_block(block);
        self.found
    }

    /// Considers a call through a remote name, if it is a request or is awaited.
    fn consider(&mut self, name: &str, chain: &[String]) {
        let far = chain.iter().rev().find(|link| has_any(link, FAR));
        let is_request = has_any(name, VERBS) || self.awaited;
        if let Some(far) = far.filter(|_| is_request && !is_harmless(name, chain)) {
            let shown = if far == name { name.to_owned() } else { format!("{far}..{name}") };
            self.found.get_or_insert(shown);
        }
    }

    /// Considers an awaited call, unless it is known to be local.
    fn consider_awaited(&mut self, base: &Expr) {
        let mut links = Vec::new();
        let name = match base {
            Expr::Call(call) => {
                chain(self.names, &call.func, &mut links);
                links.last().cloned()
            }
            Expr::MethodCall(call) => {
                chain(self.names, &call.receiver, &mut links);
                Some(call.method.to_string())
            }
            _ => None,
        };
        let Some(name) = name else { return };
        let near = links.iter().any(|link| has_any(link, "fs file lock sleep time"));
        match base {
            Expr::Call(call) if name == "timeout" => {
                call.args.iter().skip(1).for_each(|arg| self.consider_awaited(arg));
            }
            _ if near || is_harmless(&name, &links) => {}
            _ => {
                self.found.get_or_insert(name);
            }
        }
    }
}

/// Whether a call may be repeated. Through hapax, any call may.
fn is_harmless(name: &str, chain: &[String]) -> bool {
    has_any(name, HARMLESS) || chain.iter().any(|name| has_any(name, "hapax"))
}

impl<'a> Visit<'a> for Remote<'_> {
    fn visit_expr_await(&mut self, expr: &'a syn::ExprAwait) {
        if self.callee == Callee::Awaited {
            self.consider_awaited(&expr.base);
        }
        let before = std::mem::replace(&mut self.awaited, true);
        visit::visit_expr_await(self, expr);
        self.awaited = before;
    }

    fn visit_expr_try(&mut self, expr: &'a syn::ExprTry) {
        if self.enclosed || self.tried {
            visit::visit_expr_try(self, expr);
        }
    }

    fn visit_expr_async(&mut self, expr: &'a syn::ExprAsync) {
        let before = (std::mem::replace(&mut self.enclosed, true), self.awaited);
        self.awaited = false;
        visit::visit_expr_async(self, expr);
        (self.enclosed, self.awaited) = before;
    }

    fn visit_expr_closure(&mut self, expr: &'a syn::ExprClosure) {
        let before = (std::mem::replace(&mut self.enclosed, true), self.awaited);
        self.awaited = false;
        visit::visit_expr_closure(self, expr);
        (self.enclosed, self.awaited) = before;
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        let mut names = Vec::new();
        chain(self.names, &call.receiver, &mut names);
        self.consider(&call.method.to_string(), &names);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        if let Expr::Path(func) = &*call.func {
            let path = self.names.resolve(&func.path);
            let built = path.last().is_none_or(|name| name.starts_with(char::is_uppercase));
            if let Some(name) = path.last().filter(|_| !built) {
                self.consider(name, &path);
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_item(&mut self, _: &'a syn::Item) {}
}

/// The names that a receiver goes through: `self.client.post(url)` is client, post.
fn chain(names: &Names<'_>, expr: &Expr, links: &mut Vec<String>) {
    match expr {
        Expr::MethodCall(call) => {
            chain(names, &call.receiver, links);
            links.push(call.method.to_string());
        }
        Expr::Field(field) => {
            chain(names, &field.base, links);
            if let syn::Member::Named(name) = &field.member {
                links.extend(names.declared(&name.to_string()).unwrap_or_default().iter().cloned());
                links.push(name.to_string());
            }
        }
        Expr::Path(path) => {
            let name = path.path.get_ident().map(ToString::to_string);
            let declared = name.as_deref().and_then(|name| names.declared(name));
            links.extend(declared.unwrap_or_default().iter().cloned());
            links.extend(names.resolve(&path.path));
        }
        Expr::Call(call) => chain(names, &call.func, links),
        Expr::Await(expr) => chain(names, &expr.base, links),
        Expr::Paren(expr) => chain(names, &expr.expr, links),
        Expr::Reference(expr) => chain(names, &expr.expr, links),
        Expr::Try(expr) => chain(names, &expr.expr, links),
        _ => {}
    }
}
