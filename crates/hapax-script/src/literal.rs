//! The values of literals and property names, however they are written.

use crate::syntax::{Node, Syntax};

impl Syntax<'_> {
    /// The text of a string, or of a template without substitutions. None if it is neither, or if
    /// its value is no valid text.
    pub(crate) fn string(&self, node: Node) -> Option<String> {
        if !matches!(self.kind(node), "string" | "template_string") {
            return None;
        }
        let mut text = String::new();
        for child in self.named(node) {
            match self.kind(child) {
                "string_fragment" => text.push_str(self.text(child)),
                "escape_sequence" => text.push_str(&unescaped(self.text(child))?),
                _ => return None,
            }
        }
        Some(text)
    }

    /// The name of a property, where it is written down: `a`, `"a"`, `["a"]` and `` [`a`] `` are
    /// the same. None if it is computed.
    pub(crate) fn key(&self, node: Node) -> Option<String> {
        match self.kind(node) {
            "computed_property_name" => self.key_index(self.named(node).next()?),
            "string" => self.string(node),
            "number" => Some(self.text(node).into()),
            kind if kind.ends_with("identifier") || kind.ends_with("identifier_pattern") => {
                Some(self.text(node).into())
            }
            _ => None,
        }
    }

    /// The name of the property that a member or subscript expression reads.
    pub(crate) fn property(&self, node: Node) -> Option<String> {
        match self.kind(node) {
            "member_expression" => self.key(self.child(node, "property")?),
            "subscript_expression" => self.key_index(self.child(node, "index")?),
            _ => None,
        }
    }

    fn key_index(&self, node: Node) -> Option<String> {
        let node = self.bare(node);
        match self.kind(node) {
            "string" | "template_string" => self.string(node),
            "number" => Some(self.text(node).into()),
            _ => None,
        }
    }
}

fn unescaped(sequence: &str) -> Option<String> {
    let rest = sequence.strip_prefix('\\')?;
    let first = rest.chars().next()?;
    let text = match first {
        'n' => "\n".into(),
        't' => "\t".into(),
        'r' => "\r".into(),
        'b' => "\u{8}".into(),
        'v' => "\u{b}".into(),
        'f' => "\u{c}".into(),
        'x' | 'u' => {
            let digits = rest[1..].trim_start_matches('{').trim_end_matches('}');
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)?.into()
        }
        '0'..='9' if rest == "0" => "\0".into(),
        '0'..='9' => return None,
        '\n' | '\r' => String::new(),
        _ => rest.into(),
    };
    Some(text)
}
