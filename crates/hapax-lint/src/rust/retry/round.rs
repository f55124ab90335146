//! One round of a loop: whether the loop goes on or ends after a failed call, and after a
//! successful one.

use syn::visit::{self, Visit};
use syn::{Block, Expr, Pat, Stmt};

use super::COUNTERS;
use super::remote::{Callee, Remote};
use crate::rust::names::{Names, bound, place};
use crate::words::has_any;

/// The head of a loop.
pub(super) enum Head<'e> {
    /// `loop`.
    Endless,
    /// `while`, with its condition.
    While(&'e Expr),
    /// `for`, over tries.
    Counted,
}

/// The calls and the exits in one round.
pub(super) struct Round<'a> {
    names: &'a Names<'a>,
    callee: Callee,
    /// The names in the condition; a statement that sets one of them leaves the loop.
    flags: Vec<String>,
    /// Whether the last statement leaves, so that a branch that falls through leaves too.
    ends: bool,
    /// Locals that hold the result of a remote call: the name, the call, whether by `?`.
    answers: Vec<(String, String, bool)>,
    pub(super) pace: Pace,
    /// The call that is retried: it failed and the loop went on.
    again: Option<String>,
    /// The loop goes on after a success as well.
    polls: bool,
}

impl<'a> Round<'a> {
    pub(super) fn of(names: &'a Names<'a>, head: &Head<'_>, body: &Block, callee: Callee) -> Self {
        let mut round = Self {
            names,
            callee,
            flags: Vec::new(),
            ends: body.stmts.last().is_some_and(|stmt| leaves_by(stmt, &[])),
            answers: Vec::new(),
            pace: Pace { counts: matches!(head, Head::Counted), ..Pace::default() },
            again: None,
            polls: false,
        };
        if let Head::While(cond) = head {
            round.head(cond);
        }
        round.pace.visit_block(body);
        round.visit_block(body);
        round
    }

    /// The call that this loop retries.
    pub(super) fn retried(&self) -> Option<String> {
        let retries = !self.polls && (self.pace.counts || self.pace.sleeps);
        self.again.clone().filter(|_| retries)
    }

    fn head(&mut self, cond: &Expr) {
        self.pace.counts |= mentions(cond, COUNTERS);
        let mut flags = Idents::default();
        flags.visit_expr(cond);
        self.flags = flags.0;
        // `while let Err(e) = call()` and `while call().is_err()` are left by success.
        let failing = match cond {
            Expr::Let(cond) if is_err(&cond.pat) => Some(&*cond.expr),
            Expr::MethodCall(call) if call.method == "is_err" => Some(&*call.receiver),
            _ => None,
        };
        self.again = failing.and_then(|expr| self.answer(expr));
    }

    /// The remote call of which this is the result, if its failure is still in it.
    fn answer(&self, expr: &Expr) -> Option<String> {
        let kept = place(expr).and_then(|name| {
            let answers = self.answers.iter().rev();
            answers.into_iter().find(|(local, _, tried)| name == local && !tried)
        });
        kept.map(|(_, call, _)| call.clone())
            .or_else(|| Remote::new(self.names, self.callee).in_expr(expr))
    }

    fn leaves(&self, block: &Block) -> bool {
        block.stmts.last().is_some_and(|stmt| leaves_by(stmt, &self.flags))
            || block.stmts.last().is_some_and(|stmt| self.leaves_if_judged(stmt))
            || block.stmts.iter().any(|stmt| sets(stmt, &self.flags))
    }

    /// `if answer.status().is_success() { break }`: an answer that is no success is one more
    /// failure.
    fn leaves_if_judged(&self, stmt: &Stmt) -> bool {
        let Stmt::Expr(Expr::If(expr), _) = stmt else { return false };
        is_judged(&expr.cond) && expr.else_branch.is_none() && self.leaves(&expr.then_branch)
    }

