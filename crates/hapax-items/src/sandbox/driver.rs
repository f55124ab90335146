//! Takes a script from one request to the next, and from the first line to the last.
//!
//!   the answer to the last request, then jobs, until there is a request or nothing to do
//!      │
//!      ├─ a request ─────────────────────────────▶ ask the host
//!      ├─ an item is open, its handler is over ──▶ end it
//!      ├─ an item is open, its handler waits ────▶ stuck
//!      ├─ an item is queued ─────────────────────▶ begin it
//!      └─ nothing is pending ────────────────────▶ completed, or stuck
//!
//! The driver never waits: one request is open at a time, and no code of the script runs before it
//! is answered. So an empty queue means that nothing will happen any more.

use std::rc::Rc;

use rquickjs::object::Property;
use rquickjs::promise::PromiseState;
use rquickjs::{Ctx, Function, Module, Object, Persistent, Promise, Value};

use super::requests::{Fatal, KeptFunction, PendingRequests, QueuedItem, Request};
use super::scene::Moment;
use super::{Answer, ItemStart, Limit, RunEnd, ScriptRequest, thrown, world};

/// By this factor JSON may lengthen an answer: each of its bytes may have to be escaped.
const ESCAPED: usize = 6;

/// A script while it runs.
pub(super) struct Driver<'js> {
    ctx: Ctx<'js>,
    requests: Rc<PendingRequests>,
    freeze: Function<'js>,
    /// The script itself.
    main: Promise<'js>,
    open: Option<Open<'js>>,
    request: HostRequest,
}

/// A script while the host works.
pub(super) struct Paused {
    freeze: KeptFunction,
    main: Persistent<Promise<'static>>,
    open: Option<PausedOpen>,
    request: HostRequest,
}

/// The last request to the host.
enum HostRequest {
    /// No request, or one whose answer has no value.
    Nothing,
    /// To call an operation of a tool; `resolve` settles the promise that the script got.
    Call { tool: usize, operation: usize, resolve: KeptFunction },
    /// To begin this item.
    Begin(QueuedItem),
    /// To end the item that is open.
    End,
}

/// The item that is open.
struct Open<'js> {
    /// The handler's result, now or later.
    handler: Promise<'js>,
    /// Settles the promise that `withItem` gave.
    resolve: Function<'js>,
    /// The handler's result as JSON, once it is known.
    result: Option<String>,
}

struct PausedOpen {
    handler: Persistent<Promise<'static>>,
    resolve: KeptFunction,
    result: Option<String>,
}

impl Paused {
    /// Goes on with a script, in its own engine.
    pub(super) fn resume<'js>(
        self,
        ctx: &Ctx<'js>,
        requests: &Rc<PendingRequests>,
    ) -> rquickjs::Result<Driver<'js>> {
        let open = match self.open {
            Some(open) => Some(Open {
                handler: open.handler.restore(ctx)?,
                resolve: open.resolve.restore(ctx)?,
                result: open.result,
            }),
            None => None,
        };
        Ok(Driver {
            ctx: ctx.clone(),
            requests: Rc::clone(requests),
            freeze: self.freeze.restore(ctx)?,
            main: self.main.restore(ctx)?,
            open,
            request: self.request,
        })
    }
}

impl<'js> Driver<'js> {
    /// Runs the script up to its first `await`. Fails if there is no memory for that.
    pub(super) fn start(
        ctx: &Ctx<'js>,
        requests: &Rc<PendingRequests>,
        freeze: Function<'js>,
        module: Module<'js>,
    ) -> rquickjs::Result<Self> {
        let main = match module.eval() {
            Ok((_, main)) => main,
            Err(_) => rejected(ctx, ctx.catch())?,
        };
        let (ctx, requests) = (ctx.clone(), Rc::clone(requests));
        Ok(Self { ctx, requests, freeze, main, open: None, request: HostRequest::Nothing })
    }

    /// Saves the script while the host works.
    pub(super) fn pause(self) -> Paused {
        let ctx = &self.ctx;
        let open = self.open.map(|open| PausedOpen {
            handler: Persistent::save(ctx, open.handler),
            resolve: Persistent::save(ctx, open.resolve),
            result: open.result,
        });
        let freeze = Persistent::save(ctx, self.freeze);
        Paused { freeze, main: Persistent::save(ctx, self.main), open, request: self.request }
    }

