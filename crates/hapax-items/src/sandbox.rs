//! Runs an automation script from one request to the next.
//!
//!   script ──calls──▶ requests ──in order──▶ host
//!      ▲                                       │
//!      └──────────── answers, as jobs ◀────────┘
//!
//! A script never calls the host. It queues a request and gets a promise; the host takes one
//! request after the other, whenever the script has yielded. So no line of the script is on the
//! stack while the host works, and a run that the host has ended is over: no code remains that
//! could catch it. Nor does a script occupy a thread while it waits.
//!
//! The sandbox never reads a clock, a file or an environment for the script: the script sees the
//! host's time and the host's randomness.

mod driver;
mod host;
mod requests;
mod scene;
mod thrown;
mod world;

use std::rc::Rc;
use std::time::Duration;

use rquickjs::context::intrinsic;
use rquickjs::{Context, Ctx, Module, Runtime};

use driver::{Driver, Paused};
pub(crate) use host::{Host, run};
use requests::{Fatal, PendingRequests};

/// How much a script may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The time spent in the script itself, host calls not counted.
    pub cpu: Duration,
    /// The memory of the script; and the same amount for its unanswered requests.
    pub memory_bytes: usize,
    /// The stack of the script. The thread has to have more than that.
    pub stack_bytes: usize,
    /// Items, tool calls and log lines, together.
    pub calls: u64,
    /// One message between script and host: arguments, a result, a log line.
    pub message_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu: Duration::from_secs(10),
            memory_bytes: 64 << 20,
            stack_bytes: 512 << 10,
            calls: 100_000,
            message_bytes: 1 << 20,
        }
    }
}

/// A request of the script.
pub(crate) enum ScriptRequest {
    /// A line for the log. Answered with nothing.
    Log(String),
    /// An item begins. Answered with the host's record of it.
    Begin { id: String, title: String },
    /// A tool is called, by indexes into [`Script::tools`], with JSON arguments. Answered with
    /// JSON.
    Call { tool: usize, operation: usize, arguments: String },
    /// The handler of the item is over, with this JSON value (`null` for undefined). Answered with
    /// nothing.
    End { result: String },
    /// The script is over.
    Over(RunEnd),
}

/// The answer to a request.
pub(crate) enum Answer {
    /// No value.
    Nothing,
    /// The host's record of the item.
    ItemStart(ItemStart),
    /// The tool's answer.
    Json(String),
}

/// The host's record of an item that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ItemStart {
    /// Whether an earlier attempt has completed it.
    pub is_done: bool,
    /// The number of this attempt.
    pub attempt: u32,
    /// The clock's time while the item is open, in milliseconds since 1970.
    pub now_ms: i64,
    /// The seed of `Math.random`.
    pub seed: u64,
}

/// The host has ended the run, and knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host has ended the run")]
pub(crate) struct Stop;

/// The tools that there are, each with its operations: `mail.send({…})`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tools(pub Vec<(String, Vec<String>)>);

impl Tools {
    /// The names of a tool and of one of its operations.
    pub(crate) fn name(&self, tool: usize, operation: usize) -> (&str, &str) {
        let (tool, operations) = &self.0[tool];
        (tool, &operations[operation])
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The script came to its end, and so did its items.
    Completed,
    /// The host ended it.
    Stopped,
    /// The script or a handler threw or rejected, or a rejected promise was never handled.
    Threw {
        /// The name and the message of the error.
        message: String,
        /// The stack, cut to 4 KiB. Empty if the thrown value is no error.
        stack: String,
        /// Whether an item was open.
        in_item: bool,
    },
    /// A limit was reached.
    Limit {
        /// Which one.
        which: Limit,
        /// Whether an item was open.
        in_item: bool,
    },
    /// It waits for a promise that nothing settles.
    Stuck {
        /// Whether that is an item within an item.
        nested: bool,
    },
    /// The source is no program: the error, and its place.
    Unreadable(String),
}

/// The limits that a script can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    /// [`Limits::cpu`].
    Time,
    /// [`Limits::memory_bytes`].
    Memory,
    /// [`Limits::stack_bytes`].
    Stack,
    /// [`Limits::calls`].
    Calls,
    /// [`Limits::message_bytes`].
    Message,
}

