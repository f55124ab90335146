//! Takes a run from its first line to its end.
//!
//!   settle: requests to the host, then a job, until there is neither
//!      │
//!      ├─ an item is open, its handler is over ──▶ end it
//!      ├─ an item is open, its handler waits ────▶ stuck
//!      ├─ an item is queued ─────────────────────▶ begin it
//!      └─ nothing is left ───────────────────────▶ completed, or stuck
//!
//! Nothing outside of this thread is ever waited for: the host has answered before the next job
//! runs. So an empty queue means that nothing will happen any more.

use std::rc::Rc;

use rquickjs::object::Property;
use rquickjs::promise::PromiseState;
use rquickjs::{Ctx, Function, Module, Object, Promise, Value};

use super::desk::{Desk, Fatal, Kept, Request, Waiting};
use super::scene::Moment;
use super::{Begun, Ended, Host, Limit, Stop, Toolbox, thrown, world};

/// How many times its size an answer may have as JSON: each of its bytes may have to be escaped.
const ESCAPED: usize = 6;

/// One run.
pub(super) struct Driver<'js, 'a> {
    ctx: Ctx<'js>,
    desk: Rc<Desk>,
    toolbox: Toolbox<'a>,
    host: &'a mut dyn Host,
    freeze: Function<'js>,
    /// The script itself.
    main: Promise<'js>,
    open: Option<Open<'js>>,
}

/// The item that is open.
struct Open<'js> {
    /// What the handler has answered, or will.
    handler: Promise<'js>,
    /// Settles the promise that `withItem` gave.
    resolve: Function<'js>,
}

impl<'js, 'a> Driver<'js, 'a> {
    /// Runs the script up to its first `await`. Fails if there is no memory for that.
    pub(super) fn start(
        ctx: &Ctx<'js>,
        desk: &Rc<Desk>,
        toolbox: Toolbox<'a>,
        host: &'a mut dyn Host,
        freeze: Function<'js>,
        module: Module<'js>,
    ) -> rquickjs::Result<Self> {
        let main = match module.eval() {
            Ok((_, main)) => main,
            Err(_) => rejected(ctx, ctx.catch())?,
        };
        let (ctx, desk) = (ctx.clone(), Rc::clone(desk));
        Ok(Self { ctx, desk, toolbox, host, freeze, main, open: None })
    }

    /// Runs it to its end.
    pub(super) fn run(&mut self) -> Ended {
        loop {
            match self.step() {
                Ok(()) => {}
                Err(ended) => return ended,
            }
        }
    }

    fn step(&mut self) -> Result<(), Ended> {
        self.settle()?;
        match self.open.as_ref().map(|open| open.handler.state()) {
            Some(PromiseState::Pending) => Err(self.stuck(self.desk.has_items())),
            Some(_) => self.end(),
            None => match self.desk.next_item() {
                Some(item) => self.begin(item),
                None if self.main.state() == PromiseState::Pending => Err(self.stuck(false)),
                None => Err(Ended::Completed),
            },
        }
    }

    /// Until the script has nothing to do and nothing to ask.
    fn settle(&mut self) -> Result<(), Ended> {
        loop {
            self.deliver()?;
            self.look()?;
            if !self.ctx.execute_pending_job() {
                break;
            }
        }
        match self.desk.unhandled(&self.ctx) {
            Some(reason) => Err(self.threw(&reason)),
            None => Ok(()),
        }
    }

    /// Takes the requests to the host, in order, and the answers back.
    fn deliver(&mut self) -> Result<(), Ended> {
        while let Some(request) = self.desk.next_request() {
            match request {
                Request::Log(line) => self.desk.hosted(|| self.host.log(&line)),
                Request::Call { tool, operation, arguments, resolve } => {
                    let (name, operations) = self.toolbox.0[tool];
                    let operation = operations[operation];
                    let answer = self.desk.hosted(|| self.host.call(name, operation, &arguments));
                    let answer = answer.map_err(|Stop| Ended::Stopped)?;
                    self.answer(name, operation, &answer, resolve)?;
                }
            }
        }
        Ok(())
    }

    fn answer(
        &self,
        tool: &str,
        operation: &str,
        answer: &str,
        resolve: Kept,
    ) -> Result<(), Ended> {
        if answer.len() > self.desk.limits.message_bytes.saturating_mul(ESCAPED) {
            return Err(self.limit(Limit::Message));
        }
        if self.desk.fatal().is_some() {
            return Ok(());
        }
        let Ok(value) = self.ctx.json_parse(answer) else {
            let ended = self.threw(&self.ctx.catch());
            return Err(match ended {
                Ended::Threw { stack, in_item, .. } => {
                    let message =
                        format!("{tool}.{operation} answered with something else than JSON");
                    Ended::Threw { message, stack, in_item }
                }
                limit => limit,
            });
        };
        let resolve = resolve.restore(&self.ctx).map_err(|_| self.limit(Limit::Memory))?;
        self.resolve(&resolve, value)
    }

