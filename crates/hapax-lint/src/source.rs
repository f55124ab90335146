//! A source text and its comments, separated by a small lexer that knows strings.
//!
//! It keeps every offset: where a comment was, `code` has blanks.

use std::path::Path;

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Python,
    Script,
    Go,
    Jvm,
    CSharp,
    Ruby,
    Php,
    Sql,
    Shell,
}

impl Language {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "rs" => Self::Rust,
            "py" => Self::Python,
            "js" | "mjs" | "cjs" | "jsx" | "ts" | "mts" | "cts" | "tsx" => Self::Script,
            "go" => Self::Go,
            "java" | "kt" | "kts" => Self::Jvm,
            "cs" => Self::CSharp,
            "rb" => Self::Ruby,
            "php" => Self::Php,
            "sql" => Self::Sql,
            "sh" | "bash" => Self::Shell,
            _ => return None,
        })
    }

    fn line_comments(self) -> &'static [&'static str] {
        match self {
            Self::Python | Self::Ruby | Self::Shell => &["#"],
            Self::Php => &["//", "#"],
            Self::Sql => &["--"],
            _ => &["//"],
        }
    }

    fn block_comments(self) -> bool {
        !matches!(self, Self::Python | Self::Ruby | Self::Shell)
    }
}

/// One line of a comment, without its marks.
#[derive(Debug)]
pub(crate) struct Comment {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) text: String,
}

/// A text, once as it is and once without its comments.
pub(crate) struct Source {
    pub(crate) language: Language,
    pub(crate) text: String,
    pub(crate) code: String,
    pub(crate) comments: Vec<Comment>,
    starts: Vec<usize>,
}

impl Source {
    pub(crate) fn new(language: Language, text: String) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        let mut source = Self { language, code: String::new(), comments: Vec::new(), starts, text };
        let spans = Lexer { language, bytes: source.text.as_bytes(), at: 0 }.comments();
        let mut code = source.text.clone().into_bytes();
        for (start, end) in spans {
            for byte in code[start..end].iter_mut().filter(|byte| **byte != b'\n') {
                *byte = b' ';
            }
            source.keep(start, end);
        }
        source.code = String::from_utf8_lossy(&code).into_owned();
        source
    }

    /// Line and column of an offset, both from 1; columns count characters.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        (line, 1 + self.text[start..offset].chars().count())
    }

    /// The text of a line, without its line ending.
    pub(crate) fn line(&self, line: usize) -> &str {
        self.text.split('\n').nth(line - 1).unwrap_or_default().trim_end_matches('\r')
    }

    fn keep(&mut self, start: usize, end: usize) {
        let mut at = start;
        let mut kept = Vec::new();
        for text in self.text[start..end].split('\n') {
            let (line, column) = self.place(at);
            at += text.len() + 1;
            kept.push(Comment { line, column, text: text.trim_end().to_owned() });
        }
        self.comments.extend(kept);
    }
}

struct Lexer<'a> {
    language: Language,
    bytes: &'a [u8],
    at: usize,
}