    fn expr_leaves(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Block(expr) => self.leaves(&expr.block),
            expr => leaves(expr, &self.flags),
        }
    }

    /// Records whether success and failure leave the loop; `None` falls through.
    fn branch(&mut self, call: String, success: Option<bool>, failure: Option<bool>, skips: bool) {
        let success_leaves = success.unwrap_or(skips && self.ends);
        let failure_leaves = failure.unwrap_or(false);
        if failure_leaves {
            return;
        }
        if success_leaves {
            self.again = self.again.take().or(Some(call));
        } else if success.is_some() || !self.ends {
            self.polls = true;
        }
    }

    fn arms(&mut self, call: String, arms: &[syn::Arm]) {
        let failed = |arm: &&syn::Arm| is_err(&arm.pat);
        let rest = |arm: &&syn::Arm| matches!(arm.pat, Pat::Wild(_) | Pat::Ident(_));
        let round = arms.iter().filter(failed).any(|arm| !self.expr_leaves(&arm.body))
            || !arms.iter().any(|arm| is_err(&arm.pat))
                && arms.iter().filter(rest).any(|arm| !self.expr_leaves(&arm.body));
        let mut fine = arms.iter().filter(|arm| is_ok(&arm.pat)).peekable();
        if fine.peek().is_none() {
            return;
        }
        // An arm that only names its value hands it to the code after the match.
        let falls = |arm: &syn::Arm| matches!(&*arm.body, Expr::Path(_)) && self.ends;
        // With `Ok(answer) if answer.is_success()`, another answer is one more failure.
        let leaves = |arm: &syn::Arm| self.expr_leaves(&arm.body) || falls(arm);
        let guarded = arms.iter().any(|arm| {
            is_ok(&arm.pat)
                && arm.guard.as_ref().is_some_and(|(_, guard)| is_judged(guard))
                && leaves(arm)
        });
        let success = guarded || fine.all(leaves);
        self.branch(call, Some(success), Some(!round), false);
    }

    /// `if` on the success of a call.
    fn condition(&mut self, expr: &syn::ExprIf) {
        let then = self.leaves(&expr.then_branch);
        let skips = then || ends_in_continue(&expr.then_branch);
        let other = expr.else_branch.as_ref().map(|(_, other)| self.expr_leaves(other));
        match &*expr.cond {
            Expr::Let(cond) if is_err(&cond.pat) => {
                if let Some(call) = self.answer(&cond.expr) {
                    self.branch(call, other, Some(then), skips);
                }
            }
            Expr::Let(cond) if is_ok(&cond.pat) => {
                if let Some(call) = self.answer(&cond.expr) {
                    self.branch(call, Some(then), other, skips);
                }
            }
            cond => {
                let Some((method, call)) = self.status_check(cond) else { return };
                match method.as_str() {
                    "is_ok" | "is_success" => self.branch(call, Some(then), other, skips),
                    "is_err" | "is_server_error" => self.branch(call, other, Some(then), skips),
                    _ => {}
                }
            }
        }
    }

    /// Of `answer.is_ok()` and `answer.status().is_success()`: the check, and the call.
    fn status_check(&self, cond: &Expr) -> Option<(String, String)> {
        let Expr::MethodCall(question) = cond else { return None };
        let name = question.method.to_string();
        if !is_question(&name) {
            return None;
        }
        let status =
            matches!(&*question.receiver, Expr::MethodCall(call) if call.method == "status");
        if !status {
            return self.answer(&question.receiver).map(|call| (name, call));
        }
        // A poller looks at the status of an answer too; only a loop that counts tries retries.
        let Expr::MethodCall(status) = &*question.receiver else { return None };
        let answered = place(&status.receiver)?;
        let kept = self.answers.iter().rev().find(|(local, _, _)| answered == local)?;
        self.pace.counts.then(|| (name, kept.1.clone()))
    }
}

