//! The arguments of a tool call, as the tool reads them.

use hapax_core::json::Json;
use hapax_items::ToolError;

/// The arguments of a call: an object with members that the tool knows.
pub(super) struct Arguments<'a>(&'a Json);

impl<'a> Arguments<'a> {
    /// Refuses unknown names: a misspelt argument is a mistake, not one that is missing.
    pub(super) fn of(arguments: &'a Json, known: &[&str]) -> Result<Self, ToolError> {
        let Json::Object(members) = arguments else {
            return Err(ToolError::logic("the arguments have to be an object"));
        };
        match members.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(ToolError::logic(format!(
                "there is no argument {name:?}; there are {}",
                known.join(", ")
            ))),
            None => Ok(Self(arguments)),
        }
    }

    /// An argument that may be missing, or be null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Json> {
        self.0.get(name).filter(|value| !matches!(value, Json::Null))
    }

    /// A text that has to be there.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, ToolError> {
        self.get(name).and_then(Json::as_str).ok_or_else(|| {
            ToolError::logic(format!("the argument {name:?} is required, and must be a text"))
        })
    }

    /// A text that may be missing.
    #[cfg(feature = "email")]
    pub(super) fn optional_text(&self, name: &str) -> Result<Option<&'a str>, ToolError> {
        self.get(name).map(|_| self.text(name)).transpose()
    }
}
