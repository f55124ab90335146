//! Requests over HTTP, beside a bare echo and beside the engine without HTTP, in the same run.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use hapax::Hapax;
use hapax_server::idempotency::{IdempotencyLayer, Settings};
use hapax_server::listener::{self, ConnectionLimits, ListeningSocket};
use hapax_server::proxy::Upstream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower_layer::Layer as _;

use crate::load::{Clock, runtime};
use crate::report::{Bar, Report, human};
use crate::{Error, Options, ROUNDS, engine, median, say};

/// How many connections ask at once.
const CONNECTIONS: usize = 64;

/// How many requests are timed one after the other.
const TIMED: usize = 3_000;

pub(crate) fn measure(
    options: &Options,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let mut rounds = [Round::default(); ROUNDS];
    for (nth, round) in rounds.iter_mut().enumerate() {
        say(&format!("round {} of {ROUNDS}: echo, replays, new keys, the proxy", nth + 1));
        let file = |name: &str| directory.join(format!("{name}-{nth}.db"));
        round.in_process = engine::new_keys(&file("engine"), CONNECTIONS, options.time)?;
        let runtime = runtime()?;
        let (layered, proxied) = (file("layer"), file("proxy"));
        runtime.block_on(round.take(options.time, &layered, &proxied))?;
        runtime.shutdown_background();
    }
    let middle = |figure: fn(&Round) -> f64| median(rounds.each_ref().map(figure));
    let echo = middle(|round| round.echo);
    report.fact("a bare axum echo, 64 connections", "http.echo.64.per_s", echo, "requests/s");
    let replay = middle(|round| round.replay);
    report.fact("replayed answers, 64 connections", "http.replay.64.per_s", replay, "requests/s");
    let ratio = middle(|round| round.replay / round.echo);
    let beside = format!("× echo {}", human(echo));
    report.ratio("", "http.replay.64.vs_echo", ratio, beside, Bar::AtLeast(0.5));
    let new = middle(|round| round.new);
    report.fact("new keys, 64 connections", "http.new.64.per_s", new, "requests/s");
    let in_process = middle(|round| round.in_process);
    report.figure("new.64.per_s", in_process);
    let ratio = middle(|round| round.new / round.in_process);
    let beside = format!("× in process {}", human(in_process));
    report.ratio("", "http.new.64.vs_inprocess", ratio, beside, Bar::AtLeast(0.5));
    let added = middle(|round| round.proxy_ms - round.echo_ms);
    let beside = format!("ms, to {} ms of the service alone", human(middle(|round| round.echo_ms)));
    report.ratio(
        "the proxy adds to a replayed answer, p50",
        "http.proxy_p50_ms",
        added,
        beside,
        Bar::Below(0.3),
    );
    Ok(())
}

/// Rates a second and times, measured one after the other.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    in_process: f64,
    echo: f64,
    replay: f64,
    new: f64,
    echo_ms: f64,
    proxy_ms: f64,
}

impl Round {
    async fn take(&mut self, time: Duration, layered: &Path, proxied: &Path) -> Result<(), Error> {
        let echo = bare().await?;
        let hapax = Hapax::open(layered).await?;
        let layer = IdempotencyLayer::new(hapax.clone(), Settings::default());
        let layered = served(app().layer(layer)).await?;
        let proxy = Hapax::open(proxied).await?;
        let upstream = Upstream::new(&format!("http://{echo}"), Duration::from_secs(5));
        let upstream = upstream.map_err(|error| Error::Invalid(error.to_string()))?;
        let layer = IdempotencyLayer::new(proxy.clone(), Settings::default());
        let proxied = served(layer.layer(upstream)).await?;

        self.echo = rate(echo, time, charge).await?;
        self.replay = rate(layered, time, charge).await?;
        let unique = Arc::new(AtomicU64::new(1 << 32));
        let unique = move |_| charge(unique.fetch_add(1, Ordering::Relaxed));
        self.new = rate(layered, time, unique).await?;
        self.echo_ms = p50_ms(echo).await?;
        self.proxy_ms = p50_ms(proxied).await?;
        hapax.close().await?;
        proxy.close().await?;
        Ok(())
    }
}

