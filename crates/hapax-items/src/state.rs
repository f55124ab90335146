//! The states of items and mutations, and how they follow from their effects.
//!
//! ```text
//!  item:      processing ──▶ done
//!                  │ └──────▶ failed ──the next run──▶ processing
//!                  └────────▶ needs_attention ──a person──▶ failed | skipped
//!             failed ──an outcome stays unknown, or a person──▶ needs_attention | skipped
//!             any but processing ──a person: reprocess──▶ failed, and the next run begins the next attempt
//!
//!  mutation:  in_flight ──▶ applied
//!                 │ └─────▶ failed ──the next run──▶ in_flight
//!                 ├───────▶ needs_reconcile ──▶ applied | failed | indeterminate
//!                 └───────▶ indeterminate, if no tool can look it up
//!             indeterminate ──a person──▶ applied | failed | needs_reconcile
//!             needs_reconcile, indeterminate ──its holder, late──▶ applied | failed
//! ```
//!
//! They have no state of their own: an item is an effect, and so is each of its mutations.

use hapax::StateName;

/// The state of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ItemState {
    /// A run is working on it.
    Processing,
    /// Its handler came to its end.
    Done,
    /// Its handler did not, and the next run takes it up again.
    Failed,
    /// A person skipped it.
    Skipped,
    /// A person has to decide.
    NeedsAttention,
}

impl ItemState {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Processing, Self::Done, Self::Failed, Self::Skipped, Self::NeedsAttention];

    /// The item's state, from the state of its effect. `unknown` means that one of its mutations
    /// has an unknown outcome and is not looked up any more.
    pub fn of(state: StateName, unknown: bool) -> Self {
        match state {
            StateName::Running => Self::Processing,
            StateName::Succeeded => Self::Done,
            StateName::Failed if unknown => Self::NeedsAttention,
            StateName::Failed => Self::Failed,
            state if state.needs_attention() => Self::NeedsAttention,
            _ => Self::Skipped,
        }
    }

    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::NeedsAttention => "needs_attention",
        }
    }

    /// The states of effects that may mean this one.
    pub(crate) fn effects(self) -> &'static [StateName] {
        match self {
            Self::Processing => &[StateName::Running],
            Self::Done => &[StateName::Succeeded],
            Self::Failed => &[StateName::Failed],
            Self::Skipped => &[StateName::Skipped],
            Self::NeedsAttention => &[StateName::Partial],
        }
    }
}

impl std::str::FromStr for ItemState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            format!("invalid item state {text:?}; there are: {all}")
        })
    }
}

/// The state of a mutation. Scripts never see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MutationState {
    /// Durable before the call leaves.
    InFlight,
    /// It happened. Never applied again.
    Applied,
    /// It did not happen, for certain.
    Failed,
    /// It may have happened, and will be looked up.
    NeedsReconcile,
    /// No lookup can decide. A person decides, or has skipped it with its item.
    Indeterminate,
}

impl MutationState {
    /// The mutation's state, from the state of its effect.
    pub fn of(state: StateName) -> Self {
        match state {
            StateName::Running => Self::InFlight,
            StateName::Succeeded => Self::Applied,
            StateName::Failed => Self::Failed,
            StateName::Unknown => Self::NeedsReconcile,
            StateName::Partial | StateName::Indeterminate | StateName::Skipped => {
                Self::Indeterminate
            }
        }
    }

    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Applied => "applied",
            Self::Failed => "failed",
            Self::NeedsReconcile => "needs_reconcile",
            Self::Indeterminate => "indeterminate",
        }
    }
}
