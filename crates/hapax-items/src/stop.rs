//! The end of a run. Code that sees it can only pass it on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax::Key;
use hapax::document::print;
use hapax::json::Json;
use tokio::sync::Notify;

use crate::class::Class;
use crate::note::StoppedMutation;

/// The run is over. Every later request to it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped(pub(crate) ());

/// Why a run is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StopReason {
    pub(crate) class: Class,
    pub(crate) message: String,
    pub(crate) stack: Option<String>,
    pub(crate) follow_up: FollowUp,
    /// The item of a late call, whose handler had ended before: the failure is not that of the open
    /// item.
    pub(crate) late: Option<String>,
    /// The mutation that the run stopped at, and the payload of the request.
    pub(crate) mutation: Option<StoppedMutation>,
}

/// The next step after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowUp {
    /// Its class decides.
    ByClass,
    /// It is escalated, whatever its class.
    Escalate,
    /// The mutation is looked up; until then nothing can be done.
    Reconcile,
    /// It is escalated already.
    Wait,
}

impl StopReason {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        let message = message.into();
        let message = message.chars().take(MESSAGE).collect();
        Self {
            class,
            message,
            stack: None,
            follow_up: FollowUp::ByClass,
            late: None,
            mutation: None,
        }
    }

    pub(crate) fn logic(message: impl Into<String>) -> Self {
        Self::new(Class::Logic, message)
    }

    /// Marks a call for an item whose handler had ended.
    pub(crate) fn late(self, item: &str) -> Self {
        Self { late: Some(item.to_owned()), ..self }
    }

    /// Names the mutation that the run stopped at, and the payload of the request.
    pub(crate) fn at_mutation(self, key: Key, payload: &Json) -> Self {
        Self { mutation: Some(StoppedMutation { key, payload: brief(payload) }), ..self }
    }

    pub(crate) fn follow_up(self, follow_up: FollowUp) -> Self {
        Self { follow_up, ..self }
    }
}

/// A payload for people to read; its beginning, if it is long.
pub(crate) fn brief(payload: &Json) -> String {
    let mut text = print(payload);
    if let Some((end, _)) = text.char_indices().nth(MESSAGE) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// How much of a message is kept, in characters.
const MESSAGE: usize = 2_000;

/// Keeps the first reason why the run is over; all later ones follow from it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Brake(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    why: Mutex<Option<StopReason>>,
    /// Whether an item is open, whose end has to be recorded first.
    open: AtomicBool,
    changed: Notify,
}

impl Brake {
    fn lock(&self) -> MutexGuard<'_, Option<StopReason>> {
        self.0.why.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run.
    pub(crate) fn pull(&self, why: StopReason) -> Stopped {
        self.lock().get_or_insert(why);
        self.0.changed.notify_waiters();
        Stopped(())
    }

    /// Closes a run that has come to its end, unless it failed before.
    pub(crate) fn close(&self) -> Result<(), Stopped> {
        let mut why = self.lock();
        match *why {
            Some(_) => Err(Stopped(())),
            None => {
                *why = Some(StopReason::logic("the run is over"));
                Ok(())
            }
        }
    }

    /// Whether the run may go on.
    pub(crate) fn check(&self) -> Result<(), Stopped> {
        match *self.lock() {
            None => Ok(()),
            Some(_) => Err(Stopped(())),
        }
    }

    /// Why the run is over, if it is.
    pub(crate) fn why(&self) -> Option<StopReason> {
        self.lock().clone()
    }

    /// Marks an item as open, until the returned guard is dropped.
    pub(crate) fn open(&self) -> Open<'_> {
        self.0.open.store(true, Ordering::Release);
        Open(self)
    }

    /// Waits until the run may not go on.
    pub(crate) async fn pulled(&self) {
        self.until(|| self.check().is_err()).await;
    }

    /// Waits until the run is over, and with it the item that was open.
    pub(crate) async fn over(&self) {
        self.until(|| self.check().is_err() && !self.0.open.load(Ordering::Acquire)).await;
    }

    async fn until(&self, reached: impl Fn() -> bool) {
        loop {
            let changed = self.0.changed.notified();
            if reached() {
                return;
            }
            changed.await;
        }
    }
}

/// An item that is open.
pub(crate) struct Open<'a>(&'a Brake);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.0.open.store(false, Ordering::Release);
        self.0.0.changed.notify_waiters();
    }
}
