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
