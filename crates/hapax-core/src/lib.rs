//! The nouns and the decisions of hapax.
//!
//! Everything here is a pure function or a plain value. Time, randomness, attempt ids and
//! fences are arguments; nothing in this crate reads a clock, rolls dice, blocks or does IO.
//!
//! | module | noun |
//! |---|---|
//! | [`key`] | the name of an effect |
//! | [`name`] | the namespace it lives in |
//! | [`fingerprint`] | the digest of its payload |
//! | [`effect`] | its life: every state and every transition |
//! | [`verdict`] | the answers to callers |
//! | [`safety`] | what an expired claim means |
//! | [`attempt`] | one permission to perform it |
//! | [`lease`] | the row that permissions depend on |
//! | [`epoch`] | a number that only grows, which effects may be bound to |
//! | [`lock`] | the serialisation of effects that touch the same thing |
//! | [`outcome`] | the recorded result |
//! | [`part`] | an effect that belongs to a whole |
//! | [`journal`] | the append-only record, [`merkle`] its tree, [`checkpoint`] its signed heads |
//! | [`outbox`] | events to deliver, [`route`] the sinks they go to, [`delivery`] the attempts, [`inbox`] the receiver's table |
//! | [`dataset`] | what its owner declared about a dataset |
//! | [`result_index`] | where a cached result is found, and until when |
//! | [`guard`] | data that must not leave in a payload |
//! | [`retry`] | when to try again |
//! | [`time`] | instants of the store's two clocks |
//! | [`token`] | the token that a caller presents |
//! | [`json`], [`canonical`] | strict JSON in, RFC 8785 out, [`document`] stored documents |

pub mod attempt;
pub mod canonical;
pub mod checkpoint;
pub mod dataset;
pub mod delivery;
pub mod document;
pub mod effect;
pub mod epoch;
pub mod fingerprint;
pub mod guard;
pub mod inbox;
pub mod journal;
pub mod json;
pub mod key;
pub mod lease;
pub mod lock;
pub mod merkle;
pub mod name;
pub mod outbox;
pub mod outcome;
pub mod part;
#[doc(hidden)]
pub mod planted;
pub mod result_index;
pub mod retry;
pub mod route;
pub mod safety;
pub mod time;
pub mod token;
pub mod verdict;

mod digest;
