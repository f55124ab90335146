//! Accepts connections, and closes those that take too long.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum_core::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tower_service::Service;

use crate::tls::Tls;

/// The limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// How many connections are open at once; more wait to be accepted.
    pub connections: usize,
    /// How long the head of a request may take to arrive.
    pub head: Duration,
    /// How long a client may read nothing of an answer before its connection is closed.
    pub read: Duration,
    /// How long requests in flight may go on after the stop.
    pub drain: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connections: 1024, head: seconds(10), read: seconds(30), drain: seconds(30) }
    }
}

/// The largest head of a request, in bytes: its first line and its headers.
const HEAD: usize = 64 * 1024;

/// A listening socket, with its TLS and its limits.
pub struct ListeningSocket {
    /// The socket that accepts connections.
    pub listener: TcpListener,
    /// The certificate for TLS, if connections use it.
    pub tls: Option<Tls>,
    /// The limits of a connection.
    pub limits: ConnectionLimits,
}

/// The client at the other end of a connection. Among the extensions of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
}

/// Serves until `stop` completes, then lets requests in flight finish.
pub async fn serve<S>(socket: ListeningSocket, service: S, stop: impl Future<Output = ()>)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
{
    let ListeningSocket { listener, tls, limits } = socket;
    let clients = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let client = clients.clone().acquire_owned().await;
            (client, listener.accept().await)
        };
        let (client, stream, address) = tokio::select! {
            () = &mut stop => break,
            (client, accepted) = accepted => match (client, accepted) {
                (Ok(client), Ok((stream, address))) => (client, stream, address),
                (_, Err(error)) => {
                    tracing::warn!(name: "accept_failed", %error, "accepting a connection failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                (Err(_), _) => break,
            },
        };
        let _ = stream.set_nodelay(true);
        let mut stream = Box::pin(TimeoutStream::new(stream));
        stream.as_mut().set_write_timeout_pinned(Some(limits.read));
        let (service, watcher) = (service.clone(), graceful.watcher());
        let secured = tls.as_ref().map(|tls| tls.acceptor());
        let peer = Peer { address: address.ip().to_canonical(), is_tls: secured.is_some() };
        tokio::spawn(async move {
            let _client = client;
            let Some(acceptor) = secured else {
                return converse(stream, service, peer, limits, watcher).await;
            };
            match tokio::time::timeout(limits.head, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => converse(stream, service, peer, limits, watcher).await,
                Ok(Err(error)) => tracing::debug!(%error, "a connection was not secured"),
                Err(_) => tracing::debug!("a connection was not secured in time"),
            }
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(limits.drain, graceful.shutdown()).await;
}

/// Answers the requests of one connection.
async fn converse<S, T>(
    stream: T,
    service: S,
    peer: Peer,
    limits: ConnectionLimits,
    watcher: Watcher,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let answer = service_fn(move |mut request: Request<Incoming>| {
        let mut service = service.clone();
        request.extensions_mut().insert(peer);
        async move {
            std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request.map(Body::new)).await
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_header_size(HEAD)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), answer);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended");
    }
}
