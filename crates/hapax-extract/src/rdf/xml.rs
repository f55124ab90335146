//! Measures what an XML document costs, before it is parsed.
//!
//! A few hundred bytes of nested entities can expand to more text than there is memory, and each
//! level of nested elements repeats the declarations above it. The document is only skimmed here;
//! the parser decides whether it is XML at all.

use std::collections::HashMap;

use crate::ontology::error::{OntologyError, Position};
use crate::ontology::limits::{MAX_DOCUMENT, MAX_XML_DEPTH, MAX_XML_TAG};
use crate::rdf::Syntax;

/// Refuses a document that costs too much.
pub(super) fn measure(bytes: &[u8]) -> Result<(), OntologyError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = Position::of(error.valid_up_to(), bytes);
        OntologyError::syntax(Syntax::RdfXml, Some(at), "only UTF-8 can be read")
    })?;
    let (written_out, entities) = entities(text);
    if written_out > MAX_DOCUMENT {
        let what = "a document's bytes with its entities written out";
        return Err(OntologyError::TooLarge { what, limit: MAX_DOCUMENT });
    }
    let (deepest, longest) = tags(text, &entities);
    if deepest > MAX_XML_DEPTH {
        return Err(OntologyError::TooLarge { what: "the nested elements", limit: MAX_XML_DEPTH });
    }
    if longest > MAX_XML_TAG {
        return Err(OntologyError::TooLarge { what: "the bytes of a tag", limit: MAX_XML_TAG });
    }
    Ok(())
}

type Lengths<'a> = HashMap<&'a str, usize>;

/// The length of the document with its entities expanded, and the length of each entity.
fn entities(text: &str) -> (usize, Lengths<'_>) {
    let mut lengths = Lengths::new();
    let mut parts = text.split("<!ENTITY");
    let mut total = parts.next().map_or(0, |part| length(part, &lengths));
    for part in parts {
        // Then comes `name "value"`, perhaps with a `%` before it.
        let declaration = part.trim_start().trim_start_matches('%').trim_start();
        let name = declaration.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default();
        let value = declaration.split('"').nth(1).unwrap_or_default();
        let value = length(value, &lengths);
        // Of two with the same name the longer counts, whichever the parser takes.
        let known = lengths.entry(name).or_default();
        *known = value.max(*known);
        total = total.saturating_add(length(part, &lengths));
    }
    (total, lengths)
}

fn length(text: &str, lengths: &Lengths) -> usize {
    let references = text.split('&').skip(1).filter_map(|after| after.split_once(';'));
    let written_out = references.filter_map(|(name, _)| lengths.get(name));
    written_out.fold(text.len(), |total, length| total.saturating_add(*length))
}

/// The depth of nested elements, and the length of the longest tag.
fn tags(text: &str, lengths: &Lengths) -> (usize, usize) {
    let (mut depth, mut deepest, mut longest) = (0usize, 0, 0);
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        let end = |end: &str| rest.find(end).map(|at| at + end.len());
        let size = match rest.as_bytes().get(1) {
            Some(b'!') if rest.starts_with("<!--") => end("-->"),
            Some(b'!') if rest.starts_with("<![CDATA[") => end("]]>"),
            Some(b'!') => Some("<!".len()),
            Some(b'?') => end("?>"),
            Some(b'/') => end(">"),
            _ => start_tag(rest),
        };
        let Some(size) = size else { break };
        match rest.as_bytes().get(1) {
            Some(b'!' | b'?') => {}
            Some(b'/') => depth = depth.saturating_sub(1),
            _ => {
                longest = longest.max(length(&rest[..size], lengths));
                depth += usize::from(!rest[..size].ends_with("/>"));
            }
        }
        deepest = deepest.max(depth);
        rest = &rest[size..];
    }
    (deepest, longest)
}

/// The length of the tag at the beginning. A `>` in quotes does not end it.
fn start_tag(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_counted_as_long_as_what_they_stand_for() {
        let text = r#"<!DOCTYPE x [<!ENTITY a "1234567890"><!ENTITY b "&a;&a;">]><x>&b;&amp;</x>"#;
        let (total, lengths) = entities(text);
        assert_eq!((lengths["a"], lengths["b"]), (10, 6 + 10 + 10));
        assert_eq!(total, text.replace("<!ENTITY", "").len() + 10 + 10 + lengths["b"]);
    }

    #[test]
    fn a_billion_laughs_are_refused_before_they_are_parsed() {
        let mut document = String::from("<!DOCTYPE x [<!ENTITY l0 \"laughs\">");
        for n in 1..40 {
            let before = format!("&l{};", n - 1).repeat(10);
            document.push_str(&format!("<!ENTITY l{n} \"{before}\">"));
        }
        document.push_str("]><x>&l39;</x>");
        let error = measure(document.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("entities written out"), "{error}");
    }

    #[test]
    fn depth_is_that_of_elements_only() {
        for (text, expected) in [
            ("", 0),
            ("<a/>", 0),
            ("<a><b/><b></b></a>", 2),
            ("<a x='/>'><b></b></a>", 2),
            ("<a x='>' y=\"/>\"><b/></a>", 1),
            ("<?xml version='1.0'?><!-- <a><b> --><a><![CDATA[<b><c>]]></a>", 1),
            ("<!DOCTYPE a [<!ENTITY b \"c\"> <!-- ' --> ]><a></a>", 1),
            ("<a", 0),
            ("</a></a><a>", 1),
        ] {
            assert_eq!(tags(text, &Lengths::new()).0, expected, "{text}");
        }
        assert!(measure("<a>".repeat(MAX_XML_DEPTH).as_bytes()).is_ok());
        assert!(measure("<a>".repeat(MAX_XML_DEPTH + 1).as_bytes()).is_err());
    }

    #[test]
    fn a_tag_is_as_long_as_what_is_in_it_stands_for() {
        let references = "&a;".repeat(MAX_XML_TAG / 1_000 + 1);
        let document =
            format!("<!DOCTYPE x [<!ENTITY a \"{}\">]><x a=\"{references}\"/>", "a".repeat(1_000));
        assert!(measure(document.as_bytes()).unwrap_err().to_string().contains("of a tag"));
        assert!(measure(document.replace(&references, "&a;&a;").as_bytes()).is_ok());
    }
}
