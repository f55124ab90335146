//! Text from outside, made safe for a reason or a log.

/// A text of at most so many characters, without control characters and line ends.
///
/// ```
/// use hapax_sinks::excerpt::excerpt;
///
/// assert_eq!(excerpt("  no\u{1b}[31m\nway ", 100), "no\\u{1b}[31m\\nway");
/// assert_eq!(excerpt("äöüß", 3), "äöü…");
/// assert_eq!(excerpt("äöü", 3), "äöü");
/// ```
pub fn excerpt(text: &str, most: usize) -> String {
    let text = text.trim();
    let mut out = String::new();
    for (nth, letter) in text.chars().enumerate() {
        if nth == most {
            out.push('…');
            break;
        }
        match letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    out
}
