//! Keys, tokens and passwords.

/// How tokens of well-known issuers begin, and how many characters follow at least.
const PREFIXES: [(&str, usize); 17] = [
    ("AKIA", 16),
    ("ASIA", 16),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghs_", 30),
    ("github_pat_", 30),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("sk-ant-", 16),
    ("AIza", 30),
    ("npm_", 30),
    ("hf_", 30),
    ("whsec_", 24),
    ("ya29.", 20),
];

/// Names whose text is always a secret.
const NAMES: [&str; 12] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "client_secret",
    "api_key",
    "apikey",
    "access_token",
    "refresh_token",
    "private_key",
    "authorization",
];

/// Whether a text is a secret, or has one in it.
pub(super) fn has_secret(text: &str, name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    (!text.is_empty() && NAMES.contains(&name.as_str()))
        || text.contains("PRIVATE KEY-----")
        || text.split_whitespace().any(|word| is_token(word) || has_credentials(word))
}

fn is_token(word: &str) -> bool {
    let word = word.trim_matches(|c: char| "\"'`,;:()[]{}=".contains(c));
    let body = |c: char| c.is_ascii_alphanumeric() || "-_.+/=".contains(c);
    let issued = PREFIXES.iter().any(|(prefix, least)| {
        word.strip_prefix(prefix).is_some_and(|rest| rest.len() >= *least && rest.chars().all(body))
    });
    issued || is_jwt(word)
}

/// Three parts, of which the first two are JSON objects in base64.
fn is_jwt(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    matches!(parts[..], [head, claims, signature]
        if head.starts_with("eyJ") && claims.starts_with("eyJ") && signature.len() >= 16)
}

/// `scheme://user:password@host`.
fn has_credentials(word: &str) -> bool {
    let Some((_, rest)) = word.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.is_some_and(|user| user.split_once(':').is_some_and(|(_, password)| !password.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_and_ordinary_words_are_not() {
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P";
        for (text, name) in [
            ("AKIAIOSFODNN7EXAMPLE", ""),
            ("use whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw please", ""),
            (jwt, ""),
            ("postgres://ada:lovelace@db/shop", ""),
            ("x", "Client-Secret"),
            ("-----BEGIN PRIVATE KEY-----", ""),
        ] {
            assert!(has_secret(text, name), "{text} {name}");
        }
        for (text, name) in [
            ("AKIA is a prefix", ""),
            ("https://example.org/a:b@c", ""),
            ("https://ada@example.org/", ""),
            ("", "password"),
            ("eyJ.eyJ.short", ""),
            ("tokens", "token_count"),
        ] {
            assert!(!has_secret(text, name), "{text} {name}");
        }
    }
}
