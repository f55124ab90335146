//! The nouns and the decisions of hapax.
//!
//! Everything here is a pure function or a plain value. Time, randomness, attempt ids and
//! fences are arguments; nothing in this crate reads a clock, rolls dice, blocks or does IO.
//!
//! | module | noun |
//! |---|---|
//! | [`key`] | what names an effect |
//! | [`name`] | the namespace it lives in
//! | [`fingerprint`] | the digest of its payload |
//! | [`effect`] | its life: every state and every transition |
//! | [`verdict`] | what callers are told |
//! | [`attempt`] | one permission to perform it |
//! | [`lease`] | what a permission hangs on |
//! | [`epoch`] | what effects may be bound to, which only grows |
//! | [`lock`] | what serialises effects that touch the same thing |
//! | [`outcome`] | what is remembered |
//! | [`part`] | what an effect is a part of |
//! | [`journal`] | the append-only record, [`merkle`] its tree, [`checkpoint`] its signed heads |
//! | [`outbox`] | events to be told, [`route`] to whom, [`delivery`] how that goes |
//! | [`guard`] | what must not leave in a payload |
//! | [`retry`] | when to try again |
//! | [`token`] | what somebody shows to be let in |
//! | [`json`], [`canonical`] | strict JSON in, RFC 8785 out, [`document`] what is kept |

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
pub mod retry;
pub mod route;
pub mod safety;
pub mod shelf;
pub mod time;
pub mod token;
pub mod verdict;

mod digest;
