//! The quick step of a lane: it writes without reading first, in one statement for a whole batch. Each
//! command takes effect only if its row is in the expected state.

use std::collections::HashMap;

use hapax_core::attempt::Fence;
use hapax_core::effect::{Change, Effect, Settled, State, Verdict};
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::outcome::{Digest, Outcome};
use hapax_core::planted::{Bug, planted};
use hapax_core::time::{LeaseInstant, Now};
use hapax_store::command::{Claim, Settle};
use hapax_store::effect::{FirstGrant, plain_success};
use hapax_store::failpoint::{Point, pass};
use hapax_store::{Job, Pending};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::{Link, Param};
use crate::effect::{EffectRow, EffectRowKey, MAX_INLINE, bytes, safety};
use crate::error::PgFailure;
use crate::lane::BatchResults;
use crate::queue::QueuedJob;
use crate::statements::Statements;
use crate::store::Shared;

/// The statement for a batch without locks and journal notes, as a function call, for a session that
/// is not ours.
const CALL: &str =
    "SELECT * FROM hapax.quick($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
         $15, $16, $17)";

/// The function call for a batch with locks or journal notes, in every session.
const CALL_WITH_LOCKS: &str =
    "SELECT * FROM hapax.quick_with_locks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
         $14, $15, $16, $17, $18, $19, $20, $21, $22)";

/// Commands that are written on the assumption of what their rows hold.
pub(crate) struct QuickStep {
    now: Now,
    /// The bits of a lock's key that its advisory lock has.
    advisory_lock_mask: u64,
    claims: Vec<QuickClaim>,
    settles: Vec<QuickSettle>,
    /// Commands whose rows must be read.
    pub(crate) rest: Vec<QueuedJob>,
}

/// A claim of a key that should be new.
struct QuickClaim {
    queued: QueuedJob<Pending<Claim>>,
    row_key: EffectRowKey,
    grant: FirstGrant,
}

/// A success of an effect that should still be running.
struct QuickSettle {
    queued: QueuedJob<Pending<Settle>>,
    row_key: EffectRowKey,
    /// The version that the stored row must still have.
    entry: u64,
    outcome: Outcome,
    expires: Option<i64>,
    lock: Option<i64>,
}

impl QuickClaim {
    fn effect(&self) -> &Effect {
        self.grant.effect()
    }

    fn lock(&self) -> Option<i64> {
        self.effect().lock.map(|lock| lock.0 as i64)
    }

    fn note(&self) -> Option<&str> {
        self.queued.job.command.ask.about.as_deref()
    }

    /// Whether it has a lock or a note in the journal.
    fn has_lock_or_note(&self) -> bool {
        self.lock().is_some() || self.note().is_some()
    }
}

impl QuickSettle {
    fn note(&self) -> Option<&str> {
        self.queued.job.command.attachments.note.as_deref()
    }

    /// Whether it has a lock or a note in the journal.
    fn has_lock_or_note(&self) -> bool {
        self.lock.is_some() || self.note().is_some()
    }
}

impl QuickStep {
    /// Takes the commands whose answer follows from an absent or a running effect, and which the
    /// quick statement can write.
    pub(crate) fn of(shared: &Shared, now: Now, batch: Vec<QueuedJob>) -> Self {
        let advisory_lock_mask = shared.advisory_lock_mask();
        let (claims, settles, rest) = (Vec::new(), Vec::new(), Vec::new());
        let mut quick = Self { now, advisory_lock_mask, claims, settles, rest };
        for QueuedJob { job, wait } in batch {
            match job {
                Job::Claim(job) => quick.take_claim(shared, QueuedJob { job, wait }),
                Job::Settle(job) => quick.take_settle(shared, QueuedJob { job, wait }),
                job => quick.rest.push(QueuedJob { job, wait }),
            }
        }
        quick.claims.sort_unstable_by_key(|claim| claim.row_key);
        quick.settles.sort_unstable_by_key(|settle| settle.row_key);
        quick
    }

    fn take_claim(&mut self, shared: &Shared, queued: QueuedJob<Pending<Claim>>) {
        let Claim { name, ask } = &queued.job.command;
        let row_key = shared.namespaces.known(&name.namespace).map(|id| (id, name.key));
        let row_key =
            row_key.filter(|row_key| ask.part.is_none() && !shared.running().contains_key(row_key));
        match row_key.and_then(|row_key| Some((row_key, FirstGrant::of(self.now, ask)?))) {
            Some((row_key, grant)) => self.claims.push(QuickClaim { queued, row_key, grant }),
            None => self.rest.push(queued.untyped()),
        }
    }

