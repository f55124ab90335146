//! How alike two payloads are.

use hapax_core::canonical::canonical;
use hapax_core::json::Json;

/// Whether two values are the same JSON, however they were written.
pub(super) fn same(one: &Json, other: &Json) -> bool {
    matches!((canonical(one), canonical(other)), (Ok(one), Ok(other)) if one == other)
}

/// Whether two texts are the same object or array of JSON. A number or a word may be a text that
/// only looks like JSON: `1.10` is another version than `1.1`.
pub(super) fn same_document(one: &str, other: &str) -> bool {
    let document = |text: &str| {
        let json = Json::parse(text.as_bytes()).ok();
        json.filter(|json| matches!(json, Json::Object(_) | Json::Array(_)))
    };
    matches!((document(one), document(other)), (Some(one), Some(other)) if same(&one, &other))
}

/// A value without its members that are null.
pub(super) fn without_nulls(value: &Json) -> Json {
    match value {
        Json::Object(members) => {
            let kept = members.iter().filter(|(_, value)| !matches!(value, Json::Null));
            Json::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Json::Array(items) => Json::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Whether two texts have the same words in the same order.
#[cfg(any(feature = "http", feature = "email"))]
pub(super) fn same_words(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// Whether two texts have the same lines, but for how they end.
pub(super) fn same_lines(one: &str, other: &str) -> bool {
    lines(one).eq(lines(other))
}

/// Whether two texts have the same lines, but for those that are blank.
pub(super) fn same_but_blank_lines(one: &str, other: &str) -> bool {
    let written = |line: &&str| !line.is_empty();
    lines(one).filter(written).eq(lines(other).filter(written))
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_end().lines().map(str::trim_end)
}
