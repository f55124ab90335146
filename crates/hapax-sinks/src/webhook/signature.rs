//! Signatures as Standard Webhooks specifies them: HMAC-SHA256 over id, timestamp and body.

use std::time::Duration;

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// A secret that signs requests. Debug output shows it as `whsec_…` only.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// Why a secret was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret is `whsec_` and 24 to 64 bytes in base64")]
pub struct SecretError;

impl Secret {
    /// Reads a secret as it is given to both sides.
    ///
    /// ```
    /// use hapax_sinks::webhook::Secret;
    ///
    /// assert!(Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_ok());
    /// assert!(Secret::parse("hunter2").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let base64 = text.trim().strip_prefix("whsec_").ok_or(SecretError)?;
        let bytes = BASE64.decode(base64.as_bytes()).map_err(|_| SecretError)?;
        (24..=64).contains(&bytes.len()).then_some(Self(bytes)).ok_or(SecretError)
    }

    /// The signature of a message, with the version it is made by.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let signature = self.mac(id, timestamp, body).finalize().into_bytes();
        format!("v1,{}", BASE64.encode(&signature))
    }

    fn mac(&self, id: &str, timestamp: u64, body: &[u8]) -> Hmac<Sha256> {
        // A key of any length will do.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).unwrap_or_else(|_| unreachable!());
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        mac
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("whsec_…")
    }
}

/// Why a message is not verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// A header is missing or cannot be read.
    #[error("the headers webhook-id, webhook-timestamp and webhook-signature are needed")]
    Headers,
    /// It is too old, or from the future.
    #[error("the timestamp is too far from now")]
    Stale,
    /// No signature was made with a known secret.
    #[error("no signature fits")]
    Forged,
}

/// Verifies that a message was signed with one of these secrets, with a timestamp within the
/// tolerance. Returns its id, which the caller compares with those that it received before.
///
/// ```
/// use std::time::Duration;
/// use hapax_sinks::webhook::{Secret, Unverified, verify};
///
/// let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let signature = secret.sign("msg_1", 1_614_265_330, b"{}");
/// let header = |name: &str| match name {
///     "webhook-id" => Some("msg_1"),
///     "webhook-timestamp" => Some("1614265330"),
///     "webhook-signature" => Some(signature.as_str()),
///     _ => None,
/// };
/// let tolerance = Duration::from_secs(300);
/// let secrets = [secret.clone()];
/// assert_eq!(verify(&secrets, header, b"{}", 1_614_265_400, tolerance), Ok("msg_1"));
/// assert_eq!(verify(&secrets, header, b"{1}", 1_614_265_400, tolerance), Err(Unverified::Forged));
/// assert_eq!(verify(&secrets, header, b"{}", 1_700_000_000, tolerance), Err(Unverified::Stale));
/// # Ok::<(), hapax_sinks::webhook::SecretError>(())
/// ```
pub fn verify<'a>(
    secrets: &[Secret],
    header: impl Fn(&str) -> Option<&'a str>,
    body: &[u8],
    now: u64,
    tolerance: Duration,
) -> Result<&'a str, Unverified> {
    let id = header("webhook-id").ok_or(Unverified::Headers)?;
    let timestamp = header("webhook-timestamp").and_then(|text| text.parse::<u64>().ok());
    let timestamp = timestamp.ok_or(Unverified::Headers)?;
    let signatures = header("webhook-signature").ok_or(Unverified::Headers)?;
    if timestamp.abs_diff(now) > tolerance.as_secs() {
        return Err(Unverified::Stale);
    }
    let given = signatures.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    let given: Vec<_> = given.filter_map(|one| BASE64.decode(one.as_bytes()).ok()).collect();
    let fits = |secret: &Secret| {
        let mac = secret.mac(id, timestamp, body);
        given.iter().any(|one| mac.clone().verify_slice(one).is_ok())
    };
    secrets.iter().any(fits).then_some(id).ok_or(Unverified::Forged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification's reference libraries.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn any_of_several_secrets_and_signatures_will_do() {
        let secret = |byte: u8| Secret(vec![byte; 32]);
        let both = format!("{} {}", secret(1).sign("a", 10, b"x"), secret(2).sign("a", 10, b"x"));
        let header = |name: &str| match name {
            "webhook-id" => Some("a"),
            "webhook-timestamp" => Some("10"),
            "webhook-signature" => Some(both.as_str()),
            _ => None,
        };
        let tolerance = Duration::from_secs(5);
        assert_eq!(verify(&[secret(2)], header, b"x", 12, tolerance), Ok("a"));
        assert_eq!(verify(&[secret(3), secret(1)], header, b"x", 12, tolerance), Ok("a"));
        assert_eq!(verify(&[secret(3)], header, b"x", 12, tolerance), Err(Unverified::Forged));
        assert_eq!(verify(&[secret(1)], |_| None, b"x", 12, tolerance), Err(Unverified::Headers));
    }
}
