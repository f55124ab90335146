//! Writes without reading first: one statement for a whole batch. Each command takes effect only if
//! its row is in the state that it should be in.

use std::collections::HashMap;
use std::sync::LazyLock;

use hapax_core::attempt::Fence;
use hapax_core::effect::{self, Effect, Grant, Report, Settled, State, Verdict};
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::name::Name;
use hapax_core::outcome::Outcome;
use hapax_core::planted::{Bug, planted};
use hapax_core::time::{LeaseInstant, Now};
use hapax_store::command::{Claim, Settle};
use hapax_store::failpoint::{Point, pass};
use hapax_store::outbox::Attachments;
use hapax_store::{Job, Limits, Pending, Request};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::{Link, Param};
use crate::effect::{EffectRow, INLINE, Stored, bytes, safety};
use crate::error::PgFailure;
use crate::lane::Served;
use crate::queue::{QueuedJob, Subject};
use crate::store::Shared;

/// The statements for a batch without locks and journal notes, for one claim, and for one settle.
const QUICK: &str = include_str!("sql/quick.sql");
const CLAIM_ONE: &str = include_str!("sql/claim_one.sql");
const SETTLE_ONE: &str = include_str!("sql/settle_one.sql");

/// The first and the last as the harness plants them: without the check of the row's version.
static UNCONDITIONAL: LazyLock<[String; 2]> = LazyLock::new(|| {
    [
        QUICK.replace("AND e.entry = s.entry AND e.state = 0", ""),
        SETTLE_ONE.replace("AND e.entry = $4 AND e.state = 0", ""),
    ]
});

/// The first, as a function call, for a session that is not ours.
const CALL: &str =
    "SELECT * FROM hapax.quick($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
         $15, $16, $17)";

/// Commands that are written on the assumption of what their rows hold.
pub(crate) struct Quick {
    now: Now,
    /// The bits of a lock's key that its advisory lock has.
    hints: u64,
    claims: Vec<QuickOne<Claim, Grant>>,
    settles: Vec<QuickOne<Settle, Vec<u8>>>,
    /// Commands whose rows must be read.
    pub(crate) rest: Vec<QueuedJob>,
}

struct QuickOne<R: Request, T> {
    queued: QueuedJob<Pending<R>>,
    place: EffectRow,
    /// The row as it will be; for a settle, with the version that the stored row must still have.
    row: Stored,
    /// Its note in the journal.
    note: Option<String>,
    what: T,
}

impl<R: Request, T> QuickOne<R, T> {
    /// Whether it has a lock or a note in the journal.
    fn has_asides(&self) -> bool {
        self.note.is_some() || self.row.effect.lock.is_some()
    }

    fn lock(&self) -> Option<i64> {
        self.row.effect.lock.map(|lock| lock.0 as i64)
    }
}

impl Quick {
    /// Asks core for the answer to each command, assuming a new key or the running effect. Takes
    /// the commands whose answer is a write that the quick statement can make.
    pub(crate) fn of(
        shared: &Shared,
        link: Option<&Link>,
        batch: Vec<QueuedJob>,
    ) -> Result<Self, (Vec<QueuedJob>, PgFailure)> {
        let now = match link.ok_or_else(|| PgFailure::Lost("not connected".into())) {
            Ok(link) => shared.clock.reckon(link),
            Err(failure) => Err(failure),
        };
        let now = match now {
            Ok(now) => now,
            Err(failure) => return Err((batch, failure)),
        };
        let (hints, claims, settles, rest) = (shared.hints(), Vec::new(), Vec::new(), Vec::new());
        let mut quick = Self { now, hints, claims, settles, rest };
        for queued in batch {
            let known =
                |name: &Name| shared.namespaces.known(&name.namespace).map(|id| (id, name.key));
            let place = match Subject::of(&queued.job) {
                Subject::Effect(name) => known(&name),
                _ => None,
            };
            match place {
                Some(place) => quick.sort(shared, queued, place),
                None => quick.rest.push(queued),
            }
        }
        quick.claims.sort_unstable_by_key(|one| one.place);
        quick.settles.sort_unstable_by_key(|one| one.place);
        Ok(quick)
    }

    fn sort(&mut self, shared: &Shared, queued: QueuedJob, place: EffectRow) {
        let running = shared.running();
        let row = running.get(&place);
        let QueuedJob { job, wait } = queued;
        match job {
            Job::Claim(job) if row.is_none() => self.sort_claim(QueuedJob { job, wait }, place),
            Job::Settle(job) => self.sort_settle(QueuedJob { job, wait }, place, row),
            job => self.rest.push(QueuedJob { job, wait }),
        }
    }

