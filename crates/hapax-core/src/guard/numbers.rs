//! Numbers by which people are known: cards, telephones, national ids.

use super::Kind;

/// The kind of number in a text, given the name of its member.
pub(super) fn find(text: &str, name: &str) -> Option<Kind> {
    if text.bytes().filter(u8::is_ascii_digit).count() < 7 {
        return None;
    }
    for run in runs(text) {
        if is_card(run) {
            return Some(Kind::Card);
        }
        if is_national_id(run) {
            return Some(Kind::NationalId);
        }
        if is_phone(run) {
            return Some(Kind::Phone);
        }
    }
    (is_named_phone(name) && looks_dialled(text)).then_some(Kind::Phone)
}

/// The longest runs of digits and separators that are not part of a word.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    let within = |c: char| c.is_alphanumeric() || " -.()+/".contains(c);
    text.split(move |c: char| !within(c)).flat_map(|piece| {
        // A letter that touches a digit makes it part of a word.
        let mut runs = Vec::new();
        let mut rest = piece;
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit() || c == '+' || c == '(') {
            let glued = rest[..start].chars().next_back().is_some_and(char::is_alphabetic);
            let end = rest[start..].find(char::is_alphabetic).map_or(rest.len(), |at| start + at);
            let run = rest[start..end].trim_end_matches(|c: char| !c.is_ascii_digit());
            let after = rest[start + run.len()..].chars().next();
            if !glued && !after.is_some_and(char::is_alphabetic) {
                runs.push(run);
            }
            rest = &rest[end..];
        }
        runs
    })
}

fn digits(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

/// 13 to 19 digits in groups, of a known issuer, whose last one fits the others (Luhn).
pub(super) fn is_card(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b' ' || b == b'-');
    let digits = digits(text);
    if !plain || !(13..=19).contains(&digits.len()) {
        return false;
    }
    let prefix = |n: usize| digits[..n].iter().fold(0, |number, digit| number * 10 + digit);
    let known = match (prefix(1), prefix(2), prefix(4)) {
        (4, ..) => matches!(digits.len(), 13 | 16 | 19),
        (_, 51..=55, _) | (_, _, 2221..=2720) => digits.len() == 16,
        (_, 34 | 37, _) => digits.len() == 15,
        (_, 36 | 38 | 39, _) => digits.len() == 14,
        (_, 65, _) | (_, _, 6011 | 3528..=3589) => digits.len() == 16,
        (_, 62, _) => digits.len() >= 16,
        _ => false,
    };
    known && luhn(&digits)
}

fn luhn(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(nth, digit)| match nth % 2 {
            0 => *digit,
            _ => digit * 2 / 10 + digit * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// `+` and 8 to 15 digits, or as North America writes them: (785) 555-0134.
fn is_phone(run: &str) -> bool {
    let digits = digits(run);
    if run.starts_with('+') {
        return (8..=15).contains(&digits.len());
    }
    let groups: Vec<usize> =
        run.split(|c: char| !c.is_ascii_digit()).map(str::len).filter(|n| *n > 0).collect();
    let area = |at: usize| {
        digits.get(at).is_some_and(|d| *d >= 2) && digits.get(at + 3).is_some_and(|d| *d >= 2)
    };
    match groups[..] {
        [3, 3, 4] => area(0),
        [1, 3, 3, 4] => digits[0] == 1 && area(1),
        _ => false,
    }
}

fn is_named_phone(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["phone", "mobile", "fax", "msisdn"].iter().any(|part| name.contains(part))
        || ["tel", "cell"].contains(&name.as_str())
}

fn looks_dialled(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit() || " -.()+/".contains(c))
        && (7..=15).contains(&digits(text).len())
}

/// National ids, which are recognised by their form and check digits.
fn is_national_id(run: &str) -> bool {
    let shape: String = run.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    let digits = digits(run);
    let number =
        |from: usize, to: usize| digits[from..to].iter().fold(0u64, |n, d| n * 10 + u64::from(*d));
    match shape.as_str() {
        // United States: no area 000, 666 or 9xx, no group 00, no serial 0000.
        "999-99-9999" => {
            let (area, group, serial) = (number(0, 3), number(3, 5), number(5, 9));
            !matches!(area, 0 | 666 | 900..) && group != 0 && serial != 0
        }
        // Brazil: two check digits.
        "999.999.999-99" => {
            let check = |count: usize| {
                let weights = (2..=count as u32 + 1).rev();
                let sum: u32 = digits[..count].iter().zip(weights).map(|(d, w)| d * w).sum();
                sum * 10 % 11 % 10
            };
            check(9) == digits[9] && check(10) == digits[10]
        }
        // Sweden: a birthday and a Luhn digit.
        "999999-9999" => is_birthday(number(2, 4), number(4, 6)) && luhn(&digits),
        // Poland: a birthday with the century in its month, and a weighted sum.
        "99999999999" => {
            let weights = [1, 3, 7, 9, 1, 3, 7, 9, 1, 3];
            let sum: u32 = digits.iter().zip(weights).map(|(d, w)| d * w).sum();
            is_birthday(number(2, 4) % 20, number(4, 6)) && (10 - sum % 10) % 10 == digits[10]
        }
        // France: sex, year, month, and the rest to 97.
        "9 99 99 99 999 999 99" | "999999999999999" => {
            matches!(digits[0], 1 | 2)
                && (1..=12).contains(&number(3, 5))
                && 97 - number(0, 13) % 97 == number(13, 15)
        }
        _ => false,
    }
}

fn is_birthday(month: u64, day: u64) -> bool {
    (1..=12).contains(&month) && (1..=31).contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_with_their_checks() {
        for (text, kind) in [
            ("4111111111111111", Some(Kind::Card)),
            ("4111111111111112", None),
            ("3782 822463 10005", Some(Kind::Card)),
            ("6011-1111-1111-1117", Some(Kind::Card)),
            ("9999999999999995", None),
            ("078-05-1120", Some(Kind::NationalId)),
            ("000-05-1120", None),
            ("987-65-4320", None),
            ("111.444.777-35", Some(Kind::NationalId)),
            ("111.444.777-36", None),
            ("811228-9874", Some(Kind::NationalId)),
            ("811228-9875", None),
            ("44051401359", Some(Kind::NationalId)),
            ("44051401358", None),
            ("2 55 08 14 168 025 38", Some(Kind::NationalId)),
            ("2 55 08 14 168 025 39", None),
            ("+46 8 123 456 78", Some(Kind::Phone)),
            ("785-555-0134", Some(Kind::Phone)),
            ("1-785-555-0134", Some(Kind::Phone)),
            ("123-456-7890", None),
            ("abc4111111111111111", None),
            ("4111111111111111x", None),
        ] {
            assert_eq!(find(text, ""), kind, "{text}");
        }
    }
}
