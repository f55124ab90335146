//! Where hapax delivers events to.
//!
//! | sink | it has an event when | it remembers ids |
//! |---|---|---|
//! | [`file`](mod@file) | the line is synced | for ever, if its reader does |
//! | [`stdout`] | the line is written | never |
//! | [`bus`] | every subscriber's queue has it | as long as the process lives |
//! | [`webhook`] | the receiver answers 2xx | as long as the receiver says |

pub mod bus;
pub mod envelope;
pub mod file;
pub mod stdout;
#[cfg(feature = "webhook")]
pub mod webhook;
