//! Texts of the kinds that JSONTestSuite has: malformed ones are refused, well-formed ones are read.
//! The texts here are our own.

use hapax_core::canonical::canonicalize;
use hapax_core::json::{Json, JsonFault};

/// Kinds `n_`.
const MALFORMED: &[&str] = &[
    // Nothing, or no value.
    "",
    " ",
    "\n\t",
    "*",
    "é",
    "<null>",
    "'a'",
    "a",
    "2@",
    "[\u{c}]",
    "\u{a0}1",
    "\u{2060}[]",
    // A byte order mark.
    "\u{feff}",
    "\u{feff}{}",
    // Words.
    "[fals]",
    "[nul]",
    "[tru",
    "[True]",
    "[NULL]",
    "nulll",
    "undefined",
    // More than one value.
    "[][]",
    "1]",
    "{}}",
    "[1]]",
    "[1]x",
    "true false",
    r#""a" 1"#,
    r#"{"a":1}#"#,
    r#"{"a":1}// a"#,
    r#"{"a":1}/**/"#,
    r#"{"a":/* a */1}"#,
    // Unterminated.
    "[",
    "[1",
    "[1,",
    "[1,\n2\n,3",
    "[{}",
    r#"["a"#,
    r#"[""#,
    "{",
    r#"{"a"#,
    r#"{"a""#,
    r#"{"a":"#,
    r#"{"a":1"#,
    r#"{"a":1,"#,
    r#"{"a":"b"#,
    "\"",
    "\"\\",
    r#""\u0041"#,
    // Arrays.
    "]",
    "[,",
    "[,]",
    "[,1]",
    "[1,]",
    "[1,,]",
    "[1,,2]",
    "[1 2]",
    "[1:2]",
    "[3[4]]",
    r#"["a" "b"]"#,
    r#"["a": 1]"#,
    "[1}",
    "{]",
    // Objects.
    "{,}",
    "{:1}",
    "{1:1}",
    "{a:1}",
    "{'a':1}",
    "{null:1}",
    r#"{"a"}"#,
    r#"{"a" 1}"#,
    r#"{"a" "b"}"#,
    r#"{"a",1}"#,
    r#"{"a"::1}"#,
    r#"{"a":}"#,
    r#"{"a":1,}"#,
    r#"{"a":1,,}"#,
    r#"{"a":1,,"b":2}"#,
    r#"{"a":1 "b":2}"#,
    r#"{"a":1,"b"}"#,
    r#"{"a":1]"#,
    // Numbers that are none.
    "NaN",
    "[NaN]",
    "-NaN",
    "Infinity",
    "-Infinity",
    "+Infinity",
    "[Inf]",
    "[-Inf]",
    // Signs.
    "-",
    "[-]",
    "--1",
    "+1",
    "++1",
    "- 1",
    "-a",
    "1+2",
    // Leading zeros.
    "00",
    "01",
    "-01",
    "-012",
    "[00.1]",
    // Fractions.
    ".",
    ".1",
    "-.1",
    "1.",
    "-1.",
    "1.e3",
    "0.e1",
    "1.2.3",
    "1..2",
    "[-1.0.]",
    // Exponents.
    "e1",
    "1e",
    "1E",
    "1e+",
    "1e-",
    "0e+",
    "1ee2",
    "1eE2",
    "1e1.5",
    "1e+-1",
    "1e ",
    "1ea",
    // Other numbers.
    "0x1",
    "0xF",
    "1_000",
    "1 000.0",
    "1,000",
    "1x",
    "1.2a-3",
    "\u{ff11}",
    // Escapes.
    r#""\a""#,
    r#""\'""#,
    r#""\x41""#,
    r#""\0""#,
    r#""\ ""#,
    "\"\\é\"",
    "\"\\\t\"",
    r#""\u""#,
    r#""\u0""#,
    r#""\u00""#,
    r#""\u00A""#,
    r#""\u00G0""#,
    r#""\u+041""#,
    r#""\u004é""#,
    r#""\U0041""#,
    r#"\u0041"#,
    // Control characters.
    "\"\0\"",
    "\"a\nb\"",
    "\"a\rb\"",
    "\"\t\"",
    "\"\u{1f}\"",
    "[1\u{b}]",
    // Strings.
    "''",
    r#"""a"#,
    r#"["a]"#,
    // Halves of surrogate pairs, which JSONTestSuite leaves to the reader.
    r#""\ud800""#,
    r#""\udbff""#,
    r#""\udc00""#,
    r#""\ud800a""#,
    r#""\ud800\n""#,
    r#""\ud800\u""#,
    r#""\ud800\u0041""#,
    r#""\ud800\ud800""#,
    r#""\udd1e\ud834""#,
];

/// Kinds `n_` and `i_` that are not UTF-8.
const NOT_UTF8: &[&[u8]] = &[
    b"\xff",
    b"\"\xff\"",
    b"\"\x80\"",
    b"[\xe5]",
    b"[1\xe5]",
    b"\"\\\xe5\"",
    b"\"\\u\xe5\"",
    b"{\"\xb9\":0}",
    // Cut off, too long, a surrogate, beyond Unicode.
    b"\"\xe2\x82\"",
    b"\"\xc0\xaf\"",
    b"\"\xed\xa0\x80\"",
    b"\"\xf4\x90\x80\x80\"",
    // UTF-16.
    b"\xff\xfe[\x00]\x00",
];

