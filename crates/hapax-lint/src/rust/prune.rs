//! Prepares the tree: cuts out tests, and unfolds macros into their arguments.

use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Arm, Attribute, Block, Expr, ExprBlock, ExprLit, ExprMacro, ExprMatch, ExprTuple, File,
    ImplItem, Item, ItemImpl, ItemMod, Lit, Macro, Pat, Stmt, Token, braced, token,
};

use crate::words::listed;

/// How many nested macros are unfolded; each is parsed once for every macro around it.
const MACROS_MAX: usize = 8;

/// Macros that stay as they are: their text matters, or they only print.
const KEPT: &str = "\
    format format_args concat write writeln print println eprint eprintln panic trace debug info \
    warn error log bail todo unreachable unimplemented lazy_static thread_local";

/// Cuts tests out, unless they are included, and unfolds macros.
pub(super) fn prune(file: &mut File, include_tests: bool) {
    if !include_tests && is_test(&file.attrs) {
        file.items.clear();
    }
    Prune { include_tests, within: 0 }.visit_file_mut(file);
}

struct Prune {
    include_tests: bool,
    /// How many unfolded macros are around this place.
    within: usize,
}

impl Prune {
    fn keeps(&self, attrs: &[Attribute]) -> bool {
        self.include_tests || !is_test(attrs)
    }
}

impl VisitMut for Prune {
    fn visit_file_mut(&mut self, file: &mut File) {
        file.items.retain(|item| self.keeps(attrs(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, item: &mut ItemMod) {
        if let Some((_, items)) = &mut item.content {
            items.retain(|item| self.keeps(attrs(item)));
        }
        visit_mut::visit_item_mod_mut(self, item);
    }

    fn visit_item_impl_mut(&mut self, item: &mut ItemImpl) {
        item.items.retain(|item| match item {
            ImplItem::Fn(item) => self.keeps(&item.attrs),
            _ => true,
        });
        visit_mut::visit_item_impl_mut(self, item);
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        block.stmts.retain(|stmt| match stmt {
            Stmt::Local(local) => self.keeps(&local.attrs),
            Stmt::Item(item) => self.keeps(attrs(item)),
            _ => true,
        });
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_stmt_mut(&mut self, stmt: &mut Stmt) {
        if let Stmt::Macro(call) = stmt {
            let semi = call.semi_token;
            let call = ExprMacro { attrs: Vec::new(), mac: call.mac.clone() };
            let mut expr = Expr::Macro(call);
            self.visit_expr_mut(&mut expr);
            if !matches!(expr, Expr::Macro(_)) {
                *stmt = Stmt::Expr(expr, semi);
            }
        } else {
            visit_mut::visit_stmt_mut(self, stmt);
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let unfolded = match expr {
            Expr::Macro(call) if self.within < MACROS_MAX => unfold(&call.mac),
            _ => None,
        };
        let deeper = usize::from(unfolded.is_some());
        if let Some(unfolded) = unfolded {
            *expr = unfolded;
        }
        self.within += deeper;
        visit_mut::visit_expr_mut(self, expr);
        self.within -= deeper;
    }
}

fn attrs(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item exists in tests only.
fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let name = attr.path().segments.last().map(|segment| segment.ident.to_string());
        match name.as_deref() {
            Some("test" | "bench" | "rstest" | "test_case" | "quickcheck" | "proptest") => true,
            Some("cfg") => attr.parse_args::<syn::Meta>().is_ok_and(|meta| needs_test(&meta)),
            _ => false,
        }
    })
}

fn needs_test(meta: &syn::Meta) -> bool {
    match meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => {
            let all = Punctuated::<syn::Meta, Token![,]>::parse_terminated;
            list.parse_args_with(all).is_ok_and(|all| all.iter().any(needs_test))
        }
        _ => false,
    }
}

/// The arguments of a macro, if they parse as Rust: expressions, statements, the arms of a
/// `select!` or the members of a `json!`.
fn unfold(call: &Macro) -> Option<Expr> {
    let name = call.path.segments.last()?.ident.to_string();
    if listed(KEPT, name.as_str()) {
        return None;
    }
    let tokens = || call.tokens.clone();
    if let Ok(exprs) = Punctuated::parse_terminated.parse2(tokens()) {
        return Some(tuple(exprs));
    }
    if let Ok(stmts) = Block::parse_within.parse2(tokens()) {
        let block = Block { brace_token: token::Brace::default(), stmts };
        return Some(Expr::Block(ExprBlock { attrs: Vec::new(), label: None, block }));
    }
    if let Ok(Arms(arms)) = syn::parse2(tokens()) {
        return Some(tuple(arms.into_iter().collect()));
    }
    syn::parse2::<Members>(tokens())
        .ok()
        .map(|Members(members)| tuple(members.into_iter().collect()))
}

fn tuple(elems: Punctuated<Expr, Token![,]>) -> Expr {
    Expr::Tuple(ExprTuple { attrs: Vec::new(), paren_token: token::Paren::default(), elems })
}

/// `pattern = future => body, ...`, each as a match of its own.
struct Arms(Vec<Expr>);

impl Parse for Arms {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut arms = Vec::new();
        if input.peek(syn::Ident) && input.peek2(Token![;]) {
            input.parse::<syn::Ident>()?;
            input.parse::<Token![;]>()?;
        }
        while !input.is_empty() {
            if input.peek(Token![else]) {
                input.parse::<Token![else]>()?;
                input.parse::<Token![=>]>()?;
                arms.push(input.parse()?);
            } else {
                let pat = Pat::parse_multi(input)?;
                input.parse::<Token![=]>()?;
                let expr = Box::new(input.parse()?);
                if input.peek(Token![,]) {
                    input.parse::<Token![,]>()?;
                    input.parse::<Token![if]>()?;
                    input.parse::<Expr>()?;
                }
                let fat_arrow_token = input.parse()?;
                let body = Box::new(input.parse()?);
                let arm =
                    Arm { attrs: Vec::new(), pat, guard: None, fat_arrow_token, body, comma: None };
                arms.push(Expr::Match(ExprMatch {
                    attrs: Vec::new(),
                    match_token: Token![match](fat_arrow_token.spans[0]),
                    expr,
                    brace_token: token::Brace::default(),
                    arms: vec![arm],
                }));
            }
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(Self(arms))
    }
}

/// `{ "name": value, ... }`, each member as a pair.
struct Members(Vec<Expr>);

impl Parse for Members {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let content;
        braced!(content in input);
        let mut members = Vec::new();
        while !content.is_empty() {
            let name: Lit = content.parse()?;
            let name = Expr::Lit(ExprLit { attrs: Vec::new(), lit: name });
            content.parse::<Token![:]>()?;
            let value = if content.peek(token::Brace) {
                let Self(inner) = content.parse()?;
                tuple(inner.into_iter().collect())
            } else {
                content.parse()?
            };
            members.push(tuple([name, value].into_iter().collect()));
            content.parse::<Option<Token![,]>>()?;
        }
        Ok(Self(members))
    }
}
