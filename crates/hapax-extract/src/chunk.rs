//! A text in pieces that are small enough to work on, and that stay the same where the text does.
//!
//!   start        least                       size
//!     ├────────────┼───────¶──────────¶────────┤
//!                          the chunk ends at one of these
//!
//! Of all borders between the least and the greatest size, the best kind is taken: paragraphs, else
//! sentences, else words, else characters. Of several of that kind the border with the lowest rank
//! is taken. The rank is a hash of the text just before the border and of nothing else. Two texts
//! that are equal from some place on therefore soon agree on a border, and from there on agree on
//! all of them.

use crate::sentence;

/// How far back the rank of a paragraph's or a sentence's end looks, in bytes.
const FAR: usize = 256;

/// How far back the rank of any other border looks, in bytes.
const NEAR: usize = 48;

/// A piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Its number, from 0.
    pub index: usize,
    /// Where it begins in the text, in bytes.
    pub start: usize,
    /// The piece itself.
    pub text: &'a str,
}

/// Cuts a normalised text, whose lines are its paragraphs, into chunks of at most `size`
/// characters. Joined, the chunks are the text again. Only the last is shorter than a quarter of
/// `size`.
pub fn chunks(text: &str, size: usize) -> Vec<Chunk<'_>> {
    let size = size.max(1);
    let least = (size / 4).max(1);
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let end = match window(&text[start..], least, size) {
            Some((low, high)) => cut(text, start + low, start + high),
            None => text.len(),
        };
        chunks.push(Chunk { index: chunks.len(), start, text: &text[start..end] });
        start = end;
    }
    chunks
}

/// The places after `least` and after `size` characters, or nothing if there are no more than that.
fn window(text: &str, least: usize, size: usize) -> Option<(usize, usize)> {
    if text.len() <= size {
        return None;
    }
    let mut begins = text.char_indices().map(|(at, _)| at);
    let low = begins.nth(least)?;
    let high = if size > least { begins.nth(size - least - 1)? } else { low };
    Some((low, high))
}

/// The best border from `low` to `high`, both of which are characters' borders.
fn cut(text: &str, low: usize, high: usize) -> usize {
    let bytes = text.as_bytes();
    let paragraphs = (low..=high).filter(|&at| bytes[at - 1] == b'\n');
    best(text, paragraphs, FAR)
        .or_else(|| best(text, sentence::borders(text, low - 1, high).into_iter(), FAR))
        .or_else(|| best(text, words(text, low, high), NEAR))
        .or_else(|| best(text, (low..=high).filter(|&at| text.is_char_boundary(at)), NEAR))
        .unwrap_or(high)
}

/// The character's border at or before a place.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    let mut back = (0..=at.min(text.len())).rev();
    back.find(|&at| text.is_char_boundary(at)).unwrap_or_default()
}

/// The borders after white space.
fn words(text: &str, low: usize, high: usize) -> impl Iterator<Item = usize> {
    let before = floor(text, low - 1);
    text[before..high]
        .char_indices()
        .filter(|(_, c)| c.is_whitespace())
        .map(move |(at, c)| before + at + c.len_utf8())
}

/// The border of the lowest rank, and of several the last.
fn best(text: &str, borders: impl Iterator<Item = usize>, reach: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    borders.min_by_key(|&at| (rank(&bytes[at.saturating_sub(reach)..at]), std::cmp::Reverse(at)))
}

/// A hash that must never change: it decides where chunks end, and so which chunks are found again.
/// It takes eight bytes at a time, from the border backwards, and mixes in each by a
/// multiplication.
fn rank(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    };
    let mut words = bytes.rchunks_exact(8);
    let mut hash = bytes.len() as u64;
    for word in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        hash = mix(hash, u64::from_le_bytes(eight));
    }
    let rest = words.remainder().iter().fold(0, |rest, &byte| rest << 8 | u64::from(byte));
    mix(mix(hash, rest), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, size: usize) -> Vec<&str> {
        chunks(text, size).into_iter().map(|chunk| chunk.text).collect()
    }

    #[test]
    fn a_short_text_is_one_chunk_and_no_text_is_none() {
        assert_eq!(texts("One. Two.\nThree.", 100), ["One. Two.\nThree."]);
        assert_eq!(texts("", 100), [""; 0]);
    }

    #[test]
    fn a_chunk_ends_with_a_paragraph_where_one_ends_in_reach() {
        let text = "First here. And more of it.\nSecond here. And more.\nThird one here.\n";
        for chunk in chunks(text, 40) {
            assert!(chunk.text.ends_with('\n'), "{chunk:?}");
        }
    }

    #[test]
    fn a_chunk_ends_with_a_sentence_inside_a_long_paragraph() {
        let text = "A river runs here. A city stands there. Dr. Who sails by. A bridge is up.";
        for chunk in chunks(text, 30) {
            assert!(chunk.text.trim_end().ends_with('.'), "{chunk:?}");
            assert!(!chunk.text.trim_end().ends_with("Dr."), "{chunk:?}");
        }
    }

    #[test]
    fn a_long_sentence_is_cut_at_white_space_and_a_long_word_between_characters() {
        let text = "one two three four five six seven eight nine ten eleven twelve";
        for chunk in texts(text, 20).split_last().expect("chunks").1 {
            assert!(chunk.ends_with(' '), "{chunk:?}");
        }
        let text = "ä".repeat(100);
        let cut = texts(&text, 9);
        assert!(cut.iter().all(|chunk| chunk.chars().count() <= 9), "{cut:?}");
        assert_eq!(cut.concat(), text);
    }

    #[test]
    fn the_size_counts_characters_and_not_bytes() {
        let text = "ж".repeat(50);
        assert_eq!(texts(&text, 50).len(), 1);
        assert!(texts(&text, 49).len() > 1);
    }

    #[test]
    fn a_size_of_nothing_is_a_size_of_one() {
        assert_eq!(texts("abc", 0), ["a", "b", "c"]);
    }

    #[test]
    fn every_chunk_says_which_it_is_and_where_it_begins() {
        let text = "Eins ist da.\nZwei ist auch da.\nDrei käme später.\n".repeat(10);
        for (index, chunk) in chunks(&text, 60).into_iter().enumerate() {
            assert_eq!(chunk.index, index);
            assert!(text[chunk.start..].starts_with(chunk.text));
        }
    }

    #[test]
    fn the_rank_of_a_text_never_changes() {
        assert_eq!(rank(b""), 0);
        assert_eq!(rank(b"a border"), rank(b"a border"));
        expect_test::expect!["e2a6b52dd474420b"]
            .assert_eq(&format!("{:x}", rank(b"the end of a paragraph.\n")));
    }
}
