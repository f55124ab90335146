//! Properties of the chunks of any text, and of the chunks of a text that is changed a little.

use std::collections::HashSet;

use hapax_extract::chunks;
use proptest::prelude::*;

const WORDS: [&str; 24] = [
    "the", "river", "runs", "past", "old", "walls", "and", "Zürich", "still", "grows", "while",
    "boats", "wait", "for", "wind", "in", "Kraków", "by", "night", "Dr.", "she", "said", "so,",
    "twice",
];

/// A paragraph that depends on its seed only. Without sentences it is a line of fixed length, as in
/// a table.
fn paragraph(mut seed: u64, longest: u64) -> String {
    let mut roll = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    if longest == 0 {
        return format!("{:0>60} {:0>60}\n", roll(1 << 30), roll(1 << 30));
    }
    let mut text = String::new();
    for _ in 0..1 + roll(longest) {
        for _ in 0..3 + roll(20) {
            text.push_str(WORDS[roll(24) as usize]);
            text.push(' ');
        }
        text.pop();
        text.push_str(". ");
    }
    text.pop();
    text.push('\n');
    text
}

/// About a megabyte of paragraphs of up to so many sentences.
fn document(seed: u64, longest: u64) -> Vec<String> {
    let mut length = 0;
    let mut paragraphs = Vec::new();
    while length < 1_000_000 {
        let next = paragraph(seed.wrapping_add(paragraphs.len() as u64 * 7919), longest);
        length += next.len();
        paragraphs.push(next);
    }
    paragraphs
}

#[derive(Debug, Clone)]
enum Edit {
    Replace,
    Insert,
    Delete,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Proves X-8.
    #[test]
    fn one_changed_paragraph_makes_at_most_one_chunk_in_twenty_new(
        seed: u64,
        longest in prop_oneof![Just(0u64), Just(1), Just(4), Just(12), Just(60)],
        place: prop::sample::Index,
        edit in prop_oneof![Just(Edit::Replace), Just(Edit::Insert), Just(Edit::Delete)],
    ) {
        let mut paragraphs = document(seed, longest);
        let before = paragraphs.concat();
        let at = place.index(paragraphs.len());
        match edit {
            Edit::Replace => paragraphs[at] = paragraph(!seed, longest),
            Edit::Insert => paragraphs.insert(at, paragraph(!seed, longest)),
            Edit::Delete => drop(paragraphs.remove(at)),
        }
        let after = paragraphs.concat();
        let known: HashSet<&str> = chunks(&before, 2000).iter().map(|chunk| chunk.text).collect();
        let now = chunks(&after, 2000);
        prop_assert!(now.len() >= 500, "only {} chunks", now.len());
        let new = now.iter().filter(|chunk| !known.contains(chunk.text)).count();
        prop_assert!(new * 20 <= now.len(), "{new} of {} chunks are new", now.len());
    }
}

proptest! {
    #[test]
    fn the_chunks_of_any_text_are_the_text_and_none_is_too_long(
        text in "[a-zA-Zäß中。. !?\n\u{301}]{0,400}",
        size in 0usize..60,
    ) {
        let chunks = chunks(&text, size);
        let whole: String = chunks.iter().map(|chunk| chunk.text).collect();
        prop_assert_eq!(&whole, &text);
        for chunk in &chunks {
            prop_assert!(!chunk.text.is_empty());
            prop_assert!(chunk.text.chars().count() <= size.max(1));
        }
    }

    #[test]
    fn a_text_without_any_white_space_finds_its_borders_again(
        seed: u64,
        place: prop::sample::Index,
    ) {
        let paragraphs = (0..60).map(|more| paragraph(seed.wrapping_add(more * 7919), 20));
        let text: String = paragraphs.collect();
        let text = text.replace(|c: char| !c.is_ascii_alphabetic(), "");
        let at = place.index(text.len());
        let changed = format!("{}x{}", &text[..at], &text[at..]);
        let known: HashSet<&str> = chunks(&text, 100).iter().map(|chunk| chunk.text).collect();
        let now = chunks(&changed, 100);
        let new = now.iter().filter(|chunk| !known.contains(chunk.text)).count();
        prop_assert!(new * 10 <= now.len(), "{new} of {} chunks are new", now.len());
    }
}
