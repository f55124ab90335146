//! What finds entities and relations in a chunk of text.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::graph::{Mention, Said};
use crate::ontology::{Ontology, Property};
use crate::params::Params;

/// What an extractor is asked about one chunk. Everything in here is in the chunk's key.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The chunk.
    pub chunk: &'a str,
    /// What stands before it, as much as the extractor wishes to see.
    pub context: &'a str,
    /// What to look for.
    pub ontology: &'a Ontology,
    /// How.
    pub params: &'a Params,
}

/// An answer, and what it took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked<T> {
    /// What was found.
    pub found: T,
    /// How often something that costs was asked.
    pub calls: u32,
    /// The tokens it read.
    pub tokens_in: u64,
    /// The tokens it wrote.
    pub tokens_out: u64,
}

/// What an extractor has cost since this process began, answers that were of no use too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bill {
    /// How often something that costs was asked.
    pub calls: u64,
    /// The tokens it read.
    pub tokens_in: u64,
    /// The tokens it wrote.
    pub tokens_out: u64,
    /// What that costs, in millionths of the currency of its prices, where they are known.
    pub cost_micros: Option<u64>,
}

/// Why an extractor has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It may work later, at the earliest after this long.
    #[error("{reason}")]
    Later {
        /// Why not now.
        reason: String,
        /// When to try again, if it said so.
        after: Option<Duration>,
    },
    /// It will not work, however often it is asked.
    #[error("{0}")]
    Never(String),
}

/// How the ledger remembers that it is of no use to ask again.
const NEVER: &str = "it will not work: ";

/// How it remembers when to ask again, so that all who waited are told, in other processes too.
const AFTER: &str = "it may work after ";

impl Trouble {
    /// What the ledger keeps of it. What is not the reason stands first: a long reason is cut.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Later { reason, after: None } => reason.clone(),
            Self::Later { reason, after: Some(after) } => {
                format!("{AFTER}{}: {reason}", humantime::format_duration(*after))
            }
            Self::Never(reason) => format!("{NEVER}{reason}"),
        }
    }

    /// What the ledger has kept.
    pub(crate) fn of(reason: &str) -> Self {
        if let Some(reason) = reason.strip_prefix(NEVER) {
            return Self::Never(reason.to_owned());
        }
        let timed = reason.strip_prefix(AFTER).and_then(|rest| {
            let (after, reason) = rest.split_once(": ")?;
            Some((humantime::parse_duration(after).ok()?, reason))
        });
        match timed {
            Some((after, reason)) => Self::Later { reason: reason.to_owned(), after: Some(after) },
            None => Self::Later { reason: reason.to_owned(), after: None },
        }
    }

    /// Of two troubles the first, with the longer of their pauses: whoever comes back earlier
    /// meets the other.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Later { reason, after }, Self::Later { after: other, .. }) => {
                Self::Later { reason, after: after.max(other) }
            }
            (first, _) => first,
        }
    }
}

/// A future of an extractor.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<Asked<T>, Trouble>> + Send + 'a>>;

/// Finds entities and relations in a chunk of text. The same question has to have the same answer,
/// or one that is as good: it is asked once.
pub trait Extractor: Send + Sync + 'static {
    /// What it is, its version, and whatever else changes its answers and is not in [`Params`].
    /// Part of every key.
    fn identity(&self) -> String;

    /// How many characters before a chunk it wishes to see.
    fn context(&self) -> usize {
        0
    }

    /// Gets to see an ontology that it will be asked about.
    fn prepare(&self, ontology: &Arc<Ontology>) -> Result<(), Trouble> {
        let _ = ontology;
        Ok(())
    }

    /// Whether it costs so little that both its answers about a chunk are kept as one.
    fn is_cheap(&self) -> bool {
        false
    }

    /// What it has cost so far.
    fn bill(&self) -> Bill {
        Bill::default()
    }

    /// What so many tokens cost, in millionths of the currency of its prices, where they are known.
    fn cost_micros(&self, tokens_in: u64, tokens_out: u64) -> Option<u64> {
        let _ = (tokens_in, tokens_out);
        None
    }

    /// The entities that the chunk mentions, in the order of the text.
    fn entities<'a>(&'a self, ask: Ask<'a>) -> Answer<'a, Vec<Mention>>;

    /// The relations that the chunk states between these mentions, by these properties only.
    fn relations<'a>(
        &'a self,
        ask: Ask<'a>,
        mentions: &'a [Mention],
        properties: &'a [&'a Property],
    ) -> Answer<'a, Vec<Said>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(reason: &str, after_ms: Option<u64>) -> Trouble {
        Trouble::Later { reason: reason.into(), after: after_ms.map(Duration::from_millis) }
    }

    #[test]
    fn a_trouble_is_the_same_after_the_ledger_kept_it() {
        for trouble in [
            later("busy", None),
            later("busy: very", Some(0)),
            later("busy", Some(1_500)),
            later("busy", Some(90 * 24 * 60 * 60 * 1_000 + 1)),
            later("", Some(u64::MAX)),
            Trouble::Never("no".into()),
        ] {
            assert_eq!(Trouble::of(&trouble.reason()), trouble);
        }
        // What only looks like it is a reason.
        for reason in ["it may work after lunch: who knows", "it may work after 7s"] {
            assert_eq!(Trouble::of(reason), later(reason, None));
        }
    }

    #[test]
    fn of_two_pauses_the_longer_counts() {
        let told = later("first", None).and(later("second", Some(2_000)));
        assert_eq!(told.and(later("third", Some(1_000))), later("first", Some(2_000)));
        let never = Trouble::Never("no".into());
        assert_eq!(never.clone().and(later("second", Some(1))), never);
    }
}
