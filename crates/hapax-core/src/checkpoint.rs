//! Signed heads of the journal's tree, as C2SP tlog checkpoints in signed notes.
//!
//! ```text
//! hapax/7c1f…            origin: pinned by the verifier
//! 42                     tree size
//! base64 of the root
//!
//! — hapax/7c1f… base64 of key id and Ed25519 signature
//! ```

use data_encoding::BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

use crate::merkle::Hash;

/// The algorithm byte of Ed25519 in signed notes.
const ED25519: u8 = 1;

/// A head of the tree: how many leaves, and the root over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The origin of the tree.
    pub origin: String,
    /// How many leaves.
    pub size: u64,
    /// The root.
    pub root: Hash,
}

/// Signs checkpoints under one origin.
///
/// ```
/// use hapax_core::checkpoint::Signer;
///
/// let signer = Signer::from_seed(&[7; 32]);
/// let note = signer.sign(1, [0; 32]);
/// assert_eq!(signer.verifier().verify(&note)?.size, 1);
/// assert!(signer.verifier().verify(&note.replacen("1", "2", 1)).is_err());
/// # Ok::<(), hapax_core::checkpoint::CheckpointError>(())
/// ```
pub struct Signer {
    origin: String,
    key: SigningKey,
}

/// Verifies checkpoints of one origin. Printed `origin+<8 hex>+<base64>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verifier {
    origin: String,
    key: VerifyingKey,
}

/// Why a signed checkpoint was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Not a checkpoint in a signed note.
    #[error("not a signed checkpoint")]
    Malformed,
    /// Another origin than the pinned one.
    #[error("the checkpoint is of another origin")]
    Origin,
    /// No signature by the pinned key, or a wrong one.
    #[error("the signature does not verify")]
    Signature,
}

impl Checkpoint {
    fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, BASE64.encode(&self.root))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let canonical = size == "0" || !size.starts_with(['0', '+']);
        let checkpoint = Self {
            origin: origin.to_owned(),
            size: size.parse().ok().filter(|_| canonical)?,
            root: BASE64.decode(root.as_bytes()).ok()?.try_into().ok()?,
        };
        (lines.next().is_none() && !origin.is_empty()).then_some(checkpoint)
    }
}

impl Signer {
    /// A signer from 32 secret random bytes. The origin names the key.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        let name = Sha256::digest(key.verifying_key().as_bytes());
        Self { origin: format!("hapax/{}", data_encoding::HEXLOWER.encode(&name[..8])), key }
    }

    /// The verifier of this signer's signatures.
    pub fn verifier(&self) -> Verifier {
        Verifier { origin: self.origin.clone(), key: self.key.verifying_key() }
    }

    /// The name of the key, and its signature of any other message.
    pub fn sign_bytes(&self, message: &[u8]) -> (String, Vec<u8>) {
        (self.origin.clone(), self.key.sign(message).to_bytes().to_vec())
    }

    /// The signed note of a head.
    pub fn sign(&self, size: u64, root: Hash) -> String {
        let checkpoint = Checkpoint { origin: self.origin.clone(), size, root };
        let text = checkpoint.text();
        let signature = self.key.sign(text.as_bytes()).to_bytes();
        let blob = [self.verifier().key_id().as_slice(), &signature].concat();
        format!("{text}\n— {} {}\n", self.origin, BASE64.encode(&blob))
    }
}

impl Verifier {
    /// Reads a signed note and believes it only if this key signed it for this origin.
    pub fn verify(&self, note: &str) -> Result<Checkpoint, CheckpointError> {
        let (text, signatures) = note.split_once("\n\n").ok_or(CheckpointError::Malformed)?;
        let text = format!("{text}\n");
        let checkpoint = Checkpoint::parse(&text).ok_or(CheckpointError::Malformed)?;
        if checkpoint.origin != self.origin {
            return Err(CheckpointError::Origin);
        }
        let ours = format!("— {} ", self.origin);
        let blob = signatures
            .lines()
            .filter_map(|line| line.strip_prefix(&ours))
            .filter_map(|blob| BASE64.decode(blob.as_bytes()).ok())
            .find(|blob| blob.starts_with(&self.key_id()))
            .ok_or(CheckpointError::Signature)?;
        let signature =
            Signature::from_slice(&blob[4..]).map_err(|_| CheckpointError::Signature)?;
        self.key
            .verify_strict(text.as_bytes(), &signature)
            .map_err(|_| CheckpointError::Signature)?;
        Ok(checkpoint)
    }

    /// Whether this key signed these bytes.
    pub fn verify_bytes(&self, message: &[u8], signature: &[u8]) -> bool {
        let signature = Signature::from_slice(signature);
        signature.is_ok_and(|signature| self.key.verify_strict(message, &signature).is_ok())
    }

    fn key_id(&self) -> [u8; 4] {
        let digest = Sha256::new_with_prefix(self.origin.as_bytes())
            .chain_update([b'\n', ED25519])
            .chain_update(self.key.as_bytes())
            .finalize();
        [digest[0], digest[1], digest[2], digest[3]]
    }
}

impl std::fmt::Display for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = [&[ED25519], self.key.as_bytes().as_slice()].concat();
        let id = data_encoding::HEXLOWER.encode(&self.key_id());
        write!(f, "{}+{id}+{}", self.origin, BASE64.encode(&key))
    }
}

impl std::str::FromStr for Verifier {
    type Err = CheckpointError;

    fn from_str(text: &str) -> Result<Self, CheckpointError> {
        let read = || {
            let mut parts = text.splitn(3, '+');
            let (origin, id, key) = (parts.next()?, parts.next()?, parts.next()?);
            let key = BASE64.decode(key.as_bytes()).ok()?;
            let key: [u8; 32] = key.strip_prefix(&[ED25519])?.try_into().ok()?;
            let verifier =
                Self { origin: origin.to_owned(), key: VerifyingKey::from_bytes(&key).ok()? };
            (data_encoding::HEXLOWER.encode(&verifier.key_id()) == id).then_some(verifier)
        };
        read().ok_or(CheckpointError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves K-13.
    #[test]
    fn a_signed_checkpoint_verifies_and_a_changed_one_does_not() {
        let signer = Signer::from_seed(&[7; 32]);
        let note = signer.sign(42, [9; 32]);
        let verifier: Verifier = signer.verifier().to_string().parse().unwrap();
        let checkpoint = verifier.verify(&note).unwrap();
        assert_eq!((checkpoint.size, checkpoint.root), (42, [9; 32]));
        let other = Signer::from_seed(&[8; 32]).verifier();
        assert_eq!(other.verify(&note), Err(CheckpointError::Origin));
        assert_eq!(verifier.verify(&note.replacen("42", "43", 1)), Err(CheckpointError::Signature));
        for at in 0..note.len() {
            let mut bytes = note.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert!(verifier.verify(&changed).is_err(), "byte {at}");
            }
        }
    }
}
