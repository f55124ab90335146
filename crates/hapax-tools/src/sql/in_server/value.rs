//! JSON values as PostgreSQL's, and back.

use std::error::Error;

use bytes::BytesMut;
use hapax::document::print;
use hapax::json::Json;
use hapax::tokio_postgres::Row;
use hapax::tokio_postgres::types::{Format, FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};
use hapax_items::ToolError;

use crate::sql::exact;

/// A parameter. It travels as text, and the server reads it as whatever type it needs.
#[derive(Debug)]
pub(super) struct Param(Option<String>);

impl Param {
    pub(super) fn of(json: &Json) -> Self {
        Self(match json {
            Json::Null => None,
            Json::Bool(flag) => Some(flag.to_string()),
            Json::Number(number) => Some(number.as_str().to_owned()),
            Json::String(text) => Some(text.clone()),
            Json::Array(_) | Json::Object(_) => Some(print(json)),
        })
    }
}

impl ToSql for Param {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = &self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// The members of a row.
pub(super) fn members(row: &Row) -> Result<Vec<(String, Json)>, ToolError> {
    let member = |(index, column): (usize, &hapax::tokio_postgres::Column)| {
        let value: Option<Value> = row.try_get(index).map_err(|_| {
            let (name, kind) = (column.name(), column.type_().name());
            ToolError::logic(format!(
                "{name} is of type {kind}, which JSON has no word for: {name}::text is a text"
            ))
        })?;
        Ok((column.name().to_owned(), value.map_or(Json::Null, |value| value.0)))
    };
    row.columns().iter().enumerate().map(member).collect()
}

struct Value(Json);

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let number = |number: i64| exact(&number.to_string());
        let real = |number: f64| match number.is_finite() {
            true => exact(&format!("{number:?}")),
            false => Json::Null,
        };
        Ok(Self(match *kind {
            Type::BOOL => Json::Bool(bool::from_sql(kind, raw)?),
            Type::INT2 => number(i16::from_sql(kind, raw)?.into()),
            Type::INT4 => number(i32::from_sql(kind, raw)?.into()),
            Type::INT8 => number(i64::from_sql(kind, raw)?),
            Type::OID => number(u32::from_sql(kind, raw)?.into()),
            // Its own shortest text, not the double's.
            Type::FLOAT4 => match f32::from_sql(kind, raw)? {
                number if number.is_finite() => exact(&format!("{number:?}")),
                _ => Json::Null,
            },
            Type::FLOAT8 => real(f64::from_sql(kind, raw)?),
            Type::NUMERIC => numeric(raw).map_or(Json::Null, |text| exact(&text)),
            Type::JSON => parsed(raw)?,
            // The first byte is the version.
            Type::JSONB => parsed(raw.get(1..).unwrap_or_default())?,
            Type::VOID => Json::Null,
            _ => Json::text(std::str::from_utf8(raw)?),
        }))
    }

    fn accepts(kind: &Type) -> bool {
        let known = [
            Type::BOOL,
            Type::INT2,
            Type::INT4,
            Type::INT8,
            Type::OID,
            Type::FLOAT4,
            Type::FLOAT8,
            Type::NUMERIC,
            Type::JSON,
            Type::JSONB,
            Type::VOID,
            Type::TEXT,
            Type::VARCHAR,
            Type::BPCHAR,
            Type::NAME,
            Type::UNKNOWN,
        ];
        known.contains(kind) || matches!(kind.kind(), Kind::Enum(_))
    }
}

/// A JSON value, or its text if two readers could understand it differently.
fn parsed(raw: &[u8]) -> Result<Json, std::str::Utf8Error> {
    let text = std::str::from_utf8(raw)?;
    Ok(match Json::parse(raw).ok().filter(|json| hapax::canonical::canonical(json).is_ok()) {
        Some(json) => json,
        None => Json::text(text),
    })
}

/// A decimal number as text: groups of four digits, the first of which counts ten thousand to the
/// power of `weight`. None for NaN and the infinities.
fn numeric(raw: &[u8]) -> Option<String> {
    let words: Vec<u16> =
        raw.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    let [_, weight, sign, scale, groups @ ..] = words.as_slice() else { return None };
    let (weight, scale) = (i32::from(*weight as i16), usize::from(*scale));
    let sign = match sign {
        0x0000 => "",
        0x4000 => "-",
        _ => return None,
    };
    let group = |power: i32| {
        let nth = usize::try_from(weight - power).ok();
        nth.and_then(|nth| groups.get(nth)).copied().unwrap_or(0)
    };
    let whole: String =
        (0..=weight.max(0)).rev().map(|power| format!("{:04}", group(power))).collect();
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let places = scale.div_ceil(4) as i32;
    let mut fraction: String = (1..=places).map(|place| format!("{:04}", group(-place))).collect();
    fraction.truncate(scale);
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{point}{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_are_read_digit_by_digit() {
        let read = |words: &[u16]| {
            numeric(&words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>())
        };
        for (words, text) in [
            (&[0, 0, 0, 0][..], Some("0")),
            (&[1, 0, 0, 0, 42], Some("42")),
            (&[2, 1, 0x4000, 0, 1, 2345], Some("-12345")),
            (&[1, 1, 0, 0, 3], Some("30000")),
            (&[2, 0, 0, 2, 12, 3400], Some("12.34")),
            (&[1, (-2_i16) as u16, 0, 7, 120], Some("0.0000012")),
            (&[0, 0, 0xC000, 0], None),
            (&[0, 0], None),
        ] {
            assert_eq!(read(words).as_deref(), text, "{words:?}");
        }
    }
}
