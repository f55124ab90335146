//! The names by which documents refer to one another. All are derived, so a document that is
//! rendered again, or on another machine, has the same names.

use std::time::{Duration, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use hapax::{Digest, Key, Namespace, Timestamp};

use crate::operation::Source;
use crate::run::Run;

/// The id of a run: a UUIDv7 of when it was granted, and of namespace, key, generation and attempt.
pub fn run_id(run: &Run) -> String {
    let mut input = b"hapax.run.v1:".to_vec();
    input.extend(run.key.as_bytes());
    input.extend(run.generation.to_be_bytes());
    input.extend(run.attempt.as_bytes());
    input.extend(run.namespace.as_str().as_bytes());
    let mut id = [0; 16];
    id[..6].copy_from_slice(&run.started.at.0.to_be_bytes()[2..]);
    id[6..].copy_from_slice(&Digest::of(&input).as_bytes()[..10]);
    id[6] = id[6] & 0x0f | 0x70;
    id[8] = id[8] & 0x3f | 0x80;
    let hex = HEXLOWER.encode(&id);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// A run: `urn:uuid:<run id>`. The activity of PROV, the run of OpenLineage.
pub fn run(run: &Run) -> String {
    format!("urn:uuid:{}", run_id(run))
}

/// An operation: `urn:hapax:operation:<key>`.
pub fn operation(key: &Key) -> String {
    format!("urn:hapax:operation:{key}")
}

/// An entry of the journal: `urn:hapax:journal:<namespace>:<entry>`.
pub fn journal(namespace: &Namespace, entry: u64) -> String {
    format!("urn:hapax:journal:{namespace}:{entry}")
}

/// A dataset: `urn:hapax:dataset:<dataset>`.
pub fn dataset(dataset: &str) -> String {
    format!("urn:hapax:dataset:{}", encoded(dataset))
}

/// A version of a dataset: `urn:hapax:artifact:<dataset>:<version>`. The entity of PROV, the
/// dataset of DCAT.
pub fn artifact(dataset: &str, version: &str) -> String {
    format!("urn:hapax:artifact:{}:{}", encoded(dataset), encoded(version))
}

/// An input: `urn:hapax:source:<name>`, and its checksum where that is known.
pub fn source(source: &Source) -> String {
    let name = format!("urn:hapax:source:{}", encoded(&source.name));
    match &source.checksum {
        Some(checksum) => format!("{name}:{}", encoded(checksum)),
        None => name,
    }
}

/// The owner of a dataset: `urn:hapax:agent:<owner>`.
pub fn agent(owner: &str) -> String {
    format!("urn:hapax:agent:{}", encoded(owner))
}

/// The PROV document of a run: `urn:hapax:prov:<run id>`.
pub fn prov(run: &Run) -> String {
    format!("urn:hapax:prov:{}", run_id(run))
}

/// A STAC item: `urn:hapax:stac:<item id>`.
pub fn stac(dataset: &str, version: &str) -> String {
    format!("urn:hapax:stac:{}", stac_item(dataset, version))
}

/// The id of a STAC item, which can also name a file: readable, then a digest.
pub fn stac_item(dataset: &str, version: &str) -> String {
    slug(&format!("{dataset}-{version}"), &artifact(dataset, version))
}

/// The id of a STAC collection, of the same kind.
pub fn stac_collection(name: &str) -> String {
    slug(name, &dataset(name))
}

fn slug(readable: &str, exact: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let slug: String = readable.chars().take(80).map(safe).collect();
    format!("{slug}-{}", HEXLOWER.encode(&Digest::of(exact.as_bytes()).as_bytes()[..6]))
}

/// An absolute IRI for a location, escaped so that it can stand in every document. Without a
/// scheme, it is a file.
pub(crate) fn location(uri: &str) -> String {
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    // One character is a drive, and the prefix of a vocabulary is no scheme.
    let good = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && super::graph::VOCABULARIES.iter().all(|(name, _)| *name != scheme);
    let escaped =
        escape(uri, |byte| byte > b' ' && byte < 0x7f && !br#"<>"{}|\^`"#.contains(&byte));
    if good { escaped } else { format!("file:{escaped}") }
}

/// The SHA-256 of a checksum that is written `sha256:<hex>`.
pub(crate) fn sha256(checksum: &str) -> Option<String> {
    checksum.parse::<Digest>().ok().map(|digest| HEXLOWER.encode(digest.as_bytes()))
}

/// A time as documents have it: RFC 3339, to the millisecond.
pub(crate) fn time(at: Timestamp) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(at.0.max(0) as u64);
    humantime::format_rfc3339_millis(at).to_string()
}

fn encoded(text: &str) -> String {
    escape(text, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

fn escape(text: &str, keep: impl Fn(u8) -> bool) -> String {
    let each = |byte: u8| match keep(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(each).collect()
}
