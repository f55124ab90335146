//! Waiting for a signal to stop.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failed};

/// Returns once a signal asks to stop: Ctrl-C, or SIGTERM. Listens from now on.
pub(crate) fn requested() -> Result<impl Future<Output = ()>, Failed> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failed::new(Exit::Unreachable, format!("no signals: {error}")))
    };
    let (mut interrupt, mut terminate) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
