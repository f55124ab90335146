//! Strict JSON in: I-JSON (RFC 7493) with positions, numbers kept as they were written.
//!
//! Written here because no reader on offer keeps a number's text, refuses duplicate names
//! and says where, all three of which the key derivations need. It refuses anything that
//! two readers could understand differently, and has a limit on depth.

use std::fmt;

/// How deep arrays and objects may be nested.
pub const MAX_DEPTH: usize = 128;

/// A JSON value. Object members keep the order in which they were written.
///
/// ```
/// use hapax_core::json::Json;
///
/// let order = Json::parse(br#"{"order": 42, "to": "ada"}"#)?;
/// assert_eq!(order.get("order").and_then(Json::as_u64), Some(42));
/// // What two readers could understand differently is refused, with its place.
/// let twice = Json::parse(br#"{"a": 1, "a": 2}"#).unwrap_err();
/// assert_eq!((twice.at.line, twice.at.column), (1, 10));
/// # Ok::<(), hapax_core::json::JsonError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it was written.
    Number(Number),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object; names are unique.
    Object(Vec<(String, Json)>),
}

/// A number as it was written, so that integers beyond 2^53 can be read exactly.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    text: String,
    at: Position,
}

impl Number {
    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Where it stood.
    pub fn position(&self) -> Position {
        self.at
    }
}

/// Where in the input something was found. Lines and columns count from 1, columns in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The byte offset, from 0.
    pub offset: usize,
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} column {} (byte {})", self.line, self.column, self.offset)
    }
}

/// Input that was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at {at}")]
pub struct JsonError {
    /// The problem.
    pub problem: JsonFault,
    /// Where it is.
    pub at: Position,
}

/// The problem of an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonFault {
    /// Something other than what the grammar allows here.
    #[error("expected {0}")]
    Expected(&'static str),
    /// `NaN`, `Infinity` and their like.
    #[error("NaN and Infinity are not JSON")]
    NotANumber,
    /// The same name twice in one object.
    #[error("duplicate name {0:?}")]
    DuplicateName(String),
    /// Half of a surrogate pair.
    #[error("lone surrogate \\u{0:04x}")]
    LoneSurrogate(u16),
    /// A control character that must be escaped.
    #[error("unescaped control character")]
    ControlCharacter,
    /// Not UTF-8.
    #[error("input is not UTF-8")]
    NotUtf8,
    /// An integer that no double has, or a decimal of more than 17 digits that none has.
    #[error("number {0} has no exact double; quote it, or use fewer digits")]
    Inexact(String),
    /// A number too large for a double.
    #[error("number {0} is out of range")]
    OutOfRange(String),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More after the value.
    #[error("unexpected input after the value")]
    Trailing,
}

impl Json {
    /// Reads exactly one value.
    pub fn parse(input: &[u8]) -> Result<Self, JsonError> {
        let text = std::str::from_utf8(input).map_err(|error| {
            let before = &input[..error.valid_up_to()];
            let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            let line = 1 + before.iter().filter(|b| **b == b'\n').count();
            let at = Position { offset: before.len(), line, column: before.len() - line_start + 1 };
            JsonError { problem: JsonFault::NotUtf8, at }
        })?;
        let mut reader = Reader { text, at: 0, line: 1, line_start: 0 };
        let value = reader.value(0)?;
        reader.space();
        match reader.peek() {
            None => Ok(value),
            Some(_) => Err(reader.error(JsonFault::Trailing)),
        }
    }

    /// A string value.
    pub fn text(text: &str) -> Self {
        Self::String(text.to_owned())
    }

    /// A whole number.
    pub fn number(number: u64) -> Self {
        Self::Number(Number { text: number.to_string(), at: Position::default() })
    }