    fn sort_claim(&mut self, queued: QueuedJob<Pending<Claim>>, place: EffectRow) {
        let ask = &queued.job.command.ask;
        if ask.bound.is_none()
            && ask.part.is_none()
            && fits(&ask.label, Limits::LABEL)
            && fits(&ask.about, Limits::NOTE)
            && let (Verdict::Granted(grant), Some(change)) =
                effect::claim(self.now, None, ask, Fence(0))
        {
            let (row, note) = (Stored { entry: 0, effect: change.effect }, ask.about.clone());
            self.claims.push(QuickOne { queued, place, row, note, what: grant });
        } else {
            self.rest.push(queued.untyped());
        }
    }

    fn sort_settle(
        &mut self,
        queued: QueuedJob<Pending<Settle>>,
        place: EffectRow,
        row: Option<&Stored>,
    ) {
        if let Settle {
            attempt,
            fence,
            report: report @ Report::Succeeded(outcome),
            attachments: Attachments { events, note, index_entry: None, part: None },
            ..
        } = &queued.job.command
            && events.is_empty()
            && fits(note, Limits::NOTE)
            && outcome.body().is_some_and(|body| body.len() <= INLINE)
            && let Some(row) = row.filter(|row| row.effect.bound.is_none())
            && let (Settled::Recorded, Some(change)) =
                effect::settle(self.now, Some(&row.effect), (*attempt, *fence), report, None)
        {
            let (digest, note) = (outcome.digest().as_bytes().to_vec(), note.clone());
            let row = Stored { entry: row.entry, effect: change.effect };
            self.settles.push(QuickOne { queued, place, row, note, what: digest });
        } else {
            self.rest.push(queued.untyped());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.settles.is_empty()
    }

    /// Sends all commands in one statement. Returns the entries of those that took effect.
    pub(crate) fn send(&self, link: &Link) -> Result<Vec<(EffectRow, u64)>, PgFailure> {
        pass(Point::QuickSend).map_err(PgFailure::lost)?;
        let taken = self.write(link);
        pass(Point::QuickSent).map_err(PgFailure::lost)?;
        match taken {
            Err(PgFailure::Lost(_)) if planted(Bug::LostCommitIsDone) => {
                let settles = self.settles.iter().map(|one| one.place);
                Ok(settles.chain(self.claims.iter().map(|one| one.place)).zip(1..).collect())
            }
            taken => taken,
        }
    }

    fn write(&self, link: &Link) -> Result<Vec<(EffectRow, u64)>, PgFailure> {
        let rows = match (self.settles.as_slice(), self.claims.as_slice()) {
            ([one], []) if link.is_ours() && !one.has_asides() => self.settle_one(link, one),
            ([], [one]) if link.is_ours() && !one.has_asides() => self.claim_one(link, one),
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

    fn settle_one(
        &self,
        link: &Link,
        one: &QuickOne<Settle, Vec<u8>>,
    ) -> Result<Vec<Row>, PgFailure> {
        let row = &one.row;
        let statement = match planted(Bug::QuickUnconditional) {
            true => &UNCONDITIONAL[1],
            false => SETTLE_ONE,
        };
        link.often((
            statement,
            &[
                (&self.now.wall.0, Type::INT8),
                (&one.place.0, Type::INT4),
                (&&one.place.1.as_bytes()[..], Type::BYTEA),
                (&(row.entry as i64), Type::INT8),
                (&body(row), Type::BYTEA),
                (&&one.what[..], Type::BYTEA),
                (&row.effect.expires().map(|at| at.0), Type::INT8),
            ],
        ))
    }

    fn claim_one(&self, link: &Link, one: &QuickOne<Claim, Grant>) -> Result<Vec<Row>, PgFailure> {
        let effect = &one.row.effect;
        let ((safety, settling), (lease, deadline)) = (safety(effect), running(effect));
        link.often((
            CLAIM_ONE,
            &[
                (&self.now.wall.0, Type::INT8),
                (&one.place.0, Type::INT4),
                (&&one.place.1.as_bytes()[..], Type::BYTEA),
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
        let s_namespace: Vec<i32> = self.settles.iter().map(|one| one.place.0).collect();
        let s_key: Vec<&[u8]> =
            self.settles.iter().map(|one| &one.place.1.as_bytes()[..]).collect();
        let s_entry: Vec<i64> = self.settles.iter().map(|one| one.row.entry as i64).collect();
        let s_outcome: Vec<Option<&[u8]>> = self.settles.iter().map(|one| body(&one.row)).collect();
        let s_digest: Vec<&[u8]> = self.settles.iter().map(|one| &one.what[..]).collect();
        let s_expires: Vec<Option<i64>> =
            self.settles.iter().map(|one| one.row.effect.expires().map(|at| at.0)).collect();
        let effects = || self.claims.iter().map(|one| &one.row.effect);
        let c_namespace: Vec<i32> = self.claims.iter().map(|one| one.place.0).collect();
        let c_key: Vec<&[u8]> = self.claims.iter().map(|one| &one.place.1.as_bytes()[..]).collect();
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
        let (s_lock, s_note) = asides(&self.settles);
        let (c_lock, c_note) = asides(&self.claims);
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
        if self.settles.iter().any(QuickOne::has_asides)
            || self.claims.iter().any(QuickOne::has_asides)
        {
            let hints: Param<'_> = (&(self.hints as i64), Type::INT8);
            let s_asides: [Param<'_>; 2] =
                [(&s_lock, Type::INT8_ARRAY), (&s_note, Type::TEXT_ARRAY)];
            let c_asides: [Param<'_>; 2] =
                [(&c_lock, Type::INT8_ARRAY), (&c_note, Type::TEXT_ARRAY)];
            let all = [&[now, hints][..], &settles, &s_asides, &claims, &c_asides].concat();
            link.often((
                "SELECT * FROM hapax.quick_with_locks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
                     $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)",
                &all,
            ))
        } else {
            let statement = match planted(Bug::QuickUnconditional) {
                _ if !link.is_ours() => CALL,
                true => &UNCONDITIONAL[0],
                false => QUICK,
            };
            link.often((statement, &[&[now][..], &settles, &claims].concat()))
        }
    }

    /// Answers the commands that took effect; the others are left for a closer look.
    pub(crate) fn conclude(
        &mut self,
        shared: &Shared,
        taken: &[(EffectRow, u64)],
        served: &mut Served,
    ) {
        let taken: HashMap<EffectRow, u64> = taken.iter().copied().collect();
        for mut one in self.settles.drain(..) {
            match taken.get(&one.place) {
                Some(_) => {
                    shared.running().remove(&one.place);
                    one.queued.job.answer(Ok(Settled::Recorded));
                    served.answer(Job::Settle(one.queued.job));
                }
                None => self.rest.push(one.queued.untyped()),
            }
        }
        for mut one in self.claims.drain(..) {
            match taken.get(&one.place) {
                Some(entry) => {
                    let (fence, mut effect) = (Fence(*entry), one.row.effect);
                    effect.fence = fence;
                    shared.remember(one.place, Stored { entry: *entry, effect });
                    one.queued.job.answer(Ok(Verdict::Granted(Grant { fence, ..one.what })));
                    served.answer(Job::Claim(one.queued.job));
                }
                None => self.rest.push(one.queued.untyped()),
            }
        }
    }

    pub(crate) fn into_all(self) -> Vec<QueuedJob> {
        let settles = self.settles.into_iter().map(|one| one.queued.untyped());
        let claims = self.claims.into_iter().map(|one| one.queued.untyped());
        settles.chain(claims).chain(self.rest).collect()
    }
}

/// The locks and the journal notes.
fn asides<R: Request, T>(ones: &[QuickOne<R, T>]) -> (Vec<Option<i64>>, Vec<Option<&str>>) {
    ones.iter().map(|one| (one.lock(), one.note.as_deref())).unzip()
}

fn fits(text: &Option<String>, most: usize) -> bool {
    text.as_ref().is_none_or(|text| text.len() <= most)
}

/// The outcome's body, which is in the row.
fn body(row: &Stored) -> Option<&[u8]> {
    match &row.effect.state {
        State::Succeeded(outcome) => Outcome::body(outcome),
        _ => None,
    }
}

/// The lease of a running effect, and its own deadline.
fn running(effect: &Effect) -> (Option<LeaseId>, Option<LeaseInstant>) {
    match effect.state {
        State::Running { lease, deadline } => (Some(lease), deadline),
        _ => (None, None),
    }
}
