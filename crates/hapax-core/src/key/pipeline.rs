//! `pipeline.v1`: one governed operation on a dataset, and the two formulas it replaces.
//!
//! `pipeline.kfm-v11` joins seven fields by colons and `pipeline.kfm-v10` three by bars. Both
//! are ambiguous; they exist only to recognise records that older pipelines made.

use super::{Key, KeyError, required};
use crate::digest::sha256;

/// The name of the derivation for new records.
pub const V1: &str = "pipeline.v1";
/// The name of the colon-joined formula, kept for recognition only.
pub const KFM_V11: &str = "pipeline.kfm-v11";
/// The name of the bar-joined formula, kept for recognition only.
pub const KFM_V10: &str = "pipeline.kfm-v10";

/// The eight fields that identify an operation.
///
/// ```
/// use hapax_core::key::pipeline::Operation;
///
/// let write = Operation {
///     pipeline_id: "hydrology",
///     task_id: "publish",
///     dataset_id: "gauges",
///     operation_type: "write",
///     version: "v12",
///     checksum_in: "sha256:5f2b",
///     params_hash: "sha256:9c41",
///     timestamp_bucket: "2026-11-16T00:00:00Z",
/// };
/// // A retry carries the bucket of the first try, and so its key.
/// assert_eq!(write.key()?, write.key()?);
/// assert_ne!(write.key()?, write.kfm_v11()?);
/// # Ok::<(), hapax_core::key::KeyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The pipeline.
    pub pipeline_id: &'a str,
    /// The task in the pipeline.
    pub task_id: &'a str,
    /// The dataset it changes.
    pub dataset_id: &'a str,
    /// The kind of change.
    pub operation_type: &'a str,
    /// The version it produces.
    pub version: &'a str,
    /// The checksum of the raw input.
    pub checksum_in: &'a str,
    /// The hash of the transformation parameters.
    pub params_hash: &'a str,
    /// The caller's logical time, rounded down; carried unchanged by every retry.
    pub timestamp_bucket: &'a str,
}

impl<'a> Operation<'a> {
    fn fields(&self) -> Result<[(&'static str, &'a str); 8], KeyError> {
        let fields = [
            ("pipeline_id", self.pipeline_id),
            ("task_id", self.task_id),
            ("dataset_id", self.dataset_id),
            ("operation_type", self.operation_type),
            ("version", self.version),
            ("checksum_in", self.checksum_in),
            ("params_hash", self.params_hash),
            ("timestamp_bucket", self.timestamp_bucket),
        ];
        for (name, value) in fields {
            required(name, value)?;
        }
        Ok(fields)
    }

    /// The key of this operation.
    pub fn key(&self) -> Result<Key, KeyError> {
        let fields = self.fields()?.map(|(name, value)| (name, value.as_bytes()));
        Key::framed(V1, &fields)
    }

    /// The key an older pipeline gave this operation; `version` is not part of it.
    pub fn kfm_v11(&self) -> Result<Key, KeyError> {
        let fields = self.fields()?;
        let values: Vec<_> =
            fields.iter().filter(|(name, _)| *name != "version").map(|(_, value)| *value).collect();
        Ok(Key::from_bytes(sha256(values.join(":").as_bytes())))
    }
}

/// The key a version 10 pipeline gave to what it fetched from `source_uri`.
pub fn kfm_v10(dataset: &str, version: &str, source_uri: &str) -> Result<Key, KeyError> {
    let dataset = required("dataset", dataset)?;
    let version = required("version", version)?;
    let source_uri = required("source_uri", source_uri)?;
    Ok(Key::from_bytes(sha256(format!("{dataset}|{version}|{source_uri}").as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATION: Operation<'_> = Operation {
        pipeline_id: "hydro",
        task_id: "load",
        dataset_id: "gauges",
        operation_type: "upsert",
        version: "v3",
        checksum_in: "sha256:aa",
        params_hash: "sha256:bb",
        timestamp_bucket: "2026-01-01T00:00:00Z",
    };

    /// Proves P-1.
    #[test]
    fn every_field_counts_in_v1_and_version_does_not_in_the_old_formula() {
        let other = Operation { version: "v4", ..OPERATION };
        assert_ne!(OPERATION.key(), other.key());
        assert_eq!(OPERATION.kfm_v11(), other.kfm_v11());
        assert_eq!(
            OPERATION.kfm_v11().unwrap(),
            Key::from_bytes(sha256(
                b"hydro:load:gauges:upsert:sha256:aa:sha256:bb:2026-01-01T00:00:00Z"
            ))
        );
        assert_eq!(kfm_v10("d", "1", "s3://x").unwrap(), Key::from_bytes(sha256(b"d|1|s3://x")));
    }

    /// Proves P-1.
    #[test]
    fn the_colon_that_confuses_the_old_formula_does_not_confuse_v1() {
        let left = Operation { pipeline_id: "a:b", task_id: "c", ..OPERATION };
        let right = Operation { pipeline_id: "a", task_id: "b:c", ..OPERATION };
        assert_eq!(left.kfm_v11(), right.kfm_v11());
        assert_ne!(left.key(), right.key());
    }

    /// Proves P-2.
    #[test]
    fn a_blank_field_is_named() {
        let blank = Operation { checksum_in: " ", ..OPERATION };
        assert_eq!(blank.key(), Err(KeyError::Blank { field: "checksum_in" }));
        assert_eq!(blank.kfm_v11(), Err(KeyError::Blank { field: "checksum_in" }));
    }
}
