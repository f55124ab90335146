//! Finds the ends of sentences by a few fast rules: a mark that ends sentences, white space after
//! it, and no sign that the mark only ends an abbreviation.
//!
//! Whether a sentence ends at some place depends only on the few characters around it.

use crate::chunk::floor;

/// Words that a full stop follows in the middle of a sentence.
const SHORT: [&str; 22] = [
    "mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "gen", "col", "capt", "lt", "rev", "hon",
    "vs", "cf", "ca", "approx", "mt", "ft", "sgt", "gov",
];

/// Words that a full stop follows if a number comes next.
const BEFORE_NUMBERS: [&str; 7] = ["no", "nos", "fig", "vol", "pp", "chap", "sec"];

/// How far after a mark the next sentence may begin, in bytes. Otherwise the mark ends no sentence.
const REACH: usize = 64;

/// Where sentences begin in `text` after `from` and up to `to`, in ascending order. The white space
/// between two sentences belongs to the first.
pub(crate) fn borders(text: &str, from: usize, to: usize) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    // A mark may stand a little before `from` and its sentence end after it.
    let mut at = floor(text, from.saturating_sub(8));
    while at < to.min(bytes.len()) {
        if !may_end(bytes[at]) {
            at += 1;
            continue;
        }
        let Some(mark) = text[at..].chars().next() else { break };
        match end_at(text, at, mark) {
            Some(border) => {
                if border > from && border <= to {
                    found.push(border);
                }
                at = border;
            }
            None => at += mark.len_utf8(),
        }
    }
    found
}

/// The first bytes of the marks that end sentences.
fn may_end(byte: u8) -> bool {
    matches!(byte, b'.' | b'!' | b'?' | b'\n' | 0xd8 | 0xdb | 0xe0 | 0xe2 | 0xe3 | 0xef)
}

/// Where the next sentence begins, if one ends with the mark that stands here.
fn end_at(text: &str, at: usize, mark: char) -> Option<usize> {
    let after = at + mark.len_utf8();
    let wide = matches!(mark, '。' | '！' | '？' | '．' | '｡');
    if mark == '\n' {
        return Some(after);
    }
    if !wide && !matches!(mark, '.' | '!' | '?' | '…' | '؟' | '۔' | '।' | '॥' | '‼' | '⁇')
    {
        return None;
    }
    // Reads only so much after each mark, however many marks there are.
    let near = floor(text, after + REACH);
    let rest = text[after..near].trim_start_matches(closes);
    let closed = near - rest.len();
    let next = rest.trim_start();
    let border = near - next.len();
    if border == closed && !wide {
        return None;
    }
    // A line break ends the sentence whatever follows it.
    if rest[..border - closed].contains('\n') || wide {
        return Some(border);
    }
    let first = next.chars().next()?;
    let goes_on = first.is_lowercase() || (mark == '.' && shortens(&text[..at], first));
    (!goes_on).then_some(border)
}

/// The characters that may stand between the mark and the white space.
fn closes(c: char) -> bool {
    matches!(
        c,
        '.' | '!' | '?' | '…' | '"' | '\'' | ')' | ']' | '”' | '’' | '»' | '」' | '』' | '）'
    )
}

/// Whether the full stop after `before` only shortens a word.
fn shortens(before: &str, next: char) -> bool {
    let word = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let mut characters = word.chars();
    match (characters.next(), characters.next()) {
        (Some('I'), None) => false,
        (Some(only), None) => only.is_alphabetic(),
        _ if word.len() > 6 => false,
        _ => {
            let word = word.to_lowercase();
            SHORT.contains(&word.as_str())
                || (next.is_numeric() && BEFORE_NUMBERS.contains(&word.as_str()))
        }
    }
}

/// A name with one space between its words.
pub(crate) fn spaced(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(text: &str) -> Vec<&str> {
        let mut start = 0;
        let mut ends = borders(text, 0, text.len());
        if ends.last() != Some(&text.len()) {
            ends.push(text.len());
        }
        let cut = |end: usize| {
            let sentence = &text[start..end];
            start = end;
            sentence
        };
        ends.into_iter().map(cut).collect()
    }

    #[test]
    fn a_sentence_ends_at_a_mark_and_white_space() {
        assert_eq!(
            sentences("It rose. It fell! Why? So."),
            ["It rose. ", "It fell! ", "Why? ", "So."]
        );
        assert_eq!(sentences("One.Two. Three"), ["One.Two. ", "Three"]);
    }

    #[test]
    fn closing_marks_belong_to_the_sentence_they_close() {
        assert_eq!(sentences("“It rose.” (It did.) So."), ["“It rose.” ", "(It did.) ", "So."]);
    }

    #[test]
    fn a_full_stop_after_a_title_or_an_initial_ends_nothing() {
        assert_eq!(sentences("Dr. J. S. Bach met Mr. Y. then.").len(), 1);
        assert_eq!(sentences("The U.S. Senate, e.g. Smith, sat.").len(), 1);
        assert_eq!(sentences("See No. 5 there. No. He was.").len(), 3);
        assert_eq!(sentences("So did I. He left.").len(), 2);
    }

    #[test]
    fn a_sentence_goes_on_before_a_lower_case_letter_and_ends_with_its_line() {
        assert_eq!(sentences("about 5 approx. or so… and more.").len(), 1);
        assert_eq!(sentences("no mark here\nand then."), ["no mark here\n", "and then."]);
        assert_eq!(sentences("first.\nsecond."), ["first.\n", "second."]);
    }

    #[test]
    fn marks_of_other_scripts_end_sentences_too() {
        assert_eq!(sentences("我在北京。他在上海！"), ["我在北京。", "他在上海！"]);
        assert_eq!(sentences("वह गया। मैं आया।").len(), 2);
        assert_eq!(sentences("این خوب است؟ بله است۔ خیر").len(), 3);
    }

    #[test]
    fn a_long_row_of_marks_takes_no_longer_than_any_text() {
        let dots = ".".repeat(200_000);
        assert!(borders(&dots, 0, dots.len()).is_empty());
    }

    #[test]
    fn borders_are_listed_only_between_from_and_to() {
        let text = "A one. B two. C three. D four.";
        assert_eq!(borders(text, 0, text.len()), [7, 14, 23]);
        assert_eq!(borders(text, 7, 14), [14]);
        assert_eq!(borders(text, 6, 13), [7]);
        assert_eq!(borders(text, 14, 22), [] as [usize; 0]);
    }
}
