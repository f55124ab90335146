//! A node: a process that dispatches one request and prints the result.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use bytes::Bytes;
use hapax::Hapax;
use hapax_control::{ControlPlane, ControlRequest, Registry, SendError};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::process::{Child, Command};

use crate::Result;

pub(crate) const ROLLOUT: &str = "connector.rollout_notify.v1";
pub(crate) const STEP: &str = "connector.migration_step.v1";
pub(crate) const PROBE: &str = "connector.health_probe.v1";
pub(crate) const FENCING: &str = "connector.fencing_acquire.v1";

/// The process: dispatches its request and prints the result.
pub(crate) async fn main(
    name: &str,
    ledger: &Path,
    peer: &str,
    computation: &str,
    request: &str,
) -> Result<()> {
    let hapax = Hapax::builder().holder(format!("node {name}")).open(ledger).await?;
    let plane = ControlPlane::new(hapax.clone(), Registry::standard());
    let send = |request: ControlRequest| post(name, peer, request);
    let result = plane.dispatch(computation, request.as_bytes(), send).await;
    match &result {
        Ok(done) => println!("   node {name}: {:?}, {:?}", done.how, text(done.body())),
        Err(error) => println!("   node {name}: {} ({error})", error.code()),
    }
    hapax.close().await?;
    std::process::exit(if result.is_ok() { 0 } else { 1 });
}

/// Posts a request to the peer, with its key and its epoch.
async fn post(
    name: &str,
    peer: &str,
    request: ControlRequest,
) -> std::result::Result<Vec<u8>, SendError> {
    println!("   node {name}: sends {} in epoch {}", request.computation, request.epoch);
    let mut post = http::Request::post(peer);
    for (header, value) in request.headers() {
        post = post.header(header, value);
    }
    let post = post.body(Full::new(Bytes::from(request.payload)))?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    // An answer that is lost may have been a yes.
    let answer = client.request(post).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    match status.as_u16() {
        200 => Ok(body.to_vec()),
        503 => Err(SendError::not_done("the peer is down")),
        _ => Err(SendError::refused(text(Some(&body)))),
    }
}

fn text(body: Option<&[u8]>) -> String {
    String::from_utf8_lossy(body.unwrap_or_default()).into_owned()
}

/// A node, and the files and addresses of its processes.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) ledger: PathBuf,
    pub(crate) peer: String,
}

impl Node {
    /// Starts the process.
    pub(crate) fn start(&self, computation: &str, request: &str) -> Result<Sending> {
        let child = Command::new(std::env::current_exe()?)
            .args(["node", self.name])
            .arg(&self.ledger)
            .args([&self.peer, computation, request])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Sending { name: self.name, child })
    }

    /// Runs the process to its end. Returns whether there was an answer.
    pub(crate) async fn send(&self, computation: &str, request: &str) -> Result<bool> {
        self.start(computation, request)?.answered().await
    }
}

/// A request in flight.
pub(crate) struct Sending {
    name: &'static str,
    child: Child,
}

impl Sending {
    pub(crate) async fn answered(mut self) -> Result<bool> {
        Ok(self.child.wait().await?.success())
    }

    /// Kills the process.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.child.kill().await?;
        println!("   node {}: killed", self.name);
        Ok(())
    }
}
