//! Finds home-made idempotency in source trees: keys that are hashed by hand, dedupe stores
//! and retry loops that hapax should own.
//!
//! Rust is read by its syntax tree, other languages by a few patterns. Where a rule is in
//! doubt it stays silent: a gate that cries wolf is switched off.
//!
//! ```
//! use hapax_lint::{Config, Rule, scan};
//!
//! # let directory = tempfile::tempdir()?;
//! # let tree = directory.path().to_path_buf();
//! std::fs::write(
//!     tree.join("pay.rs"),
//!     "fn pay(body: &[u8]) { let idempotency_key = hex::encode(Sha256::digest(body)); }",
//! )?;
//! let config = Config::parse(r#"exclude = ["generated/**"]"#)?;
//! let report = scan(&[tree], &config)?;
//! assert_eq!(report.findings[0].rule, Rule::KeyDerivation);
//! assert!(report.human().starts_with("pay.rs:1:27: key-derivation: "));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It reads and reports. It never writes a file, runs a program or prints.

mod config;
mod inline;
mod pattern;
mod report;
mod rule;
mod rust;
mod sarif;
mod scan;
mod source;
mod sql;
mod walk;
mod words;

pub use config::{ALLOWS_MAX, CONFIG_MAX_BYTES, Config, ConfigError, EXCLUDES_MAX};
pub use report::{Allowed, Finding, Report, Skipped, Suppression, Unparsed, UnusedAllow};
pub use rule::Rule;
pub use scan::{ScanError, scan};
pub use walk::{FILE_MAX_BYTES, FILES_MAX};
