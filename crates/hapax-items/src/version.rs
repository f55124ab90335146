//! Versions of a script: an author's is a new major one, a repair a new minor one.

/// A version of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// Raised by its author.
    pub major: u32,
    /// Raised by repairs.
    pub minor: u32,
}

impl Version {
    /// The first one.
    pub const FIRST: Self = Self { major: 1, minor: 0 };

    /// The one that an author publishes next.
    pub fn next_major(self) -> Self {
        Self { major: self.major.saturating_add(1), minor: 0 }
    }

    /// The one that a repair makes.
    pub fn next_minor(self) -> Self {
        Self { minor: self.minor.saturating_add(1), ..self }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl std::str::FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('.').and_then(|(major, minor)| {
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        });
        parts.ok_or_else(|| format!("invalid version {text:?}: write major.minor, such as 1.0"))
    }
}
