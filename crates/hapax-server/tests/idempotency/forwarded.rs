//! The proxy between two addresses: headers about the client, locations, and streams.

use http::HeaderMap;

use super::*;

/// Answers with the headers of the request.
async fn echo(headers: HeaderMap) -> String {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        format!("{name}: {}\n", value.to_str().expect("text"))
    };
    headers.iter().map(line).collect()
}

/// Answers with a location at the host that the request names.
async fn located(headers: HeaderMap) -> (StatusCode, [(&'static str, String); 1]) {
    let host = headers["host"].to_str().expect("text");
    (StatusCode::CREATED, [("location", format!("http://{host}/api/charges/7?x=1"))])
}

/// A proxy before a service under `/api`, and the service's address.
async fn proxied(preserves_host: bool) -> (World, String) {
    let app = Router::new().route("/api/echo", get(echo)).route("/api/charges", any(located));
    let at = listen(ConnectionLimits::default(), app).await;
    let upstream = Upstream::new(&format!("{at}/api"), LONG).expect("a URL");
    let upstream = if preserves_host { upstream.preserve_host() } else { upstream };
    let hapax = Hapax::builder().in_memory();
    let layer = IdempotencyLayer::new(hapax.clone(), Settings::default());
    let url = listen(ConnectionLimits::default(), layer.layer(upstream)).await;
    let (service, _) = super::app();
    (World { name: "proxy", url, service, hapax }, at.replace("http://", ""))
}

/// Proves S-3: the service learns the client's address, the scheme and the host, and gets its own
/// name as `Host` unless the client's is preserved.
#[tokio::test(flavor = "multi_thread")]
async fn the_service_learns_who_asked() {
    for preserves_host in [false, true] {
        let (proxy, service) = proxied(preserves_host).await;
        let own = proxy.url.replace("http://", "");
        let host = if preserves_host { &own } else { &service };
        for (sent, addresses) in [
            (vec![], "127.0.0.1"),
            (vec![("x-forwarded-for", "203.0.113.9")], "203.0.113.9, 127.0.0.1"),
            // A client cannot have the proxy's own headers removed.
            (vec![("connection", "x-forwarded-for")], "127.0.0.1"),
        ] {
            let seen = proxy.send(Method::GET, "/echo", &sent, "").await.body;
            for line in [
                format!("host: {host}"),
                format!("x-forwarded-for: {addresses}"),
                format!("x-forwarded-host: {own}"),
                "x-forwarded-proto: http".to_owned(),
                format!("forwarded: for=127.0.0.1;proto=http;host=\"{own}\""),
            ] {
                assert!(seen.lines().any(|seen| seen == line), "{line}: {seen}");
            }
        }
    }
}

/// Proves S-3: a location at the service's own address leads back to the proxy, also if it is
/// replayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_location_leads_back_to_the_proxy() {
    let (proxy, _) = proxied(false).await;
    for replayed in [false, true] {
        let answer = proxy.charge("k", "a").await;
        assert_eq!((answer.status(), answer.replayed()), (201, replayed));
        assert_eq!(answer.header("location"), Some("/charges/7?x=1"));
    }
}

/// Proves S-3: an answer to a request without a key is passed on while it comes, as a stream of
/// events has to be.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_passed_on_while_it_comes() {
    for world in World::both(&Settings::default()).await {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let url = format!("{}/charges?stall", world.url).parse().expect("a URL");
        let answer = tokio::time::timeout(LONG, client.get(url)).await.expect("in time");
        let mut body = answer.expect("an answer").into_body();
        let first = tokio::time::timeout(LONG, body.frame()).await.expect("while it comes");
        let first = first.expect("a frame").expect("no error").into_data().expect("data");
        assert_eq!(&first[..], b"so far", "{}", world.name);
    }
}
