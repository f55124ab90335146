//! Runs an automation script against a host, on the calling thread.
//!
//!   script ──asks──▶ desk ──in order──▶ host
//!      ▲                                  │
//!      └────────── answers, as jobs ◀─────┘
//!
//! A script never calls the host. It leaves a request at the desk and gets a promise; the driver
//! takes the requests to the host whenever the script has yielded. So no line of the script is on
//! the stack while the host works, and a run that the host has ended is over: there is nothing
//! left that could catch it.
//!
//! It never reads a clock, a file or an environment for the script: the time and the randomness
//! that a script sees are the host's.

mod desk;
mod driver;
mod scene;
mod thrown;
mod world;

use std::rc::Rc;
use std::time::Duration;

use rquickjs::context::intrinsic;
use rquickjs::{Context, Ctx, Module, Runtime};

use desk::{Desk, Fatal};
use driver::Driver;

/// How much a script may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The time spent in the script itself, host calls not counted.
    pub cpu: Duration,
    /// The memory of the script, and of what it has asked for and not got yet (each).
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

/// What the script can reach. Called on the script's thread, never from within the script.
pub(crate) trait Host {
    /// An item begins.
    fn begin(&mut self, id: &str, title: &str) -> Result<Begun, Stop>;

    /// The handler of the item is over, with this JSON value (`null` for undefined).
    fn end(&mut self, result: &str) -> Result<(), Stop>;

    /// A tool is called, with JSON arguments; answers with JSON.
    fn call(&mut self, tool: &str, operation: &str, arguments: &str) -> Result<String, Stop>;

    /// The script says something to whoever reads the log.
    fn log(&mut self, line: &str);
}

/// What the host knows of an item that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Whether an earlier attempt has completed it.
    pub is_done: bool,
    /// Which attempt this is.
    pub attempt: u32,
    /// What the clock shows while the item is open, in milliseconds since 1970.
    pub now_ms: i64,
    /// Where `Math.random` starts.
    pub seed: u64,
}

/// The host has ended the run, and knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host has ended the run")]
pub(crate) struct Stop;

/// The tools that there are, each with its operations: `mail.send({…})`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Toolbox<'a>(pub &'a [(&'a str, &'a [&'a str])]);

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The script came to its end, and so did its items.
    Completed,
    /// The host said so.
    Stopped,
    /// The script threw or rejected, or its handler did, or nobody caught what a promise did.
    Threw {
        /// The name and the message of the error.
        message: String,
        /// Where, cut to 4 KiB. Empty for what is no error.
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
    /// It waits for something that never comes.
    Stuck {
        /// Whether that is an item within an item.
        nested: bool,
    },
    /// Not a program: what is wrong with it, and where.
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

/// Runs a script to its end. Outside of items its clock stands at `started_ms`.
///
/// What the script asks for goes to the host in the order in which it was asked for. What it asked
/// for before it threw or reached a limit is still done; what comes after is not.
pub(crate) fn run(
    script: &str,
    name: &str,
    toolbox: Toolbox<'_>,
    started_ms: i64,
    limits: &Limits,
    host: &mut dyn Host,
) -> Ended {
    let no_room = Ended::Limit { which: Limit::Memory, in_item: false };
    let Ok((runtime, context)) = engine::<Language>(limits) else { return no_room };
    let desk = Rc::new(Desk::new(limits.clone(), started_ms));
    // Dropped before the context, also when the host panics: the engine must not be freed while
    // somebody holds values of it.
    let _values = desk::Values(Rc::clone(&desk));
    desk.watch(&runtime);
    context.with(|ctx| {
        let freeze = match world::furnish(&ctx, &desk, toolbox) {
            Ok(freeze) => freeze,
            Err(_) => return unable(&ctx, &desk),
        };
        let module = match read(&ctx, name, script) {
            Ok(module) => module,
            Err(ended) => return ended,
        };
        match Driver::start(&ctx, &desk, toolbox, host, freeze, module) {
            Ok(mut driver) => driver.run(),
            Err(_) => unable(&ctx, &desk),
        }
    })
}

/// How a run ends that did not begin.
fn unable(ctx: &Ctx<'_>, desk: &Desk) -> Ended {
    match desk.fatal() {
        Some(Fatal::Limit(which)) => Ended::Limit { which, in_item: false },
        _ => thrown::ended(ctx, &ctx.catch(), false),
    }
}

/// Reads a script without running it. The error says what is wrong, with line and column.
pub(crate) fn check(script: &str) -> Result<(), String> {
    let Ok((_runtime, context)) = engine::<Reading>(&Limits::default()) else {
        return Err("there is no memory to read it".to_owned());
    };
    context.with(|ctx| match read(&ctx, "script", script) {
        Ok(_) => Ok(()),
        Err(Ended::Unreadable(what)) => Err(what),
        Err(Ended::Threw { message, .. }) => Err(message),
        Err(_) => Err("it is too large".to_owned()),
    })
}

/// What a script can use of JavaScript. What is not named here is not in the engine at all.
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

/// What it takes to parse.
type Reading = (intrinsic::Eval, intrinsic::RegExpCompiler);

fn engine<I: rquickjs::context::Intrinsic>(
    limits: &Limits,
) -> rquickjs::Result<(Runtime, Context)> {
    let runtime = Runtime::new()?;
    runtime.set_max_stack_size(limits.stack_bytes);
    let context = Context::custom::<I>(&runtime)?;
    // Not earlier: rquickjs does not look whether the intrinsics found room.
    runtime.set_memory_limit(limits.memory_bytes.max(1));
    Ok((runtime, context))
}

fn read<'js>(ctx: &Ctx<'js>, name: &str, script: &str) -> Result<Module<'js>, Ended> {
    if let Some(position) = script.find('\0') {
        return Err(Ended::Unreadable(format!("a NUL character at byte {position}")));
    }
    let name = name.replace('\0', "");
    Module::declare(ctx.clone(), name, script).map_err(|_| thrown::unreadable(ctx, &ctx.catch()))
}

#[cfg(test)]
mod tests;
