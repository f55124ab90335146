//! A client of the API, in the same process.

use axum::Router;
use axum::body::Body;
use hapax::{Hapax, Namespace, Role};
use hapax_server::access::{Access, TokenCache};
use hapax_server::server::{Server, ServerSettings};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower_service::Service as _;

use super::read;

/// A server, and a client of it.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) app: Router,
    pub(crate) hapax: Hapax,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Client {
    pub(crate) fn of(hapax: Hapax, access: Access, settings: ServerSettings) -> Self {
        let app = Server::new(hapax.clone(), access, settings).router();
        let headers = vec![("host", "localhost".to_owned())];
        Self { app, hapax, headers }
    }

    /// A client on this machine, of a server without tokens.
    pub(crate) fn dev() -> Self {
        Self::of(Hapax::builder().in_memory(), Access::Everybody, ServerSettings::default())
    }

    /// A client without a token, of a server that asks for one.
    pub(crate) fn guarded(settings: ServerSettings) -> Self {
        Self::of(Hapax::builder().in_memory(), Access::Tokens(TokenCache::default()), settings)
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same client with a new token.
    pub(crate) async fn showing(&self, role: Role, namespace: Option<&str>) -> Self {
        let namespace = namespace.map(|name| Namespace::new(name).expect("a name"));
        let made = self.hapax.tokens().create(role, namespace, "a test", None).await;
        let (_, secret) = made.expect("a token");
        self.clone().with("authorization", format!("Bearer {}", secret.reveal()))
    }

    pub(crate) async fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&str>,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map_or_else(Body::empty, |text| Body::from(text.to_owned()));
        let request = request.body(body).expect("a request");
        self.app.clone().call(request).await.expect("an answer")
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let body = body.map(|body| body.to_string());
        read(self.send(&method, path, body.as_deref()).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let body = self.completed(path, body).await;
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Fills in the recorded fence of a report, or the recorded state of a decision, where a test
    /// leaves it out.
    pub(crate) async fn completed(&self, path: &str, mut body: Value) -> Value {
        let (of, what) = path.rsplit_once('/').unwrap_or_default();
        let (field, from) = match what {
            "settle" => ("fence", "fence"),
            "resolve" | "reset" if of.starts_with("/v1/effects/") => ("state", "state"),
            _ => return body,
        };
        let key = of.rsplit('/').next().unwrap_or_default();
        let (_, shown) = self.get(&format!("/v1/effects/{key}")).await;
        if let (Some(fields), true) = (body.as_object_mut(), shown[from] != Value::Null) {
            fields.entry(field).or_insert_with(|| shown[from].clone());
        } else if let Some(fields) = body.as_object_mut() {
            let nothing = if field == "fence" { json!(0) } else { json!("running") };
            fields.entry(field).or_insert(nothing);
        }
        body
    }

    pub(crate) async fn delete(&self, path: &str) -> (u16, Value) {
        self.ask(Method::DELETE, path, None).await
    }

    pub(crate) async fn text(&self, path: &str) -> String {
        let response = self.send(&Method::GET, path, None).await;
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        String::from_utf8_lossy(&body).into_owned()
    }
}
