//! gRPC: tonic's server and client, and handmade answers.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _};
use http::uri::PathAndQuery;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};
use tower_service::Service as _;

use super::*;

/// Messages that are plain text.
#[derive(Clone, Copy)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// Counts its charges; if the message is the number of a status, it fails with that status.
#[derive(Clone, Default)]
struct Charges {
    calls: Arc<AtomicUsize>,
}

impl NamedService for Charges {
    const NAME: &'static str = "shop.Charges";
}

impl tower_service::Service<Request<tonic::body::Body>> for Charges {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let charges = self.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(Text).unary(charges, request).await) })
    }
}

impl UnaryService<String> for Charges {
    type Response = String;
    type Future = Ready<Result<tonic::Response<String>, Status>>;

    fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
        let nth = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let message = request.into_inner();
        ready(match message.parse::<i32>() {
            Ok(code) => {
                let details = Bytes::from(format!("details {nth}"));
                Err(Status::with_details(code.into(), format!("failure {nth}"), details))
            }
            Err(_) => Ok(tonic::Response::new(format!("charge {nth}: {message}"))),
        })
    }
}

/// A tonic server behind the layer, and a tonic client.
struct Shop {
    client: tonic::client::Grpc<Channel>,
    calls: Arc<AtomicUsize>,
}

impl Shop {
    async fn open(settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let charges = Charges::default();
        let calls = charges.calls.clone();
        let layer = IdempotencyLayer::new(Hapax::builder().in_memory(), settings);
        let server = Server::builder().layer(layer).add_service(charges);
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        let endpoint = Endpoint::from_shared(url).expect("a URL").timeout(LONG);
        let channel = endpoint.connect().await.expect("a connection");
        Self { client: tonic::client::Grpc::new(channel), calls }
    }

    async fn charge(&self, key: &str, text: &str) -> Result<tonic::Response<String>, Status> {
        let mut request = tonic::Request::new(text.to_owned());
        if !key.is_empty() {
            request.metadata_mut().insert("idempotency-key", key.parse().expect("a value"));
        }
        let mut client = self.client.clone();
        client.ready().await.expect("connected");
        client.unary(request, PathAndQuery::from_static("/shop.Charges/Charge"), Text).await
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn is_replayed(metadata: &tonic::metadata::MetadataMap) -> bool {
    metadata.get("idempotent-replayed").is_some()
}

/// Proves S-3 for tonic: a tonic service behind the layer happens once. Its client accepts no
/// answer without a status in the trailers.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_tonic_happens_once() {
    let shop = Shop::open(Settings::default()).await;
    for nth in 0..3 {
        let answer = shop.charge("a", "EUR 10").await.expect("charged");
        assert_eq!(answer.get_ref(), "charge 1: EUR 10");
        assert_eq!(is_replayed(answer.metadata()), nth > 0);
    }
    assert_eq!(shop.calls(), 1);

    let other = shop.charge("a", "EUR 99").await.expect_err("another message");
    assert_eq!(other.code(), Code::InvalidArgument, "{other:?}");
    assert!(other.message().starts_with("HX0202: "), "{other:?}");
    let bare = shop.charge("", "EUR 10").await.expect_err("no key");
    assert_eq!(bare.code(), Code::InvalidArgument);
    assert!(bare.message().starts_with("HX0301: "), "{bare:?}");
    assert_eq!(shop.calls(), 1);
}

/// Proves S-3 for tonic: the status decides whether a failure is kept, retried or blocked.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_tonic_is_what_its_status_says() {
    let shop = Shop::open(Settings::default()).await;
    let fail = async |code: Code| {
        let (key, text) = (format!("k{}", code as i32), (code as i32).to_string());
        shop.charge(&key, &text).await.expect_err("it fails")
    };
    // Settled: the same failure is replayed, with its message and details.
    for nth in 0..2 {
        let failed = fail(Code::NotFound).await;
        assert_eq!((failed.code(), failed.message()), (Code::NotFound, "failure 1"));
        assert_eq!((failed.details(), shop.calls()), (&b"details 1"[..], 1));
        assert_eq!(is_replayed(failed.metadata()), nth > 0);
    }
    // Not done: the request is passed on again.
    for nth in 2..4 {
        let failed = fail(Code::Unavailable).await;
        assert_eq!((failed.code(), shop.calls()), (Code::Unavailable, nth));
    }
    // Refused: the key is free for another message.
    shop.charge("free", "7").await.expect_err("permission denied");
    assert_eq!(shop.charge("free", "EUR 10").await.expect("charged").get_ref(), "charge 5: EUR 10");
    // Unknown: the request is not passed on again.
    assert_eq!(fail(Code::Internal).await.message(), "failure 6");
    let blocked = fail(Code::Internal).await;
    assert_eq!((blocked.code(), shop.calls()), (Code::FailedPrecondition, 6));
    assert!(blocked.message().starts_with("HX0203: "), "{blocked:?}");
}

/// Proves S-3 for gRPC: the status in the trailers is kept, and decides what the answer means.
#[tokio::test]
async fn answers_of_grpc_are_kept_with_their_trailers() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let service = move |request: Request<Body>| {
        let nth = counted.fetch_add(1, Ordering::SeqCst) + 1;
        let status = request.headers()["x-status"].clone();
        async move {
            let trailers = async {
                Some(Ok([("grpc-status".parse().expect("a name"), status)].into_iter().collect()))
            };
            let body = Full::new(Bytes::from(format!("answer {nth}"))).with_trailers(trailers);
            let mut response = Response::new(Body::new(body));
            let kind = "application/grpc".parse().expect("a value");
            response.headers_mut().insert("content-type", kind);
            response
        }
    };
    let app = Router::new().fallback(service);
    let layer = IdempotencyLayer::new(Hapax::builder().in_memory(), Settings::default());
    let mut app = app.layer(layer);
    let mut call = async |key: &str, status: &str| {
        let request = Request::post("/charges.Charges/Charge")
            .header("content-type", "application/grpc")
            .header("idempotency-key", key)
            .header("x-status", status)
            .body(Body::from("a message"))
            .expect("a request");
        let answer = app.call(request).await.expect("an answer");
        let at_once = answer.headers().get("grpc-status").cloned();
        let body = answer.into_body().collect().await.expect("a body");
        let status = body.trailers().map(|trailers| trailers["grpc-status"].clone()).or(at_once);
        let status = status.expect("a status").to_str().expect("text").to_owned();
        (status, String::from_utf8_lossy(&body.to_bytes()).into_owned())
    };
    for _ in 0..2 {
        assert_eq!(call("a", "0").await, ("0".into(), "answer 1".into()));
    }
    // Not done: the request is passed on again.
    assert_eq!(call("b", "14").await.1, "answer 2");
    assert_eq!(call("b", "0").await.1, "answer 3");
    assert_eq!(call("b", "0").await.1, "answer 3");
    // Unknown: the request is not passed on again.
    assert_eq!(call("c", "4").await.1, "answer 4");
    assert_eq!(call("c", "0").await, ("9".into(), String::new()), "a status and no document");
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}