/// A script between its start and its end. It stays on the thread that it was started on.
///
/// Requests reach the host in the order of the script. Requests from before a throw or a limit
/// still reach the host; later ones do not.
pub(crate) struct Script {
    /// None once it is over.
    paused: Option<Paused>,
    requests: Rc<PendingRequests>,
    /// Dropped before the engine, which must not be freed while its values are held.
    _values: requests::Values,
    context: Context,
}

impl Script {
    /// Reads a script and runs it up to its first `await`. Outside of items its clock stands at
    /// `started_ms`.
    pub(crate) fn start(
        source: &str,
        name: &str,
        tools: Tools,
        started_ms: i64,
        limits: &Limits,
    ) -> Result<Self, RunEnd> {
        let no_room = RunEnd::Limit { which: Limit::Memory, in_item: false };
        let (runtime, context) = engine::<Language>(limits).map_err(|_| no_room)?;
        let requests = Rc::new(PendingRequests::new(limits.clone(), tools, started_ms));
        let _values = requests::Values(Rc::clone(&requests));
        requests.watch(&runtime);
        let paused = context.with(|ctx| {
            let freeze = world::furnish(&ctx, &requests).map_err(|_| unable(&ctx, &requests))?;
            let module = read(&ctx, name, source)?;
            let driver = Driver::start(&ctx, &requests, freeze, module);
            driver.map(Driver::pause).map_err(|_| unable(&ctx, &requests))
        })?;
        requests.pause();
        Ok(Self { paused: Some(paused), requests, _values, context })
    }

    /// The tools it was given.
    pub(crate) fn tools(&self) -> &Tools {
        &self.requests.tools
    }

    /// Goes on with the answer to the last request, up to the next request. The first answer is
    /// nothing.
    pub(crate) fn next(&mut self, answer: Answer) -> ScriptRequest {
        let Some(paused) = self.paused.take() else { return ScriptRequest::Over(RunEnd::Stopped) };
        self.requests.resume();
        let request = self.context.with(|ctx| {
            let Ok(mut driver) = paused.resume(&ctx, &self.requests) else {
                return Err(unable(&ctx, &self.requests));
            };
            let request = driver.next(answer)?;
            self.paused = Some(driver.pause());
            Ok(request)
        });
        self.requests.pause();
        request.unwrap_or_else(ScriptRequest::Over)
    }
}

/// The end of a run that could not begin.
fn unable(ctx: &Ctx<'_>, requests: &PendingRequests) -> RunEnd {
    match requests.fatal() {
        Some(Fatal::Limit(which)) => RunEnd::Limit { which, in_item: false },
        _ => thrown::ended(ctx, &ctx.catch(), false),
    }
}

/// Reads a script without running it. The error names the mistake, its line and its column.
pub(crate) fn check(script: &str) -> Result<(), String> {
    let Ok((_runtime, context)) = engine::<Reading>(&Limits::default()) else {
        return Err("there is no memory to read it".to_owned());
    };
    context.with(|ctx| match read(&ctx, "script", script) {
        Ok(_) => Ok(()),
        Err(RunEnd::Unreadable(what)) => Err(what),
        Err(RunEnd::Threw { message, .. }) => Err(message),
        Err(_) => Err("it is too large".to_owned()),
    })
}

/// The parts of JavaScript that a script can use. All others are not in the engine at all.
type Language = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// The parts of the engine that parsing needs.
type Reading = (intrinsic::Eval, intrinsic::RegExpCompiler);

fn engine<I: rquickjs::context::Intrinsic>(
    limits: &Limits,
) -> rquickjs::Result<(Runtime, Context)> {
    let runtime = Runtime::new()?;
    runtime.set_max_stack_size(limits.stack_bytes);
    let context = Context::custom::<I>(&runtime)?;
    // Not earlier: rquickjs does not check whether the intrinsics found memory.
    runtime.set_memory_limit(limits.memory_bytes.max(1));
    Ok((runtime, context))
}

fn read<'js>(ctx: &Ctx<'js>, name: &str, script: &str) -> Result<Module<'js>, RunEnd> {
    if let Some(position) = script.find('\0') {
        return Err(RunEnd::Unreadable(format!("a NUL character at byte {position}")));
    }
    let name = name.replace('\0', "");
    Module::declare(ctx.clone(), name, script).map_err(|_| thrown::unreadable(ctx, &ctx.catch()))
}

#[cfg(test)]
mod tests;
