//! The declaration of an effect before it is claimed: what a vanished holder means, and when "not found"
//! begins to mean "did not happen".

/// The consequence when a holder vanishes or cannot say what happened. Declared up front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Safety {
    /// Nothing happened unless the outcome was committed. Grant it again.
    Transactional,
    /// It can be looked up. Ask first.
    Reconcilable(Settling),
    /// No process can tell. A person decides.
    #[default]
    Opaque,
}

impl Safety {
    /// Its code in a database, and the settling time in milliseconds, if it has one.
    pub fn code(self) -> (u8, Option<u64>) {
        match self {
            Self::Transactional => (0, None),
            Self::Reconcilable(Settling::AfterMs(ms)) => (1, Some(ms)),
            Self::Reconcilable(Settling::TargetRefusesLate) => (2, None),
            Self::Opaque => (3, None),
        }
    }

    /// The safety class with this code and settling time.
    pub fn from_code(code: u8, settling_ms: Option<u64>) -> Option<Self> {
        match code {
            0 => Some(Self::Transactional),
            1 => Some(Self::Reconcilable(Settling::AfterMs(settling_ms.unwrap_or_default()))),
            2 => Some(Self::Reconcilable(Settling::TargetRefusesLate)),
            3 => Some(Self::Opaque),
            _ => None,
        }
    }
}

/// When a reconciler's "no" counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settling {
    /// At once: the target honours key or fence and so refuses a late arrival.
    TargetRefusesLate,
    /// Once this much time has passed since the holder could last have sent.
    AfterMs(u64),
}

impl Settling {
    /// The default, a minute. Never at once, because only the target can promise that.
    pub const USUAL_MS: u64 = 60_000;

    /// From its form in a configuration: 0 says that the target refuses late arrivals.
    pub fn of_ms(ms: u64) -> Self {
        match ms {
            0 => Self::TargetRefusesLate,
            ms => Self::AfterMs(ms),
        }
    }
}
