//! A script's statements on the ledger's file. SQLite has each of their actions authorized; see
//! `fence`.

use hapax::document::print;
use hapax::json::Json;
use hapax_items::ToolError;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Row, Transaction};

use super::statement::Statement;
use super::{Limits, Rows, exact, unique};
use crate::database::Fault as _;

/// Runs statements one after the other, and counts what each has changed.
pub(super) fn execute(tx: &Transaction<'_>, statements: &[Statement]) -> Result<Json, ToolError> {
    let mut changes = Vec::new();
    for statement in statements {
        let before = tx.total_changes();
        let mut prepared = bound(tx, statement)?;
        let mut rows = prepared.raw_query();
        while rows.next().map_err(rusqlite::Error::tool_error)?.is_some() {}
        // A statement that changes no rows leaves the number of the one before.
        let changed = if tx.total_changes() == before { 0 } else { tx.changes() };
        changes.push(Json::number(changed));
    }
    Ok(Json::object([("changes", Json::Array(changes))]))
}

/// The rows of one statement.
pub(super) fn query(
    tx: &Transaction<'_>,
    statement: &Statement,
    limits: Limits,
) -> Result<Json, ToolError> {
    let mut prepared = bound(tx, statement)?;
    let names: Vec<String> = prepared.column_names().map(str::to_owned).collect();
    unique(&names)?;
    let (mut result, mut rows) = (Rows::new(limits), prepared.raw_query());
    while let Some(row) = rows.next().map_err(rusqlite::Error::tool_error)? {
        result.push(members(&names, row)?)?;
    }
    Ok(result.json())
}

fn bound<'t>(
    tx: &'t Transaction<'_>,
    statement: &Statement,
) -> Result<rusqlite::Statement<'t>, ToolError> {
    let mut prepared = tx.prepare(&statement.sql).map_err(rusqlite::Error::tool_error)?;
    let count = prepared.parameter_count();
    let mut most = 0;
    for index in 1..=count {
        // `$2` is a name to SQLite and has any index, `?2` is a number.
        let name = prepared.parameter_name(index);
        let number = match name.and_then(|name| name.strip_prefix(['$', '?'])) {
            Some(digits) => digits.parse().map_err(|_| unnamed(name))?,
            None if name.is_some() => return Err(unnamed(name)),
            None => index,
        };
        most = most.max(number);
        let value = value(statement.param(number)?);
        prepared.raw_bind_parameter(index, value).map_err(rusqlite::Error::tool_error)?;
    }
    statement.takes(most)?;
    Ok(prepared)
}

fn unnamed(name: Option<&str>) -> ToolError {
    ToolError::logic(format!(
        "parameters are numbered, ?1 or $1, and {:?} is not",
        name.unwrap_or_default()
    ))
}

fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Integer(i64::from(*flag)),
        Json::Number(number) => {
            let text = number.as_str();
            let real = || Value::Real(text.parse().unwrap_or(f64::NAN));
            text.parse().map_or_else(|_| real(), Value::Integer)
        }
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(_) | Json::Object(_) => Value::Text(print(json)),
    }
}

fn members(names: &[String], row: &Row<'_>) -> Result<Vec<(String, Json)>, ToolError> {
    let member = |(index, name): (usize, &String)| {
        let value = match row.get_ref(index).map_err(rusqlite::Error::tool_error)? {
            ValueRef::Null => Json::Null,
            ValueRef::Integer(number) => exact(&number.to_string()),
            ValueRef::Real(number) if number.is_finite() => exact(&format!("{number:?}")),
            ValueRef::Real(_) => Json::Null,
            ValueRef::Text(text) => Json::text(&String::from_utf8_lossy(text)),
            ValueRef::Blob(_) => {
                return Err(ToolError::logic(format!(
                    "{name} is a blob, which JSON has no word for: hex({name}) is a text"
                )));
            }
        };
        Ok((name.clone(), value))
    };
    names.iter().enumerate().map(member).collect()
}
