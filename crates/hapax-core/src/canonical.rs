//! RFC 8785 out: one value, one text.
//!
//! Object members are sorted by UTF-16 code unit. A number is rounded to the nearest double, which
//! is written as ECMAScript writes it. Refused are integers that no double has, and decimals of more
//! than 17 digits that no double has: two readers could understand them differently.

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
    if shortest != text && !is_read_alike(text, double, shortest) {
        return Err(refuse(JsonFault::Inexact(shorten(text))));
    }
    out.push_str(shortest);
    Ok(())
}

/// The significant digits that tell any double from all others.
const DIGITS: usize = 17;

/// The digits after the point that are enough to write any double exactly.
const FRACTION: usize = 1074;

/// Whether every reader understands this number as this double.
///
/// Some readers keep an integer as it is. So it must have the value of the double, or be the text by
/// which RFC 8785 denotes the double: 295147905179352830000 is 2^68. Every reader makes a double of
/// any other number, and 17 digits are enough for each double. More digits come from a writer of
/// decimals, so they must have the value of the double.
fn is_read_alike(text: &str, double: f64, shortest: &str) -> bool {
    let written = Decimal::of(text);
    let is_integer = !text.contains(['.', 'e', 'E']);
    (!is_integer && written.digits.len() <= DIGITS)
        || written == Decimal::of(shortest)
        || written == Decimal::of(&format!("{double:.FRACTION$}"))
}

