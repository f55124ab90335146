//! Code that all listeners share: an address, a certificate that is read again, and the messages to systemd.

use std::net::SocketAddr;
use std::path::Path;

use hapax::Hapax;
use hapax_server::tls::Tls;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failed};

/// Binds the address that an option names, or says how to correct it.
pub(crate) async fn bound(option: &str, address: &str) -> Result<TcpListener, Failed> {
    TcpListener::bind(address).await.map_err(|error| {
        Failed::new(Exit::Unreachable, format!("{option} {address}: {error}"))
            .next("Choose another address or port; port 0 is any that is free.")
    })
}

pub(crate) fn local(listener: &TcpListener) -> Result<SocketAddr, Failed> {
    listener.local_addr().map_err(|error| Failed::new(Exit::Unreachable, error.to_string()))
}

/// Reads the certificate again on each SIGHUP, if there is one. Call it before a client learns that
/// this process serves: a SIGHUP ends a process that does not handle it.
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
            Ok(()) => tracing::info!(name: "tls_reloaded", "the certificate was reloaded"),
            Err(error) => {
                tracing::error!(name: "tls_not_reloaded", %error, "reloading the certificate failed; the old one stays in use");
            }
        }
    }
}

/// Reads the certificate and the key that these settings name.
pub(crate) fn tls(settings: &str, certificate: &Path, key: &Path) -> Result<Tls, Failed> {
    Tls::read(certificate, key).map_err(|error| {
        Failed::usage(format!("{settings}: {error}")).next("Both are files in PEM.")
    })
}

/// Begins the background passes: effects of dead holders are expired even if no request ever comes.
pub(crate) async fn start_passes(hapax: &Hapax) {
    if let Err(error) = hapax.maintenance().start().await {
        tracing::warn!(name: "background_work_waits", %error, "opening the lease failed; retrying with the first claim");
    }
}

/// Tells systemd, if there is one, that requests are served.
pub(crate) fn is_ready() {
    notify(NotifyState::Ready);
}

/// Tells systemd that the shutdown has begun.
pub(crate) fn is_stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(name: "notify_failed", %error, "notifying systemd failed");
    }
}
