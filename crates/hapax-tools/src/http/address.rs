//! The addresses that requests go to.

use hapax_items::ToolError;
use hapax_sinks::http::{is_public, literal};
use percent_encoding::percent_decode_str;
use url::Url;

/// How long a URL may be, in bytes.
const LONGEST: usize = 8192;

/// The URL that a script requests, in its one spelling, under the base if there is one.
pub(crate) fn resolve(
    base: Option<&Url>,
    allow_private: bool,
    reference: &str,
) -> Result<Url, ToolError> {
    let refuse = |why: &str| {
        let reference: String = reference.chars().take(200).collect();
        Err(ToolError::logic(format!("{reference:?} {why}")))
    };
    if reference.len() > LONGEST {
        return refuse("is too long for a URL");
    }
    let parsed = match base {
        Some(base) => base.join(reference),
        None => Url::parse(reference),
    };
    let Ok(mut url) = parsed else { return refuse("is not a URL") };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return refuse("is not an http or https URL with a host");
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return refuse("has a user, a password or a fragment, which a URL must not have here");
    }
    if climbs(url.path()) {
        return refuse("has double dots in its path");
    }
    let path = one_spelling(url.path());
    url.set_path(&path);
    if let Some(query) = url.query().map(one_spelling) {
        url.set_query(Some(&query));
    }
    if let Some(base) = base
        && !(url.origin() == base.origin() && url.path().starts_with(base.path()))
    {
        return Err(ToolError::permission(format!("{url} is not under {base}")));
    }
    if let Some(address) = url.host_str().and_then(literal)
        && !allow_private
        && !is_public(address)
    {
        return Err(ToolError::permission(format!("{address} is a private address")));
    }
    Ok(url)
}

/// The server of a URL, with its port.
pub(super) fn server(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}://{host}:{port}", url.scheme())
}

/// Makes a base a directory: the URLs under it are in that directory.
pub(super) fn directory(mut base: Url) -> Url {
    if !base.path().ends_with('/') {
        let path = format!("{}/", base.path());
        base.set_path(&path);
    }
    base
}

/// Whether a path has double dots that only a server would see, between slashes written as `%2F`.
fn climbs(path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    decoded.split(['/', '\\']).any(|name| name == "..")
}

/// Percent-encodings in upper case, and only where they are needed.
fn one_spelling(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(plain) if plain.is_ascii_alphanumeric() || b"-._~".contains(&plain) => {
                out.push(char::from(plain));
            }
            Some(code) => out.push_str(&format!("%{code:02X}")),
            None => out.push('%'),
        }
        rest = &rest[at + if code.is_some() { 3 } else { 1 }..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_items::Class;

    fn under(base: &str, reference: &str) -> Result<String, ToolError> {
        let base = directory(Url::parse(base).expect("a base"));
        resolve(Some(&base), false, reference).map(String::from)
    }

    #[test]
    fn two_spellings_of_a_url_are_one() {
        let base = "https://API.example.org:443/v1";
        let plain = "https://api.example.org/v1/a-b%2Fc?x=%C3%BC";
        for reference in [
            "a-b%2fc?x=%c3%bc",
            "./a%2db%2Fc?x=ü",
            "https://api.example.org/v1/%61-b%2Fc?x=%C3%bc",
            "HTTPS://api.EXAMPLE.org:443/v1/x/../a-b%2Fc?x=%C3%BC",
        ] {
            assert_eq!(under(base, reference).as_deref(), Ok(plain), "{reference}");
        }
        assert_eq!(server(&Url::parse(plain).expect("a URL")), "https://api.example.org:443");
    }

    #[test]
    fn an_address_stays_below_its_base() {
        let base = "https://api.example.org/v1";
        for (reference, class) in [
            ("../v2/a", Class::Permission),
            ("%2e%2e/v2/a", Class::Permission),
            ("/v2/a", Class::Permission),
            ("/v1beta/a", Class::Permission),
            ("//evil.example/v1/a", Class::Permission),
            ("https://evil.example/v1/a", Class::Permission),
            ("http://api.example.org/v1/a", Class::Permission),
            ("https://api.example.org:8443/v1/a", Class::Permission),
            ("a/..%2f..%2fv2", Class::Logic),
            ("a/..%5cv2", Class::Logic),
            ("https://user:secret@api.example.org/v1/a", Class::Logic),
            ("a#b", Class::Logic),
            ("file:///etc/passwd", Class::Logic),
        ] {
            let refused = under(base, reference).expect_err(reference);
            assert_eq!(refused.class, class, "{reference}: {refused}");
        }
    }

    #[test]
    fn a_private_address_is_refused_unless_it_is_allowed() {
        for reference in
            ["http://127.0.0.1/", "http://[::1]/", "http://0x7f.1/", "http://2130706433/"]
        {
            let refused = resolve(None, false, reference).expect_err(reference);
            assert_eq!(refused.class, Class::Permission, "{reference}");
            assert!(resolve(None, true, reference).is_ok(), "{reference}");
        }
    }
}
