//! What everything that listens has in common: an address, a certificate that is read again, and
//! systemd to be told.

use std::net::SocketAddr;
use std::path::Path;

use hapax_server::tls::Tls;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failed};

/// Takes the address that an option names, or says what to do about it.
pub(crate) async fn bound(option: &str, address: &str) -> Result<TcpListener, Failed> {
    TcpListener::bind(address).await.map_err(|error| {
        Failed::new(Exit::Unreachable, format!("{option} {address}: {error}"))
            .next("Choose another address or port; port 0 is any that is free.")
    })
}

pub(crate) fn local(listener: &TcpListener) -> Result<SocketAddr, Failed> {
    listener.local_addr().map_err(|error| Failed::new(Exit::Unreachable, error.to_string()))
}

/// Has the certificate read again whenever SIGHUP comes, if there is one. To be called before
/// anybody is told that it serves: who sends SIGHUP to one that does not listen ends it.
pub(crate) fn reload_on_hangup(tls: Option<Tls>) -> Result<(), Failed> {
    let hangup = signal(SignalKind::hangup());
    let hangup =
        hangup.map_err(|error| Failed::new(Exit::Unreachable, format!("no signals: {error}")))?;
    tokio::spawn(reloading(hangup, tls));
    Ok(())
}

async fn reloading(mut hangup: Signal, tls: Option<Tls>) {
    while hangup.recv().await.is_some() {
        let Some(tls) = &tls else { continue };
        match tls.reload() {
            Ok(()) => tracing::info!(name: "tls_reloaded", "the certificate was read again"),
            Err(error) => {
                tracing::error!(name: "tls_not_reloaded", %error, "the old certificate stays");
            }
        }
    }
}

/// A certificate and its key, which these settings name.
pub(crate) fn tls(settings: &str, certificate: &Path, key: &Path) -> Result<Tls, Failed> {
    Tls::read(certificate, key).map_err(|error| {
        Failed::usage(format!("{settings}: {error}")).next("Both are files in PEM.")
    })
}

/// Tells systemd that requests are served, where it is there to be told.
pub(crate) fn is_ready() {
    notify(NotifyState::Ready);
}

/// Tells systemd that the end has begun.
pub(crate) fn is_stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(name: "notify_failed", %error, "systemd could not be told");
    }
}
