//! Rule `key-derivation`: an idempotency key that is made from a hash, the clock or a random value.
//!
//! A value is followed through one function: from the hash over locals, encoders, formats and
//! constructors to the name it gets. Any other call ends the trail.

use std::collections::BTreeMap;

use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Block, Expr, Ident, Lit, Macro, Pat, Stmt, Token};

use super::names::{Names, bound, place};
use crate::rule::Rule;
use crate::scan::Hit;
use crate::words::{KeyName, has_any, key_name, listed, words};

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Hashed(String),
    ByChance(String),
}

/// Words in the names of functions that return their argument in another form.
const CARRIERS: &str = "\
    encode hex base64 b64 string str from into new format prefix short truncate concat join utf8 \
    fold map update chain or";

/// First words of methods whose result reveals little of their receiver.
const DROPPERS: &str = "len is eq ne cmp contains starts ends verify elapsed get";

/// Names too common to stand for one function of the file.
const COMMON: &str = "new from default of parse build fmt id get into";

/// Every key that is made by hand.
pub(super) fn find(file: &syn::File, names: &Names<'_>) -> Vec<Hit> {
    // A helper may call a helper; three rounds are enough for the code that people write.
    let mut helpers = BTreeMap::new();
    for _ in 0..3 {
        let mut keys = Keys::new(names, &helpers);
        keys.visit_file(file);
        helpers = keys.makers;
    }
    let mut keys = Keys::new(names, &helpers);
    keys.visit_file(file);
    keys.hits
}

struct Keys<'a> {
    names: &'a Names<'a>,
    helpers: &'a BTreeMap<String, Origin>,
    locals: BTreeMap<String, Origin>,
    returned: Option<Origin>,
    /// The functions that return a hashed or random value.
    makers: BTreeMap<String, Origin>,
    hits: Vec<Hit>,
}

impl<'a> Keys<'a> {
    fn new(names: &'a Names<'a>, helpers: &'a BTreeMap<String, Origin>) -> Self {
        Self {
            names,
            helpers,
            locals: BTreeMap::new(),
            returned: None,
            makers: BTreeMap::new(),
            hits: Vec::new(),
        }
    }

    /// Reports a name that makes a key of a value of this origin; returns whether it did.
    fn judge(&mut self, name: &str, span: proc_macro2::Span, made: Option<&Origin>) -> bool {
        let why = match (key_name(name), made) {
            (Some(_), Some(Origin::Hashed(with))) => {
                format!("`{name}` is hashed by hand, with `{with}`")
            }
            (Some(KeyName::Full), Some(Origin::ByChance(with))) => {
                format!("`{name}` is made from `{with}`, so a second try has another key")
            }
            _ => return false,
        };
        self.hits.push(super::hit(Rule::KeyDerivation, span, why));
        true
    }

    /// A function, with locals of its own.
    fn function(&mut self, name: &Ident, block: &'a Block) {
        let before = (std::mem::take(&mut self.locals), self.returned.take(), self.hits.len());
        self.visit_block(block);
        let made = self.tail(block).or(self.returned.take());
        // A hit inside the function is more exact.
        let inside = self.hits.len() > before.2;
        let found = inside || self.judge(&name.to_string(), name.span(), made.as_ref());
        let is_specific = !found && !listed(COMMON, &name.to_string());
        if let Some(made) = made.filter(|_| is_specific) {
            let made = match made {
                Origin::Hashed(_) => Origin::Hashed(name.to_string()),
                Origin::ByChance(_) => Origin::ByChance(name.to_string()),
            };
            self.makers.insert(name.to_string(), made);
        }
        (self.locals, self.returned) = (before.0, before.1);
    }

