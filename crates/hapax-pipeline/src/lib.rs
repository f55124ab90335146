//! Governed pipeline operations: changes to datasets that happen once, in order, on declared terms.
//!
//! ```
//! use hapax::Hapax;
//! use hapax_pipeline::{Artifact, WorkResult, Operation, Pipeline, WorkError};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let hapax = Hapax::builder().in_memory();
//! let pipeline = Pipeline::new(hapax);
//! let operation = Operation {
//!     pipeline_id: "hydrology".into(),
//!     task_id: "publish".into(),
//!     dataset_id: "flow".into(),
//!     operation_type: "publish".into(),
//!     version: "v12".into(),
//!     checksum_in: "sha256:5f2b".into(),
//!     params_hash: "sha256:9c41".into(),
//!     timestamp_bucket: "2026-11-16T00:00:00Z".into(),
//!     ..Operation::default()
//! };
//! for _ in 0..2 {
//!     let finished = pipeline
//!         .operation(operation.clone())
//!         .run(|_work| async {
//!             let file = Artifact {
//!                 dataset: "flow".into(),
//!                 version: "v12".into(),
//!                 checksum: "sha256:9393".into(),
//!                 uri: "s3://flow/v12.parquet".into(),
//!                 ..Artifact::default()
//!             };
//!             Ok::<_, WorkError>(WorkResult::new("96 rows").output(file))
//!         })
//!         .await?;
//!     assert_eq!(finished.done.body(), Some(&b"96 rows"[..]));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The crate adds a lifecycle to the ledger. An operation is an effect under the key of its eight
//! fields, and its lock is the effect's lock. Lineage is derived from the journal. A review is an
//! effect that only a person can settle.

mod annotations;
mod builder;
pub mod catalog;
mod contract;
mod declared;
mod energy;
mod error;
mod exact;
pub mod health;
mod lifecycle;
pub mod lineage;
mod mask;
mod meters;
mod operation;
mod pipeline;
pub mod projector;
pub mod promotion;
mod refusal;
pub mod remote;
pub mod replay;
pub mod review;
mod run;
mod tally;
mod undo;
mod work;

pub use builder::{Finished, OperationBuilder};
pub use contract::{Breach, Contract, ContractError, Violation, documents};
pub use energy::Grid;
pub use error::{Error, WorkError};
pub use mask::{Masked, mask, mask_text};
pub use meters::{Labels, Meter, Meters};
pub use operation::{DatasetTerms, Operation, OperationNote, Source, bucket};
pub use pipeline::{Pipeline, Settings};
pub use refusal::{RefusalEvent, Refusals};
pub use run::{Artifact, Energy, Fold, Mark, Moment, Product, Run, RunChange};
pub use undo::RollbackResult;
pub use work::{Work, WorkResult};
