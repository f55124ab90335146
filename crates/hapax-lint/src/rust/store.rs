//! Rule `dedupe-store`: maps, sets, caches and tables that remember finished work.
//!
//! A local named only `seen` or `visited` belongs to a graph walk, and is not a store.

use syn::parse::{ParseStream, Parser};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, GenericArgument, Ident, Macro, PathArguments, Token, Type};

use super::names::{Names, bound};
use crate::rule::Rule;
use crate::scan::Hit;
use crate::sql;
use crate::words::{Lives, has_any, listed, store_name, store_text};

const CONTAINERS: &str = "\
    HashMap HashSet BTreeMap BTreeSet DashMap DashSet IndexMap IndexSet FxHashMap FxHashSet \
    AHashMap AHashSet SkipMap SkipSet LruCache TtlCache TimedCache Cache Bloom BloomFilter";

/// Types that share or delay a container.
const WRAPPERS: &str =
    "Arc Rc Box Option Mutex RwLock RefCell LazyLock OnceLock OnceCell Lazy ArcSwap";

/// Words for parts of a program or a graph. A container of these belongs to a walk, not to a
/// delivery.
const PARTS: &str = "node vertex edge def symbol block type path module item page widget";

/// Every dedupe store.
pub(super) fn find(file: &syn::File, names: &Names<'_>) -> Vec<Hit> {
    let mut stores = Stores { names, hits: Vec::new() };
    stores.visit_file(file);
    stores.hits
}

struct Stores<'a> {
    names: &'a Names<'a>,
    hits: Vec<Hit>,
}

impl Stores<'_> {
    fn judge(&mut self, name: &Ident, lives: Lives, container: Option<Container>) {
        let text = name.to_string();
        let Some(container) = container.filter(|_| store_name(&text, lives)) else { return };
        if container.counts && !has_any(&text, "idempotency dedupe dedup") {
            return;
        }
        let why = format!("`{name}`, a `{}`, remembers what was done", container.name);
        self.hits.push(super::hit(Rule::DedupeStore, name.span(), why));
    }

    /// The container that a type is, under its wrappers and aliases.
    fn container(&self, ty: &Type) -> Option<Container> {
        let Type::Path(path) = ty else { return None };
        if let Some(alias) = self.names.alias(&path.path) {
            return self.container(alias);
        }
        let name = self.names.resolve(&path.path).pop()?;
        let PathArguments::AngleBracketed(args) = &path.path.segments.last()?.arguments else {
            return Container::of(&name, &[]);
        };
        let args = args.args.iter().filter_map(|arg| match arg {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        });
        let args: Vec<&Type> = args.collect();
        if listed(WRAPPERS, name.as_str()) {
            return args.first().and_then(|ty| self.container(ty));
        }
        Container::of(&name, &args)
    }

    /// The container that an expression makes, such as `Mutex::new(HashMap::new())`.
    fn made(&self, expr: &Expr) -> Option<Container> {
        match expr {
            Expr::Call(call) => {
                let Expr::Path(func) = &*call.func else { return None };
                let mut path = self.names.resolve(&func.path);
                path.pop();
                let owner = path.pop()?;
                if listed(WRAPPERS, owner.as_str()) {
                    return call.args.first().and_then(|arg| self.made(arg));
                }
                Container::of(&owner, &[])
            }
            // The last call of a builder: `Cache::builder().max_capacity(9).build()`.
            Expr::MethodCall(call) => match &call.turbofish {
                Some(fish) => fish.args.iter().find_map(|arg| match arg {
                    GenericArgument::Type(ty) => self.container(ty),
                    _ => None,
                }),
                None => self.made(&call.receiver),
            },
            Expr::Try(expr) => self.made(&expr.expr),
            _ => None,
        }
    }

    fn sql(&mut self, literal: &proc_macro2::Literal) {
        let text = literal.to_string();
        let start = literal.span().start();
        for (at, why) in sql::find(&text) {
            let before = &text[..at];
            let lines = before.matches('\n').count();
            let column = match before.rsplit_once('\n') {
                Some((_, before)) => before.chars().count() + 1,
                None => start.column + before.chars().count() + 1,
            };
            self.hits.push(Hit { rule: Rule::DedupeStore, line: start.line + lines, column, why });
        }
    }

    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Group(group) => self.tokens(group.stream()),
                proc_macro2::TokenTree::Literal(literal) => self.sql(&literal),
                _ => {}
            }
        }
    }
}

