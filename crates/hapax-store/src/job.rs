//! A command on its way through a store, tied to its answer and to the caller that waits for it.
//!
//! ```text
//!  Job::of ──▶ ledger::apply leaves an answer ──▶ commit ──▶ reply
//! ```
//!
//! A store that undoes a transaction carries its commands out again; the newest answer counts.

use std::fmt::Debug;

use hapax_core::effect::{Judged, Settled, Verdict};
use hapax_core::epoch::Transition;
use tokio::sync::oneshot;

use crate::command::{
    AdmitToken, Advance, Claim, CloseLease, Configure, Declare, Dispatch, Evict, Expire,
    LeaseAnswer, OpenLease, Pause, PutOntology, Reconcile, RecordAccesses, Redrive, Register,
    RegisterStep, RenewLease, Reset, Resolve, Retire, Revoke, RolledBack, Seal, Settle, Share,
    ShareAnswer, Sweep,
};
use crate::error::StoreError;

/// A command, typed by its answer.
pub trait Request: Clone + Debug + Send + 'static {
    /// The answer, unless the command fails.
    type Answer: Debug + Send + 'static;

    /// The job of this command.
    fn job(pending: Pending<Self>) -> Job;
}

macro_rules! jobs {
    ($($kind:ident => $answer:ty,)+) => {
        /// One command of any kind. Commands share transactions but not fates.
        #[derive(Debug)]
        pub enum Job {
            $(#[doc = concat!("[`", stringify!($kind), "`].")] $kind(Pending<$kind>),)+
        }

        $(impl Request for $kind {
            type Answer = $answer;

            fn job(pending: Pending<Self>) -> Job {
                Job::$kind(pending)
            }
        })+

        impl Job {
            /// Whether the caller has no reply yet.
            pub fn waits(&self) -> bool {
                match self { $(Self::$kind(job) => job.reply.is_some(),)+ }
            }

            /// Sends the answer, once. Returns whether it was sent now.
            pub fn reply(&mut self) -> bool {
                match self { $(Self::$kind(job) => job.reply(),)+ }
            }

            /// Leaves an error in place of an answer.
            pub fn fail(&mut self, error: StoreError) {
                match self { $(Self::$kind(job) => job.answer(Err(error)),)+ }
            }

            /// The error that is left in place of an answer.
            pub fn error(&self) -> Option<&StoreError> {
                match self { $(Self::$kind(job) => job.answered()?.as_ref().err(),)+ }
            }
        }
    };
}

jobs! {
    OpenLease => LeaseAnswer,
    RenewLease => LeaseAnswer,
    CloseLease => (),
    Claim => Verdict,
    Settle => Settled,
    Reconcile => Judged,
    Resolve => Judged,
    RegisterStep => Settled,
    RolledBack => Judged,
    Reset => Judged,
    Advance => Transition,
    Expire => usize,
    Sweep => usize,
    Seal => usize,
    AdmitToken => (),
    Revoke => bool,
    Configure => (),
    Register => (),
    Declare => bool,
    PutOntology => Option<String>,
    RecordAccesses => (),
    Evict => usize,
    Pause => bool,
    Redrive => usize,
    Share => ShareAnswer,
    Retire => (),
    Dispatch => (),
}

type Reply<R> = Result<<R as Request>::Answer, StoreError>;

/// A command that a caller waits for, its answer, and the channel to that caller.
#[derive(Debug)]
pub struct Pending<R: Request> {
    /// The command. It is carried out even if the caller no longer listens.
    pub command: R,
    answer: Option<Reply<R>>,
    reply: Option<oneshot::Sender<Reply<R>>>,
}

impl Job {
    /// The job of a command, and the channel for its answer.
    pub fn of<R: Request>(command: R) -> (Self, oneshot::Receiver<Reply<R>>) {
        let (reply, answer) = oneshot::channel();
        (R::job(Pending { command, answer: None, reply: Some(reply) }), answer)
    }
}

impl<R: Request> Pending<R> {
    /// Leaves an answer, in place of an earlier one.
    pub fn answer(&mut self, answer: Reply<R>) {
        self.answer = Some(answer);
    }

    /// The answer that a store has left.
    pub fn answered(&self) -> Option<&Reply<R>> {
        self.answer.as_ref()
    }

    fn reply(&mut self) -> bool {
        match (self.answer.take(), self.reply.take()) {
            (Some(answer), Some(reply)) => {
                let _ = reply.send(answer);
                true
            }
            (_, reply) => {
                self.reply = reply;
                false
            }
        }
    }
}
