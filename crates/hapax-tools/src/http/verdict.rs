//! The meaning of an answer's status for a mutation.
//!
//! | status | taken for |
//! |---|---|
//! | 2xx | it happened |
//! | 408, 425, 429; 503 with `retry-after` | it did not happen, and may later: the server turned it away |
//! | 401, 402, 403, 407, 451, 511 | it did not happen: a person has to allow it |
//! | 301, 307, 308, 404, 409, 410, 412, 421 to 424, 428 | it did not happen: a precondition is not met |
//! | other 4xx, 501, 505 | it did not happen: the request is wrong |
//! | 500, 502, 503 without `retry-after`, 504, other 5xx | it may have happened |
//! | 302, 303, other 3xx, 1xx | it may have happened: forms are answered like that |
//!
//! A 503 without `retry-after` is not taken for "did not happen", because proxies also answer it
//! when they lose the server behind them after the request was passed on. A server that honours
//! keys answers 409 while it still works on an earlier request with the same key, so there 409
//! means that it may have happened.

use hapax_items::Class;
use http::StatusCode;

/// The class of the failure that a status stands for; none if it is a success.
pub(crate) fn failure(status: StatusCode, turned_away: bool, honours_key: bool) -> Option<Class> {
    let class = match status.as_u16() {
        200..=299 => return None,
        409 if honours_key => Class::Indeterminate,
        503 if turned_away => Class::Transient,
        408 | 425 | 429 => Class::Transient,
        401 | 402 | 403 | 407 | 451 | 511 => Class::Permission,
        301 | 307 | 308 | 404 | 409 | 410 | 412 | 421..=424 | 428 => Class::Precondition,
        400..=499 | 501 | 505 => Class::Logic,
        _ => Class::Indeterminate,
    };
    Some(class)
}

/// The meaning of the answer to a second request with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeated {
    /// It happened, now or before.
    Happened,
    /// It did not, and will not with this key.
    Refused,
    /// It does not say.
    Silent,
}

/// A server that honours keys repeats its first answer. An answer that turns a request away before
/// its key is checked proves nothing; nor does 422, which may mean that the key is known with
/// another request.
pub(crate) fn repeated(status: StatusCode) -> Repeated {
    match failure(status, true, true) {
        None => Repeated::Happened,
        _ if status == StatusCode::UNPROCESSABLE_ENTITY => Repeated::Silent,
        Some(Class::Precondition | Class::Logic) if status.is_client_error() => Repeated::Refused,
        Some(_) => Repeated::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn status(code: u16) -> StatusCode {
        StatusCode::from_u16(code).expect("a status")
    }

    /// Proves I-10: a mutation that may have happened is never called a failure.
    #[test]
    fn each_status_has_one_class() {
        let mut by_class = std::collections::BTreeMap::<_, Vec<String>>::new();
        for code in 100..=599 {
            let known = status(code).canonical_reason().is_some();
            let class = failure(status(code), false, false);
            if known {
                let name = class.map_or("happened", Class::as_str);
                by_class.entry(name).or_default().push(code.to_string());
            }
        }
        let mut table = String::new();
        for (class, codes) in by_class {
            writeln!(table, "{class}: {}", codes.join(" ")).expect("a text");
        }
        expect_test::expect![[r#"
            happened: 200 201 202 203 204 205 206 207 208 226
            indeterminate: 100 101 102 103 300 302 303 304 305 500 502 503 504 506 507 508 510
            logic: 400 405 406 411 413 414 415 416 417 418 426 431 501 505
            permission: 401 402 403 407 451 511
            precondition: 301 307 308 404 409 410 412 421 422 423 424 428
            transient: 408 425 429
        "#]]
        .assert_eq(&table);
        assert_eq!(failure(status(503), true, false), Some(Class::Transient));
        assert_eq!(failure(status(500), true, false), Some(Class::Indeterminate));
        assert_eq!(failure(status(409), false, true), Some(Class::Indeterminate));
    }

    #[test]
    fn only_a_server_that_looked_at_the_key_says_that_it_did_not_happen() {
        for (code, expected) in [
            (200, Repeated::Happened),
            (201, Repeated::Happened),
            (400, Repeated::Refused),
            (404, Repeated::Refused),
            (412, Repeated::Refused),
            (422, Repeated::Silent),
            (409, Repeated::Silent),
            (401, Repeated::Silent),
            (429, Repeated::Silent),
            (503, Repeated::Silent),
            (500, Repeated::Silent),
            (501, Repeated::Silent),
            (303, Repeated::Silent),
            (308, Repeated::Silent),
        ] {
            assert_eq!(repeated(status(code)), expected, "{code}");
        }
    }
}
