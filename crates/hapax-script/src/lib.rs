//! Compares scripts: whether a repaired script builds its item ids and subkeys as the one before.
//!
//! A repaired script may replace another only if it names things alike. Otherwise finished items
//! would be done again, and mutations that happened would happen again. Where this crate does not
//! understand a script, it reports a difference. It never runs one.
//!
//!   script ── syntax ── scope ── script        what is written, and what names mean
//!                                  │
//!        normal_form ── reach ── trace         what an id or a subkey is built from
//!                                  │
//!              hidden ── subkey ── construction ── differences
//!
//! | module | owns |
//! |---|---|
//! | `syntax`, `scope`, `literal` | the syntax tree of a script, its names and its texts |
//! | `script`, `known`, `methods` | calls of `withItem` and of tools, and functions of the language |
//! | `trace`, `reach`, `normal_form` | the parts that an id or a subkey is built from |
//! | `hidden` | code that this crate does not follow |
//! | `construction`, `subkey` | how a script names things |
//! | `alignment`, `difference` | which parts of two scripts belong together, and how they differ |

mod alignment;
mod construction;
mod difference;
mod hidden;
mod known;
mod literal;
mod methods;
mod normal_form;
mod reach;
mod scope;
mod script;
mod subkey;
mod syntax;
mod trace;

pub use construction::Construction;
pub use difference::Difference;
pub use syntax::Unreadable;
