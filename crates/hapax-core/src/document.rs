//! Stored documents: canonical JSON, written and read member by member.

use crate::canonical::{canonical, write, write_string};
use crate::json::{Json, JsonError};

/// A document being written. Absent members are left out.
///
/// ```
/// use hapax_core::document::{Object, text};
///
/// let document = Object::default().text("to", "ada").text("cc", None).number("n", 7);
/// assert_eq!(text(&document.json(), "to").as_deref(), Some("ada"));
/// ```
#[derive(Default)]
pub struct Object(Vec<(String, Json)>);

impl Object {
    /// With this member, if there is one.
    pub fn with(mut self, name: &str, value: impl Into<Option<Json>>) -> Self {
        self.0.extend(value.into().map(|value| (name.to_owned(), value)));
        self
    }

    /// With a member that is a text.
    pub fn text<'a>(self, name: &str, text: impl Into<Option<&'a str>>) -> Self {
        self.with(name, text.into().map(Json::text))
    }

    /// With a member that is a whole number.
    pub fn number(self, name: &str, number: impl Into<Option<u64>>) -> Self {
        self.with(name, number.into().map(Json::number))
    }

    /// With this member, if it is true.
    pub fn flag(self, name: &str, flag: bool) -> Self {
        self.with(name, flag.then_some(Json::Bool(true)))
    }

    /// With this list, if it has items.
    pub fn list(self, name: &str, items: impl IntoIterator<Item = Json>) -> Self {
        let items: Vec<Json> = items.into_iter().collect();
        self.with(name, (!items.is_empty()).then_some(Json::Array(items)))
    }

    /// The document.
    pub fn json(self) -> Json {
        Json::Object(self.0)
    }

    /// Its canonical text.
    pub fn print(self) -> String {
        print(&self.json())
    }
}

/// A document that is written member by member, where building it first would cost too much. It is
/// canonical if its members come in the order of their names.
///
/// ```
/// use hapax_core::document::{Object, Written};
///
/// let written = Written::default().number("n", 7).text("to", "ada");
/// assert_eq!(written.print(), Object::default().text("to", "ada").number("n", 7).print());
/// ```
#[derive(Default)]
pub struct Written(String);

impl Written {
    /// With a member that is a text.
    pub fn text<'a>(mut self, name: &str, text: impl Into<Option<&'a str>>) -> Self {
        if let Some(text) = text.into() {
            self.name(name);
            write_string(text, &mut self.0);
        }
        self
    }

    /// With a member that is a whole number.
    pub fn number(mut self, name: &str, number: u64) -> Self {
        self.name(name);
        self.0.push_str(&number.to_string());
        self
    }

    /// With this member. Refuses a number that has no double.
    pub fn with(mut self, name: &str, value: &Json) -> Result<Self, JsonError> {
        self.name(name);
        write(value, &mut self.0)?;
        Ok(self)
    }

    /// Its text.
    pub fn print(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }

    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        write_string(name, &mut self.0);
        self.0.push(':');
    }
}

/// The canonical text of a document that was built here. There is one, because the document has no
/// number without a double.
pub fn print(json: &Json) -> String {
    canonical(json).unwrap_or_default()
}

/// A member that is a text.
pub fn text(json: &Json, name: &str) -> Option<String> {
    json.get(name).and_then(Json::as_str).map(str::to_owned)
}

/// A member that is a whole number.
pub fn number(json: &Json, name: &str) -> Option<u64> {
    json.get(name).and_then(Json::as_u64)
}

/// Whether a member is true.
pub fn flag(json: &Json, name: &str) -> bool {
    json.get(name) == Some(&Json::Bool(true))
}

/// The items of a member, as many of them as can be read.
pub fn list<T>(json: &Json, name: &str, read: impl Fn(&Json) -> Option<T>) -> Vec<T> {
    let items = json.get(name).and_then(Json::as_array).unwrap_or_default();
    items.iter().filter_map(read).collect()
}

/// An item that is a text.
pub fn words(json: &Json) -> Option<String> {
    json.as_str().map(str::to_owned)
}
