//! One transaction of a lane, for commands that are judged under the locks of their rows.
//!
//!   BEGIN ─▶ advisory locks ─▶ epochs ─▶ locks ─▶ effects ─▶ judge each command ─▶ writes ─▶ COMMIT
//!
//! The transaction skips a command whose advisory lock is taken; the lane puts that command off.

use hapax_core::effect::{Ask, State};
use hapax_core::lock::LockKey;
use hapax_core::name::Name;
use hapax_store::command::Claim;
use hapax_store::failpoint::{Point, pass};
use hapax_store::{Job, ledger};

use super::Lane;
use crate::connect::Link;
use crate::effect::{EffectRow, EffectRowKey};
use crate::epoch::EpochRowKey;
use crate::error::PgFailure;
use crate::lock::{self, LockRowKey};
use crate::queue::{QueuedJob, Subject};
use crate::txn::{Access, PgTxn};

/// How often a claim is put off because its advisory lock is taken, before the rows decide.
const MAX_PUT_OFFS: u32 = 50;

impl Lane {
    /// Runs one transaction. Returns which commands it has carried out: all but those whose advisory
    /// lock another transaction has.
    pub(super) fn transact(
        &mut self,
        batch: &mut [QueuedJob],
        lock_timeout_ms: u32,
    ) -> Result<Vec<bool>, PgFailure> {
        let result = self.try_transact(batch, lock_timeout_ms);
        if let Err(PgFailure::Busy(_) | PgFailure::Refused(_)) = &result
            && let Some(link) = &self.link
            && link.run("ROLLBACK").is_err()
        {
            self.link = None;
        }
        result
    }

    fn try_transact(
        &self,
        batch: &mut [QueuedJob],
        lock_timeout_ms: u32,
    ) -> Result<Vec<bool>, PgFailure> {
        let link = self.link()?;
        pass(Point::PostgresBegin).map_err(PgFailure::lost)?;
        // An epoch transition writes to every open effect of the epoch, however many there are.
        let ends = |queued: &QueuedJob| matches!(queued.job, Job::Advance(_));
        let statement_timeout_ms = if batch.iter().any(ends) { 600_000 } else { 10_000 };
        let settings = format!(
            "SET LOCAL lock_timeout = {lock_timeout_ms};
             SET LOCAL statement_timeout = {statement_timeout_ms};
             SET LOCAL idle_in_transaction_session_timeout = 10000;
             SET LOCAL synchronous_commit = on; SET LOCAL jit = off"
        );
        link.begin("ISOLATION LEVEL READ COMMITTED", &settings);
        let wanted = self.locks(batch)?;
        let free = self.try_advisory_locks(link, batch, &wanted)?;
        let now = self.shared.clock.read_in_transaction(link)?;
        let access = match batch {
            [queued] if matches!(Subject::of(&queued.job), Subject::Lease(_)) => {
                Access::WriteLeases
            }
            _ => Access::Write,
        };
        let mut txn = PgTxn::new(link, &self.shared.namespaces, now, access);
        let proceeding = || batch.iter().zip(&free).filter(|(_, free)| **free).map(|(w, _)| w);
        let locks: Vec<LockRowKey> = wanted
            .iter()
            .zip(&free)
            .filter(|(_, free)| **free)
            .filter_map(|(row_key, _)| *row_key)
            .collect();
        let (claimed, ended) = self.epochs(proceeding())?;
        txn.preload_epochs(claimed, ended)?;
        let numbers = proceeding().filter(|queued| queued.is_batchable()).count();
        txn.preload(&locks, &self.row_keys(proceeding())?, numbers)?;
        for (queued, free) in batch.iter_mut().zip(&free) {
            if !free {
                continue;
            }
            let kept = ledger::apply(&mut txn, &mut queued.job).is_ok();
            if let Some(failure) = txn.take_failure() {
                return Err(failure);
            }
            txn.end_command(kept);
        }
        let running: Vec<(EffectRowKey, Option<EffectRow>)> = txn
            .written_effects()
            .map(|(row_key, row)| {
                let running = matches!(row.effect.state, State::Running { .. });
                (*row_key, running.then(|| row.clone()))
            })
            .collect();
        txn.flush()?;
        pass(Point::PostgresCommit).map_err(PgFailure::lost)?;
        link.run("COMMIT")?;
        pass(Point::PostgresCommitted).map_err(PgFailure::lost)?;
        for (row_key, row) in running {
            match row {
                Some(row) => self.shared.cache_running(row_key, row),
                None => {
                    self.shared.running().remove(&row_key);
                }
            }
        }
        Ok(free)
    }

