//! Which events go where.

/// A sink that events are delivered to, by its name in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SinkName(String);

/// Why a sink's name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sink {0:?} must be 1 to 64 of a-z, 0-9, `-`, `_` and start with a letter")]
pub struct SinkNameError(String);

impl SinkName {
    /// The sink of this name.
    pub fn new(name: &str) -> Result<Self, SinkNameError> {
        let ok = name.len() <= 64
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_'));
        match ok {
            true => Ok(Self(name.to_owned())),
            false => Err(SinkNameError(name.chars().take(80).collect())),
        }
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for SinkName {
    type Err = SinkNameError;

    fn from_str(name: &str) -> Result<Self, SinkNameError> {
        Self::new(name)
    }
}

impl std::fmt::Display for SinkName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// Events of these names about these datasets go to these sinks. A `*` stands for any text; a
/// route without sinks keeps its events and delivers them nowhere.
///
/// ```
/// use hapax_core::route::{Route, SinkName, sinks};
///
/// let route = |event: &str, dataset: &str, sink: &str| {
///     Ok(Route { event: event.into(), dataset: dataset.into(), sinks: vec![SinkName::new(sink)?] })
/// };
/// let routes = [route("artifact_*", "*", "catalog")?, route("*", "hydrology_*", "river")?];
/// let to = |event, dataset| sinks(&routes, event, dataset).map(|sinks| sinks.len());
/// assert_eq!(to("artifact_published", "hydrology_flow_ks"), Some(2));
/// assert_eq!(to("artifact_published", "soil"), Some(1));
/// assert_eq!(to("deleted", "soil"), None);
/// # Ok::<(), hapax_core::route::SinkNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// The pattern of event names.
    pub event: String,
    /// The pattern of datasets.
    pub dataset: String,
    /// The sinks.
    pub sinks: Vec<SinkName>,
}

/// Where an event goes: every sink of every route that fits, once. `None` if no route fits.
pub fn sinks<'a>(routes: &'a [Route], event: &str, dataset: &str) -> Option<Vec<&'a SinkName>> {
    let fitting = |route: &&Route| fits(&route.event, event) && fits(&route.dataset, dataset);
    let mut fitting = routes.iter().filter(fitting).peekable();
    fitting.peek()?;
    let mut sinks: Vec<_> = fitting.flat_map(|route| &route.sinks).collect();
    sinks.sort_unstable();
    sinks.dedup();
    Some(sinks)
}

/// Whether a text fits a pattern in which `*` stands for any text.
pub fn fits(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "a.b", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("*b", "ba", false),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abde", false),
            ("ab*ba", "aba", false),
            ("**", "x", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// Proves O-6: without a route there is none, and a route without sinks is one.
    #[test]
    fn a_route_without_sinks_is_a_route() {
        let keep = Route { event: "*".into(), dataset: "*".into(), sinks: Vec::new() };
        assert_eq!(sinks(&[keep], "e", "d"), Some(vec![]));
        assert_eq!(sinks(&[], "e", "d"), None);
    }
}