    /// An object of these members, whose names the caller knows to be unique.
    pub fn object<const N: usize>(members: [(&str, Json); N]) -> Self {
        Self::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The member of this name, if this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Self::Object(members) => members.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The value that a JSON pointer (RFC 6901) points at.
    pub fn pointer(&self, pointer: &str) -> Option<&Json> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |value, token| match value {
            Self::Array(items) => items.get(token.parse::<usize>().ok()?),
            value => value.get(&token.replace("~1", "/").replace("~0", "~")),
        })
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if it is an array.
    pub fn as_array(&self) -> Option<&[Json]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The number, exactly, if it was written as an unsigned integer that fits.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.text.parse().ok(),
            _ => None,
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    line_start: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Json::Number),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(b'N' | b'I') => Err(self.error(JsonFault::NotANumber)),
            _ => Err(self.error(JsonFault::Expected("a value"))),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.open(depth)?;
        let mut members: Vec<(String, Json)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        self.space();
        if self.take(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.error(JsonFault::Expected("a name in quotes")));
            }
            let name = self.string()?;
            if !seen.insert(name.clone()) {
                return Err(self.error_at(start, JsonFault::DuplicateName(name)));
            }
            self.space();
            if !self.take(b':') {
                return Err(self.error(JsonFault::Expected("`:`")));
            }
            let value = self.value(depth + 1)?;
            members.push((name, value));
            self.space();
            if self.take(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.take(b',') {
                return Err(self.error(JsonFault::Expected("`,` or `}`")));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.open(depth)?;
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Json::Array(items));
            }
            if !self.take(b',') {
                return Err(self.error(JsonFault::Expected("`,` or `]`")));
            }
        }
    }

    fn open(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth >= MAX_DEPTH {
            return Err(self.error(JsonFault::TooDeep));
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &'static str, value: Json) -> Result<Json, JsonError> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.error(JsonFault::Expected("a value")))
        }
    }

    fn number(&mut self) -> Result<Number, JsonError> {
        let start = self.at;
        self.take(b'-');
        if self.peek() == Some(b'I') {
            return Err(self.error_at(start, JsonFault::NotANumber));
        }
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text = self.text[start..self.at].to_owned();
        Ok(Number { text, at: self.position(start) })
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.error(JsonFault::Expected("a digit"))) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .find(|c: char| c == '"' || c == '\\' || c < ' ')
                .ok_or_else(|| self.error_at(self.text.len(), JsonFault::Expected("`\"`")))?;
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                _ => return Err(self.error(JsonFault::ControlCharacter)),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        self.at += 1;
        let plain = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(start),
            _ => return Err(self.error_at(start, JsonFault::Expected("an escape sequence"))),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode(&mut self, start: usize) -> Result<char, JsonError> {
        let lone = |unit| JsonFault::LoneSurrogate(unit);
        self.at += 1;
        let first = self.hex4(start)?;
        let code = match first {
            0xdc00..=0xdfff => return Err(self.error_at(start, lone(first))),
            0xd800..=0xdbff => {
                if !self.text[self.at..].starts_with("\\u") {
                    return Err(self.error_at(start, lone(first)));
                }
                self.at += 2;
                let second = self.hex4(start)?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(self.error_at(start, lone(first)));
                }
                0x10000 + ((u32::from(first) - 0xd800) << 10) + (u32::from(second) - 0xdc00)
            }
            _ => u32::from(first),
        };
        char::from_u32(code).ok_or_else(|| self.error_at(start, lone(first)))
    }

    fn hex4(&mut self, start: usize) -> Result<u16, JsonError> {
        let refuse = |reader: &Self| reader.error_at(start, JsonFault::Expected("four hex digits"));
        let digits = self.text.get(self.at..self.at + 4).ok_or_else(|| refuse(self))?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(refuse(self));
        }
        let unit = u16::from_str_radix(digits, 16).map_err(|_| refuse(self))?;
        self.at += 4;
        Ok(unit)
    }

    fn space(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\n' | b'\r')) = self.peek() {
            self.at += 1;
            if byte == b'\n' {
                self.line += 1;
                self.line_start = self.at;
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn error(&self, problem: JsonFault) -> JsonError {
        self.error_at(self.at, problem)
    }

    fn error_at(&self, offset: usize, problem: JsonFault) -> JsonError {
        JsonError { problem, at: self.position(offset) }
    }

    /// No token spans lines, so what is being read began on the current one.
    fn position(&self, offset: usize) -> Position {
        Position { offset, line: self.line, column: offset - self.line_start + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(input: &str) -> String {
        Json::parse(input.as_bytes()).unwrap_err().to_string()
    }

    /// Proves K-2.
    #[test]
    fn ambiguous_json_is_refused_with_its_position() {
        assert_eq!(
            refused("{\"a\":1,\n \"a\":2}"),
            "duplicate name \"a\" at line 2 column 2 (byte 9)"
        );
        assert_eq!(
            refused(r#"{"a":1,"\u0061":2}"#),
            "duplicate name \"a\" at line 1 column 8 (byte 7)"
        );
        assert_eq!(refused("[NaN]"), "NaN and Infinity are not JSON at line 1 column 2 (byte 1)");
        assert_eq!(
            refused("-Infinity"),
            "NaN and Infinity are not JSON at line 1 column 1 (byte 0)"
        );
        assert_eq!(
            refused(r#"["é","\ud800"]"#),
            "lone surrogate \\ud800 at line 1 column 8 (byte 7)"
        );
        assert_eq!(refused(r#""\udc00""#), "lone surrogate \\udc00 at line 1 column 2 (byte 1)");
        assert_eq!(refused(r#""\ud800A""#), "lone surrogate \\ud800 at line 1 column 2 (byte 1)");
        assert_eq!(refused("01"), "unexpected input after the value at line 1 column 2 (byte 1)");
        assert_eq!(refused("[1,]"), "expected a value at line 1 column 4 (byte 3)");
        assert_eq!(refused("\"a\nb\""), "unescaped control character at line 1 column 3 (byte 2)");
        assert_eq!(refused("\"a"), "expected `\"` at line 1 column 3 (byte 2)");
        assert_eq!(refused("{} x"), "unexpected input after the value at line 1 column 4 (byte 3)");
        assert_eq!(refused(""), "expected a value at line 1 column 1 (byte 0)");
        assert_eq!(
            Json::parse(b"\"a\xff\"").unwrap_err().to_string(),
            "input is not UTF-8 at line 1 column 3 (byte 2)"
        );
    }

    /// Proves S-6 for depth.
    #[test]
    fn depth_is_limited() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Json::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(refused(&nested(MAX_DEPTH + 1)).starts_with("nested deeper than 128 levels"));
    }

    /// Proves K-2.
    #[test]
    fn integers_beyond_the_doubles_are_read_exactly() {
        let epoch = Json::parse(b"18446744073709551615").unwrap();
        assert_eq!(epoch.as_u64(), Some(u64::MAX));
        assert_eq!(Json::parse(b"18446744073709551616").unwrap().as_u64(), None);
        assert_eq!(Json::parse(b"1.0").unwrap().as_u64(), None);
    }

    #[test]
    fn escapes_and_pairs_are_decoded() {
        let text = Json::parse(r#""\ud83c\udfdf\n\/é""#.as_bytes()).unwrap();
        assert_eq!(text.as_str(), Some("🏟\n/é"));
    }

    proptest::proptest! {
        /// This reader and serde_json agree on every string that serde_json writes.
        #[test]
        fn the_reader_agrees_with_serde_json_on_strings(text in ".*") {
            let written = serde_json::to_vec(&text).unwrap();
            let read = Json::parse(&written).unwrap();
            proptest::prop_assert_eq!(read.as_str(), Some(text.as_str()));
        }

        #[test]
        fn no_input_makes_the_reader_panic(input in proptest::collection::vec(0u8..=255, 0..64)) {
            let _ = Json::parse(&input);
        }
    }
}
