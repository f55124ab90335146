//! A service on hyper, without a router.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;

use super::*;

/// Counts its calls.
#[derive(Clone, Default)]
struct Counts(Arc<AtomicUsize>);

impl tower_service::Service<Request<Body>> for Counts {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let nth = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        ready(Ok(Response::new(Full::from(format!("number {nth}")))))
    }
}

/// Proves S-3: the layer works with a service that hyper serves, without a router.
#[tokio::test]
async fn a_service_of_hyper_happens_once() {
    let (counts, hapax) = (Counts::default(), Hapax::builder().in_memory());
    let service = IdempotencyLayer::new(hapax, Settings::default()).layer(counts.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut answers = Vec::new();
    for key in ["\"one\"", "\"one\"", "\"two\""] {
        let request = Request::post(&url).header("idempotency-key", key);
        let request = request.body(Full::from("EUR 10")).expect("a request");
        let response = client.request(request).await.expect("an answer");
        let replayed = response.headers().contains_key("idempotent-replayed");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        answers.push((String::from_utf8_lossy(&body).into_owned(), replayed));
    }
    let answers: Vec<_> = answers.iter().map(|(body, again)| (body.as_str(), *again)).collect();
    assert_eq!(answers, [("number 1", false), ("number 1", true), ("number 2", false)]);
    assert_eq!(counts.0.load(Ordering::SeqCst), 2);
}
