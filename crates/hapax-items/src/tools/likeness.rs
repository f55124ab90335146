//! How alike two payloads are.

#[cfg(feature = "http")]
use hapax_core::canonical::canonical;
#[cfg(feature = "http")]
use hapax_core::json::Json;

/// Whether two values are the same JSON, however they were written.
#[cfg(feature = "http")]
pub(super) fn same(one: &Json, other: &Json) -> bool {
    matches!((canonical(one), canonical(other)), (Ok(one), Ok(other)) if one == other)
}

/// Whether two texts have the same words in the same order.
#[cfg(any(feature = "http", feature = "email"))]
pub(super) fn same_words(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// Whether two texts have the same lines, but for how they end.
pub(super) fn same_lines(one: &str, other: &str) -> bool {
    fn lines(text: &str) -> impl Iterator<Item = &str> {
        text.trim_end().lines().map(str::trim_end)
    }
    lines(one).eq(lines(other))
}