    /// Takes the answer to the last request, and goes on until there is another request.
    pub(super) fn next(&mut self, answer: Answer) -> Result<ScriptRequest, RunEnd> {
        match (std::mem::replace(&mut self.request, HostRequest::Nothing), answer) {
            (HostRequest::Call { tool, operation, resolve }, Answer::Json(answer)) => {
                self.answer((tool, operation), &answer, resolve)?;
            }
            (HostRequest::Begin(item), Answer::ItemStart(begun)) => self.begin(&item, begun)?,
            (HostRequest::End, Answer::Nothing) => self.end()?,
            (HostRequest::Nothing, _) => {}
            // A host whose answer does not fit the request has ended the run.
            _ => return Err(RunEnd::Stopped),
        }
        loop {
            if let Some(request) = self.settle()? {
                return Ok(self.forward(request));
            }
            match &self.open {
                Some(Open { result: Some(result), .. }) => {
                    if result.len() > self.requests.limits.message_bytes {
                        return Err(self.limit(Limit::Message));
                    }
                    self.request = HostRequest::End;
                    return Ok(ScriptRequest::End { result: result.clone() });
                }
                Some(open) if open.handler.state() == PromiseState::Pending => {
                    return Err(self.stuck(self.requests.has_items()));
                }
                // Converting the result may run the script again; that still belongs to the item.
                Some(open) => {
                    let result = self.result(&open.handler)?;
                    self.open.iter_mut().for_each(|open| open.result = Some(result.clone()));
                }
                None => match self.requests.next_item() {
                    Some(item) => {
                        let (id, title) = (item.id.clone(), item.title.clone());
                        self.request = HostRequest::Begin(item);
                        return Ok(ScriptRequest::Begin { id, title });
                    }
                    None if self.main.state() == PromiseState::Pending => {
                        return Err(self.stuck(false));
                    }
                    None => return Err(RunEnd::Completed),
                },
            }
        }
    }

    /// Passes a request on to the host, and keeps the function that takes its answer.
    fn forward(&mut self, request: Request) -> ScriptRequest {
        match request {
            Request::Log(line) => ScriptRequest::Log(line),
            Request::Call { tool, operation, arguments, resolve } => {
                self.request = HostRequest::Call { tool, operation, resolve };
                ScriptRequest::Call { tool, operation, arguments }
            }
        }
    }

    /// Runs the script until it has a request, or nothing to do.
    fn settle(&mut self) -> Result<Option<Request>, RunEnd> {
        loop {
            if let Some(request) = self.requests.next_request() {
                return Ok(Some(request));
            }
            self.look()?;
            if !self.ctx.execute_pending_job() {
                break;
            }
        }
        match self.requests.unhandled(&self.ctx) {
            Some(reason) => Err(self.threw(&reason)),
            None => Ok(None),
        }
    }

    fn answer(
        &self,
        (tool, operation): (usize, usize),
        answer: &str,
        resolve: KeptFunction,
    ) -> Result<(), RunEnd> {
        if answer.len() > self.requests.limits.message_bytes.saturating_mul(ESCAPED) {
            return Err(self.limit(Limit::Message));
        }
        if self.requests.fatal().is_some() {
            return Ok(());
        }
        let Ok(value) = self.ctx.json_parse(answer) else {
            let ended = self.threw(&self.ctx.catch());
            return Err(match ended {
                RunEnd::Threw { stack, in_item, .. } => {
                    let (tool, operation) = self.requests.tools.name(tool, operation);
                    let message =
                        format!("{tool}.{operation} answered with something else than JSON");
                    RunEnd::Threw { message, stack, in_item }
                }
                limit => limit,
            });
        };
        let resolve = resolve.restore(&self.ctx).map_err(|_| self.limit(Limit::Memory))?;
        self.resolve(&resolve, value)
    }

    /// Fails if the run has to end.
    fn look(&self) -> Result<(), RunEnd> {
        if let Some(fatal) = self.requests.fatal() {
            return Err(self.condemned(fatal));
        }
        let failed = match &self.open {
            Some(open) if open.handler.state() == PromiseState::Rejected => &open.handler,
            _ if self.main.state() == PromiseState::Rejected => &self.main,
            _ => return Ok(()),
        };
        match failed.result::<Value>() {
            Some(Ok(_)) | None => Ok(()),
            Some(Err(_)) => Err(self.threw(&self.ctx.catch())),
        }
    }