impl Lexer<'_> {
    /// Where the comments are, in order.
    fn comments(mut self) -> Vec<(usize, usize)> {
        let mut spans = Vec::new();
        while self.at < self.bytes.len() {
            let start = self.at;
            if self.line_comment() || self.block_comment() {
                spans.push((start, self.at));
            } else if let Some(docstring) = self.triple() {
                spans.extend(docstring.then_some((start, self.at)));
            } else if !self.string() {
                self.at += 1;
            }
        }
        spans
    }

    fn line_comment(&mut self) -> bool {
        let marked = self.language.line_comments().iter().any(|mark| self.sees(mark));
        let attribute = self.language == Language::Php && self.sees("#[");
        // `$#` and `x#y` are no comments for a shell.
        let inside = self.language == Language::Shell
            && self.at > 0
            && !self.bytes[self.at - 1].is_ascii_whitespace();
        if !marked || attribute || inside {
            return false;
        }
        self.skip_until(b"\n");
        true
    }

    fn block_comment(&mut self) -> bool {
        if !self.language.block_comments() || !self.sees("/*") {
            return false;
        }
        let mut depth = 0;
        while self.at < self.bytes.len() {
            if self.sees("*/") {
                depth -= 1;
                self.at += 2;
            } else if self.sees("/*") && (depth == 0 || self.language == Language::Rust) {
                depth += 1;
                self.at += 2;
            } else {
                self.at += 1;
            }
            if depth == 0 {
                break;
            }
        }
        true
    }

    /// Skips a text in triple quotes, and returns whether it stands alone, as documentation does.
    fn triple(&mut self) -> Option<bool> {
        let languages = [Language::Python, Language::Jvm, Language::CSharp];
        let mark = ["\"\"\"", "'''"].into_iter().find(|mark| self.sees(mark))?;
        if !languages.contains(&self.language) {
            return None;
        }
        let before = self.bytes[..self.at].trim_ascii_end();
        let line_start = self.bytes[before.len()..self.at].contains(&b'\n') || before.is_empty();
        let argument = before.last().is_some_and(|last| b"(,=[+{%".contains(last));
        self.at += 3;
        self.skip_until(mark.as_bytes());
        self.at = (self.at + 3).min(self.bytes.len());
        Some(self.language == Language::Python && line_start && !argument)
    }

    fn string(&mut self) -> bool {
        if self.language == Language::Rust {
            return self.rust_string();
        }
        let quote = self.bytes[self.at];
        let raw = quote == b'`' && matches!(self.language, Language::Script | Language::Go);
        if !raw && quote != b'"' && quote != b'\'' {
            return false;
        }
        self.at += 1;
        while let Some(&byte) = self.bytes.get(self.at) {
            // A string ends with its line at the latest; an unmatched quote is not a string.
            let over = byte == quote || byte == b'\n' && !raw;
            self.at += if byte == b'\\' && self.at + 1 < self.bytes.len() { 2 } else { 1 };
            if over {
                break;
            }
        }
        true
    }

    fn rust_string(&mut self) -> bool {
        let rest = &self.bytes[self.at..];
        match rest[0] {
            b'r' => {
                let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
                let in_name = self.at > 0 && {
                    let before = self.bytes[self.at - 1];
                    before != b'b'
                        && before != b'c'
                        && (before.is_ascii_alphanumeric() || before == b'_')
                };
                if in_name || rest.get(1 + hashes) != Some(&b'"') {
                    return false;
                }
                self.at += 2 + hashes;
                let end = format!("\"{}", "#".repeat(hashes));
                self.skip_until(end.as_bytes());
                self.at = (self.at + end.len()).min(self.bytes.len());
                true
            }
            b'"' => {
                self.at += 1;
                while let Some(&byte) = self.bytes.get(self.at) {
                    self.at += if byte == b'\\' { 2 } else { 1 };
                    if byte == b'"' {
                        break;
                    }
                }
                self.at = self.at.min(self.bytes.len());
                true
            }
            // Only a quote or a slash in a char literal could be mistaken for a string or a
            // comment.
            b'\'' if rest.starts_with(b"'\\") && rest.len() > 3 => {
                self.at += 3;
                true
            }
            b'\'' if rest.len() > 2 && rest[2] == b'\'' => {
                self.at += 3;
                true
            }
            _ => false,
        }
    }

    fn sees(&self, mark: &str) -> bool {
        self.bytes[self.at..].starts_with(mark.as_bytes())
    }

    fn skip_until(&mut self, end: &[u8]) {
        while self.at < self.bytes.len() && !self.bytes[self.at..].starts_with(end) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code, with every run of white space as one blank.
    fn code(language: Language, text: &str) -> String {
        let source = Source::new(language, text.to_owned());
        assert_eq!(source.code.len(), text.len());
        source.code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blanked_and_strings_are_kept() {
        for (language, text, kept) in [
            (Language::Rust, "a(\"// no\"); // yes", "a(\"// no\");"),
            (
                Language::Rust,
                "r#\"/* \" no */\"# /* a /* b */ c */ d('\"')",
                "r#\"/* \" no */\"# d('\"')",
            ),
            (Language::Python, "f:\n  \"\"\"sha256\"\"\"\n  '# no'  # yes", "f: '# no'"),
            (Language::Python, "q(\n  \"\"\"select\"\"\")", "q( \"\"\"select\"\"\")"),
            (Language::Sql, "-- über\nselect '--x'; /* y */", "select '--x';"),
            (Language::Shell, "echo $# # all", "echo $#"),
            (Language::Script, "f(`http://x`) // y", "f(`http://x`)"),
        ] {
            assert_eq!(code(language, text), kept, "{text}");
        }
    }

    #[test]
    fn unfinished_texts_end_with_the_file() {
        for text in ["\"abc\\", "r##\"abc\"#", "/* abc", "'\\", "'", "r", "\"\"\"abc"] {
            for language in [Language::Rust, Language::Python, Language::Script, Language::Jvm] {
                Source::new(language, text.to_owned());
            }
        }
    }

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let source = Source::new(Language::Go, "a\nüb".to_owned());
        assert_eq!([source.place(0), source.place(2), source.place(4)], [(1, 1), (2, 1), (2, 2)]);
    }
}