    /// Judges arguments or members, one of which is a name, such as a header's, and another its
    /// value.
    fn named<'e>(&mut self, args: impl Iterator<Item = &'e Expr> + Clone) {
        let name = args.clone().find_map(|arg| {
            let (name, span) = match arg {
                Expr::Lit(lit) => match &lit.lit {
                    Lit::Str(text) => (text.value(), text.span()),
                    _ => return None,
                },
                Expr::Path(path) => {
                    let ident = &path.path.segments.last()?.ident;
                    let constant = ident.to_string().chars().all(|c| !c.is_lowercase());
                    constant.then(|| (ident.to_string(), ident.span()))?
                }
                _ => return None,
            };
            (key_name(&name) == Some(KeyName::Full)).then_some((name, span))
        });
        if let Some((name, span)) = name {
            let made = args.into_iter().find_map(|arg| self.made(arg));
            self.judge(&name, span, made.as_ref());
        }
    }

    /// The origin of this value, if it is a hash, the clock or a random value.
    fn made(&self, expr: &Expr) -> Option<Origin> {
        match expr {
            Expr::Array(expr) => expr.elems.iter().find_map(|expr| self.made(expr)),
            Expr::Assign(expr) => self.made(&expr.right),
            Expr::Async(expr) => self.tail(&expr.block),
            Expr::Await(expr) => self.made(&expr.base),
            Expr::Binary(expr) => {
                let joins = matches!(expr.op, syn::BinOp::Add(_) | syn::BinOp::BitXor(_));
                joins.then(|| self.made(&expr.left).or_else(|| self.made(&expr.right)))?
            }
            Expr::Block(expr) => self.tail(&expr.block),
            Expr::Break(expr) => self.made(expr.expr.as_deref()?),
            Expr::Call(expr) => self.called(expr),
            Expr::Cast(expr) => self.made(&expr.expr),
            Expr::Closure(expr) => self.made(&expr.body),
            Expr::Field(expr) => self.made(&expr.base),
            Expr::Group(expr) => self.made(&expr.expr),
            Expr::If(expr) => {
                let other = expr.else_branch.as_ref();
                self.tail(&expr.then_branch).or_else(|| self.made(&other?.1))
            }
            Expr::Index(expr) => self.made(&expr.expr),
            Expr::Macro(expr) => self.formatted(&expr.mac),
            Expr::Match(expr) => expr.arms.iter().find_map(|arm| self.made(&arm.body)),
            Expr::MethodCall(expr) => self.method_called(expr),
            Expr::Paren(expr) => self.made(&expr.expr),
            Expr::Path(expr) => self.local(&expr.path.get_ident()?.to_string()),
            Expr::Reference(expr) => self.made(&expr.expr),
            Expr::Return(expr) => self.made(expr.expr.as_deref()?),
            Expr::Try(expr) => self.made(&expr.expr),
            Expr::Tuple(expr) => expr.elems.iter().find_map(|expr| self.made(expr)),
            Expr::Unary(expr) => self.made(&expr.expr),
            _ => None,
        }
    }

    fn tail(&self, block: &Block) -> Option<Origin> {
        match block.stmts.last()? {
            Stmt::Expr(expr, None) => self.made(expr),
            Stmt::Macro(stmt) if stmt.semi_token.is_none() => self.formatted(&stmt.mac),
            _ => None,
        }
    }

    fn local(&self, name: &str) -> Option<Origin> {
        let clock = words(name).first().is_some_and(|word| word == "now");
        let chance = clock.then(|| Origin::ByChance(name.to_owned()));
        self.locals.get(name).cloned().or(chance)
    }

    fn called(&self, call: &syn::ExprCall) -> Option<Origin> {
        let Expr::Path(func) = &*call.func else { return None };
        let path = self.names.resolve(&func.path);
        let name = path.last()?;
        let shown = || path[path.len().saturating_sub(2)..].join("::");
        // `blake3::derive_key` is a hash despite its name.
        let foreign = !path[0].starts_with("hapax");
        if foreign && hashes(&path) {
            return Some(Origin::Hashed(shown()));
        }
        if is_canonical(&path) {
            return None;
        }
        if rolls(name) {
            return Some(Origin::ByChance(shown()));
        }
        if let Some(made) = self.helpers.get(name) {
            return Some(made.clone());
        }
        let carries = has_any(name, CARRIERS) || name.starts_with(char::is_uppercase);
        carries.then(|| call.args.iter().find_map(|arg| self.made(arg)))?
    }

    fn method_called(&self, call: &syn::ExprMethodCall) -> Option<Origin> {
        let name = call.method.to_string();
        if is_canonical(std::slice::from_ref(&name)) {
            return None;
        }
        if has_any(&name, "hash digest checksum") {
            return Some(Origin::Hashed(name));
        }
        if rolls(&name) {
            return Some(Origin::ByChance(name));
        }
        let own = matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident("self"));
        if let Some(made) = self.helpers.get(&name).filter(|_| own) {
            return Some(made.clone());
        }
        let first = words(&name).first().cloned().unwrap_or_default();
        if listed(DROPPERS, first.as_str()) {
            return None;
        }
        let carries = has_any(&name, CARRIERS);
        let args = || carries.then(|| call.args.iter().find_map(|arg| self.made(arg)))?;
        self.made(&call.receiver).or_else(args)
    }

    /// The origin of a formatted text, by its arguments or by the names in its braces.
    fn formatted(&self, call: &Macro) -> Option<Origin> {
        let name = call.path.segments.last()?.ident.to_string();
        if !["format", "concat", "write", "writeln"].contains(&name.as_str()) {
            return None;
        }
        let args = arguments(call)?;
        let in_braces = args.iter().filter_map(|arg| match arg {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        });
        let in_braces: Vec<String> = in_braces.flat_map(|text| captured(&text)).collect();
        let captured = || in_braces.iter().find_map(|name| self.local(name));
        args.iter().find_map(|arg| self.made(arg)).or_else(captured)
    }
}

