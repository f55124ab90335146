//! The tools that scripts call, and the maintainer that is a service.
//!
//! A tool implements [`hapax_items::Tool`]: it plans a call, performs it, and looks up unknown
//! outcomes. It knows no item and no run.
//!
//! | tool | changes | is looked up by |
//! |---|---|---|
//! | [`FileTool`] | files under one directory | the file |
//! | [`Http`] | data on HTTP servers | a probe, or the key where the server honours it |
//! | [`Webhook`] | one endpoint, signed | its id, where the receiver honours it |
//! | [`Email`] | mailboxes | the message's id in a mailbox, by IMAP |
//! | [`Sql`] | rows in the ledger's own database | no lookup: it commits with the ledger |
//! | [`Kv`] | values by key, in the ledger's own database | no lookup: it commits with the ledger |

mod arguments;
mod database;
#[cfg(feature = "email")]
pub mod email;
#[cfg(feature = "http")]
mod endpoint;
pub mod file;
#[cfg(feature = "http")]
pub mod http;
mod kv;
mod likeness;
mod sql;
#[cfg(feature = "http")]
pub mod webhook;

pub use database::Database;
#[cfg(feature = "email")]
pub use email::{Email, EmailSettings};
#[cfg(feature = "http")]
pub use endpoint::{Endpoint, EndpointSettings};
pub use file::{FileSettings, FileTool};
#[cfg(feature = "http")]
pub use http::{Http, HttpSettings};
pub use kv::Kv;
pub use sql::Sql;
#[cfg(feature = "http")]
pub use webhook::{Webhook, WebhookToolSettings};

use hapax::{Finding, Outcome};
use hapax_core::canonical::canonical;
use hapax_core::json::Json;

/// TypeScript declarations of the tools. They follow those of [`hapax_items::TYPES`].
pub const TYPES: &str = include_str!("types.d.ts");

/// Why a tool cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub(crate) String);

/// Checks the name of a tool.
fn named(name: String) -> Result<String, SettingsError> {
    let fits = |character: char| character.is_ascii_alphanumeric() || character == '_';
    match (1..=64).contains(&name.len()) && name.chars().all(fits) {
        true => Ok(name),
        false => Err(SettingsError(format!(
            "invalid tool name {name:?}: write 1 to 64 letters, digits and underscores"
        ))),
    }
}

/// The finding that a mutation happened, with the JSON that it would have returned.
fn happened(result: &Json) -> Finding {
    match canonical(result) {
        Ok(text) => Finding::Happened(Outcome::from(text)),
        Err(error) => Finding::CannotTell(format!("what was found cannot be kept: {error}")),
    }
}
