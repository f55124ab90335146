//! The peer: a service that carries out each request once, whatever its mood.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use hapax::{Domain, Hapax, Safety};
use hapax_control::{ControlReceiver, Incoming, Registry};
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::Result;

/// How the peer treats a request.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mood {
    /// Does it and answers.
    Well,
    /// Does it, and loses the answers to so many requests.
    LosesAnswers(usize),
    /// Does nothing, and says so.
    Down,
    /// Says nothing.
    Hangs,
}

pub(crate) struct Peer {
    pub(crate) address: String,
    hapax: Hapax,
    service: Service,
}

#[derive(Clone)]
struct Service {
    receiver: ControlReceiver,
    mood: watch::Sender<Mood>,
    requests: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
}

impl axum::extract::FromRef<Service> for ControlReceiver {
    fn from_ref(service: &Service) -> Self {
        service.receiver.clone()
    }
}

impl Peer {
    pub(crate) async fn start(ledger: &Path) -> Result<Self> {
        let hapax = Hapax::builder().holder("the peer").open(ledger).await?;
        let receiver =
            ControlReceiver::new(hapax.clone(), Registry::standard()).safety(Safety::Transactional);
        let (requests, done) = (Arc::default(), Arc::default());
        let service = Service { receiver, mood: watch::Sender::new(Mood::Well), requests, done };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}/control", listener.local_addr()?);
        let app = axum::Router::new().route("/control", post(control));
        let app = app.with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, hapax, service })
    }

    pub(crate) fn is(&self, mood: Mood) {
        self.service.mood.send_replace(mood);
    }

    pub(crate) fn requests(&self) -> usize {
        self.service.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn done(&self) -> usize {
        self.service.done.load(Ordering::SeqCst)
    }

    /// Advances to the epoch that the nodes are in.
    pub(crate) async fn follow(&self, domain: &Domain, epoch: u64) -> Result<()> {
        let seen = self.hapax.epochs().current(domain).await?;
        self.hapax
            .epochs()
            .advance(domain, (seen, epoch), "the peer", "the others are there")
            .await?;
        Ok(())
    }
}

async fn control(State(service): State<Service>, Incoming(request): Incoming) -> Response {
    service.requests.fetch_add(1, Ordering::SeqCst);
    let mood = *service.mood.borrow();
    match mood {
        Mood::Down => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Mood::Hangs => std::future::pending().await,
        Mood::Well | Mood::LosesAnswers(_) => {}
    }
    let done = service.done.clone();
    let result = service.receiver.receive(&request, |payload| async move {
        done.fetch_add(1, Ordering::SeqCst);
        Ok(format!("done: {}", String::from_utf8_lossy(&payload)))
    });
    match (result.await, mood) {
        (Ok(_), Mood::LosesAnswers(more @ 1..)) => {
            service.mood.send_replace(Mood::LosesAnswers(more - 1));
            println!("   the peer: did it, and the answer gets lost");
            // The connection breaks off instead of an answer.
            Response::new(axum::body::Body::from_stream(Broken))
        }
        (Ok(done), _) => done.body().unwrap_or_default().to_vec().into_response(),
        (Err(error), _) => error.into_response(),
    }
}

/// A body that never comes.
struct Broken;

impl futures_util::Stream for Broken {
    type Item = std::result::Result<bytes::Bytes, std::io::Error>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(Some(Err(std::io::Error::other("the line is cut"))))
    }
}
