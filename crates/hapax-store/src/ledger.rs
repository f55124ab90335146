//! Load, ask, write: how a command is carried out on any store.
//!
//! The order of locks is the order of loads: epoch, lease, lock, effect. Nothing is written before
//! everything has been judged.

use crate::command::{Answer, Command, ShareAnswer};
use crate::dataset;
use crate::delivery;
use crate::effect;
use crate::epoch;
use crate::error::StoreError;
use crate::journal;
use crate::lease;
use crate::ontology;
use crate::result_index;
use crate::route;
use crate::step;
use crate::token;
use crate::txn::Txn;

/// Carries out one command. After an error the caller undoes the command's writes.
pub fn apply(txn: &mut dyn Txn, command: &Command) -> Result<Answer, StoreError> {
    let count = |known: bool| Answer::Count(usize::from(known));
    match command {
        Command::OpenLease { id, term_ms, holder, forgetful } => {
            lease::open(txn, *id, *term_ms, holder, *forgetful).map(Answer::Lease)
        }
        Command::RenewLease { id, seen } => lease::renew(txn, *id, *seen).map(Answer::Lease),
        Command::CloseLease { id } => lease::close(txn, *id).map(Answer::Lease),
        Command::Claim { name, ask } => effect::claim_on_lease(txn, name, ask).map(Answer::Claim),
        Command::Settle { name, attempt, fence, report, telling } => {
            effect::settle(txn, name, (*attempt, *fence), report, telling).map(Answer::Settle)
        }
        Command::Reconcile { name, attempt, fence, looked, finding } => {
            effect::reconcile(txn, name, (*attempt, *fence), *looked, finding).map(Answer::Judged)
        }
        Command::Resolve { name, seen, resolution, actor, note } => {
            effect::resolve(txn, name, *seen, resolution, (actor, note)).map(Answer::Judged)
        }
        Command::RolledBack { name, attempt } => {
            effect::roll_back(txn, name, *attempt).map(Answer::Judged)
        }
        Command::Reset { name, seen, actor, note } => {
            effect::reset(txn, name, *seen, (actor, note)).map(Answer::Judged)
        }
        Command::RegisterStep { name, attempt, step, nth } => {
            step::register(txn, name, *attempt, step, *nth).map(Answer::Settle)
        }
        Command::Advance { namespace, domain, seen, to, actor, reason } => {
            epoch::advance(txn, namespace, domain, (*seen, *to), (actor, reason)).map(Answer::Epoch)
        }
        Command::Expire { limit } => effect::expire(txn, *limit).map(Answer::Count),
        Command::Sweep { limit } => effect::sweep(txn, *limit).map(Answer::Count),
        Command::Seal { from, leaves, tiles, note } => {
            journal::seal(txn, *from, leaves, tiles, note).map(Answer::Count)
        }
        Command::Admit(token) => token::admit(txn, token).map(|()| Answer::Count(1)),
        Command::Revoke { token } => txn.drop_token(*token).map(count),
        Command::Configure(routing) => {
            route::configure(txn, routing).map(|()| Answer::Count(routing.routes.len()))
        }
        Command::Register(registry) => {
            dataset::register(txn, registry).map(|()| Answer::Count(registry.datasets.len()))
        }
        Command::Declare { name, dataset } => {
            dataset::declare(txn, name, dataset.as_ref()).map(count)
        }
        Command::Keep { namespace, id, ontology, actor } => {
            ontology::keep(txn, namespace, id, ontology.as_ref(), actor)
                .map(|before| Answer::Kept { before })
        }
        Command::Attend(accesses) => {
            result_index::record_accesses(txn, accesses).map(|()| Answer::Count(accesses.len()))
        }
        Command::Evict { namespace, which, limit } => {
            result_index::evict(txn, namespace, which, *limit).map(Answer::Count)
        }
        Command::Pause { sink, paused } => txn.put_paused(sink, *paused).map(count),
        Command::Redrive(redrive) => delivery::redrive(txn, redrive).map(Answer::Count),
        Command::Share { lease, keep } => {
            let ShareAnswer { buckets, fair } = delivery::share(txn, *lease, keep)?;
            Ok(Answer::Share { buckets, fair })
        }
        Command::Retire { lease } => txn.drop_dispatcher(*lease).map(|()| Answer::Count(0)),
        Command::Dispatch { lease, landed, over, departing } => {
            delivery::dispatch(txn, *lease, landed, over, departing)
                .map(|()| Answer::Count(landed.len()))
        }
    }
}
