//! Rule `retry-loop`: loops that make the same remote call again when it failed.
//!
//! A loop retries if it goes on after a failure, ends after a success, and counts its tries or
//! sleeps between them. A loop that goes on after a success too polls, accepts or consumes. A loop
//! that ends on a failure by `?` pages. A loop with an item of its own in each round iterates.

mod remote;
mod round;

use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Ident};

use super::names::{Names, bound};
use crate::rule::Rule;
use crate::scan::Hit;
use crate::words::{has_any, listed};
use remote::{Callee, Remote};
use round::{Head, Pace, Round};

/// Words that count tries.
const COUNTERS: &str = "attempt attempts retry retries tries try backoff backoffs";

/// Crates that retry.
const CRATES: &str =
    "backoff tokio_retry tokio_retry2 backon again retry tryhard fure exponential_backoff";

/// Layers that retry every request of a client.
const LAYERS: &str = "RetryTransientMiddleware RetryLayer RetryPolicyLayer";

/// Every retry by hand, or by a crate that knows nothing of keys.
pub(super) fn find(file: &syn::File, names: &Names<'_>) -> Vec<Hit> {
    let mut retries = Retries { names, hits: Vec::new() };
    retries.visit_file(file);
    retries.hits
}

struct Retries<'a> {
    names: &'a Names<'a>,
    hits: Vec<Hit>,
}

impl Retries<'_> {
    fn judge(&mut self, span: proc_macro2::Span, head: &Head<'_>, body: &Block) {
        let strict = Round::of(self.names, head, body, Callee::Remote);
        let call = strict.retried().or_else(|| {
            // Where a loop names tries and sleeps between them, any awaited call counts as remote.
            let Pace { counts, speaks, sleeps } = strict.pace;
            let paced = (counts || speaks) && sleeps;
            let any = paced.then(|| Round::of(self.names, head, body, Callee::Awaited))?;
            any.retried()
        });
        if let Some(call) = call {
            let why = format!("this loop calls `{call}` again when it fails");
            self.hits.push(super::hit(Rule::RetryLoop, span, why));
        }
    }

    fn function(&mut self, attrs: &[Attribute], name: &Ident, block: &Block) {
        for attr in attrs {
            let path = self.names.resolve(attr.path());
            let retries = path.last().is_some_and(|last| last == "retry");
            if retries && Remote::within(self.names, Callee::Awaited).in_block(block).is_some() {
                let why = format!("`{name}` is called again when it fails");
                let span = attr.path().segments[0].ident.span();
                self.hits.push(super::hit(Rule::RetryLoop, span, why));
            }
        }
    }

    fn library(&mut self, span: proc_macro2::Span, shown: &str) {
        let why = format!("`{shown}` retries calls without a record in a ledger");
        self.hits.push(super::hit(Rule::RetryLoop, span, why));
    }

    /// Whether an argument of a retry crate may be a remote call: any may, but for a closure that
    /// is seen to make none.
    fn may_be_remote<'e>(&self, args: impl IntoIterator<Item = &'e Expr>) -> bool {
        args.into_iter().all(|arg| match arg {
            Expr::Paren(arg) => self.may_be_remote([&*arg.expr]),
            Expr::Closure(closure) => {
                Remote::within(self.names, Callee::Awaited).in_expr(&closure.body).is_some()
            }
            _ => true,
        })
    }
}

impl<'a> Visit<'a> for Retries<'a> {
    fn visit_expr_loop(&mut self, expr: &'a syn::ExprLoop) {
        self.judge(expr.loop_token.span, &Head::Endless, &expr.body);
        visit::visit_expr_loop(self, expr);
    }

    fn visit_expr_while(&mut self, expr: &'a syn::ExprWhile) {
        self.judge(expr.while_token.span, &Head::While(&expr.cond), &expr.body);
        visit::visit_expr_while(self, expr);
    }

    fn visit_expr_for_loop(&mut self, expr: &'a syn::ExprForLoop) {
        let counted = matches!(&*expr.expr, Expr::Range(_))
            || bound(&expr.pat).is_some_and(|name| has_any(&name.to_string(), COUNTERS))
            || round::mentions(&expr.expr, COUNTERS);
        if counted {
            self.judge(expr.for_token.span, &Head::Counted, &expr.body);
        }
        visit::visit_expr_for_loop(self, expr);
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.attrs, &item.sig.ident, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        visit::visit_expr_call(self, call);
        let Expr::Path(func) = &*call.func else { return };
        let path = self.names.resolve(&func.path);
        let Some(name) = path.last() else { return };
        let of_crate = path.len() > 1
            && listed(CRATES, path[0].as_str())
            && matches!(
                name.as_str(),
                "retry" | "retry_notify" | "retry_fn" | "retry_if" | "spawn"
            );
        let spawned = name == "spawn" && path.iter().any(|s| s == "Retry" || s == "RetryIf");
        // A spawned retry or a future counts; of the others, see the arguments.
        let future = spawned || path.iter().any(|segment| segment == "future");
        let layer = path.iter().any(|segment| listed(LAYERS, segment.as_str()));
        if layer || (of_crate || spawned) && (future || self.may_be_remote(&call.args)) {
            self.library(func.path.segments[0].ident.span(), &path.join("::"));
        }
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        // `.retry(policy)` of backon. The effects of hapax have their own, and a repeated connect
        // changes nothing.
        let policy = "backoff exponential constant fibonacci policy strategy";
        let harmless = "hapax effect connect conn connection";
        let backon = call.method == "retry"
            && call.args.len() == 1
            && round::mentions(&call.args[0], policy)
            && !round::mentions(&call.receiver, harmless);
        if backon && self.may_be_remote([&*call.receiver]) {
            self.library(call.method.span(), ".retry");
        }
    }
}