    /// Whether the run has to end.
    fn look(&self) -> Result<(), Ended> {
        if let Some(fatal) = self.desk.fatal() {
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

    fn begin(&mut self, item: Waiting) -> Result<(), Ended> {
        let begun = self.desk.hosted(|| self.host.begin(&item.id, &item.title));
        let begun = begun.map_err(|Stop| Ended::Stopped)?;
        self.desk.scene.enter(&Moment { now_ms: begun.now_ms, seed: begun.seed });
        let opened = self.open(&item, begun);
        opened.map_err(|_| thrown::ended(&self.ctx, &self.ctx.catch(), true)).map(|open| {
            self.open = Some(open);
        })
    }

    /// Calls the handler. What it throws at once is a rejection like any other.
    fn open(&self, item: &Waiting, begun: Begun) -> rquickjs::Result<Open<'js>> {
        let ctx = &self.ctx;
        let resolve = item.resolve.clone().restore(ctx)?;
        let context = self.context(item, begun)?;
        let answer: rquickjs::Result<Value> = item.handler.clone().restore(ctx)?.call((context,));
        let handler = match answer {
            // A promise is looked at itself: nobody gets to react before we do.
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
        Ok(Open { handler, resolve })
    }

    fn context(&self, item: &Waiting, begun: Begun) -> rquickjs::Result<Object<'js>> {
        // Defined, not set: a script may have put setters where objects inherit from.
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

    fn end(&mut self) -> Result<(), Ended> {
        let result = self.result()?;
        // Its conversion may have run the script once more, which belongs to the item.
        self.settle()?;
        if result.len() > self.desk.limits.message_bytes {
            return Err(self.limit(Limit::Message));
        }
        self.desk.hosted(|| self.host.end(&result)).map_err(|Stop| Ended::Stopped)?;
        self.desk.scene.leave();
        let Some(open) = self.open.take() else { return Ok(()) };
        let value = self.ctx.json_parse(result).map_err(|_| self.threw(&self.ctx.catch()))?;
        self.resolve(&open.resolve, value)
    }

    /// What the handler answered, as JSON.
    fn result(&self) -> Result<String, Ended> {
        let answer = self.open.as_ref().and_then(|open| open.handler.result::<Value>());
        match answer {
            Some(Ok(value)) if !value.is_undefined() => {
                world::json(&self.ctx, &self.desk, value).map_err(|_| self.threw(&self.ctx.catch()))
            }
            _ => Ok("null".to_owned()),
        }
    }

    /// Settles a promise of the script's. That may run the script: objects can have a `then`.
    fn resolve(&self, resolve: &Function<'js>, value: Value<'js>) -> Result<(), Ended> {
        resolve.call::<_, ()>((value,)).map_err(|_| self.threw(&self.ctx.catch()))
    }

    /// How it ends for what was thrown, or for what has been decided before.
    fn threw(&self, value: &Value<'js>) -> Ended {
        let ended = thrown::ended(&self.ctx, value, self.open.is_some());
        match self.desk.fatal() {
            Some(fatal) => self.condemned(fatal),
            None => ended,
        }
    }

    fn condemned(&self, fatal: Fatal) -> Ended {
        match fatal {
            Fatal::Limit(which) => self.limit(which),
            Fatal::Misuse(what) => Ended::Threw {
                message: format!("TypeError: {what}"),
                stack: String::new(),
                in_item: self.open.is_some(),
            },
        }
    }

    fn limit(&self, which: Limit) -> Ended {
        Ended::Limit { which, in_item: self.open.is_some() }
    }

    /// A job that found no memory is lost, and whoever waits for it waits for ever.
    fn stuck(&self, nested: bool) -> Ended {
        if self.ctx.has_exception() {
            let lost = self.threw(&self.ctx.catch());
            if matches!(lost, Ended::Limit { .. }) {
                return lost;
            }
        }
        Ended::Stuck { nested }
    }
}

fn rejected<'js>(ctx: &Ctx<'js>, reason: Value<'js>) -> rquickjs::Result<Promise<'js>> {
    let (promise, _, reject) = ctx.promise()?;
    reject.call::<_, ()>((reason,))?;
    Ok(promise)
}