/// Kinds `y_`.
const WELL_FORMED: &[&str] = &[
    // White space.
    " [] ",
    "\n\t\r [\n1\r,\t2 ]\n",
    "[[]   ]",
    "{ \"a\" : 1 , \"b\" : 2 }",
    // Values of their own.
    "null",
    "true",
    "false",
    "42",
    "-0.1",
    "\"\"",
    "\" \"",
    "\"a\"",
    // Arrays.
    "[]",
    "[[[[]]]]",
    r#"[""]"#,
    "[null]",
    "[false]",
    r#"[null, 1, "1", {}]"#,
    "[1,null,null,null,2]",
    // Objects.
    "{}",
    r#"{"":0}"#,
    r#"{"a":[]}"#,
    r#"{"a":{"a":{"a":{}}}}"#,
    r#"{"a":"b","c":"d"}"#,
    r#"{"a\u0000b":42}"#,
    r#"{"a":[{"id":"x"}],"id":"x"}"#,
    r#"{"A":1,"a":2,"é":3}"#,
    "{\n\"a\": \"b\"\n}",
    // Numbers.
    "0",
    "-0",
    "-1",
    "123",
    "123.456789",
    "0e1",
    "0e+1",
    "20e1",
    "1E22",
    "1E+2",
    "1E-2",
    "1e00",
    "123e65",
    "123.456e78",
    "-0.000000000000000000000000000000000000000000000000000000000000000000000000000001",
    r#"{"min":-1.0e+28,"max":1.0e+28}"#,
    // Escapes.
    r#""\"\\\/\b\f\n\r\t""#,
    r#""\\u0000""#,
    r#""\\a""#,
    r#""\u0000""#,
    r#""\u0012""#,
    r#""\u0022\u005C\u002c""#,
    r#""\u0060\u012a\u12AB""#,
    r#""\uA66D""#,
    r#""\u200B\u2064""#,
    // Surrogate pairs.
    r#""\ud801\udc37""#,
    r#""\uD834\uDd1e""#,
    r#""\ud83d\ude39\ud83d\udc8d""#,
    r#""\uDBFF\uDFFF""#,
    // Characters that Unicode gives no meaning.
    r#""\uFDD0\uFFFE\uFFFF""#,
    "\"\u{ffff}\"",
    "\"\u{1bfff}\"",
    "\"\u{10ffff}\"",
    // Characters as they are.
    "\"π €\"",
    "\"\u{7f}\"",
    "\"\u{a0}\u{2028}\u{2029}\"",
    "\"\u{feff}\"",
    "\"a/*b*/c//d#e\"",
];

/// Proves K-2.
#[test]
fn malformed_texts_are_refused() {
    for text in MALFORMED {
        assert!(Json::parse(text.as_bytes()).is_err(), "{text:?} was read");
    }
    for bytes in NOT_UTF8 {
        let refused = Json::parse(bytes).expect_err("it is not UTF-8");
        assert_eq!(refused.problem, JsonFault::NotUtf8, "{bytes:?}");
    }
}

/// Proves K-2, S-6: a text that is nested too deeply is refused, and never overflows the stack.
#[test]
fn deep_texts_are_refused() {
    for opening in ["[", "{\"\":", "[{\"\":", "[\n"] {
        for times in [200, 100_000] {
            let refused = Json::parse(opening.repeat(times).as_bytes()).expect_err("it is deep");
            assert_eq!(refused.problem, JsonFault::TooDeep, "{opening:?} {times} times");
        }
    }
}

/// Proves K-2: a well-formed text is read, and has one canonical form.
#[test]
fn well_formed_texts_are_read() {
    for text in WELL_FORMED {
        let canonical = canonicalize(text.as_bytes());
        let canonical = canonical.unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(canonicalize(canonical.as_bytes()).as_ref(), Ok(&canonical), "{text:?}");
    }
}

/// Proves K-2: JSONTestSuite has an object with a name twice among the well-formed texts, since
/// readers do not agree on its value. It is refused for the same reason.
#[test]
fn duplicate_names_are_refused_by_design() {
    for text in [
        r#"{"a":"b","a":"c"}"#,
        r#"{"a":"b","a":"b"}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"":1,"":1}"#,
        r#"[{"a":{"b":1,"c":2,"b":3}}]"#,
    ] {
        let refused = Json::parse(text.as_bytes()).expect_err("a name is there twice");
        assert!(matches!(refused.problem, JsonFault::DuplicateName(_)), "{text}: {refused}");
    }
    assert!(Json::parse(br#"[{"a":1},{"a":1}]"#).is_ok(), "two objects");
}

/// The texts of kind `i_`, which JSONTestSuite leaves to the reader: numbers beyond the doubles.
#[test]
fn numbers_beyond_the_doubles_have_no_canonical_text() {
    for (text, canonical) in [
        ("[123.456e-789]", Some("[0]")),
        ("[1e-10000000]", Some("[0]")),
        ("[100000000000000000000]", Some("[100000000000000000000]")),
        ("[-1e+9999]", None),
        ("[1.5e+9999]", None),
        ("[123123123123123123123123123123]", None),
        ("[-237462374673276894279832749832423479823246327846]", None),
    ] {
        assert!(Json::parse(text.as_bytes()).is_ok(), "{text} is JSON");
        assert_eq!(canonicalize(text.as_bytes()).ok().as_deref(), canonical, "{text}");
    }
}