/// Whether the canonical text of a number has the value that was written, also to a reader of
/// decimals: that of 0.1 has it, those of 333333333.33333329 and 9007199254740993 have not.
pub fn is_exact(number: &Number) -> bool {
    let mut out = String::new();
    write_number(number, &mut out).is_ok() && Decimal::of(&out) == Decimal::of(number.as_str())
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
            r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
                "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
        );
        check(
            r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#,
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}",
        );
    }

    /// The bits of doubles and their texts, from appendix B of RFC 8785.
    const SAMPLES: [(u64, &str); 24] = [
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7fefffffffffffff, "1.7976931348623157e+308"),
        (0xffefffffffffffff, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xc340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44b52d02c7e14af5, "9.999999999999997e+22"),
        (0x44b52d02c7e14af6, "1e+23"),
        (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
        (0x444b1ae4d6e2ef4e, "999999999999999700000"),
        (0x444b1ae4d6e2ef4f, "999999999999999900000"),
        (0x444b1ae4d6e2ef50, "1e+21"),
        (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
        (0x3eb0c6f7a0b5ed8d, "0.000001"),
        (0x41b3de4355555553, "333333333.3333332"),
        (0x41b3de4355555554, "333333333.33333325"),
        (0x41b3de4355555555, "333333333.3333333"),
        (0x41b3de4355555556, "333333333.3333334"),
        (0x41b3de4355555557, "333333333.33333343"),
        (0xbecbf647612f3696, "-0.0000033333333333333333"),
        (0x43143ff3c1cb0959, "1424953923781206.2"),
    ];

    /// Proves K-2: a double has one text, however many of its digits were written.
    #[test]
    fn rfc_8785_number_samples_hold() {
        for (bits, text) in SAMPLES {
            let double = f64::from_bits(bits);
            check(text, text);
            check(&format!("{double:.16e}"), text);
            check(&format!("{double:.1074}"), text);
        }
    }

    const INEXACT: &str =
        "has no exact double; quote it, or use fewer digits at line 1 column 1 (byte 0)";

    /// Proves K-2.
    #[test]
    fn an_integer_that_no_double_has_is_refused() {
        for (written, text) in [
            ("9007199254740992", "9007199254740992"),
            ("-9007199254740994", "-9007199254740994"),
            ("72057594037927936", "72057594037927940"),
            ("72057594037927940", "72057594037927940"),
            ("9223372036854775808", "9223372036854776000"),
            ("18446744073709551616", "18446744073709552000"),
            ("295147905179352825856", "295147905179352830000"),
            ("100000000000000000000000", "1e+23"),
            ("99999999999999991611392", "1e+23"),
        ] {
            check(written, text);
        }
        for refused in [
            "9007199254740993",
            "-9007199254740993",
            "9007199254740995",
            "72057594037927937",
            "9223372036854775807",
            "18446744073709551615",
            "295147905179352825857",
            "99999999999999991611393",
            "123123123123123123123123123123",
        ] {
            check(refused, &format!("number {refused} {INEXACT}"));
        }
        check(
            "[9007199254740993]",
            "number 9007199254740993 has no exact double; quote it, or use fewer digits \
             at line 1 column 2 (byte 1)",
        );
    }

    /// Proves K-2.
    #[test]
    fn a_decimal_of_up_to_17_digits_is_rounded() {
        for (written, text) in [
            ("0.1", "0.1"),
            ("1e-7", "1e-7"),
            ("1.50e2", "150"),
            ("333333333.33333329", "333333333.3333333"),
            ("0.10000000000000001", "0.1"),
            ("0.29999999999999999", "0.3"),
            ("0.30000000000000002", "0.30000000000000004"),
            ("9.9999999999999992e22", "1e+23"),
            // No reader of integers takes these for integers.
            ("9007199254740993.0", "9007199254740992"),
            ("9007199254740993e0", "9007199254740992"),
            // Zeros at either end are no significant digits.
            ("0.1000000000000000000000000", "0.1"),
            ("0.00000000000000000000000001", "1e-26"),
            ("1.00000000000000000000", "1"),
            ("-0", "0"),
            ("-0.0e5", "0"),
            ("0e99999999999999999999", "0"),
            ("5e-324", "5e-324"),
            ("4.9406564584124654e-324", "5e-324"),
            ("3e-324", "5e-324"),
            ("2e-324", "0"),
            ("-1e-400", "0"),
            ("1e-99999999999999999999", "0"),
            ("1.7976931348623158e308", "1.7976931348623157e+308"),
        ] {
            check(written, text);
        }
        for written in ["1.7976931348623159e308", "1e400", "-1e400", "1e99999999999999999999"] {
            check(
                written,
                &format!("number {written} is out of range at line 1 column 1 (byte 0)"),
            );
        }
    }

    /// Proves K-2.
    #[test]
    fn a_decimal_of_more_digits_is_refused_unless_a_double_has_it() {
        check("0.1000000000000000055511151231257827021181583404541015625", "0.1");
        check("9007199254740992.00", "9007199254740992");
        for refused in [
            "0.100000000000000006",
            "0.1000000000000000055511151231257827",
            "1.00000000000000001e-400",
        ] {
            check(refused, &format!("number {refused} {INEXACT}"));
        }
    }

    #[test]
    fn a_number_that_is_rounded_is_not_exact() {
        let exact = |text: &str| match Json::parse(text.as_bytes()) {
            Ok(Json::Number(number)) => is_exact(&number),
            other => panic!("{text}: {other:?}"),
        };
        for text in ["0.1", "-0.0", "1.50e2", "9007199254740992", "295147905179352830000"] {
            assert!(exact(text), "{text}");
        }
        for text in ["333333333.33333329", "9007199254740993", "295147905179352825856", "1e400"] {
            assert!(!exact(text), "{text}");
        }
    }

    proptest::proptest! {
        /// A number that was printed with 17 digits, as `%.17g` does, is read as the same double.
        #[test]
        fn seventeen_digits_name_a_double(bits in proptest::num::u64::ANY) {
            let double = f64::from_bits(bits);
            proptest::prop_assume!(double.is_finite());
            let text = canonicalize(format!("{double:.16e}").as_bytes()).unwrap();
            proptest::prop_assert_eq!(text.parse::<f64>().unwrap(), double);
        }

        #[test]
        fn canonical_text_is_a_fixed_point(value in proptest::num::f64::NORMAL, text in ".*") {
            let input = serde_json::json!({ "n": value, "t": text }).to_string();
            let once = canonicalize(input.as_bytes()).unwrap();
            proptest::prop_assert_eq!(canonicalize(once.as_bytes()).unwrap(), once);
        }
    }
}
