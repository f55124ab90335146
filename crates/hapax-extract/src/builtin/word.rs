//! Letters and words: how a text is folded so that case does not matter, and where words end.

/// The text in lower case. Every character keeps its length, so that an offset in one text is an
/// offset in the other. The few letters whose lower case is longer or shorter stay as they are.
pub(super) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().map(lower).collect()
}

fn lower(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let mut lowered = c.to_lowercase();
    match (lowered.next(), lowered.next()) {
        // A final sigma folds to the same letter as any other sigma.
        (Some('ς'), None) => 'σ',
        (Some(one), None) if one.len_utf8() == c.len_utf8() => one,
        _ => c,
    }
}

/// Whether neither end of this piece of the text is inside a word.
pub(super) fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    border(text, start) && border(text, end)
}

fn border(text: &str, at: usize) -> bool {
    let bytes = text.as_bytes();
    if at == 0 || at >= bytes.len() {
        return true;
    }
    let (before, after) = (bytes[at - 1], bytes[at]);
    if before.is_ascii() && after.is_ascii() {
        return !(in_word(before.into()) && in_word(after.into()));
    }
    let before = text[..at].chars().next_back();
    let after = text[at..].chars().next();
    before.zip(after).is_none_or(|(before, after)| !joined(before, after))
}

/// Whether these two, side by side, belong to one word.
fn joined(before: char, after: char) -> bool {
    in_word(before) && in_word(after) && !(spaceless(before) || spaceless(after)) || accent(after)
}

/// Whether a word may contain it.
pub(super) fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || accent(c)
}

/// Combining characters, which are part of the character beside them.
fn accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}' | '\u{200d}')
}

/// Letters of scripts that write no space between words: a word may end after any of them.
fn spaceless(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{309f}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_keeps_every_place_where_it_was() {
        for text in ["Ada LOVELACE", "ÉCOLE Zürich ΟΔΟΣ", "İstanbul ẞ Ⱥ K", "中文 Київ"]
        {
            let folded = fold(text);
            let places = |text: &str| text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
            assert_eq!(places(&folded), places(text));
        }
        assert_eq!(fold("ÉCOLE Київ"), "école київ");
        assert_eq!(fold("ΟΔΟΣ"), fold("οδος"));
    }

    #[test]
    fn a_word_is_letters_digits_and_accents() {
        assert!(stands_alone("the art.", 4, 7));
        assert!(!stands_alone("the party", 5, 8));
        assert!(!stands_alone("art2", 0, 3));
        assert!(stands_alone("art's", 0, 3));
        assert!(!stands_alone("école", 2, 6));
        assert!(!stands_alone("Jose\u{301} x", 0, 4));
    }

    #[test]
    fn a_word_may_end_anywhere_in_a_script_without_spaces() {
        let text = "我在北京工作";
        assert!(stands_alone(text, 6, 12));
    }
}
