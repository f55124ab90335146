//! One view of the database, or one transaction on it.
//!
//! A row is cached when a command first reads it. Writes of commands are kept beside the cache and
//! sent when all commands have been judged. So a batch costs as many round trips as there are kinds
//! of rows, and a command that fails leaves nothing behind. The reads and writes of each noun are
//! in that noun's file.

use std::collections::{HashMap, VecDeque};

use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::lock::Lock;
use hapax_core::name::Namespace;
use hapax_core::time::Now;
use hapax_store::{StoreError, Txn, View};

use crate::connect::Link;
use crate::effect::{self, EffectRow, EffectRowKey, RowWrite};
use crate::epoch::EpochRowKey;
use crate::error::PgFailure;
use crate::journal;
use crate::lease;
use crate::lock::{self, LockRowKey, LockWrite};
use crate::namespace::Namespaces;
use crate::outbox;
use crate::part;
use crate::result_index;
use crate::writes::Writes;

/// The rights of a view to the rows that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Only read: the caller has a view, and no transaction that may write.
    ReadOnly,
    /// Lock effects and locks when they are read. Lock a lease only when its time seems to be up: a
    /// healthy one is only read.
    Write,
    /// Lock leases as well: the command is about them.
    WriteLeases,
}

pub(crate) struct PgTxn<'a> {
    pub(crate) link: &'a Link,
    pub(crate) namespaces: &'a Namespaces,
    /// The epochs that were read, and may be held.
    pub(crate) epochs: HashMap<EpochRowKey, u64>,
    /// The versions of ontologies that were read, and are held.
    pub(crate) ontologies: HashMap<(i32, String), Option<String>>,
    pub(crate) now: Now,
    pub(crate) access: Access,
    pub(crate) loaded: LoadedRows,
    /// The writes of earlier commands.
    pub(crate) written: Writes,
    /// The writes of the current command.
    pub(crate) staged: Writes,
    /// Entry numbers that the transaction has taken and not used yet.
    pub(crate) entry_numbers: VecDeque<u64>,
    /// Why a read or write failed; the lane that runs the transaction takes it.
    failure: Option<PgFailure>,
}

/// The rows that were read, each when a command first needed it.
#[derive(Default)]
pub(crate) struct LoadedRows {
    pub(crate) effects: HashMap<EffectRowKey, Option<EffectRow>>,
    pub(crate) leases: HashMap<LeaseId, Option<Lease>>,
    pub(crate) locks: HashMap<LockRowKey, Option<Lock>>,
    pub(crate) pulse: Option<Pulse>,
}

impl<'a> PgTxn<'a> {
    pub(crate) fn new(
        link: &'a Link,
        namespaces: &'a Namespaces,
        now: Now,
        access: Access,
    ) -> Self {
        Self {
            link,
            namespaces,
            now,
            access,
            epochs: HashMap::new(),
            ontologies: HashMap::new(),
            loaded: LoadedRows::default(),
            written: Writes::default(),
            staged: Writes::default(),
            entry_numbers: VecDeque::new(),
            failure: None,
        }
    }

    /// Reads the rows that a batch certainly needs: locks, then effects, each in the order of keys.
    pub(crate) fn preload(
        &mut self,
        locks: &[LockRowKey],
        effects: &[EffectRowKey],
        numbers: usize,
    ) -> Result<(), PgFailure> {
        self.load_locks(locks)?;
        self.load_effects(effects)?;
        if numbers > 0 {
            self.entry_numbers.extend(journal::take_entry_numbers(self.link, numbers)?);
        }
        Ok(())
    }

    /// Reads the effects and the lease that a look at claims certainly needs, in one round trip.
    pub(crate) fn preview(
        &mut self,
        effects: &[EffectRowKey],
        lease: Option<LeaseId>,
    ) -> Result<(), PgFailure> {
        let Some(id) = lease else { return self.load_effects(effects) };
        let (mut rows, lease) = effect::load_with(self.link, effects, id)?;
        self.loaded.effects.extend(effects.iter().map(|row_key| (*row_key, rows.remove(row_key))));
        self.loaded.leases.insert(id, lease);
        Ok(())
    }

    /// Ends a command: its writes are kept or dropped.
    pub(crate) fn end_command(&mut self, keep: bool) {
        let staged = std::mem::take(&mut self.staged);
        if keep {
            self.written.merge(staged);
        }
    }

    /// Why the last command failed, if the database was the reason.
    pub(crate) fn take_failure(&mut self) -> Option<PgFailure> {
        self.failure.take()
    }

    /// The effects that commands have written, with their versions.
    pub(crate) fn written_effects(&self) -> impl Iterator<Item = (&EffectRowKey, &EffectRow)> {
        self.written.effects.iter()
    }

    /// Sends all writes, in lock order: leases, locks, effects.
    pub(crate) fn flush(&mut self) -> Result<(), PgFailure> {
        let written = std::mem::take(&mut self.written);
        for lease in written.leases.values() {
            lease::put(self.link, lease)?;
        }
        let (mut taken, mut released) = (Vec::new(), Vec::new());
        for (row_key, lock) in &written.locks {
            let held = self.loaded.locks.get(row_key).copied().flatten();
            match (lock, held.map(|held| held.attempt)) {
                (Some(lock), replaced_attempt) => {
                    let namespace = row_key.0;
                    taken.push(LockWrite { namespace, replaced_attempt, lock: *lock });
                }
                (None, Some(attempt)) => released.push((*row_key, attempt)),
                (None, None) => {}
            }
        }
        lock::put(self.link, &taken)?;
        lock::release(self.link, &released)?;
        let loaded_entry = |row_key: &EffectRowKey| {
            self.loaded.effects.get(row_key).and_then(Option::as_ref).map_or(0, |row| row.entry)
        };
        let effects: Vec<_> = written
            .effects
            .into_iter()
            .map(|(row_key, row)| RowWrite { replaced_entry: loaded_entry(&row_key), row_key, row })
            .collect();
        effect::put(self.link, &effects)?;
        journal::append(self.link, &written.entries)?;
        for new in &written.records {
            outbox::put(self.link, new.namespace, &new.record, &new.sinks)?;
        }
        result_index::put(self.link, &written.index_entries)?;
        part::put(self.link, &Vec::from_iter(written.parts))?;
        if let Some(pulse) = &written.pulse {
            lease::put_pulse(self.link, pulse)?;
        }
        Ok(())
    }

    /// Whether this view only reads.
    pub(crate) fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// Keeps the reason of a failure for the lane that runs the transaction.
    pub(crate) fn keep_failure<T>(
        &mut self,
        result: Result<T, PgFailure>,
    ) -> Result<T, StoreError> {
        result.map_err(|failure| {
            let error = match &failure {
                PgFailure::Lost(text) | PgFailure::Busy(text) => {
                    StoreError::Unavailable(text.clone())
                }
                PgFailure::Refused(error) => error.clone(),
            };
            self.failure = Some(failure);
            error
        })
    }
}

impl View for PgTxn<'_> {
    fn now(&mut self) -> Now {
        self.now
    }

    fn namespaces(&mut self) -> Result<Vec<Namespace>, StoreError> {
        let namespaces = self.namespaces.all(self.link);
        self.keep_failure(namespaces)
    }
}

impl Txn for PgTxn<'_> {}
