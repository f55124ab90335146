//! `http.v1`: a request that carries an `Idempotency-Key` header.

use super::{Key, KeyError, required};

/// The name of the derivation.
pub const V1: &str = "http.v1";

/// The scope of a client's key: another tenant, method or path is another effect.
///
/// ```
/// use hapax_core::key::http::Request;
///
/// let post = Request { tenant: "acme", method: "POST", path: "/charges", idempotency_key: "8e03" };
/// assert_ne!(post.key()?, Request { tenant: "other", ..post }.key()?);
/// # Ok::<(), hapax_core::key::KeyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The tenant whose client sent the key.
    pub tenant: &'a str,
    /// The method, upper case.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// The header's value, unquoted.
    pub idempotency_key: &'a str,
}

impl Request<'_> {
    /// The key of this request.
    pub fn key(&self) -> Result<Key, KeyError> {
        Key::framed(
            V1,
            &[
                ("tenant", required("tenant", self.tenant)?.as_bytes()),
                ("method", required("method", self.method)?.as_bytes()),
                ("path", required("path", self.path)?.as_bytes()),
                ("idempotency_key", required("idempotency_key", self.idempotency_key)?.as_bytes()),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves K-1.
    #[test]
    fn the_scope_is_part_of_the_key() {
        let request = Request {
            tenant: "acme",
            method: "POST",
            path: "/charges",
            idempotency_key: "8e03978e",
        };
        let others = [
            Request { tenant: "other", ..request },
            Request { method: "PUT", ..request },
            Request { path: "/refunds", ..request },
            Request { idempotency_key: "x", ..request },
        ];
        for other in others {
            assert_ne!(request.key().unwrap(), other.key().unwrap());
        }
        let blank = Request { idempotency_key: "", ..request };
        assert_eq!(blank.key(), Err(KeyError::Blank { field: "idempotency_key" }));
    }
}