    /// The row keys of the effects that these commands are about.
    pub(super) fn row_keys<'a>(
        &self,
        batch: impl Iterator<Item = &'a QueuedJob>,
    ) -> Result<Vec<EffectRowKey>, PgFailure> {
        let link = self.link()?;
        let mut row_keys = Vec::new();
        for queued in batch {
            if let Subject::Effect(name) = Subject::of(&queued.job)
                && let Some(id) = self.shared.namespaces.find(link, &name.namespace)?
            {
                row_keys.push((id, name.key));
            }
        }
        Ok(row_keys)
    }

    /// The epochs that these commands claim in, and the epoch that one of them ends.
    fn epochs<'a>(
        &self,
        batch: impl Iterator<Item = &'a QueuedJob>,
    ) -> Result<(Vec<EpochRowKey>, Option<EpochRowKey>), PgFailure> {
        let link = self.link()?;
        let (mut claimed, mut ended) = (Vec::new(), None);
        for queued in batch {
            match &queued.job {
                Job::Claim(job) => {
                    let Claim { name, ask: Ask { bound: Some(bound), .. } } = &job.command else {
                        continue;
                    };
                    let id = self.shared.namespaces.find(link, &name.namespace)?;
                    claimed.extend(id.map(|id| (id, bound.domain.clone())));
                }
                Job::Advance(job) => {
                    let id = self.shared.namespaces.find(link, &job.command.namespace)?;
                    ended = id.map(|id| (id, job.command.domain.clone()));
                }
                _ => {}
            }
        }
        Ok((claimed, ended))
    }

    /// The lock of each command, if the command or the cache of running effects names it.
    fn locks(&self, batch: &[QueuedJob]) -> Result<Vec<Option<LockRowKey>>, PgFailure> {
        let link = self.link()?;
        let lock_of = |name: &Name, lock: Option<LockKey>| -> Result<_, PgFailure> {
            let id = self.shared.namespaces.find(link, &name.namespace)?;
            Ok(id.zip(lock))
        };
        batch
            .iter()
            .map(|queued| match &queued.job {
                Job::Claim(job) => lock_of(&job.command.name, job.command.ask.lock),
                Job::Settle(job) => {
                    let name = &job.command.name;
                    let id = self.shared.namespaces.find(link, &name.namespace)?;
                    let running = self.shared.running();
                    let row = id.and_then(|id| running.get(&(id, name.key)));
                    let lock = row.and_then(|row| row.effect.lock);
                    drop(running);
                    lock_of(name, lock)
                }
                _ => Ok(None),
            })
            .collect()
    }

    /// Tries the advisory lock of each command. One that is taken shows cheaply that another transaction
    /// claims the same lock at this moment. It can only put a command off: the rows decide.
    fn try_advisory_locks(
        &self,
        link: &Link,
        batch: &[QueuedJob],
        wanted: &[Option<LockRowKey>],
    ) -> Result<Vec<bool>, PgFailure> {
        let mask = self.shared.advisory_lock_mask();
        let advisory_key = |row_key: &LockRowKey| (row_key.1.0 & mask) as i64;
        let mut keys: Vec<i64> = wanted.iter().flatten().map(advisory_key).collect();
        if keys.is_empty() {
            return Ok(vec![true; batch.len()]);
        }
        keys.sort_unstable();
        keys.dedup();
        let obtained = lock::try_advisory_locks(link, &keys)?;
        let free = |queued: &QueuedJob, row_key: &Option<LockRowKey>| match row_key {
            Some(row_key) => {
                queued.wait.put_off >= MAX_PUT_OFFS || obtained.contains(&advisory_key(row_key))
            }
            None => true,
        };
        Ok(batch.iter().zip(wanted).map(|(queued, row_key)| free(queued, row_key)).collect())
    }
}