impl<'a> Visit<'a> for Keys<'a> {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.sig.ident, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.sig.ident, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig.ident, block);
        }
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        let made = self.made(&item.expr);
        self.judge(&item.ident.to_string(), item.ident.span(), made.as_ref());
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        let made = self.made(&item.expr);
        self.judge(&item.ident.to_string(), item.ident.span(), made.as_ref());
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        visit::visit_local(self, local);
        let made = local.init.as_ref().and_then(|init| self.made(&init.expr));
        let pat = match &local.pat {
            Pat::TupleStruct(pat) if pat.elems.len() == 1 => &pat.elems[0],
            pat => pat,
        };
        let Some(name) = bound(pat) else { return };
        // A reported key is not reported again where it is used.
        let found = self.judge(&name.to_string(), name.span(), made.as_ref());
        match made.filter(|_| !found) {
            Some(made) => self.locals.insert(name.to_string(), made),
            None => self.locals.remove(&name.to_string()),
        };
    }

    fn visit_expr_assign(&mut self, expr: &'a syn::ExprAssign) {
        visit::visit_expr_assign(self, expr);
        let made = self.made(&expr.right);
        if let Expr::Index(index) = &*expr.left {
            self.named([&*index.index, &*expr.right].into_iter());
        } else if let Some(name) = place(&expr.left) {
            let found = self.judge(&name.to_string(), name.span(), made.as_ref());
            if let (Expr::Path(_), Some(made), false) = (&*expr.left, made, found) {
                self.locals.insert(name.to_string(), made);
            }
        }
    }

    fn visit_field_value(&mut self, field: &'a syn::FieldValue) {
        visit::visit_field_value(self, field);
        // In `Charge { idempotency_key }`, the local was judged already.
        if let (syn::Member::Named(name), Some(_)) = (&field.member, field.colon_token) {
            let made = self.made(&field.expr);
            self.judge(&name.to_string(), name.span(), made.as_ref());
        }
    }

    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        if let Expr::Path(func) = &*call.func
            && is_canonical(&self.names.resolve(&func.path))
        {
            return;
        }
        visit::visit_expr_call(self, call);
        self.named(call.args.iter());
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        let made = call.args.iter().find_map(|arg| self.made(arg));
        let name = call.method.to_string();
        if !has_any(&name, "get find by verify check derive") {
            self.judge(&name, call.method.span(), made.as_ref());
        }
        if let Some(name) = place(&call.receiver).filter(|_| has_any(&name, "push extend")) {
            self.judge(&name.to_string(), name.span(), made.as_ref());
        }
        if !has_any(&name, "derive hash update chain") {
            self.named(call.args.iter());
        }
    }

    fn visit_expr_tuple(&mut self, expr: &'a syn::ExprTuple) {
        visit::visit_expr_tuple(self, expr);
        if expr.elems.len() == 2 {
            self.named(expr.elems.iter());
        }
    }

    fn visit_expr_return(&mut self, expr: &'a syn::ExprReturn) {
        visit::visit_expr_return(self, expr);
        let made = expr.expr.as_ref().and_then(|expr| self.made(expr));
        self.returned = self.returned.take().or(made);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        let writes = call
            .path
            .segments
            .last()
            .is_some_and(|s| has_any(&s.ident.to_string(), "write writeln"));
        let target = writes.then(|| arguments(call)?.into_iter().next()).flatten();
        if let Some(name) = target.as_ref().and_then(place) {
            let made = self.formatted(call);
            self.judge(&name.to_string(), name.span(), made.as_ref());
        }
    }
}

fn arguments(call: &Macro) -> Option<Punctuated<Expr, Token![,]>> {
    Punctuated::parse_terminated.parse2(call.tokens.clone()).ok()
}

/// The names in the braces of a format.
fn captured(format: &str) -> Vec<String> {
    let names = format.split('{').skip(1);
    let names = names.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_'));
    names.map(String::from_iter).filter(|name| !name.is_empty()).collect()
}

/// Whether a function hashes: by its crate, its type, or its own name.
fn hashes(path: &[String]) -> bool {
    let algorithm = |segment: &String| words(segment).iter().any(|word| is_algorithm(word));
    path.iter().any(algorithm)
        || path.last().is_some_and(|name| {
            let function = name.starts_with(|c: char| c.is_lowercase());
            matches!(name.as_str(), "new_v5" | "new_v3")
                || function && has_any(name, "hash digest checksum")
        })
}

fn is_algorithm(word: &str) -> bool {
    let sha =
        word.strip_prefix("sha").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let families = ["md5", "blake", "xxh", "crc", "fnv", "siphash", "murmur", "adler"];
    sha || matches!(word, "hasher" | "hmac")
        || families.iter().any(|family| word.starts_with(family))
}

/// Whether a function reads the clock or makes a random value.
fn rolls(name: &str) -> bool {
    let exact = ["new_v4", "now_v7", "rng", "thread_rng", "nanoid", "next_u64", "next_u32"];
    exact.contains(&name)
        || matches!(words(name).first().map(String::as_str), Some("now" | "random" | "rand"))
        || words(name).last().is_some_and(|word| word == "now")
}

/// Whether this is a derivation of hapax, which is the one to use.
fn is_canonical(path: &[String]) -> bool {
    path.iter().any(|segment| segment.starts_with("hapax"))
        || path.last().is_some_and(|name| words(name).first().is_some_and(|word| word == "derive"))
        || path.windows(2).any(|pair| pair[0] == "key" && pair[1] == "control")
}
