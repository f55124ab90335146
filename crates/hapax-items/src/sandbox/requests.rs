//! The script's unanswered requests, and how much it may still use.
//!
//! The functions that a script calls write here; the driver reads. Nothing here calls the host.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::{Ctx, Error, Function, Persistent, Runtime, String as JsString, Value};

use super::scene::Scene;
use super::{Limit, Limits, Tools};

/// Given back to the engine when the run has to end, so that there is memory for the error that
/// ends it. Without it the engine would throw an error that a script can catch.
const RESERVE_BYTES: usize = 64 << 10;

/// A function of the engine that outlives one entry into its context.
pub(super) type KeptFunction = Persistent<Function<'static>>;

/// A request to the host.
pub(super) enum Request {
    /// A line for the log.
    Log(String),
    /// A call of an operation, by its indexes into the tools.
    Call { tool: usize, operation: usize, arguments: String, resolve: KeptFunction },
}

/// A `withItem` that has not begun.
pub(super) struct QueuedItem {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) handler: KeptFunction,
    pub(super) resolve: KeptFunction,
}

/// Why the run has to end, whatever the script does.
#[derive(Debug, Clone)]
pub(super) enum Fatal {
    /// It has used too much.
    Limit(Limit),
    /// It has called a function with invalid arguments.
    Misuse(String),
}

/// Requests, items and limits of one run.
pub(super) struct PendingRequests {
    pub(super) limits: Limits,
    pub(super) tools: Tools,
    pub(super) scene: Scene,
    requests: RefCell<VecDeque<Request>>,
    items: RefCell<VecDeque<QueuedItem>>,
    /// Rejected promises that have no handler yet, with their reasons.
    rejected: RefCell<Vec<(Persistent<Value<'static>>, Persistent<Value<'static>>)>>,
    /// Checks each value on its way into JSON.
    replacer: RefCell<Option<KeptFunction>>,
    /// The prototype of object literals.
    plain: RefCell<Option<Persistent<Value<'static>>>>,
    reserve: Cell<Option<Persistent<JsString<'static>>>>,
    fatal: RefCell<Option<Fatal>>,
    calls: Cell<u64>,
    waiting_bytes: Cell<usize>,
    /// How long the script has run, and since when it runs now.
    spent: Cell<Duration>,
    since: Cell<Instant>,
}

impl PendingRequests {
    /// No requests yet. The script's time runs from now on.
    pub(super) fn new(limits: Limits, tools: Tools, started_ms: i64) -> Self {
        Self {
            limits,
            tools,
            scene: Scene::new(started_ms),
            requests: RefCell::default(),
            items: RefCell::default(),
            rejected: RefCell::default(),
            replacer: RefCell::default(),
            plain: RefCell::default(),
            reserve: Cell::default(),
            fatal: RefCell::default(),
            calls: Cell::new(0),
            waiting_bytes: Cell::new(0),
            spent: Cell::default(),
            since: Cell::new(Instant::now()),
        }
    }

