//! The objects that a script finds: tools, `withItem`, `console`, and a JavaScript without a way
//! out.
//!
//! The functions here only check their arguments and queue requests. They read no
//! property by name that a script could have changed, except where JSON demands it.

use std::rc::Rc;

use hapax::document::Written;
use hapax::json::Json;
use rquickjs::function::{Opt, Rest};
use rquickjs::object::Property;
use rquickjs::{Ctx, Error, Exception, Function, Object, Persistent, Type, Value};

use super::requests::{Fatal, PendingRequests, QueuedItem, Request};
use super::thrown;

/// Removes and replaces globals, in JavaScript. Evaluates to a function.
const PRELUDE: &str = include_str!("prelude.js");

/// Bounds the loops within the engine. Evaluates to a function.
const BOUNDS: &str = include_str!("bounds.js");

/// The longest id and the longest title of an item.
const NAME_BYTES: usize = 512;

/// Fills the global object, and returns `Object.freeze` as it was before any script.
pub(super) fn furnish<'js>(
    ctx: &Ctx<'js>,
    requests: &Rc<PendingRequests>,
) -> rquickjs::Result<Function<'js>> {
    let globals = ctx.globals();
    let freeze: Function = globals.get::<_, Object>("Object")?.get("freeze")?;
    ctx.eval::<Function, _>(BOUNDS)?.call::<_, ()>((tick(ctx, requests)?,))?;
    let prelude: Function = ctx.eval(PRELUDE)?;
    requests.equip(ctx, prelude.call((now(ctx, requests)?, random(ctx, requests)?))?)?;

    let define = |name: &str, value: Value<'js>| -> rquickjs::Result<()> {
        freeze.call::<_, Value>((value.clone(),))?;
        globals.remove(name)?;
        globals.prop(name, Property::from(value))
    };
    define("withItem", with_item(ctx, requests)?.into_value())?;
    define("console", console(ctx, requests, &freeze)?.into_value())?;
    for (tool, (name, operations)) in requests.tools.0.iter().enumerate() {
        let object = Object::new(ctx.clone())?;
        object.set_prototype(None)?;
        for (operation, name) in operations.iter().enumerate() {
            let function = operation_of(ctx, requests, tool, operation)?.with_name(name)?;
            freeze.call::<_, Value>((function.clone(),))?;
            object.prop(name.as_str(), Property::from(function).enumerable())?;
        }
        define(name, object.into_value())?;
    }
    Ok(freeze)
}

fn now<'js>(ctx: &Ctx<'js>, requests: &Rc<PendingRequests>) -> rquickjs::Result<Function<'js>> {
    let requests = Rc::clone(requests);
    Function::new(ctx.clone(), move || requests.scene.now())
}

fn random<'js>(ctx: &Ctx<'js>, requests: &Rc<PendingRequests>) -> rquickjs::Result<Function<'js>> {
    let requests = Rc::clone(requests);
    Function::new(ctx.clone(), move || requests.scene.random())?.with_name("random")
}

/// Ends a script whose time is over. The engine rarely looks at the clock, so long loops within the
/// engine call this first.
fn tick<'js>(ctx: &Ctx<'js>, requests: &Rc<PendingRequests>) -> rquickjs::Result<Function<'js>> {
    let requests = Rc::clone(requests);
    Function::new(ctx.clone(), move |ctx: Ctx<'js>| match requests.is_over() {
        true => Err(halt(&ctx)),
        false => Ok(()),
    })
}

fn with_item<'js>(
    ctx: &Ctx<'js>,
    requests: &Rc<PendingRequests>,
) -> rquickjs::Result<Function<'js>> {
    let requests = Rc::clone(requests);
    let act = move |ctx: Ctx<'js>,
                    id: Opt<Value<'js>>,
                    title: Opt<Value<'js>>,
                    handler: Opt<Value<'js>>| {
        let misuse = |what: &str| end(&ctx, &requests, Fatal::Misuse(format!("withItem: {what}")));
        let Some(id) = text(id.0).filter(|id| !id.is_empty() && id.len() <= NAME_BYTES) else {
            return Err(misuse("the id must be a string of 1 to 512 bytes"));
        };
        let Some(title) = text(title.0).filter(|title| title.len() <= NAME_BYTES) else {
            return Err(misuse("the title must be a string of at most 512 bytes"));
        };
        let Some(handler) = handler.0.and_then(|value| value.into_function()) else {
            return Err(misuse("the handler must be a function"));
        };
        requests.admit(id.len() + title.len()).map_err(|fatal| end(&ctx, &requests, fatal))?;
        let (promise, resolve, _) = ctx.promise()?;
        let handler = Persistent::save(&ctx, handler);
        let resolve = Persistent::save(&ctx, resolve);
        requests.queue(QueuedItem { id, title, handler, resolve });
        Ok(promise)
    };
    Function::new(ctx.clone(), act)?.with_name("withItem")?.with_length(3)
}

