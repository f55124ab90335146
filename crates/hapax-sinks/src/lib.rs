//! The sinks that hapax delivers events to.
//!
//! | sink | it has an event when | it remembers ids |
//! |---|---|---|
//! | [`file`](mod@file) | the line is synced | forever, if its reader does |
//! | [`stdout`] | the line is written | never |
//! | [`webhook`] | the receiver answers 2xx | as long as its receiver does |
//! | [`nats`] | the stream acknowledges it | for its duplicate window |
//! | [`rabbitmq`] | the broker confirms it | never |
//! | [`redis`](mod@redis) | the server answers | for a configured time |
//! | `kafka` | all replicas in sync have it | for one session of the producer |

pub mod envelope;
pub mod excerpt;
pub mod file;
pub mod form;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(
    feature = "webhook",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis",
    feature = "kafka"
))]
mod ordering;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;
pub mod stdout;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis", feature = "kafka"))]
pub mod template;
#[cfg(feature = "webhook")]
pub mod webhook;
