//! `extraction.v1`: a text, an ontology at one version, and the parameters of an extractor.
//!
//! The formula is fixed by clients written in JavaScript, so white space and numbers follow
//! that language. It contains a 64-bit hash of the parameters, which can be collided on
//! purpose; [`Extraction::fingerprint`] therefore covers everything again, untruncated, and
//! is compared on every hit.

use std::borrow::Cow;

use super::{Key, KeyError, required};
use crate::canonical::{canonical, write_string};
use crate::digest::{FramedHasher, sha256};
use crate::fingerprint::Fingerprint;
use crate::json::Json;

/// The name of the derivation.
pub const V1: &str = "extraction.v1";

/// The inputs of an extraction.
///
/// ```
/// use hapax_core::json::Json;
/// use hapax_core::key::extraction::Extraction;
///
/// let params = Json::parse(br#"{"model": "m-1", "temperature": 0}"#)?;
/// let asked = Extraction {
///     text: "  Ada met Charles. \r\n",
///     ontology_id: "https://example.org/people",
///     ontology_version: "3",
///     params: &params,
/// };
/// let tidied = Extraction { text: "Ada met Charles.", ..asked };
/// assert_eq!(asked.derive()?.key, tidied.derive()?.key);
/// assert!(asked.derive()?.short().starts_with("sha256-"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extraction<'a> {
    /// The text, as the client sent it.
    pub text: &'a str,
    /// The ontology's IRI.
    pub ontology_id: &'a str,
    /// The ontology's content version.
    pub ontology_version: &'a str,
    /// Everything that changes the extractor's answer; a JSON object.
    pub params: &'a Json,
}

/// A key together with the parts it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Components {
    /// The full digest, which is stored and compared.
    pub key: Key,
    /// The text after normalisation.
    pub normalized_text: String,
    /// The first 16 hex digits of the text's SHA-256.
    pub text_hash: String,
    /// The first 16 hex digits of the SHA-256 of the canonical parameters.
    pub params_hash: String,
}

impl Components {
    /// The short form `sha256-<16 hex>`, for people to read and never to compare.
    pub fn short(&self) -> String {
        format!("sha256-{}", short_hex(self.key.as_bytes()))
    }
}

impl Extraction<'_> {
    /// The key of this extraction and its parts.
    pub fn derive(&self) -> Result<Components, KeyError> {
        let params_hash = short_hex(&sha256(self.canonical_params()?.as_bytes()));
        let normalized_text = normalize(self.text);
        // In the order of names, as canonical JSON has them.
        let mut whole = String::with_capacity(normalized_text.len() + 256);
        for (name, text) in [
            ("{\"extractionParamsHash\":", params_hash.as_str()),
            (",\"ontologyId\":", required("ontologyId", self.ontology_id)?),
            (",\"ontologyVersion\":", required("ontologyVersion", self.ontology_version)?),
            (",\"text\":", &normalized_text),
        ] {
            whole.push_str(name);
            write_string(text, &mut whole);
        }
        whole.push('}');
        Ok(Components {
            key: Key::from_bytes(sha256(whole.as_bytes())),
            text_hash: short_hex(&sha256(normalized_text.as_bytes())),
            normalized_text,
            params_hash,
        })
    }

    /// A full SHA-256 over the untruncated text, ontology and parameters.
    pub fn fingerprint(&self) -> Result<Fingerprint, KeyError> {
        let digest = FramedHasher::new("hapax.extraction.fingerprint.v1:")
            .field(normalize(self.text).as_bytes())
            .field(self.ontology_id.as_bytes())
            .field(self.ontology_version.as_bytes())
            .field(self.canonical_params()?.as_bytes())
            .finish();
        Ok(Fingerprint::from_bytes(digest))
    }

    fn canonical_params(&self) -> Result<String, KeyError> {
        let refuse = |problem: String| KeyError::Invalid { field: "extractionParams", problem };
        if !matches!(self.params, Json::Object(_)) {
            return Err(refuse("must be a JSON object".into()));
        }
        canonical(self.params).map_err(|error| refuse(error.to_string()))
    }
}

/// Trims, turns CRLF into LF, and drops white space before each line end.
///
/// The last rule collapses blank lines, because a line end is white space too: within a run
/// of white space everything up to its last LF becomes that one LF.
pub fn normalize(text: &str) -> String {
    let text = text.trim_matches(is_js_space);
    let text = match text.contains('\r') {
        true => Cow::Owned(text.replace("\r\n", "\n")),
        false => Cow::Borrowed(text),
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(start) = rest.find(is_js_space) {
        out.push_str(&rest[..start]);
        let run = &rest[start..];
        let end = run.find(|c| !is_js_space(c)).unwrap_or(run.len());
        let kept = run[..end].rfind('\n').unwrap_or(0);
        out.push_str(&run[kept..end]);
        rest = &run[end..];
    }
    out.push_str(rest);
    out
}

/// ECMAScript's `\s`: Unicode's space separators, the line ends, and the byte order mark.
/// U+0085 is white space to Unicode and not to JavaScript.
fn is_js_space(c: char) -> bool {
    matches!(
        c,
        '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200a}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{202f}'
                | '\u{205f}'
                | '\u{3000}'
                | '\u{feff}'
    )
}

fn short_hex(digest: &[u8; 32]) -> String {
    data_encoding::HEXLOWER.encode(&digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves X-1.
    #[test]
    fn the_golden_vectors_hold() {
        let file = Json::parse(include_bytes!("../../vectors/extraction_key.json")).unwrap();
        let vectors = file.get("vectors").and_then(Json::as_array).unwrap();
        assert!(vectors.len() >= 10);
        for vector in vectors {
            let (input, expected) = (vector.get("input").unwrap(), vector.get("expected").unwrap());
            let text = |object: &'_ Json, name| {
                object.get(name).and_then(Json::as_str).unwrap().to_owned()
            };
            let components = Extraction {
                text: &text(input, "text"),
                ontology_id: &text(input, "ontologyId"),
                ontology_version: &text(input, "ontologyVersion"),
                params: input.get("extractionParams").unwrap(),
            }
            .derive()
            .unwrap();
            assert_eq!(components.short(), text(expected, "key"));
            assert_eq!(components.key.to_string(), format!("sha256:{}", text(expected, "digest")));
            assert_eq!(components.normalized_text, text(expected, "normalizedText"));
            assert_eq!(components.text_hash, text(expected, "textHash"));
            assert_eq!(components.params_hash, text(expected, "extractionParamsHash"));
        }
    }

    #[test]
    fn white_space_is_javascripts() {
        assert_eq!(normalize("\u{feff}a\u{85}"), "a\u{85}");
        assert_eq!(normalize("a\u{2028}\nb"), "a\nb");
        assert_eq!(normalize("a \r\n\r\n b"), "a\n b");
        assert_eq!(normalize("a\r \n b"), "a\n b");
        assert_eq!(normalize("a  b"), "a  b");
    }

    /// Proves X-1: a collision of the short hash is told apart by the fingerprint.
    #[test]
    fn the_fingerprint_covers_what_the_key_shortens() {
        let (one, two) = (Json::parse(b"{\"a\":1}").unwrap(), Json::parse(b"{\"a\":2}").unwrap());
        let first = Extraction { text: "x", ontology_id: "o", ontology_version: "1", params: &one };
        let second = Extraction { params: &two, ..first };
        assert_ne!(first.fingerprint(), second.fingerprint());
        assert_eq!(first.fingerprint(), Extraction { text: " x ", ..first }.fingerprint());
    }
}
