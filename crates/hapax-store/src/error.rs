//! Errors at the seam, sorted by what the caller does next.

/// An error of a store. Expected answers are never errors.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached now. Nothing was written. Try again.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// There is no room. Nothing was written; work resumes when there is.
    #[error("no room left for the store: {0}")]
    Full(String),
    /// The commit's reply was lost. Ask again with the same attempt before acting.
    #[error("whether the commit took effect is not known: {0}")]
    CommitUnknown(String),
    /// A write could not be made durable, or the store's own code panicked. This store answers nothing
    /// until it is reopened.
    #[error("the store has stopped: {0}")]
    Stopped(String),
    /// The stored data is inconsistent. Stop, and have an operator look.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// The input is beyond a limit. Change it.
    #[error("refused: {0}")]
    Invalid(String),
    /// Another key with the same first 16 bytes is recorded. Such keys are never made by accident.
    #[error("another key begins with the same 16 bytes as {0}")]
    Collision(hapax_core::key::Key),
    /// The lease that a claim would depend on is over. Open another and ask again.
    #[error("the lease {0} is over")]
    LeaseDead(hapax_core::lease::LeaseId),
    /// No route takes this event. Declare one.
    #[error("no route takes the event {event:?} of dataset {dataset:?}")]
    Unrouted {
        /// The event's name.
        event: String,
        /// The event's dataset.
        dataset: String,
    },
    /// A guard refused the event, because of its payload or its dataset.
    #[error("the payload of {event:?} has {found}")]
    Guarded {
        /// The event's name.
        event: String,
        /// The kind and the place of each finding, never its content.
        found: String,
    },
    /// The effect emitted this event before with another content.
    #[error("the event {0:?} was recorded before with another content")]
    Differs(String),
    /// This version of a dataset is published with another checksum or place.
    #[error("version {version:?} of dataset {dataset:?} is published as something else")]
    Republished {
        /// The dataset.
        dataset: String,
        /// The version.
        version: String,
    },
    /// The ontology that a result was made from has changed. Make it again from the present one.
    #[error("the ontology {0:?} has changed since, or is gone")]
    Superseded(String),
    /// This attempt's settle was committed before, and with it the transaction it was part of. Roll
    /// back: the first commit has everything that this transaction wrote.
    #[error("already recorded: {0} was settled before; roll back")]
    AlreadyRecorded(hapax_core::attempt::AttemptId),
    /// The file was made by another version, or the library is too old.
    #[error("the store cannot be used by this version: {0}")]
    Incompatible(String),
    /// The caller's own database connection would break a promise.
    #[error("this connection cannot take part: {0}")]
    Connection(String),
}

impl StoreError {
    /// The error of a store whose own code panicked while it wrote.
    pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::Stopped(format!("a panic while it wrote: {}", text.unwrap_or("no message")))
    }

    /// The code, which has a page of its own in the documentation.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "HX0101",
            Self::Full(_) => "HX0102",
            Self::CommitUnknown(_) => "HX0103",
            Self::Stopped(_) => "HX0104",
            Self::Corrupt(_) => "HX0105",
            Self::Invalid(_) => "HX0106",
            Self::Collision(_) => "HX0107",
            Self::Incompatible(_) => "HX0108",
            Self::Connection(_) => "HX0109",
            Self::LeaseDead(_) => "HX0110",
            Self::Unrouted { .. } => "HX0111",
            Self::Differs(_) => "HX0112",
            Self::Republished { .. } => "HX0113",
            Self::Guarded { .. } => "HX0114",
            Self::Superseded(_) => "HX0115",
            Self::AlreadyRecorded(_) => "HX0116",
        }
    }

    /// Whether the same call may succeed later, unchanged.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Full(_) | Self::CommitUnknown(_))
    }
}
