//! Names of things: their label, or the last part of their IRI.

use std::borrow::Cow;

use super::{Class, Individual, Property};

/// A label, or the last part of the IRI as words: `https://example.org/playsFor` is `plays for`.
fn name<'a>(label: Option<&'a str>, iri: &'a str) -> Cow<'a, str> {
    match label.filter(|label| !label.trim().is_empty()) {
        Some(label) => Cow::Borrowed(label),
        None => Cow::Owned(words(local_name(iri))),
    }
}

fn local_name(iri: &str) -> &str {
    let trimmed = iri.trim_end_matches(['#', '/']);
    let after = |at: Option<usize>| at.and_then(|at| trimmed.get(at + 1..));
    after(trimmed.rfind(['#', '/'])).or_else(|| after(trimmed.rfind(':'))).unwrap_or(trimmed)
}

/// Splits at underscores and where a capital begins a word. A text that begins with a small letter
/// is camel case, and its inner capitals mean nothing. A text that begins with a capital may be a
/// proper name and keeps its capitals.
fn words(local: &str) -> String {
    let camel = local.chars().next().is_some_and(char::is_lowercase);
    let letters: Vec<char> = local.chars().collect();
    let mut words: Vec<String> = vec![String::new()];
    for (at, &letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| letters[at]);
        let next_is_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && next_is_small)
            });
        if begins || letter == '_' {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter != '_') {
            // An abbreviation stays one: `hasHTTPServer` has an HTTP server.
            match camel && begins && next_is_small {
                true => word.extend(letter.to_lowercase()),
                false => word.push(letter),
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

macro_rules! named {
    ($($noun:ty),*) => {$(
        impl $noun {
            /// Its name: its label, or else the last part of its IRI as words.
            pub fn name(&self) -> Cow<'_, str> {
                name(self.label.as_deref(), &self.id)
            }

            /// All its names: its name, then its synonyms.
            pub fn names(&self) -> impl Iterator<Item = Cow<'_, str>> {
                let synonyms = self.synonyms.iter().map(|synonym| Cow::Borrowed(synonym.as_str()));
                std::iter::once(self.name()).chain(synonyms)
            }
        }
    )*};
}

named!(Class, Property, Individual);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iri_ends_in_words() {
        for (iri, expected) in [
            ("https://example.org/playsFor", "plays for"),
            ("https://example.org/o#FootballPlayer", "Football Player"),
            ("https://example.org/Lionel_Messi", "Lionel Messi"),
            ("https://example.org/hasHTTPServer", "has HTTP server"),
            ("https://example.org/HTTPServer", "HTTP Server"),
            ("https://example.org/part2Of", "part2 of"),
            ("https://example.org/isA", "is A"),
            ("https://example.org/obo/GO_0008150", "GO 0008150"),
            ("https://example.org/people/", "people"),
            ("https://example.org/_x__y_", "x y"),
            ("urn:example:playsFor", "plays for"),
            ("plain", "plain"),
            ("https://example.org/öffnetTür", "öffnet tür"),
            ("#", ""),
            ("", ""),
        ] {
            assert_eq!(words(local_name(iri)), expected, "{iri}");
        }
    }

    #[test]
    fn a_label_is_the_name_and_a_blank_one_is_none() {
        let id = "https://example.org/playsFor".to_owned();
        let named = |label: Option<&str>| Property {
            id: id.clone(),
            label: label.map(str::to_owned),
            synonyms: vec!["is signed with".into()],
            ..Property::default()
        };
        assert_eq!(named(Some("is a player of")).name(), "is a player of");
        assert_eq!(named(Some(" ")).name(), "plays for");
        assert_eq!(named(None).names().collect::<Vec<_>>(), ["plays for", "is signed with"]);
    }
}
