//! RFC 8785 out: one value, one text.
//!
//! Object members are sorted by UTF-16 code unit, numbers are written as ECMAScript writes
//! them. A number is refused when the double it would become denotes another decimal value.

use std::cmp::Ordering;

use crate::json::{Json, JsonError, JsonFault, Number};

/// The canonical text of a value.
///
/// ```
/// use hapax_core::{canonical::canonical, json::Json};
///
/// let value = Json::parse(br#"{ "b": 1.0, "a": [1e-7, "\u00e9"] }"#)?;
/// assert_eq!(canonical(&value)?, r#"{"a":[1e-7,"é"],"b":1}"#);
/// # Ok::<(), hapax_core::json::JsonError>(())
/// ```
pub fn canonical(value: &Json) -> Result<String, JsonError> {
    let mut out = String::new();
    write(value, &mut out)?;
    Ok(out)
}

/// Reads strictly and writes canonically in one step.
///
/// ```
/// use hapax_core::canonical::canonicalize;
///
/// assert_eq!(canonicalize(br#"{ "b": 1.0, "a": "x" }"#)?, r#"{"a":"x","b":1}"#);
/// # Ok::<(), hapax_core::json::JsonError>(())
/// ```
pub fn canonicalize(input: &[u8]) -> Result<String, JsonError> {
    canonical(&Json::parse(input)?)
}

pub(crate) fn write(value: &Json, out: &mut String) -> Result<(), JsonError> {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(true) => out.push_str("true"),
        Json::Bool(false) => out.push_str("false"),
        Json::Number(number) => write_number(number, out)?,
        Json::String(text) => write_string(text, out),
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out)?;
            }
            out.push(']');
        }
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| order(a, b));
            out.push('{');
            for (i, (name, value)) in members.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(name, out);
                out.push(':');
                write(value, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

/// Compares by UTF-16 code units. Where one name is ASCII, bytes give the same order and are faster
/// to compare.
fn order(a: &str, b: &str) -> Ordering {
    match a.is_ascii() || b.is_ascii() {
        true => a.cmp(b),
        false => a.encode_utf16().cmp(b.encode_utf16()),
    }
}

fn write_number(number: &Number, out: &mut String) -> Result<(), JsonError> {
    let refuse = |problem| JsonError { problem, at: number.position() };
    let text = number.as_str();
    let double: f64 = text.parse().map_err(|_| refuse(JsonFault::Expected("a number")))?;
    if !double.is_finite() {
        return Err(refuse(JsonFault::OutOfRange(shorten(text))));
    }
    let mut buffer = ryu_js::Buffer::new();
    let shortest = buffer.format_finite(double);
    if shortest != text && Decimal::of(shortest) != Decimal::of(text) {
        return Err(refuse(JsonFault::Inexact(shorten(text))));
    }
    out.push_str(shortest);
    Ok(())
}

fn shorten(text: &str) -> String {
    if text.len() <= 40 { text.to_owned() } else { format!("{}…", &text[..40]) }
}

/// A decimal value: significant digits without zeros at either end, and the power of ten of
/// the last. The sign of zero is no difference.
#[derive(PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(text: &str) -> Self {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let significant = digits.trim_end_matches('0');
        let dropped = digits.len() - significant.len();
        let digits = significant.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Self { negative: false, digits, exponent: 0 };
        }
        // An exponent beyond i64 belongs to a number that is 0 or infinite as a double.
        let exponent: i64 = exponent.parse().unwrap_or(i64::MAX / 2);
        Self { negative, digits, exponent: exponent + dropped as i64 - fraction.len() as i64 }
    }
}

pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    // Only ASCII characters are escaped, so the text between them is copied as it is.
    while let Some(at) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\')
    {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            8 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            12 => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            control => out.push_str(&format!("\\u{control:04x}")),
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: &str) {
        match canonicalize(input.as_bytes()) {
            Ok(text) => assert_eq!(text, expected, "{input}"),
            Err(error) => assert_eq!(error.to_string(), expected, "{input}"),
        }
    }

    /// Proves K-2, with the examples of RFC 8785.
    #[test]
    fn rfc_8785_examples_hold() {
        check(
            r#"{"numbers":[333333333.3333333,1E30,4.50,2e-3,0.000000000000000000000000001],
                "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
        );
        check(
            r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#,
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}",
        );
    }

    /// Proves K-2.
    #[test]
    fn a_number_that_a_double_would_change_is_refused() {
        check("9007199254740992", "9007199254740992");
        check(
            "[9007199254740993]",
            "number 9007199254740993 has no exact double; quote it, or use fewer digits \
             at line 1 column 2 (byte 1)",
        );
        check("0.1", "0.1");
        check("1e-7", "1e-7");
        check("1.50e2", "150");
        check("-0", "0");
        check("-0.0e5", "0");
        check("5e-324", "5e-324");
        check("1e400", "number 1e400 is out of range at line 1 column 1 (byte 0)");
        check(
            "1e-400",
            "number 1e-400 has no exact double; quote it, or use fewer digits \
             at line 1 column 1 (byte 0)",
        );
        check("0e99999999999999999999", "0");
        check(
            "0.1000000000000000055511151231257827",
            "number 0.1000000000000000055511151231257827 has no exact double; quote it, or use \
             fewer digits at line 1 column 1 (byte 0)",
        );
    }

    proptest::proptest! {
        #[test]
        fn canonical_text_is_a_fixed_point(value in proptest::num::f64::NORMAL, text in ".*") {
            let input = serde_json::json!({ "n": value, "t": text }).to_string();
            let once = canonicalize(input.as_bytes()).unwrap();
            proptest::prop_assert_eq!(canonicalize(once.as_bytes()).unwrap(), once);
        }
    }
}