fn operation_of<'js>(
    ctx: &Ctx<'js>,
    requests: &Rc<PendingRequests>,
    tool: usize,
    operation: usize,
) -> rquickjs::Result<Function<'js>> {
    let requests = Rc::clone(requests);
    let act = move |ctx: Ctx<'js>, arguments: Opt<Value<'js>>| {
        let arguments = match arguments.0 {
            Some(value) if !value.is_undefined() => json(&ctx, &requests, value),
            _ => Ok("{}".to_owned()),
        };
        // Converting the arguments may have run the script, and ended it.
        if requests.fatal().is_some() {
            return Err(halt(&ctx));
        }
        let (promise, resolve, reject) = ctx.promise()?;
        match arguments {
            Ok(arguments) => {
                requests.admit(arguments.len()).map_err(|fatal| end(&ctx, &requests, fatal))?;
                let resolve = Persistent::save(&ctx, resolve);
                requests.push(Request::Call { tool, operation, arguments, resolve });
            }
            Err(_) => reject.call::<_, ()>((ctx.catch(),))?,
        }
        Ok(promise)
    };
    Function::new(ctx.clone(), act)
}

fn console<'js>(
    ctx: &Ctx<'js>,
    requests: &Rc<PendingRequests>,
    freeze: &Function<'js>,
) -> rquickjs::Result<Object<'js>> {
    let object = Object::new(ctx.clone())?;
    object.set_prototype(None)?;
    for level in ["log", "info", "warn", "error"] {
        let requests = Rc::clone(requests);
        let act = move |ctx: Ctx<'js>, values: Rest<Value<'js>>| {
            let mut line = String::new();
            for value in values.0 {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(&thrown::shown(&ctx, &value));
                if line.len() > requests.limits.message_bytes || requests.fatal().is_some() {
                    break;
                }
            }
            requests.admit(line.len()).map_err(|fatal| end(&ctx, &requests, fatal))?;
            requests.push(Request::Log(line));
            Ok::<(), Error>(())
        };
        let function = Function::new(ctx.clone(), act)?.with_name(level)?;
        freeze.call::<_, Value>((function.clone(),))?;
        object.prop(level, Property::from(function).enumerable())?;
    }
    Ok(object)
}

/// A value as JSON, or an exception in the context.
pub(super) fn json<'js>(
    ctx: &Ctx<'js>,
    requests: &PendingRequests,
    value: Value<'js>,
) -> rquickjs::Result<String> {
    if let Some(text) = flat(ctx, requests, &value) {
        return Ok(text);
    }
    // If a property threw, it throws again below.
    let _ = ctx.catch();
    match ctx.json_stringify_replacer(value, requests.replacer(ctx)?)? {
        Some(text) => text.to_string(),
        None => Err(Exception::throw_type(ctx, "not a JSON value")),
    }
}

/// The JSON of an object of strings, whole numbers, booleans and nulls, as most arguments are: the
/// engine takes four times as long. None for all other values.
fn flat<'js>(ctx: &Ctx<'js>, requests: &PendingRequests, value: &Value<'js>) -> Option<String> {
    let object = value.as_object().filter(|_| value.type_of() == Type::Object)?;
    if !requests.is_plain(ctx, object) || !object.get::<_, Value>("toJSON").ok()?.is_undefined() {
        return None;
    }
    let mut written = Written::default();
    for property in object.props::<String, Value>() {
        let (name, value) = property.ok()?;
        written = match value.type_of() {
            Type::Undefined => written,
            Type::String => written.text(&name, value.as_string()?.to_string().ok()?.as_str()),
            Type::Int => written.number(&name, u64::try_from(value.as_int()?).ok()?),
            Type::Bool => written.with(&name, &Json::Bool(value.as_bool()?)).ok()?,
            Type::Null => written.with(&name, &Json::Null).ok()?,
            _ => return None,
        };
    }
    Some(written.print())
}

/// A string that is valid Unicode. Converts nothing.
fn text(value: Option<Value<'_>>) -> Option<String> {
    value?.as_string()?.to_string().ok()
}

/// Ends the run for that reason.
fn end(ctx: &Ctx<'_>, requests: &PendingRequests, fatal: Fatal) -> Error {
    requests.condemn(fatal);
    halt(ctx)
}

/// Leaves an exception in the context that no script can catch. The engine raises it itself when it
/// interrupts a loop, as it does once the run is over.
fn halt(ctx: &Ctx<'_>) -> Error {
    match ctx.eval::<(), _>("for (;;) {}") {
        Err(error) => error,
        Ok(()) => Error::Unknown,
    }
}
