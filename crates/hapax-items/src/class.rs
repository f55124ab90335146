//! Failure classes. The class decides how a failure is handled.

/// The class of a failure. A tool gives it for its errors; everything else that a handler throws is
/// [`Logic`](Self::Logic).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A later retry may succeed. Nothing happened.
    Transient,
    /// The script is wrong. Nothing happened.
    Logic,
    /// A person has to allow it. Nothing happened.
    Permission,
    /// A precondition in the outside world is not met. Nothing happened.
    Precondition,
    /// It is unknown whether it happened.
    Indeterminate,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Transient, Self::Logic, Self::Permission, Self::Precondition, Self::Indeterminate];

    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Logic => "logic",
            Self::Permission => "permission",
            Self::Precondition => "precondition",
            Self::Indeterminate => "indeterminate",
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|class| class.as_str() == text);
        found.ok_or_else(|| format!("invalid failure class {text:?}"))
    }
}
