//! Writes that are kept until all commands of a batch have been judged.

use std::collections::BTreeMap;

use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::lock::Lock;
use hapax_core::outbox::Record;
use hapax_core::part::Part;
use hapax_core::route::SinkName;

use crate::effect::{EffectRow, EffectRowKey};
use crate::journal::NewEntry;
use crate::lock::LockRowKey;
use crate::result_index::NewIndexEntry;

/// The writes of commands, until they are sent.
#[derive(Default)]
pub(crate) struct Writes {
    pub(crate) effects: BTreeMap<EffectRowKey, EffectRow>,
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
    pub(crate) locks: BTreeMap<LockRowKey, Option<Lock>>,
    pub(crate) entries: Vec<NewEntry>,
    pub(crate) records: Vec<NewRecord>,
    pub(crate) index_entries: Vec<NewIndexEntry>,
    pub(crate) parts: BTreeMap<EffectRowKey, Part>,
    pub(crate) pulse: Option<Pulse>,
}

/// A record to write, with the number of its namespace.
pub(crate) struct NewRecord {
    pub(crate) namespace: i32,
    pub(crate) record: Record,
    pub(crate) sinks: Vec<SinkName>,
}

impl Writes {
    /// Adds the writes of a newer command.
    pub(crate) fn merge(&mut self, newer: Self) {
        self.effects.extend(newer.effects);
        self.leases.extend(newer.leases);
        self.locks.extend(newer.locks);
        self.entries.extend(newer.entries);
        self.records.extend(newer.records);
        self.index_entries.extend(newer.index_entries);
        self.parts.extend(newer.parts);
        self.pulse = newer.pulse.or(self.pulse);
    }
}