    fn take_settle(&mut self, shared: &Shared, queued: QueuedJob<Pending<Settle>>) {
        let settle = &queued.job.command;
        let row_key =
            shared.namespaces.known(&settle.name.namespace).map(|id| (id, settle.name.key));
        let success = row_key.and_then(|row_key| {
            let running = shared.running();
            let row = running.get(&row_key)?;
            let effect = plain_success(self.now, &row.effect, settle)?.effect;
            let (expires, lock) = (effect.expires(), effect.lock);
            let State::Succeeded(outcome) = effect.state else { return None };
            let is_inline = outcome.body().is_some_and(|body| body.len() <= MAX_INLINE);
            is_inline.then_some((row_key, row.entry, outcome, expires, lock))
        });
        match success {
            Some((row_key, entry, outcome, expires, lock)) => {
                let (expires, lock) = (expires.map(|at| at.0), lock.map(|lock| lock.0 as i64));
                self.settles.push(QuickSettle { queued, row_key, entry, outcome, expires, lock });
            }
            None => self.rest.push(queued.untyped()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.settles.is_empty()
    }

    /// Sends all commands in one statement. Returns the entries of those that took effect.
    pub(crate) fn send(&self, link: &Link) -> Result<Vec<(EffectRowKey, u64)>, PgFailure> {
        pass(Point::QuickSend).map_err(PgFailure::lost)?;
        let taken = self.write(link);
        pass(Point::QuickSent).map_err(PgFailure::lost)?;
        match taken {
            Err(PgFailure::Lost(_)) if planted(Bug::LostCommitIsDone) => {
                let settles = self.settles.iter().map(|settle| settle.row_key);
                Ok(settles.chain(self.claims.iter().map(|claim| claim.row_key)).zip(1..).collect())
            }
            taken => taken,
        }
    }

    fn write(&self, link: &Link) -> Result<Vec<(EffectRowKey, u64)>, PgFailure> {
        let rows = match (self.settles.as_slice(), self.claims.as_slice()) {
            ([one], []) if link.is_ours() && !one.has_lock_or_note() => self.settle_one(link, one),
            ([], [one]) if link.is_ours() && !one.has_lock_or_note() => self.claim_one(link, one),
            _ => self.write_all(link),
        };
        rows?
            .iter()
            .map(|row| {
                let key = Key::from_bytes(bytes(row, "key")?);
                Ok(((row.try_get(0)?, key), row.try_get::<_, i64>(2)? as u64))
            })
            .collect()
    }

    fn settle_one(&self, link: &Link, one: &QuickSettle) -> Result<Vec<Row>, PgFailure> {
        link.query_prepared((
            &Statements::get().settle,
            &[
                (&self.now.wall.0, Type::INT8),
                (&one.row_key.0, Type::INT4),
                (&&one.row_key.1.as_bytes()[..], Type::BYTEA),
                (&(one.entry as i64), Type::INT8),
                (&one.outcome.body(), Type::BYTEA),
                (&&one.outcome.digest().as_bytes()[..], Type::BYTEA),
                (&one.expires, Type::INT8),
            ],
        ))
    }

    fn claim_one(&self, link: &Link, one: &QuickClaim) -> Result<Vec<Row>, PgFailure> {
        let effect = one.effect();
        let ((safety, settling), (lease, deadline)) = (safety(effect), running(effect));
        link.query_prepared((
            &Statements::get().claim,
            &[
                (&self.now.wall.0, Type::INT8),
                (&one.row_key.0, Type::INT4),
                (&&one.row_key.1.as_bytes()[..], Type::BYTEA),
                (&&effect.fingerprint.as_bytes()[..], Type::BYTEA),
                (&safety, Type::INT2),
                (&settling, Type::INT8),
                (&&effect.attempt.as_bytes()[..], Type::BYTEA),
                (&effect.label.as_deref(), Type::TEXT),
                (&effect.ttl_ms.map(|ms| ms as i64), Type::INT8),
                (&lease.as_ref().map(|lease| &lease.as_bytes()[..]), Type::BYTEA),
                (&deadline.map(|at| at.ms as i64), Type::INT8),
            ],
        ))
    }

    fn write_all(&self, link: &Link) -> Result<Vec<Row>, PgFailure> {
        let settles = || self.settles.iter();
        let s_namespace: Vec<i32> = settles().map(|one| one.row_key.0).collect();
        let s_key: Vec<&[u8]> = settles().map(|one| &one.row_key.1.as_bytes()[..]).collect();
        let s_entry: Vec<i64> = settles().map(|one| one.entry as i64).collect();
        let s_outcome: Vec<Option<&[u8]>> = settles().map(|one| one.outcome.body()).collect();
        let digests: Vec<Digest> = settles().map(|one| one.outcome.digest()).collect();
        let s_digest: Vec<&[u8]> = digests.iter().map(|digest| &digest.as_bytes()[..]).collect();
        let s_expires: Vec<Option<i64>> = settles().map(|one| one.expires).collect();
        let s_lock: Vec<Option<i64>> = settles().map(|one| one.lock).collect();
        let s_note: Vec<Option<&str>> = settles().map(QuickSettle::note).collect();
        let claims = || self.claims.iter();
        let effects = || self.claims.iter().map(QuickClaim::effect);
        let c_namespace: Vec<i32> = claims().map(|one| one.row_key.0).collect();
        let c_key: Vec<&[u8]> = claims().map(|one| &one.row_key.1.as_bytes()[..]).collect();
        let c_fingerprint: Vec<&[u8]> = effects().map(|e| &e.fingerprint.as_bytes()[..]).collect();
        let c_safety: Vec<i16> = effects().map(|e| safety(e).0).collect();
        let c_settling: Vec<Option<i64>> = effects().map(|e| safety(e).1).collect();
        let c_attempt: Vec<&[u8]> = effects().map(|e| &e.attempt.as_bytes()[..]).collect();
        let c_label: Vec<Option<&str>> = effects().map(|e| e.label.as_deref()).collect();
        let c_ttl: Vec<Option<i64>> = effects().map(|e| e.ttl_ms.map(|ms| ms as i64)).collect();
        let leases: Vec<_> = effects().map(|e| running(e).0).collect();
        let c_lease: Vec<Option<&[u8]>> =
            leases.iter().map(|lease| lease.as_ref().map(|lease| &lease.as_bytes()[..])).collect();
        let c_deadline: Vec<Option<i64>> =
            effects().map(|e| running(e).1.map(|at| at.ms as i64)).collect();
        let c_lock: Vec<Option<i64>> = claims().map(QuickClaim::lock).collect();
        let c_note: Vec<Option<&str>> = claims().map(QuickClaim::note).collect();
        let now: Param<'_> = (&self.now.wall.0, Type::INT8);
        let settles: [Param<'_>; 6] = [
            (&s_namespace, Type::INT4_ARRAY),
            (&s_key, Type::BYTEA_ARRAY),
            (&s_entry, Type::INT8_ARRAY),
            (&s_outcome, Type::BYTEA_ARRAY),
            (&s_digest, Type::BYTEA_ARRAY),
            (&s_expires, Type::INT8_ARRAY),
        ];
        let claims: [Param<'_>; 10] = [
            (&c_namespace, Type::INT4_ARRAY),
            (&c_key, Type::BYTEA_ARRAY),
            (&c_fingerprint, Type::BYTEA_ARRAY),
            (&c_safety, Type::INT2_ARRAY),
            (&c_settling, Type::INT8_ARRAY),
            (&c_attempt, Type::BYTEA_ARRAY),
            (&c_label, Type::TEXT_ARRAY),
            (&c_ttl, Type::INT8_ARRAY),
            (&c_lease, Type::BYTEA_ARRAY),
            (&c_deadline, Type::INT8_ARRAY),
        ];
        if self.settles.iter().any(QuickSettle::has_lock_or_note)
            || self.claims.iter().any(QuickClaim::has_lock_or_note)
        {
            let mask: Param<'_> = (&(self.advisory_lock_mask as i64), Type::INT8);
            let s_lock_and_note: [Param<'_>; 2] =
                [(&s_lock, Type::INT8_ARRAY), (&s_note, Type::TEXT_ARRAY)];
            let c_lock_and_note: [Param<'_>; 2] =
                [(&c_lock, Type::INT8_ARRAY), (&c_note, Type::TEXT_ARRAY)];
            let all =
                [&[now, mask][..], &settles, &s_lock_and_note, &claims, &c_lock_and_note].concat();
            link.query_prepared((CALL_WITH_LOCKS, &all))
        } else {
            let statement = if link.is_ours() { &Statements::get().batch } else { CALL };
            link.query_prepared((statement, &[&[now][..], &settles, &claims].concat()))
        }
    }

    /// Answers the commands that took effect. The others stay in `rest`.
    pub(crate) fn conclude(
        &mut self,
        shared: &Shared,
        taken: &[(EffectRowKey, u64)],
        results: &mut BatchResults,
    ) {
        let taken: HashMap<EffectRowKey, u64> = taken.iter().copied().collect();
        for QuickSettle { mut queued, row_key, .. } in self.settles.drain(..) {
            if taken.contains_key(&row_key) {
                shared.running().remove(&row_key);
                queued.job.answer(Ok(Settled::Recorded));
                results.answer(Job::Settle(queued.job));
            } else {
                self.rest.push(queued.untyped());
            }
        }
        for QuickClaim { mut queued, row_key, grant } in self.claims.drain(..) {
            if let Some(entry) = taken.get(&row_key) {
                let (grant, Change { effect, .. }) = grant.under(Fence(*entry));
                shared.cache_running(row_key, EffectRow { entry: *entry, effect });
                queued.job.answer(Ok(Verdict::Granted(grant)));
                results.answer(Job::Claim(queued.job));
            } else {
                self.rest.push(queued.untyped());
            }
        }
    }

    pub(crate) fn into_all(self) -> Vec<QueuedJob> {
        let settles = self.settles.into_iter().map(|one| one.queued.untyped());
        let claims = self.claims.into_iter().map(|one| one.queued.untyped());
        settles.chain(claims).chain(self.rest).collect()
    }
}

/// The lease of a running effect, and its own deadline.
fn running(effect: &Effect) -> (Option<LeaseId>, Option<LeaseInstant>) {
    match effect.state {
        State::Running { lease, deadline } => (Some(lease), deadline),
        _ => (None, None),
    }
}
