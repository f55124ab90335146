//! Tokens, which callers present for access.
//!
//! A token is printed once, when it is made, and stored as a digest. It allows what its [`Role`]
//! allows, in one namespace or in all of them.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use subtle::ConstantTimeEq as _;

use crate::digest::{ParseError, printed_bytes, sha256};
use crate::name::Namespace;
use crate::time::Timestamp;

printed_bytes! {
    /// The id of a token, which gives no access.
    TokenId, 8, "tok_", "tok_<16 hex digits>"
}

/// The secret that a caller presents: an id to find the record by, and 256 random bits.
///
/// ```
/// use hapax_core::token::{Secret, TokenId};
///
/// let secret = Secret::new(TokenId::from_bytes([7; 8]), [9; 32]);
/// let shown = secret.reveal();
/// assert!(shown.starts_with("hpx_0707070707070707_0909"));
/// assert_eq!(shown.parse::<Secret>()?.id(), secret.id());
/// assert_eq!(format!("{secret:?}"), "the secret of tok_0707070707070707");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    id: TokenId,
    bits: [u8; 32],
}

impl Secret {
    /// A secret of these bits, which have to be random.
    pub fn new(id: TokenId, bits: [u8; 32]) -> Self {
        Self { id, bits }
    }

    /// Which token it belongs to.
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// The text that is shown once.
    pub fn reveal(&self) -> String {
        format!("hpx_{}_{}", HEXLOWER.encode(self.id.as_bytes()), HEXLOWER.encode(&self.bits))
    }

    /// The digest that is stored.
    pub fn digest(&self) -> [u8; 32] {
        sha256(&self.bits)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the secret of {}", self.id)
    }
}

impl FromStr for Secret {
    type Err = ParseError;

    /// The error does not repeat the input.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = || ParseError {
            expected: "a token, hpx_<16 hex digits>_<64 hex digits>",
            got: "something else".into(),
        };
        let (id, bits) =
            text.strip_prefix("hpx_").and_then(|rest| rest.split_once('_')).ok_or_else(refuse)?;
        let id = HEXLOWER.decode(id.as_bytes()).ok().and_then(|id| id.try_into().ok());
        let bits = HEXLOWER.decode(bits.as_bytes()).ok().and_then(|bits| bits.try_into().ok());
        let (id, bits) = id.zip(bits).ok_or_else(refuse)?;
        Ok(Self { id: TokenId::from_bytes(id), bits })
    }
}

/// The rights of a caller. Each role may do everything that those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Viewer,
    /// Perform effects, deliver events, and decide what became of an effect.
    Operator,
    /// Clear what is recorded.
    Steward,
}

impl Role {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Steward];

    /// The role with this code in a database.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Its code in a database.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Steward => "steward",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A token, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// The digest of its secret.
    pub digest: [u8; 32],
    /// The rights that it gives.
    pub role: Role,
    /// The namespace where it counts; every one unless given.
    pub namespace: Option<Namespace>,
    /// The holder, for people.
    pub holder: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it expires; never unless given.
    pub expires: Option<Timestamp>,
}

impl Token {
    /// Whether this secret is the token's, and the token has not expired. Takes as long for a wrong
    /// secret as for the right one.
    pub fn admits(&self, secret: &Secret, now: Timestamp) -> bool {
        let same = self.digest.ct_eq(&secret.digest());
        bool::from(same) && self.counts(now)
    }

    /// Whether it has not expired.
    pub fn counts(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves S-6 for secrets: only the right one, and only in time.
    #[test]
    fn a_token_admits_its_own_secret_until_it_expires() {
        let secret = Secret::new(TokenId::from_bytes([1; 8]), [2; 32]);
        let other = Secret::new(secret.id(), [3; 32]);
        let token = Token {
            id: secret.id(),
            digest: secret.digest(),
            role: Role::Viewer,
            namespace: None,
            holder: "ada".into(),
            created: Timestamp(0),
            expires: Some(Timestamp(1_000)),
        };
        assert!(token.admits(&secret, Timestamp(999)));
        assert!(!token.admits(&secret, Timestamp(1_000)));
        assert!(!token.admits(&other, Timestamp(999)));
        assert!(Token { expires: None, ..token }.admits(&secret, Timestamp(i64::MAX)));
    }

    #[test]
    fn text_that_is_no_token_is_refused_and_not_quoted() {
        for text in ["", "hpx_00_00", "tok_0101010101010101", "hpx_0101010101010101_zz"] {
            let error = text.parse::<Secret>().unwrap_err().to_string();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }
}
