//! `control.v1`: a control-plane request, bound to its epoch.

use super::{Key, KeyError, required};
use crate::digest::FramedHasher;

/// The name of the derivation.
pub const V1: &str = "control.v1";

const TAG: &str = "idempotency_key_derive_v1:";
const DOMAIN: &[u8] = b"franken_node.idempotency.v1";

/// The key of `request_bytes`, sent as `computation` in `epoch`.
///
/// Any name that is not blank derives a key; whether it may be dispatched is the registry's
/// question, not this function's.
///
/// ```
/// use hapax_core::key::control::derive_key;
///
/// let probe = |epoch| derive_key("connector.health_probe.v1", epoch, b"{}");
/// assert_ne!(probe(7)?, probe(8)?);
/// # Ok::<(), hapax_core::key::KeyError>(())
/// ```
pub fn derive_key(computation: &str, epoch: u64, request_bytes: &[u8]) -> Result<Key, KeyError> {
    let computation = required("computation_name", computation)?;
    let digest = FramedHasher::new(TAG)
        .field(DOMAIN)
        .field(computation.as_bytes())
        .number(epoch)
        .field(request_bytes)
        .finish();
    Ok(Key::from_bytes(digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    /// Proves C-1, and K-2 for epochs beyond 2^53.
    #[test]
    fn the_golden_vectors_hold() {
        let file = include_bytes!("../../vectors/control_key.json");
        let file = Json::parse(file).unwrap();
        let vectors = file.get("vectors").and_then(Json::as_array).unwrap();
        assert!(vectors.len() >= 8);
        for vector in vectors {
            let text = |name| vector.get(name).and_then(Json::as_str).unwrap();
            let epoch = vector.get("epoch").and_then(Json::as_u64).unwrap();
            let request =
                data_encoding::HEXLOWER.decode(text("request_bytes_hex").as_bytes()).unwrap();
            let key = derive_key(text("computation_name"), epoch, &request).unwrap();
            assert_eq!(key.to_string(), format!("sha256:{}", text("expected_key_hex")));
        }
    }

    #[test]
    fn a_blank_computation_has_no_key() {
        assert_eq!(derive_key("", 1, b""), Err(KeyError::Blank { field: "computation_name" }));
    }
}
