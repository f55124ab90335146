//! Exceptions of a script, in words.
//!
//! Reading an error may run the script, by its getters. That is harmless: its requests then stay
//! unread.

use rquickjs::convert::Coerced;
use rquickjs::{Ctx, Object, Value};

use super::{Limit, RunEnd};

/// The longest message, and the longest stack.
const TEXT_BYTES: usize = 4 << 10;

/// The end of a run that threw this value.
pub(super) fn ended<'js>(ctx: &Ctx<'js>, value: &Value<'js>, in_item: bool) -> RunEnd {
    // The engine throws null when there is no room for an error.
    if value.is_null() {
        return RunEnd::Limit { which: Limit::Memory, in_item };
    }
    let message = shown(ctx, value);
    let which = match message.as_str() {
        // A string may grow without memory for a while, until no memory could hold it.
        "InternalError: out of memory" | "InternalError: string too long" => Limit::Memory,
        "RangeError: Maximum call stack size exceeded" => Limit::Stack,
        _ => {
            let stack = value.as_object().and_then(|error| error_text(ctx, error, "stack"));
            let stack = cut(stack.unwrap_or_default());
            return RunEnd::Threw { message: cut(message), stack, in_item };
        }
    };
    RunEnd::Limit { which, in_item }
}

/// The end of a run whose script could not be read.
pub(super) fn unreadable<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> RunEnd {
    match ended(ctx, value, false) {
        RunEnd::Threw { message, stack, .. } => RunEnd::Unreadable(match position(&stack) {
            Some((line, column)) => format!("{message} (line {line}, column {column})"),
            None => message,
        }),
        ended => ended,
    }
}

/// A value for people: a string as it is, an error with its name, all else as JSON.
pub(super) fn shown<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    if let Some(text) = value.as_string() {
        return text.to_string().unwrap_or_else(|_| forget(ctx, "(not Unicode)"));
    }
    if let Some(error) = value.as_object().filter(|object| object.is_error()) {
        let name = error_text(ctx, error, "name").unwrap_or_else(|| "Error".to_owned());
        return match error_text(ctx, error, "message") {
            Some(message) if !message.is_empty() => format!("{name}: {message}"),
            _ => name,
        };
    }
    if !value.is_object() || value.is_function() {
        let text = value.get::<Coerced<String>>().map(|text| text.0);
        return text.unwrap_or_else(|_| forget(ctx, value.type_name()));
    }
    match ctx.json_stringify(value.clone()) {
        Ok(Some(text)) => text.to_string().unwrap_or_else(|_| forget(ctx, "(an object)")),
        Ok(None) => "(an object)".to_owned(),
        Err(_) => forget(ctx, "(an object)"),
    }
}

/// A property of an error as text, if it can be read.
fn error_text<'js>(ctx: &Ctx<'js>, error: &Object<'js>, name: &str) -> Option<String> {
    match error.get::<_, Coerced<String>>(name) {
        Ok(text) => Some(text.0),
        Err(_) => {
            forget(ctx, "");
            None
        }
    }
}

/// Drops the exception that reading a value has raised.
fn forget(ctx: &Ctx<'_>, instead: &str) -> String {
    ctx.catch();
    instead.to_owned()
}

/// The first place that a stack names: `at name:line:column`.
fn position(stack: &str) -> Option<(u32, u32)> {
    let mut parts = stack.lines().next()?.trim_end_matches(')').rsplit(':');
    let column = parts.next()?.trim().parse().ok()?;
    let line = parts.next()?.trim().parse().ok()?;
    Some((line, column))
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES {
        let end = (0..=TEXT_BYTES).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
    }
    text
}
