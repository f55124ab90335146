//! The interface of an extractor, which finds entities and relations in a chunk of text.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::graph::{Mention, Statement};
use crate::ontology::{Ontology, Property};
use crate::params::Params;

/// A question to an extractor about one chunk. Everything in it that changes the answer is in the
/// chunk's key.
#[derive(Debug, Clone, Copy)]
pub struct ChunkRequest<'a> {
    /// The chunk.
    pub chunk: &'a str,
    /// The text before the chunk, as much as the extractor needs.
    pub context: &'a str,
    /// The ontology to extract by.
    pub ontology: &'a Ontology,
    /// The parameters.
    pub params: &'a Params,
}

/// An answer, and its cost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answered<T> {
    /// The findings.
    pub found: T,
    /// The number of paid calls.
    pub calls: u32,
    /// The tokens it read.
    pub tokens_in: u64,
    /// The tokens it wrote.
    pub tokens_out: u64,
    /// The number of entities that it found and discarded, because the chunk or the ontology does
    /// not have them.
    pub discarded: u32,
}

/// The cost of an extractor since this process began, unusable answers included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bill {
    /// The number of paid calls.
    pub calls: u64,
    /// The tokens it read.
    pub tokens_in: u64,
    /// The tokens it wrote.
    pub tokens_out: u64,
    /// The cost in millionths of the currency of its prices, where they are known.
    pub cost_micros: Option<u64>,
}

/// Why an extractor has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractorError {
    /// It may work later.
    #[error("{reason}")]
    Later {
        /// Why not now.
        reason: String,
        /// How long to wait before the next try, if the extractor gave a time.
        after: Option<Duration>,
    },
    /// It will not work, however often it is retried.
    #[error("{0}")]
    Never(String),
}

/// The prefix of a recorded failure that no retry can cure.
const NEVER: &str = "it will not work: ";

/// The prefix of a recorded failure that names a pause, so that every waiting request learns of it,
/// in other processes too.
const AFTER: &str = "it may work after ";

impl ExtractorError {
    /// The text that the ledger records. The prefix stands first, because a long reason is cut.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Later { reason, after: None } => reason.clone(),
            Self::Later { reason, after: Some(after) } => {
                format!("{AFTER}{}: {reason}", humantime::format_duration(*after))
            }
            Self::Never(reason) => format!("{NEVER}{reason}"),
        }
    }

    /// Reads the text that the ledger recorded.
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

    /// Of two failures the first, with the longer of their pauses: a caller that came back earlier
    /// would meet the other.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Later { reason, after }, Self::Later { after: other, .. }) => {
                Self::Later { reason, after: after.max(other) }
            }
            (first, _) => first,
        }
    }
}

/// The future that an extractor returns.
pub type Answer<'a, T> =
    Pin<Box<dyn Future<Output = Result<Answered<T>, ExtractorError>> + Send + 'a>>;

/// Finds entities and relations in a chunk of text. A question is sent once and its answer is
/// reused, so the same question has to have the same answer, or one that is as good.
pub trait Extractor: Send + Sync + 'static {
    /// Its name, its version, and everything else that changes its answers and is not in
    /// [`Params`]. Part of every key.
    fn identity(&self) -> String;

    /// How many characters before a chunk it needs.
    fn context(&self) -> usize {
        0
    }

    /// Is called with an ontology before the first question about it.
    fn prepare(&self, ontology: &Arc<Ontology>) -> Result<(), ExtractorError> {
        let _ = ontology;
        Ok(())
    }

    /// The model that it asks where a request names none, if it asks one.
    fn model(&self) -> Option<&str> {
        None
    }

    /// Whether it costs so little that both its answers about a chunk are recorded as one.
    fn is_cheap(&self) -> bool {
        false
    }

    /// Its cost so far.
    fn bill(&self) -> Bill {
        Bill::default()
    }

    /// The cost of so many tokens, in millionths of the currency of its prices, where they are
    /// known.
    fn cost_micros(&self, tokens_in: u64, tokens_out: u64) -> Option<u64> {
        let _ = (tokens_in, tokens_out);
        None
    }

    /// The entities that the chunk mentions, in the order of the text.
    fn entities<'a>(&'a self, request: ChunkRequest<'a>) -> Answer<'a, Vec<Mention>>;

    /// The relations that the chunk states between these mentions, by these properties only.
    fn relations<'a>(
        &'a self,
        request: ChunkRequest<'a>,
        mentions: &'a [Mention],
        properties: &'a [&'a Property],
    ) -> Answer<'a, Vec<Statement>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(reason: &str, after_ms: Option<u64>) -> ExtractorError {
        ExtractorError::Later { reason: reason.into(), after: after_ms.map(Duration::from_millis) }
    }

    #[test]
    fn a_failure_is_read_as_it_was_recorded() {
        for error in [
            later("busy", None),
            later("busy: very", Some(0)),
            later("busy", Some(1_500)),
            later("busy", Some(90 * 24 * 60 * 60 * 1_000 + 1)),
            later("", Some(u64::MAX)),
            ExtractorError::Never("no".into()),
        ] {
            assert_eq!(ExtractorError::of(&error.reason()), error);
        }
        // A reason that only resembles a prefix is read as a plain reason.
        for reason in ["it may work after lunch: who knows", "it may work after 7s"] {
            assert_eq!(ExtractorError::of(reason), later(reason, None));
        }
    }

    #[test]
    fn of_two_pauses_the_longer_counts() {
        let pause = later("first", None).and(later("second", Some(2_000)));
        assert_eq!(pause.and(later("third", Some(1_000))), later("first", Some(2_000)));
        let never = ExtractorError::Never("no".into());
        assert_eq!(never.clone().and(later("second", Some(1))), never);
    }
}
