//! Load, ask, write: how a command is carried out on any store.
//!
//! The order of locks is the order of loads: epoch, lease, lock, effect. Nothing is written before
//! everything has been judged.

use crate::command::Claim;
use crate::dataset;
use crate::delivery;
use crate::effect::{self, DependsOn};
use crate::epoch;
use crate::error::StoreError;
use crate::job::Job;
use crate::journal;
use crate::lease;
use crate::ontology;
use crate::result_index;
use crate::route;
use crate::step;
use crate::token;
use crate::txn::Txn;

/// Carries out one command and leaves its answer in the job. After an error the caller undoes the
/// command's writes.
pub fn apply<'a>(txn: &mut dyn Txn, job: &'a mut Job) -> Result<(), &'a StoreError> {
    match job {
        Job::OpenLease(job) => job.answer(lease::open(txn, &job.command)),
        Job::RenewLease(job) => job.answer(lease::renew(txn, &job.command)),
        Job::CloseLease(job) => job.answer(txn.drop_lease(job.command.id)),
        Job::Claim(job) => {
            let Claim { name, ask } = &job.command;
            job.answer(effect::claim(txn, name, ask, DependsOn::Lease));
        }
        Job::Settle(job) => job.answer(effect::settle(txn, &job.command)),
        Job::Reconcile(job) => job.answer(effect::reconcile(txn, &job.command)),
        Job::Resolve(job) => job.answer(effect::resolve(txn, &job.command)),
        Job::RolledBack(job) => job.answer(effect::roll_back(txn, &job.command)),
        Job::Reset(job) => job.answer(effect::reset(txn, &job.command)),
        Job::RegisterStep(job) => job.answer(step::register(txn, &job.command)),
        Job::Advance(job) => job.answer(epoch::advance(txn, &job.command)),
        Job::Expire(job) => job.answer(effect::expire(txn, job.command.limit)),
        Job::Sweep(job) => job.answer(effect::sweep(txn, job.command.limit)),
        Job::Seal(job) => job.answer(journal::seal(txn, &job.command)),
        Job::AdmitToken(job) => job.answer(token::admit(txn, &job.command.0)),
        Job::Revoke(job) => job.answer(txn.drop_token(job.command.token)),
        Job::Configure(job) => job.answer(route::configure(txn, &job.command.0)),
        Job::Register(job) => job.answer(dataset::register(txn, &job.command.0)),
        Job::Declare(job) => job.answer(dataset::declare(txn, &job.command)),
        Job::PutOntology(job) => job.answer(ontology::put(txn, &job.command)),
        Job::RecordAccesses(job) => job.answer(result_index::record_accesses(txn, &job.command.0)),
        Job::Evict(job) => job.answer(result_index::evict(txn, &job.command)),
        Job::Pause(job) => job.answer(txn.put_paused(&job.command.sink, job.command.paused)),
        Job::Redrive(job) => job.answer(delivery::redrive(txn, &job.command)),
        Job::Share(job) => job.answer(delivery::share(txn, &job.command)),
        Job::Retire(job) => job.answer(txn.drop_dispatcher(job.command.lease)),
        Job::Dispatch(job) => job.answer(delivery::dispatch(txn, &job.command)),
    }
    job.error().map_or(Ok(()), Err)
}
