//! Finds a quote in a text.

use std::ops::Range;

/// The places where a quote stands, in bytes. Any white space matches any other, because models do
/// not keep line ends. If the quote stands as whole words somewhere, only those places count: the
/// `Ada` in `Adapter` does not count beside an `Ada`.
pub(super) fn places(text: &str, quote: &str) -> Vec<Range<usize>> {
    let mut words = quote.split_whitespace();
    let Some(first) = words.next() else { return Vec::new() };
    let all: Vec<Range<usize>> = text
        .match_indices(first)
        .filter_map(|(start, _)| Some(start..end_of(text, start + first.len(), words.clone())?))
        .collect();
    let whole: Vec<Range<usize>> = all.iter().filter(|at| is_whole(text, at)).cloned().collect();
    if whole.is_empty() { all } else { whole }
}

/// Whether every word of a name follows the one before it somewhere in the text, in any case.
pub(super) fn stands_in(text: &str, name: &str) -> bool {
    !places(&text.to_lowercase(), &name.to_lowercase()).is_empty()
}

/// Where the last of these words ends, if they follow here with white space between them.
fn end_of<'a>(text: &str, at: usize, words: impl Iterator<Item = &'a str>) -> Option<usize> {
    let mut at = at;
    for word in words {
        let rest = &text[at..];
        let after = rest.trim_start();
        let gap = rest.len() - after.len();
        if gap == 0 || !after.starts_with(word) {
            return None;
        }
        at += gap + word.len();
    }
    Some(at)
}

fn is_whole(text: &str, at: &Range<usize>) -> bool {
    let inner = |character: Option<char>| character.is_some_and(has_neighbours);
    let (before, after) = (text[..at.start].chars().next_back(), text[at.end..].chars().next());
    let quote = &text[at.clone()];
    let begins = inner(before) && inner(quote.chars().next());
    let ends = inner(after) && inner(quote.chars().next_back());
    !begins && !ends
}

/// Whether a letter belongs to a word that goes on until a space or a sign. The scripts of East
/// and South-East Asia set none between words.
fn has_neighbours(character: char) -> bool {
    let unspaced = matches!(character,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
            | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}');
    character.is_alphanumeric() && !unspaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(text: &'a str, quote: &str) -> Vec<(usize, &'a str)> {
        places(text, quote).into_iter().map(|at| (at.start, &text[at])).collect()
    }

    #[test]
    fn whole_words_count_before_parts_of_words() {
        assert_eq!(found("Adapter, Ada, Ada's", "Ada"), [(9, "Ada"), (14, "Ada")]);
        assert_eq!(found("Adapter", "Ada"), [(0, "Ada")]);
        assert_eq!(found("東京都は東京", "東京"), [(0, "東京"), (12, "東京")]);
    }

    #[test]
    fn white_space_is_as_good_as_any_other() {
        let text = "für Al\n  Nassr, AlNassr, Al Nassr";
        assert_eq!(found(text, "Al Nassr"), [(5, "Al\n  Nassr"), (26, "Al Nassr")]);
        assert_eq!(found(text, " "), []);
        assert_eq!(found(text, "al nassr"), []);
        assert!(stands_in(text, "al nassr"));
    }
}
