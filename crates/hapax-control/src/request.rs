//! A request on the wire.

use hapax::Key;

/// A request as it is sent and received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlRequest {
    /// The full name of its computation.
    pub computation: String,
    /// The epoch of its domain in which it was sent.
    pub epoch: u64,
    /// Its key; none if it is never retried.
    pub key: Option<Key>,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl ControlRequest {
    /// The header that carries the key.
    pub const KEY: &str = "idempotency-key";
    /// The header that carries the epoch.
    pub const EPOCH: &str = "hapax-epoch";
    /// The header that carries the computation's name.
    pub const COMPUTATION: &str = "hapax-computation";

    /// The HTTP headers that go with the payload, for any client.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let key = self.key.map(|key| (Self::KEY, key.to_string()));
        let rest =
            [(Self::EPOCH, self.epoch.to_string()), (Self::COMPUTATION, self.computation.clone())];
        rest.into_iter().chain(key)
    }
}