fn app() -> Router {
    Router::new().fallback(post(|body: String| async { body }))
}

pub(crate) fn unreachable(error: impl std::fmt::Display) -> Error {
    Error::Unreachable(error.to_string())
}

async fn bound() -> Result<(TcpListener, SocketAddr), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(unreachable)?;
    let address = listener.local_addr().map_err(unreachable)?;
    Ok((listener, address))
}

/// The baseline of every figure: a server without any code of ours.
pub(crate) async fn bare() -> Result<SocketAddr, Error> {
    let (listener, address) = bound().await?;
    tokio::spawn(async move {
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, app()).await
    });
    Ok(address)
}

pub(crate) async fn served<S>(service: S) -> Result<SocketAddr, Error>
where
    S: tower_service::Service<
            http::Request<axum::body::Body>,
            Response = http::Response<axum::body::Body>,
            Error = std::convert::Infallible,
            Future: Send,
        > + Clone
        + Send
        + Sync
        + 'static,
{
    let (listener, address) = bound().await?;
    let socket = ListeningSocket { listener, tls: None, limits: ConnectionLimits::default() };
    tokio::spawn(listener::serve(socket, service, std::future::pending()));
    Ok(address)
}

/// A client that writes a request and reads its answer, and does nothing else.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    async fn ask(&mut self, request: &[u8]) -> Result<(), Error> {
        self.stream.write_all(request).await.map_err(unreachable)?;
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await.map_err(unreachable)?;
            if read == 0 {
                return Err(unreachable("the connection was closed"));
            }
            if !is_whole(&self.buffer) {
                continue;
            }
            if self.buffer.starts_with(b"HTTP/1.1 200") {
                return Ok(());
            }
            let head = String::from_utf8_lossy(&self.buffer);
            return Err(unreachable(format!("answered {}", head.lines().next().unwrap_or(""))));
        }
    }
}

/// Whether an answer is complete.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = answer[..end].split(|byte| *byte == b'\n');
    let length = head.into_iter().find_map(|line| {
        let (name, value) = line.split_at_checked(b"content-length:".len())?;
        let named = name.eq_ignore_ascii_case(b"content-length:");
        named.then(|| std::str::from_utf8(value).ok()?.trim().parse::<usize>().ok())?
    });
    answer.len() >= end + 4 + length.unwrap_or(0)
}

/// A charge under this key.
fn charge(key: u64) -> Vec<u8> {
    format!(
        "POST /charges HTTP/1.1\r\nhost: localhost\r\nidempotency-key: {key}\r\n\
         content-type: text/plain\r\ncontent-length: 9\r\n\r\nEUR 10.00"
    )
    .into()
}

/// Requests a second over many connections, each asking again as soon as it is answered. `request`
/// gets the number of the connection.
pub(crate) async fn rate<R>(address: SocketAddr, time: Duration, request: R) -> Result<f64, Error>
where
    R: Fn(u64) -> Vec<u8> + Clone + Send + 'static,
{
    let done = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut clients = Vec::new();
    for connection in 0..CONNECTIONS as u64 {
        let mut client = Client::connect(address).await?;
        let (done, request) = (done.clone(), request.clone());
        clients.push(tokio::spawn(async move {
            while start.elapsed() < time {
                client.ask(&request(connection)).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, Error>(())
        }));
    }
    let mut clock = Clock::new(time);
    while clock.runs(done.load(Ordering::Relaxed)) {
        tokio::time::sleep(time / 100).await;
    }
    let per_s = clock.per_s(done.load(Ordering::Relaxed));
    for client in clients {
        client.await.map_err(unreachable)??;
    }
    Ok(per_s)
}

/// The median time of one answer, over one connection, in milliseconds.
async fn p50_ms(address: SocketAddr) -> Result<f64, Error> {
    let mut client = Client::connect(address).await?;
    let mut times = Vec::with_capacity(TIMED);
    for _ in 0..TIMED {
        let start = Instant::now();
        client.ask(&charge(7)).await?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[TIMED / 2].as_secs_f64() * 1000.0)
}
