//! Limits: the sizes of bodies, slow clients, and how many requests are under way.

use super::*;

/// Proves K-12, S-6: a request that is too large is refused; an answer that is too large is not
/// kept, and the answer to a later caller says so.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_have_limits() {
    let settings = Settings::default().largest_request(1_000).largest_answer(100_000);
    for world in World::both(&settings).await {
        let large = world.charge("k1", &"x".repeat(1_001)).await;
        assert_eq!((large.status(), large.problem()), (413, "HX0303".into()), "{}", world.name);
        assert_eq!(world.calls(), 0);
        let ask = || world.post("/charges?large", &[("idempotency-key", "k2")], "a");
        assert_eq!(ask().await.body.len(), 200_000, "the first caller gets it all");
        let again = ask().await;
        assert_eq!((again.status(), again.problem()), (200, "HX0307".into()));
        assert!(again.replayed());
        assert_eq!(world.calls(), 1);
    }
}

/// Proves S-6: an answer counts even if it breaks off beyond the limit for kept answers. The first
/// caller sees it break off; the answer to a later caller says that it happened.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_late_counts_by_its_status() {
    for world in World::both(&Settings::default().largest_answer(100_000)).await {
        let request = Request::post(format!("{}/charges?break-late", world.url))
            .header("idempotency-key", "k")
            .body(Full::from("a"))
            .expect("a request");
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let answered = tokio::time::timeout(LONG, client.request(request)).await;
        let first = answered.expect("in time").expect("an answer");
        assert_eq!(first.status(), 200);
        assert!(first.into_body().collect().await.is_err(), "{}: it breaks off", world.name);
        let again = world.post("/charges?break-late", &[("idempotency-key", "k")], "a").await;
        assert_eq!((again.status(), again.problem()), (200, "HX0307".into()), "{}", world.name);
        assert!(again.replayed());
        assert_eq!(world.calls(), 1);
    }
}

/// Proves S-6: connections that send a head or a body too slowly are closed; other clients are served.
#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_given_up_and_others_served() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const DRIPPING: usize = 500;
    let short = Duration::from_millis(500);
    let (service, app) = app();
    let hapax = Hapax::builder().in_memory();
    let settings = Settings::default().longest_request(short);
    let app = app.layer(IdempotencyLayer::new(hapax.clone(), settings));
    let limits = ConnectionLimits { head: short, ..ConnectionLimits::default() };
    let url = listen(limits, app).await;
    let address = url.trim_start_matches("http://").to_owned();
    let drip = |nth: usize| {
        let address = address.clone();
        tokio::spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(&address).await.expect("connected");
            let start = match nth % 2 {
                0 => "POST /charges HTTP/1.1\r\nhost: x\r\nx-slow: ",
                _ => {
                    "POST /charges HTTP/1.1\r\nhost: x\r\nidempotency-key: slow\r\n\
                      content-length: 100000\r\n\r\n"
                }
            };
            stream.write_all(start.as_bytes()).await.expect("written");
            let mut answer = Vec::new();
            loop {
                tokio::select! {
                    read = stream.read_buf(&mut answer) => {
                        if !matches!(read, Ok(1..)) { return answer; }
                    }
                    () = tokio::time::sleep(Duration::from_millis(50)) => {
                        if stream.write_all(b"x").await.is_err() { return answer; }
                    }
                }
            }
        })
    };
    let dripping: Vec<_> = (0..DRIPPING).map(drip).collect();
    let world = World { name: "layer", url, service, hapax };
    for n in 0..20 {
        assert_eq!(world.charge(&format!("k{n}"), "a").await.status(), 200);
    }
    for (nth, client) in dripping.into_iter().enumerate() {
        let answer = tokio::time::timeout(LONG, client).await.expect("given up").expect("no panic");
        let response = String::from_utf8_lossy(&answer);
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 408"), "{nth}: {response}");
    }
    assert_eq!(world.calls(), 20);
}

/// Proves S-6: the number of requests that are passed on at once is limited, even if clients leave;
/// and `drained` waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_passed_on_is_limited_and_awaited() {
    let (service, app) = app();
    let hapax = Hapax::builder().in_memory();
    let layer = IdempotencyLayer::new(hapax.clone(), Settings::default().at_once(2));
    let url = listen(ConnectionLimits::default(), app.layer(layer.clone())).await;
    let world = Arc::new(World { name: "layer", url, service, hapax });
    for key in ["k1", "k2"] {
        let leaving = tokio::spawn({
            let world = world.clone();
            async move { world.post("/charges?wait", &[("idempotency-key", key)], "a").await }
        });
        called(&world, if key == "k1" { 1 } else { 2 }).await;
        leaving.abort();
    }
    let third = world.charge("k3", "a").await;
    assert_eq!((third.status(), third.problem()), (503, "HX0309".into()));
    let mut drained = std::pin::pin!(layer.drained());
    let early = tokio::time::timeout(Duration::from_millis(50), &mut drained).await;
    assert!(early.is_err(), "two are at work");
    world.service.gate.add_permits(2);
    tokio::time::timeout(LONG, drained).await.expect("they come to their end");
    let done = world.hapax.effects().list(&[StateName::Succeeded], 10).await.expect("a list");
    assert_eq!(done.len(), 2);
}