impl<'a> Visit<'a> for Stores<'a> {
    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        let store = has_any(&item.ident.to_string(), "store cache registry guard")
            && store_text(&item.ident.to_string());
        for field in &item.fields {
            let container = self.container(&field.ty);
            match &field.ident {
                Some(name) if store_name(&name.to_string(), Lives::Long) => {
                    self.judge(name, Lives::Long, container);
                }
                // A map in an `IdempotencyStore` needs no specific name.
                name if store && container.is_some() => {
                    let name = name.as_ref().unwrap_or(&item.ident);
                    let why = format!("`{}` remembers what was done", item.ident);
                    self.hits.push(super::hit(Rule::DedupeStore, name.span(), why));
                }
                _ => {}
            }
        }
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.judge(&item.ident, Lives::Long, self.container(&item.ty));
        visit::visit_item_static(self, item);
    }

    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.judge(&item.ident, Lives::Long, self.container(&item.ty));
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        visit::visit_local(self, local);
        let Some(name) = bound(&local.pat) else { return };
        let typed = match &local.pat {
            syn::Pat::Type(pat) => self.container(&pat.ty),
            _ => None,
        };
        let made = || local.init.as_ref().and_then(|init| self.made(&init.expr));
        self.judge(name, Lives::Local, typed.or_else(made));
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        let name = call.method.to_string();
        let mut named = Named::default();
        let not_exists = match name.as_str() {
            "set_nx" | "setnx" | "set_nx_ex" | "pset_nx" => {
                call.args.first().into_iter().for_each(|arg| named.visit_expr(arg));
                true
            }
            // `cmd("SET").arg(key).arg(1).arg("NX")`: the whole chain has the key.
            "arg" => {
                named.visit_expr(&call.receiver);
                named.commands && call.args.iter().any(is_nx)
            }
            _ => false,
        };
        if not_exists && let Some(key) = named.store {
            let why = format!("the cache server is asked to remember `{key}` once");
            self.hits.push(super::hit(Rule::DedupeStore, call.method.span(), why));
        }
    }

    fn visit_lit(&mut self, lit: &'a syn::Lit) {
        if let syn::Lit::Str(text) = lit {
            self.sql(&text.token());
        }
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string());
        if matches!(name.as_deref(), Some("lazy_static" | "thread_local")) {
            let statics = statics.parse2(call.tokens.clone()).unwrap_or_default();
            for (name, ty) in &statics {
                self.judge(name, Lives::Long, self.container(ty));
            }
        }
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'a Attribute) {}
}

/// A container, and whether it only counts.
struct Container {
    name: String,
    counts: bool,
}

impl Container {
    fn of(name: &str, args: &[&Type]) -> Option<Self> {
        let parts = args.first().is_some_and(|key| is_named(key, PARTS));
        let known = listed(CONTAINERS, name) && !parts;
        let numbers = "u8 u16 u32 u64 usize i32 i64 f64 atomic";
        let counts = args.get(1).is_some_and(|value| is_named(value, numbers));
        known.then(|| Self { name: name.to_owned(), counts })
    }
}

fn is_named(ty: &Type, list: &str) -> bool {
    match ty {
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|last| has_any(&last.ident.to_string(), list))
        }
        Type::Reference(ty) => is_named(&ty.elem, list),
        _ => false,
    }
}

/// Whether a command and a dedupe key are named in an expression.
#[derive(Default)]
struct Named {
    store: Option<String>,
    commands: bool,
}

impl Visit<'_> for Named {
    fn visit_lit_str(&mut self, text: &syn::LitStr) {
        let text = text.value();
        self.commands |= text.eq_ignore_ascii_case("set");
        self.store = self.store.take().or_else(|| store_text(&text).then_some(text));
    }

    fn visit_ident(&mut self, name: &Ident) {
        let name = name.to_string();
        self.store = self.store.take().or_else(|| store_text(&name).then_some(name));
    }

    fn visit_macro(&mut self, call: &Macro) {
        for token in call.tokens.clone() {
            if let proc_macro2::TokenTree::Literal(literal) = token
                && let syn::Lit::Str(text) = syn::Lit::new(literal)
            {
                self.visit_lit_str(&text);
            }
        }
    }
}

fn is_nx(expr: &Expr) -> bool {
    matches!(expr, Expr::Lit(lit)
        if matches!(&lit.lit, syn::Lit::Str(text) if text.value().eq_ignore_ascii_case("nx")))
}

/// The statics of a `lazy_static!` or `thread_local!`.
fn statics(input: ParseStream<'_>) -> syn::Result<Vec<(Ident, Type)>> {
    let mut statics = Vec::new();
    while !input.is_empty() {
        input.call(Attribute::parse_outer)?;
        input.parse::<syn::Visibility>()?;
        input.parse::<Token![static]>()?;
        input.parse::<Option<Token![ref]>>()?;
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        statics.push((name, input.parse()?));
        input.parse::<Token![=]>()?;
        input.parse::<Expr>()?;
        input.parse::<Option<Token![;]>>()?;
    }
    Ok(statics)
}
