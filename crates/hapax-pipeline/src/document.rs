//! Documents that are kept: canonical JSON, written and read member by member.

use hapax::canonical::canonical;
use hapax::json::Json;

/// A document being written. What is absent is left out.
#[derive(Default)]
pub(crate) struct Object(Vec<(String, Json)>);

impl Object {
    pub(crate) fn with(mut self, name: &str, value: impl Into<Option<Json>>) -> Self {
        self.0.extend(value.into().map(|value| (name.to_owned(), value)));
        self
    }

    pub(crate) fn text<'a>(self, name: &str, text: impl Into<Option<&'a str>>) -> Self {
        self.with(name, text.into().map(Json::text))
    }

    pub(crate) fn number(self, name: &str, number: impl Into<Option<u64>>) -> Self {
        self.with(name, number.into().map(Json::number))
    }

    /// Only where it is true.
    pub(crate) fn flag(self, name: &str, flag: bool) -> Self {
        self.with(name, flag.then_some(Json::Bool(true)))
    }

    /// Only where there are any.
    pub(crate) fn list(self, name: &str, items: impl IntoIterator<Item = Json>) -> Self {
        let items: Vec<Json> = items.into_iter().collect();
        self.with(name, (!items.is_empty()).then_some(Json::Array(items)))
    }

    pub(crate) fn json(self) -> Json {
        Json::Object(self.0)
    }

    pub(crate) fn print(self) -> String {
        print(&self.json())
    }
}

/// The one text of a document that was put together here: it has no number without a double.
pub(crate) fn print(json: &Json) -> String {
    canonical(json).unwrap_or_default()
}

/// A member that is a text.
pub(crate) fn text(json: &Json, name: &str) -> Option<String> {
    json.get(name).and_then(Json::as_str).map(str::to_owned)
}

/// A member that is a whole number.
pub(crate) fn number(json: &Json, name: &str) -> Option<u64> {
    json.get(name).and_then(Json::as_u64)
}

/// Whether a member is true.
pub(crate) fn flag(json: &Json, name: &str) -> bool {
    json.get(name) == Some(&Json::Bool(true))
}

/// The items of a member, as many of them as can be read.
pub(crate) fn list<T>(json: &Json, name: &str, read: impl Fn(&Json) -> Option<T>) -> Vec<T> {
    let items = json.get(name).and_then(Json::as_array).unwrap_or_default();
    items.iter().filter_map(read).collect()
}

/// An item that is a text.
pub(crate) fn words(json: &Json) -> Option<String> {
    json.as_str().map(str::to_owned)
}
