//! Searches a text for many phrases in one pass.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError};

use super::word;

/// Up to how many bytes of phrases the fastest automaton is built. It takes about 256 bytes of
/// memory for each; the other takes some ten, and reads text at about half the speed.
const FAST: usize = 128 * 1024;

/// Phrases, each with its meanings.
#[derive(Debug)]
pub(super) struct Phrases<T> {
    automaton: AhoCorasick,
    meanings: Vec<Vec<T>>,
}

/// An occurrence of a phrase.
#[derive(Debug)]
pub(super) struct Hit<'p, T> {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) meanings: &'p [T],
}

impl<T> Phrases<T> {
    /// Phrases have to be folded.
    pub(super) fn new(phrases: BTreeMap<String, Vec<T>>) -> Result<Self, BuildError> {
        let bytes: usize = phrases.keys().map(String::len).sum();
        let kind = (bytes <= FAST).then_some(AhoCorasickKind::DFA);
        let automaton = AhoCorasick::builder().kind(kind).build(phrases.keys())?;
        Ok(Self { automaton, meanings: phrases.into_values().collect() })
    }

    /// The phrases that occur in a folded text as whole words, with an admitted meaning, in the
    /// order of the text. Of several that begin at one place the longest is taken. No two overlap.
    pub(super) fn hits(
        &self,
        folded: &str,
        admitted: impl Fn(&T, usize, usize) -> bool,
    ) -> Vec<Hit<'_, T>> {
        let mut hits: Vec<Hit<'_, T>> = Vec::new();
        for found in self.automaton.find_overlapping_iter(folded) {
            let (start, end) = (found.start(), found.end());
            let meanings = &self.meanings[found.pattern().as_usize()];
            if word::stands_alone(folded, start, end)
                && meanings.iter().any(|meaning| admitted(meaning, start, end))
            {
                hits.push(Hit { start, end, meanings });
            }
        }
        hits.sort_unstable_by_key(|hit| (hit.start, Reverse(hit.end)));
        let mut free = 0;
        hits.retain(|hit| {
            let kept = hit.start >= free;
            free = if kept { hit.end } else { free };
            kept
        });
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(phrases: &[&str], text: &str) -> Vec<String> {
        let phrases = phrases.iter().map(|phrase| ((*phrase).to_owned(), vec![()])).collect();
        let phrases = Phrases::new(phrases).expect("an automaton");
        let hits = phrases.hits(text, |_, _, _| true);
        hits.into_iter().map(|hit| text[hit.start..hit.end].to_owned()).collect()
    }

    #[test]
    fn the_longest_phrase_at_a_place_wins() {
        assert_eq!(found(&["new", "new york", "york"], "in new york now"), ["new york"]);
    }

    #[test]
    fn a_phrase_that_ends_inside_a_word_leaves_its_place_to_a_shorter_one() {
        assert_eq!(found(&["new", "new york"], "a new yorker"), ["new"]);
    }

    #[test]
    fn the_first_of_two_that_overlap_wins() {
        assert_eq!(found(&["a b", "b c", "c"], "a b c"), ["a b", "c"]);
    }

    #[test]
    fn very_many_phrases_are_found_in_the_same_way() {
        let many: Vec<String> = (0..20_000).map(|number| format!("name {number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(
            found(&many, "name 77 and name 19999 and name 20000"),
            ["name 77", "name 19999"]
        );
    }

    #[test]
    fn no_phrases_are_never_found() {
        assert_eq!(found(&[], "anything"), [""; 0]);
    }
}