    fn begin(&mut self, item: &QueuedItem, begun: ItemStart) -> Result<(), RunEnd> {
        self.requests.scene.enter(&Moment { now_ms: begun.now_ms, seed: begun.seed });
        let opened = self.open(item, begun);
        self.open = Some(opened.map_err(|_| thrown::ended(&self.ctx, &self.ctx.catch(), true))?);
        Ok(())
    }

    /// Calls the handler. An exception that it throws at once is a rejection like any other.
    fn open(&self, item: &QueuedItem, begun: ItemStart) -> rquickjs::Result<Open<'js>> {
        let ctx = &self.ctx;
        let resolve = item.resolve.clone().restore(ctx)?;
        let context = self.context(item, begun)?;
        let answer: rquickjs::Result<Value> = item.handler.clone().restore(ctx)?.call((context,));
        let handler = match answer {
            // The driver watches this very promise, so no code of the script can react first.
            Ok(value) => match value.clone().into_promise() {
                Some(promise) => promise,
                None => {
                    let (promise, settle, _) = ctx.promise()?;
                    settle.call::<_, ()>((value,))?;
                    promise
                }
            },
            Err(_) => rejected(ctx, ctx.catch())?,
        };
        Ok(Open { handler, resolve, result: None })
    }

    fn context(&self, item: &QueuedItem, begun: ItemStart) -> rquickjs::Result<Object<'js>> {
        // Defined, not set: a script may have put setters on the prototype.
        let about = Object::new(self.ctx.clone())?;
        about.prop("id", Property::from(item.id.as_str()).enumerable())?;
        about.prop("title", Property::from(item.title.as_str()).enumerable())?;
        about.prop("isDone", Property::from(begun.is_done).enumerable())?;
        about.prop("attempt", Property::from(begun.attempt).enumerable())?;
        self.freeze.call::<_, Value>((about.clone(),))?;
        let context = Object::new(self.ctx.clone())?;
        context.prop("item", Property::from(about).enumerable())?;
        self.freeze.call::<_, Value>((context.clone(),))?;
        Ok(context)
    }

    /// The host has ended the item that is open.
    fn end(&mut self) -> Result<(), RunEnd> {
        self.requests.scene.leave();
        let Some(Open { resolve, result: Some(result), .. }) = self.open.take() else {
            return Ok(());
        };
        let value = self.ctx.json_parse(result).map_err(|_| self.threw(&self.ctx.catch()))?;
        self.resolve(&resolve, value)
    }

    /// The handler's result, as JSON.
    fn result(&self, handler: &Promise<'js>) -> Result<String, RunEnd> {
        match handler.result::<Value>() {
            Some(Ok(value)) if !value.is_undefined() => {
                world::json(&self.ctx, &self.requests, value)
                    .map_err(|_| self.threw(&self.ctx.catch()))
            }
            _ => Ok("null".to_owned()),
        }
    }

    /// Settles a promise of the script's. That may run the script: objects can have a `then`.
    fn resolve(&self, resolve: &Function<'js>, value: Value<'js>) -> Result<(), RunEnd> {
        resolve.call::<_, ()>((value,)).map_err(|_| self.threw(&self.ctx.catch()))
    }

    /// The end for a thrown value, unless another end was decided before.
    fn threw(&self, value: &Value<'js>) -> RunEnd {
        let ended = thrown::ended(&self.ctx, value, self.open.is_some());
        match self.requests.fatal() {
            Some(fatal) => self.condemned(fatal),
            None => ended,
        }
    }

    fn condemned(&self, fatal: Fatal) -> RunEnd {
        match fatal {
            Fatal::Limit(which) => self.limit(which),
            Fatal::Misuse(what) => RunEnd::Threw {
                message: format!("TypeError: {what}"),
                stack: String::new(),
                in_item: self.open.is_some(),
            },
        }
    }

    fn limit(&self, which: Limit) -> RunEnd {
        RunEnd::Limit { which, in_item: self.open.is_some() }
    }

    /// A job that found no memory is lost, and the code that waits for it waits for ever.
    fn stuck(&self, nested: bool) -> RunEnd {
        if self.ctx.has_exception() {
            let lost = self.threw(&self.ctx.catch());
            if matches!(lost, RunEnd::Limit { .. }) {
                return lost;
            }
        }
        RunEnd::Stuck { nested }
    }
}

fn rejected<'js>(ctx: &Ctx<'js>, reason: Value<'js>) -> rquickjs::Result<Promise<'js>> {
    let (promise, _, reject) = ctx.promise()?;
    reject.call::<_, ()>((reason,))?;
    Ok(promise)
}
