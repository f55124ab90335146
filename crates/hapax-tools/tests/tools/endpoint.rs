//! A service as a maintainer.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use hapax::Hapax;
use hapax::json::Json;
use hapax_items::{Items, Maintainer, Settings, Version};
use hapax_sinks::webhook::{Secret, verify};
use hapax_testkit::free_port;
use hapax_tools::{Endpoint, EndpointSettings};

use crate::site::Site;

fn settings() -> EndpointSettings {
    let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
    let timeout = Duration::from_secs(30);
    EndpointSettings { secrets: vec![secret], timeout, allow_private: true }
}

/// Proves I-11: a maintainer may be a webhook; it gets one request, and the request is signed.
#[tokio::test]
async fn a_service_gets_evidence_and_answers_with_a_proposal() {
    let site = Site::start().await;
    site.answers("/mend", 200, r#"{"script": "undefined?.member;", "impact": "safe"}"#);
    let endpoint = Endpoint::new(&site.url("/mend"), settings()).expect("an endpoint");
    let maintainer: Option<Arc<dyn Maintainer>> = Some(Arc::new(endpoint));
    let workflow = Settings { maintainer, ..Settings::new("letters") };
    let items = Items::new(Hapax::builder().in_memory(), Vec::new(), vec![workflow]);
    let items = items.expect("set up");
    items.publish("letters", "undefined.member;", "ada").await.unwrap();
    items.drive("letters", None).await.unwrap();
    let script = items.script("letters").await.unwrap();
    assert_eq!(script.version, Version { major: 1, minor: 1 });

    let [got] = &site.got()[..] else { panic!("{:?}", site.got()) };
    let evidence = Json::parse(got.body.as_bytes()).unwrap();
    assert_eq!(evidence.get("script").and_then(Json::as_str), Some("undefined.member;"));
    let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
    let header = |name: &str| got.header(name);
    let tolerance = Duration::from_secs(60);
    let id = verify(&settings().secrets, header, got.body.as_bytes(), now, tolerance).unwrap();
    assert!(id.starts_with("sha256:"), "{id}");
}

#[tokio::test]
async fn a_malformed_proposal_says_why() {
    let site = Site::start().await;
    site.answers("/down", 503, "");
    site.answers("/large", 200, vec![b'x'; 1024 * 1024 + 1]);
    site.answers("/bytes", 200, [0xff, 0xfe]);
    let gone = format!("http://127.0.0.1:{}/", free_port());
    for (url, why) in [
        (site.url("/down"), "answered 503"),
        (site.url("/large"), "more than 1048576 bytes"),
        (site.url("/bytes"), "not UTF-8"),
        (gone, "did not answer"),
    ] {
        let endpoint = Endpoint::new(&url, settings()).expect("an endpoint");
        let error = endpoint.propose("sha256:00", "{}").await.unwrap_err();
        assert!(error.contains(why) && error.contains(&url), "{error}");
    }
    let unsigned = EndpointSettings { secrets: Vec::new(), ..settings() };
    assert!(Endpoint::new("https://example.org/", unsigned).is_err());
    let public_only = EndpointSettings { allow_private: false, ..settings() };
    assert!(Endpoint::new("http://127.0.0.1/", public_only).is_err());
}
