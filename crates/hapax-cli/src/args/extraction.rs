//! Command-line arguments of extraction.

use std::path::PathBuf;

use clap::Subcommand;

/// Find entities and relations in texts; chunks read before are not read again.
///
/// The extractor is the built-in one, which needs no network, unless [extraction] in hapax.toml
/// names another. A text that breaks off resumes where it was: chunks that were read are kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Extract {
    /// The texts; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The ontology: a file (.json, .ttl, .rdf, .owl, .jsonld), which is stored first, or the IRI
    /// of a stored one
    #[arg(long, short, value_name = "ONTOLOGY")]
    pub(crate) ontology: String,
    #[command(flatten)]
    pub(crate) how: How,
    /// Print each finding on a line, and not only the counts
    #[arg(long)]
    pub(crate) full: bool,
}

/// How texts are read.
#[derive(Debug, clap::Args)]
pub(crate) struct How {
    /// A parameter, such as temperature=0.2 or llmModel=m-1. May be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) param: Vec<String>,
    /// The file with [extraction]: which extractor, and how results are kept
    #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Cache {
    /// Explain a hit or a miss: which part of the key differs
    Explain {
        /// The text; - is standard input
        file: PathBuf,
        /// The IRI of the ontology, or its file
        #[arg(long, short, value_name = "ONTOLOGY")]
        ontology: String,
        #[command(flatten)]
        how: How,
    },
    /// Count results
    Stats,
    /// Remove one result, or all of an ontology
    Invalidate {
        /// The key: sha256:<64 hex>
        #[arg(required_unless_present = "ontology", conflicts_with = "ontology")]
        key: Option<String>,
        /// The IRI of the ontology
        #[arg(long, short, value_name = "IRI")]
        ontology: Option<String>,
    },
    /// Remove all results
    Clear {
        /// Yes, all of them
        #[arg(long, required = true)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Ontologies {
    /// List the stored ontologies
    List,
    /// Show one
    Show {
        /// Its IRI
        id: String,
    },
    /// Store an ontology in place of its earlier version; only that version's results are removed
    Put {
        /// The file: .json, .ttl, .rdf, .owl or .jsonld
        file: PathBuf,
        /// Its IRI, where the file does not say or is to be overruled
        #[arg(long, value_name = "IRI")]
        id: Option<String>,
        /// A version for people; what counts is the hash of its content
        #[arg(long, value_name = "VERSION")]
        label_version: Option<String>,
        /// The person who decides; kept in the journal
        #[arg(long, env = "USER", default_value = "unknown")]
        by: String,
    },
    /// Remove one, and all results that were made from it
    Remove {
        /// Its IRI
        id: String,
        /// The person who decides; kept in the journal
        #[arg(long, env = "USER", default_value = "unknown")]
        by: String,
    },
}
