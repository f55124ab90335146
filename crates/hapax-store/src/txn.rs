//! A view of the ledger and a transaction on it: the sums of what each noun reads and writes.

use hapax_core::name::Namespace;
use hapax_core::time::Now;

use crate::dataset::{DatasetTxn, DatasetView};
use crate::delivery::{DeliveryTxn, DeliveryView};
use crate::effect::{EffectTxn, EffectView};
use crate::epoch::{EpochTxn, EpochView};
use crate::error::StoreError;
use crate::journal::{JournalTxn, JournalView};
use crate::lease::{LeaseTxn, LeaseView};
use crate::lock::{LockTxn, LockView};
use crate::ontology::{OntologyTxn, OntologyView};
use crate::outbox::{OutboxTxn, OutboxView};
use crate::part::{PartTxn, PartView};
use crate::result_index::{ResultIndexTxn, ResultIndexView};
use crate::route::{RouteTxn, RouteView};
use crate::step::{StepTxn, StepView};
use crate::token::{TokenTxn, TokenView};

/// One consistent view of the ledger.
pub trait View:
    EffectView
    + LeaseView
    + LockView
    + StepView
    + EpochView
    + JournalView
    + TokenView
    + PartView
    + RouteView
    + OutboxView
    + DeliveryView
    + DatasetView
    + OntologyView
    + ResultIndexView
{
    /// The store's clocks. A command sees one reading of them.
    fn now(&mut self) -> Now;

    /// All namespaces that the store knows.
    fn namespaces(&mut self) -> Result<Vec<Namespace>, StoreError>;
}

/// A transaction: a view that can be written to. The writes of one command are kept or undone as a
/// whole.
pub trait Txn:
    View
    + EffectTxn
    + LeaseTxn
    + LockTxn
    + StepTxn
    + EpochTxn
    + JournalTxn
    + TokenTxn
    + PartTxn
    + RouteTxn
    + OutboxTxn
    + DeliveryTxn
    + DatasetTxn
    + OntologyTxn
    + ResultIndexTxn
{
}
