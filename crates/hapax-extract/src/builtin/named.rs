//! Names that the ontology does not have: words with capitals beside the name of a class, as in
//! `River Thames`, `Hudson River` and `Professor Ada Lovelace`.

use super::word::{self, in_word};

/// How many words a name has at most.
const LONGEST: usize = 6;

/// Words that begin sentences with a capital and are no part of a name.
const LITTLE: [&str; 72] = [
    "a", "after", "all", "along", "also", "although", "an", "and", "another", "any", "as", "at",
    "because", "before", "between", "both", "but", "by", "during", "each", "every", "few", "for",
    "from", "he", "her", "here", "his", "how", "however", "i", "if", "in", "into", "is", "it",
    "its", "many", "most", "my", "near", "no", "not", "of", "on", "once", "one", "or", "other",
    "our", "over", "several", "she", "since", "some", "such", "that", "the", "their", "then",
    "there", "these", "they", "this", "those", "though", "to", "under", "we", "when", "where",
    "while",
];

/// Words without a capital that stand inside names.
const INSIDE: [&str; 16] = [
    "al", "bin", "da", "de", "del", "della", "den", "der", "des", "di", "do", "du", "la", "le",
    "van", "von",
];

/// Endings of adjectives of origin, as in `the French river`.
const ADJECTIVES: [&str; 10] =
    ["an", "ish", "ese", "nch", "tch", "ech", "lsh", "eek", "wiss", "ic"];

/// The name that follows right after `from`, and ends before `limit`.
pub(super) fn after(text: &str, from: usize, limit: usize) -> Option<(usize, usize)> {
    let mut name = None;
    let mut at = from;
    for _ in 0..LONGEST {
        let Some(rest) = text[at..limit].strip_prefix(' ') else { break };
        let begin = limit - rest.len();
        let length = rest.find(|c| !in_name(c)).unwrap_or(rest.len());
        let word = rest[..length].trim_end_matches(['-', '\'', '’']);
        let end = begin + word.len();
        if let Some(owner) = owner(word).filter(|owner| capital(owner)) {
            let start = name.map_or(begin, |(start, _)| start);
            return Some((start, begin + owner.len()));
        }
        let start = match name {
            None if capital(word) && !is_little(word) => begin,
            Some((start, _)) if capital(word) => start,
            Some(_) if INSIDE.contains(&word) => {
                at = end;
                continue;
            }
            _ => break,
        };
        name = Some((start, end));
        at = if initial(word) && text[end..limit].starts_with(". ") { end + 1 } else { end };
    }
    name
}

/// The name that ends right before `to`, and begins no earlier than `floor`.
pub(super) fn before(text: &str, to: usize, floor: usize) -> Option<(usize, usize)> {
    let mut name: Option<(usize, usize)> = None;
    let mut at = to;
    for _ in 0..LONGEST {
        let Some(rest) = text[floor..at].strip_suffix(' ') else { break };
        let length = rest.len() - rest.trim_end_matches(in_name).len();
        let word = rest[rest.len() - length..].trim_start_matches(['-', '\'', '’']);
        let end = floor + rest.len();
        let begin = end - word.len();
        if capital(word) && !is_little(word) && owner(word).is_none() {
            name = Some((begin, name.map_or(end, |(_, end)| end)));
        } else if !(name.is_some() && INSIDE.contains(&word)) {
            break;
        }
        at = begin;
    }
    name
}

/// Whether this is more likely a name than a word that begins a sentence, or an adjective of
/// origin.
pub(super) fn is_sure(text: &str, name: (usize, usize)) -> bool {
    let first = text[..name.0].trim_end_matches(' ').chars().next_back();
    let goes_on = first.is_some_and(|c| in_word(c) || matches!(c, ',' | ';' | '('));
    goes_on && !ADJECTIVES.iter().any(|ending| text[..name.1].ends_with(ending))
}

fn in_name(c: char) -> bool {
    in_word(c) || matches!(c, '\'' | '’' | '-')
}

fn capital(word: &str) -> bool {
    word.starts_with(char::is_uppercase)
}

fn initial(word: &str) -> bool {
    word.chars().count() == 1
}

fn is_little(word: &str) -> bool {
    LITTLE.contains(&word::fold(word).as_str())
}

/// `Egypt` of `Egypt's`.
fn owner(word: &str) -> Option<&str> {
    word.strip_suffix("'s").or_else(|| word.strip_suffix("’s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(text: &str) -> Option<&str> {
        after(text, 0, text.len()).map(|(start, end)| &text[start..end])
    }

    fn left(text: &str) -> Option<&str> {
        before(text, text.len(), 0).map(|(start, end)| &text[start..end])
    }

    #[test]
    fn a_name_is_words_with_capitals() {
        assert_eq!(right(" Ada Lovelace wrote"), Some("Ada Lovelace"));
        assert_eq!(right(" flows"), None);
        assert_eq!(right(", Ada"), None);
        assert_eq!(left("along the Rio Grande "), Some("Rio Grande"));
        assert_eq!(left("along the "), None);
    }

    #[test]
    fn a_name_may_contain_initials_and_little_words() {
        assert_eq!(right(" J. S. Bach played"), Some("J. S. Bach"));
        assert_eq!(right(" Ludwig van Beethoven and"), Some("Ludwig van Beethoven"));
        assert_eq!(right(" Ludwig van hire"), Some("Ludwig"));
        assert_eq!(left("the Rio de Janeiro "), Some("Rio de Janeiro"));
        assert_eq!(right(" Jean-Luc O’Neil."), Some("Jean-Luc O’Neil"));
    }

    #[test]
    fn a_word_that_begins_a_sentence_is_no_part_of_a_name() {
        assert_eq!(left("The Hudson "), Some("Hudson"));
        assert_eq!(left("The "), None);
        assert_eq!(right(" The others"), None);
    }

    #[test]
    fn whose_it_is_is_no_part_of_its_name() {
        assert_eq!(left("Egypt's "), None);
        assert_eq!(right(" Ada's notes"), Some("Ada"));
    }

    #[test]
    fn names_of_any_script_with_capitals_are_names() {
        assert_eq!(right(" Ångström und"), Some("Ångström"));
        assert_eq!(right(" Київ є"), Some("Київ"));
    }

    #[test]
    fn a_name_has_no_end_of_words() {
        let many = " Ab".repeat(40);
        assert_eq!(after(&many, 0, many.len()), Some((1, 18)));
    }
}