impl<'e> Visit<'e> for Round<'_> {
    fn visit_local(&mut self, local: &'e syn::Local) {
        visit::visit_local(self, local);
        let Some(init) = &local.init else { return };
        if let (Some((_, other)), true) = (&init.diverge, is_ok(&local.pat))
            && let Some(call) = self.answer(&init.expr)
        {
            let leaves = self.expr_leaves(other);
            self.branch(call, None, Some(leaves), true);
        }
        let Some(name) = bound(&local.pat).map(ToString::to_string) else { return };
        if let Some(call) = Remote::new(self.names, self.callee).in_expr(&init.expr) {
            self.answers.push((name, call, false));
        } else if let Some(call) = Remote::within(self.names, self.callee).in_expr(&init.expr) {
            self.answers.push((name, call, true));
        }
    }

    fn visit_expr_match(&mut self, expr: &'e syn::ExprMatch) {
        if let Some(call) = self.answer(&expr.expr) {
            self.arms(call, &expr.arms);
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_expr_if(&mut self, expr: &'e syn::ExprIf) {
        self.condition(expr);
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_loop(&mut self, _: &'e syn::ExprLoop) {}

    fn visit_expr_while(&mut self, _: &'e syn::ExprWhile) {}

    fn visit_expr_for_loop(&mut self, _: &'e syn::ExprForLoop) {}

    fn visit_item(&mut self, _: &'e syn::Item) {}
}

/// How a loop paces its rounds.
#[derive(Default)]
pub(super) struct Pace {
    /// It counts tries.
    pub(super) counts: bool,
    /// It has a name for them.
    pub(super) speaks: bool,
    /// It sleeps between them.
    pub(super) sleeps: bool,
}

impl<'e> Visit<'e> for Pace {
    fn visit_ident(&mut self, name: &'e syn::Ident) {
        self.speaks |= has_any(&name.to_string(), COUNTERS);
    }

    fn visit_expr_binary(&mut self, expr: &'e syn::ExprBinary) {
        let counts = |side: &Expr| place(side).is_some_and(|n| has_any(&n.to_string(), COUNTERS));
        self.counts |= counts(&expr.left) || counts(&expr.right);
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_call(&mut self, call: &'e syn::ExprCall) {
        let name = place(&call.func).map(ToString::to_string).unwrap_or_default();
        self.sleeps |= has_any(&name, "sleep delay backoff");
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'e syn::ExprMethodCall) {
        self.sleeps |= has_any(&call.method.to_string(), "sleep delay backoff");
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_loop(&mut self, _: &'e syn::ExprLoop) {}

    fn visit_expr_while(&mut self, _: &'e syn::ExprWhile) {}

    fn visit_expr_for_loop(&mut self, _: &'e syn::ExprForLoop) {}

    fn visit_item(&mut self, _: &'e syn::Item) {}
}

/// Whether any name in an expression has one of these words.
pub(super) fn mentions(expr: &Expr, list: &str) -> bool {
    let mut names = Idents::default();
    names.visit_expr(expr);
    names.0.iter().any(|name| has_any(name, list))
}

#[derive(Default)]
struct Idents(Vec<String>);

impl Visit<'_> for Idents {
    fn visit_ident(&mut self, name: &syn::Ident) {
        self.0.push(name.to_string());
    }
}

fn is_question(method: &str) -> bool {
    matches!(method, "is_ok" | "is_err" | "is_success" | "is_server_error")
}

/// Whether a guard checks the success of a call.
fn is_judged(guard: &Expr) -> bool {
    matches!(guard, Expr::MethodCall(call) if is_question(&call.method.to_string()))
}

fn is_ok(pat: &Pat) -> bool {
    is_variant(pat, "Ok") && !is_err(pat)
}

/// `Err(..)`, or an `Err` inside the result of `timeout`.
fn is_err(pat: &Pat) -> bool {
    match pat {
        Pat::Or(pat) => pat.cases.iter().all(is_err),
        Pat::TupleStruct(inner) if is_variant(pat, "Ok") => inner.elems.iter().any(is_err),
        pat => is_variant(pat, "Err"),
    }
}

fn is_variant(pat: &Pat, name: &str) -> bool {
    match pat {
        Pat::TupleStruct(pat) => pat.path.segments.last().is_some_and(|last| last.ident == name),
        Pat::Or(pat) => pat.cases.iter().any(|case| is_variant(case, name)),
        _ => false,
    }
}

fn ends_in_continue(block: &Block) -> bool {
    matches!(block.stmts.last(), Some(Stmt::Expr(Expr::Continue(_), _)))
}

/// Whether this expression leaves the loop or the function.
fn leaves(expr: &Expr, flags: &[String]) -> bool {
    let block = |block: &Block| block.stmts.last().is_some_and(|stmt| leaves_by(stmt, flags));
    match expr {
        Expr::Break(_) | Expr::Return(_) => true,
        // `Err(e)?`.
        Expr::Try(expr) => {
            matches!(&*expr.expr, Expr::Call(call) if place(&call.func).is_some_and(|f| f == "Err"))
        }
        // Goes on with another loop.
        Expr::Continue(expr) => expr.label.is_some(),
        Expr::Assign(_) => is_set(expr, flags),
        Expr::Block(expr) => block(&expr.block),
        Expr::If(expr) => {
            let other = expr.else_branch.as_ref().is_some_and(|(_, other)| leaves(other, flags));
            other && block(&expr.then_branch)
        }
        Expr::Match(expr) => expr.arms.iter().all(|arm| leaves(&arm.body, flags)),
        Expr::Macro(call) => is_last_word(&call.mac),
        _ => false,
    }
}

fn leaves_by(stmt: &Stmt, flags: &[String]) -> bool {
    match stmt {
        Stmt::Expr(expr, _) => leaves(expr, flags),
        Stmt::Macro(stmt) => is_last_word(&stmt.mac),
        _ => false,
    }
}

fn is_last_word(call: &syn::Macro) -> bool {
    let name = call.path.segments.last().map(|segment| segment.ident.to_string());
    matches!(name.as_deref(), Some("panic" | "bail" | "unreachable" | "todo" | "unimplemented"))
}

/// Whether a statement sets a flag of the loop's condition.
fn sets(stmt: &Stmt, flags: &[String]) -> bool {
    matches!(stmt, Stmt::Expr(expr, _) if is_set(expr, flags))
}

fn is_set(expr: &Expr, flags: &[String]) -> bool {
    let Expr::Assign(expr) = expr else { return false };
    let literal = matches!(&*expr.right, Expr::Lit(lit) if matches!(lit.lit, syn::Lit::Bool(_)));
    literal && place(&expr.left).is_some_and(|name| flags.iter().any(|flag| name == flag))
}