    /// Lets the engine check whether the run is over, and report rejected promises.
    pub(super) fn watch(self: &Rc<Self>, runtime: &Runtime) {
        let pending = Rc::clone(self);
        runtime.set_interrupt_handler(Some(Box::new(move || {
            let is_over = pending.is_over();
            if is_over {
                drop(pending.reserve.take());
            }
            is_over
        })));
        let pending = Rc::clone(self);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            move |ctx, promise, reason, is_handled| {
                let promise = Persistent::save(&ctx, promise);
                let mut rejected = pending.rejected.borrow_mut();
                if is_handled {
                    // Searched from the end: the latest rejection is the likeliest.
                    if let Some(at) = rejected.iter().rposition(|(known, _)| *known == promise) {
                        rejected.remove(at);
                    }
                } else {
                    rejected.push((promise, Persistent::save(&ctx, reason)));
                }
            },
        )));
    }

    /// Keeps the values of the engine that later calls need.
    pub(super) fn equip<'js>(
        &self,
        ctx: &Ctx<'js>,
        replacer: Function<'js>,
    ) -> rquickjs::Result<()> {
        let reserve = JsString::from_str(ctx.clone(), &"-".repeat(RESERVE_BYTES))?;
        self.reserve.set(Some(Persistent::save(ctx, reserve)));
        self.replacer.replace(Some(Persistent::save(ctx, replacer)));
        let plain = rquickjs::Object::new(ctx.clone())?.get_prototype().ok_or(Error::Unknown)?;
        self.plain.replace(Some(Persistent::save(ctx, plain.into_value())));
        Ok(())
    }

    /// The function that refuses values that JSON would leave out.
    pub(super) fn replacer<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Function<'js>> {
        self.replacer.borrow().clone().ok_or(Error::Unknown)?.restore(ctx)
    }

    /// Whether an object is a plain object, as a literal makes it.
    pub(super) fn is_plain<'js>(&self, ctx: &Ctx<'js>, object: &rquickjs::Object<'js>) -> bool {
        let plain = self.plain.borrow().clone().and_then(|plain| plain.restore(ctx).ok());
        plain.is_some_and(|plain| object.get_prototype().is_some_and(|of| *of.as_value() == plain))
    }

    /// Whether the script has to end. Looks at the clock.
    pub(super) fn is_over(&self) -> bool {
        if self.fatal.borrow().is_some() {
            return true;
        }
        let is_late = self.spent.get() + self.since.get().elapsed() > self.limits.cpu;
        if is_late {
            self.condemn(Fatal::Limit(Limit::Time));
        }
        is_late
    }

    /// Ends the run. The first reason counts.
    pub(super) fn condemn(&self, fatal: Fatal) {
        self.fatal.borrow_mut().get_or_insert(fatal);
    }

    /// Why the run has to end, if it has to.
    pub(super) fn fatal(&self) -> Option<Fatal> {
        self.fatal.borrow().clone()
    }

    /// The time of the script stands still from now on.
    pub(super) fn pause(&self) {
        self.spent.set(self.spent.get() + self.since.get().elapsed());
    }

    /// The time of the script runs from now on.
    pub(super) fn resume(&self) {
        self.since.set(Instant::now());
    }

    /// Counts a request to the host, and refuses it beyond the limits.
    pub(super) fn admit(&self, bytes: usize) -> Result<(), Fatal> {
        if let Some(fatal) = self.fatal() {
            return Err(fatal);
        }
        let calls = self.calls.get() + 1;
        let waiting = self.waiting_bytes.get().saturating_add(bytes);
        let limit = if calls > self.limits.calls {
            Limit::Calls
        } else if bytes > self.limits.message_bytes {
            Limit::Message
        } else if waiting > self.limits.memory_bytes {
            Limit::Memory
        } else {
            self.calls.set(calls);
            self.waiting_bytes.set(waiting);
            return Ok(());
        };
        Err(Fatal::Limit(limit))
    }

    /// Takes a request, which has been admitted.
    pub(super) fn push(&self, request: Request) {
        self.requests.borrow_mut().push_back(request);
    }

    /// The oldest request.
    pub(super) fn next_request(&self) -> Option<Request> {
        let request = self.requests.borrow_mut().pop_front()?;
        let (Request::Log(text) | Request::Call { arguments: text, .. }) = &request;
        self.waiting_bytes.set(self.waiting_bytes.get().saturating_sub(text.len()));
        Some(request)
    }

    /// Takes an item, which has been admitted.
    pub(super) fn queue(&self, item: QueuedItem) {
        self.items.borrow_mut().push_back(item);
    }

    /// The oldest item.
    pub(super) fn next_item(&self) -> Option<QueuedItem> {
        let item = self.items.borrow_mut().pop_front()?;
        let bytes = item.id.len() + item.title.len();
        self.waiting_bytes.set(self.waiting_bytes.get().saturating_sub(bytes));
        Some(item)
    }

    /// Whether an item waits for its turn.
    pub(super) fn has_items(&self) -> bool {
        !self.items.borrow().is_empty()
    }

    /// The reason of the first rejection without a handler.
    pub(super) fn unhandled<'js>(&self, ctx: &Ctx<'js>) -> Option<Value<'js>> {
        let reason = self.rejected.borrow().first()?.1.clone();
        reason.restore(ctx).ok()
    }
}

/// Releases all values of the engine when it is dropped.
pub(super) struct Values(pub(super) Rc<PendingRequests>);

impl Drop for Values {
    fn drop(&mut self) {
        // Taken out first: freeing a value may call back into these requests.
        let requests = self.0.requests.take();
        let items = self.0.items.take();
        let rejected = self.0.rejected.take();
        let (replacer, plain) = (self.0.replacer.take(), self.0.plain.take());
        drop((requests, items, rejected, replacer, plain, self.0.reserve.take()));
    }
}
