//! `mutation.v1`: one change that an automation makes for one item.
//!
//! Only the fields that identify the change take part; its content is the payload, compared on
//! replay and never hashed into the key.

use super::{Key, KeyError, required};
use crate::canonical::canonical;
use crate::json::Json;

/// The name of the derivation.
pub const V1: &str = "mutation.v1";

/// The fields that identify a mutation.
///
/// ```
/// use hapax_core::json::Json;
/// use hapax_core::key::mutation::Mutation;
///
/// let identity = Json::object([("to", Json::text("ada@example.org"))]);
/// let mail = Mutation {
///     namespace: "default",
///     workflow: "welcome",
///     item_id: "customer-7",
///     attempt: 1,
///     tool: "email",
///     target_resource: "mailbox",
///     operation: "send",
///     identity: &identity,
///     subkey: None,
/// };
/// assert_ne!(mail.key()?, Mutation { subkey: Some("reminder"), ..mail }.key()?);
/// # Ok::<(), hapax_core::key::KeyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mutation<'a> {
    /// The namespace of the workflow.
    pub namespace: &'a str,
    /// The workflow.
    pub workflow: &'a str,
    /// The logical item.
    pub item_id: &'a str,
    /// The item's attempt; no attempt consults another.
    pub attempt: u64,
    /// The tool that performs it.
    pub tool: &'a str,
    /// The resource that it changes.
    pub target_resource: &'a str,
    /// How it changes it.
    pub operation: &'a str,
    /// The parameters that say which thing is changed.
    pub identity: &'a Json,
    /// Sets apart two changes that are otherwise the same.
    pub subkey: Option<&'a str>,
}

impl Mutation<'_> {
    /// The key of this mutation.
    pub fn key(&self) -> Result<Key, KeyError> {
        let identity = canonical(self.identity)
            .map_err(|error| KeyError::Invalid { field: "identity", problem: error.to_string() })?;
        let attempt = self.attempt.to_be_bytes();
        let mut fields: Vec<(&str, &[u8])> = vec![
            ("namespace", required("namespace", self.namespace)?.as_bytes()),
            ("workflow", required("workflow", self.workflow)?.as_bytes()),
            ("item_id", required("item_id", self.item_id)?.as_bytes()),
            ("attempt", &attempt),
            ("tool", required("tool", self.tool)?.as_bytes()),
            ("target_resource", required("target_resource", self.target_resource)?.as_bytes()),
            ("operation", required("operation", self.operation)?.as_bytes()),
            ("identity", identity.as_bytes()),
        ];
        if let Some(subkey) = self.subkey {
            fields.push(("subkey", required("subkey", subkey)?.as_bytes()));
        }
        Key::framed(V1, &fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves I-3.
    #[test]
    fn identity_is_canonical_and_attempt_and_subkey_count() {
        let one = Json::parse(br#"{"to":"a@example.org","n":1.0}"#).unwrap();
        let two = Json::parse(br#"{ "n": 1, "to": "a@example.org" }"#).unwrap();
        let mutation = Mutation {
            namespace: "default",
            workflow: "welcome",
            item_id: "user-7",
            attempt: 1,
            tool: "email",
            target_resource: "smtp://localhost",
            operation: "send",
            identity: &one,
            subkey: None,
        };
        assert_eq!(mutation.key(), Mutation { identity: &two, ..mutation }.key());
        assert_ne!(mutation.key(), Mutation { attempt: 2, ..mutation }.key());
        assert_ne!(mutation.key(), Mutation { subkey: Some("second"), ..mutation }.key());
    }
}
