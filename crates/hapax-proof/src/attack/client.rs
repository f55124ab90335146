//! A caller from outside: over HTTP, through the proxy, or by SQL. A process of its own, so that it can
//! be killed and stopped. If it gets an outcome, it prints the caller that did the effect and exits 0.

use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use hapax::tokio_postgres::{Client as PgClient, Config, NoTls, Row};
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::sink::{Answer, Client as SinkClient, Rule};
use crate::worker::boot_ns;

/// How long a call to a server may take.
const CALL: Duration = Duration::from_secs(10);
/// How often a call is tried until its answer comes.
const TRIES: usize = 4;
/// The lease of a client, in milliseconds: the shortest that the API gives.
pub const LEASE_MS: u64 = 5_000;
/// The lease of a client that speaks SQL, in milliseconds.
const SQL_LEASE_MS: u64 = 1_000;

/// The interface that a caller uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Entrance {
    /// The API: claim, work, settle.
    Http,
    /// A request to a service behind the proxy.
    Proxy,
    /// One transaction of the caller's own that claims, works and settles.
    Sql,
    /// A claim on a lease, and a transaction of the caller's own that works and settles.
    SqlLeased,
}

/// The orders of a caller.
#[derive(Debug, Clone, clap::Args)]
pub struct Orders {
    /// The interface that it uses
    #[arg(long, value_enum)]
    pub entrance: Entrance,
    /// URLs: of nodes, of the proxy, or of the database
    #[arg(long)]
    pub at: Vec<String>,
    /// The judge's port
    #[arg(long)]
    pub sink: u16,
    /// The effect's key
    #[arg(long)]
    pub key: String,
    /// The judge's name for the effect
    #[arg(long)]
    pub target: String,
    /// How the target treats repetitions and late arrivals
    #[arg(long)]
    pub rule: Rule,
    /// `opaque`, `reconcilable` or `transactional`
    #[arg(long)]
    pub safety: String,
    /// How long a late arrival is possible, in milliseconds
    #[arg(long, default_value_t = 0)]
    pub settling_ms: u64,
    /// The number of this caller
    #[arg(long)]
    pub by: u64,
    /// How long it works, in milliseconds
    #[arg(long)]
    pub work_ms: u64,
}

/// Calls once. Returns the caller that did the effect; an error if that is not known.
pub fn call(orders: &Orders) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        match orders.entrance {
            Entrance::Http => Http::new(orders).once().await,
            Entrance::Proxy => Http::new(orders).through_proxy().await,
            Entrance::Sql => sql(orders).await,
            Entrance::SqlLeased => sql_leased(orders).await,
        }
    })
}

struct Http<'a> {
    orders: &'a Orders,
    client: HttpClient<HttpConnector, Full<Bytes>>,
}

impl<'a> Http<'a> {
    fn new(orders: &'a Orders) -> Self {
        Self { orders, client: HttpClient::builder(TokioExecutor::new()).build_http() }
    }

    /// Sends a request to one node after the other until one answers.
    async fn ask(&self, path: &str, body: &Value) -> Result<(StatusCode, Value), String> {
        let mut last = String::new();
        for nth in 0..TRIES {
            let base = &self.orders.at[nth % self.orders.at.len()];
            match self.send(&format!("{base}{path}"), None, body.to_string()).await {
                Ok((StatusCode::SERVICE_UNAVAILABLE, text)) => last = text,
                Ok((status, text)) => {
                    return Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)));
                }
                Err(error) => last = error,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(last)
    }

    async fn send(
        &self,
        url: &str,
        key: Option<&str>,
        body: String,
    ) -> Result<(StatusCode, String), String> {
        let mut request = Request::builder().method(Method::POST).uri(url);
        request = request.header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::from(body)).map_err(|error| error.to_string())?;
        let answer = async {
            let answer = self.client.request(request).await.map_err(|error| error.to_string())?;
            let status = answer.status();
            let body = answer.into_body().collect().await.map_err(|error| error.to_string())?;
            Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
        };
        tokio::time::timeout(CALL, answer).await.map_err(|_| "no answer".to_owned())?
    }

    async fn once(&self) -> Result<u64, String> {
        let orders = self.orders;
        let requested_at = boot_ms();
        let lease = json!({ "term_ms": LEASE_MS, "holder": format!("client {}", orders.by) });
        let (_, lease) = self.ask("/v1/leases", &lease).await?;
        let (Some(id), Some(work_ms)) = (lease["lease"].as_str(), lease["work_ms"].as_u64()) else {
            return Err(format!("no lease: {lease}"));
        };
        let path = |verb: &str| format!("/v1/effects/{}/{verb}", orders.key);
        let mut claim = json!({ "payload": orders.target, "safety": orders.safety, "lease": id });
        if orders.safety == "reconcilable" {
            claim["settling_ms"] = orders.settling_ms.into();
        }
        for _ in 0..2 {
            let (status, verdict) = self.ask(&path("claim"), &claim).await?;
            match (status, verdict["verdict"].as_str(), verdict["code"].as_str()) {
                (_, Some("replayed"), _) => return author(&verdict["outcome"]["body"]),
                (_, Some("granted"), _) => {
                    let until = requested_at + work_ms;
                    return self.perform(&path("settle"), &verdict, until).await;
                }
                (_, _, Some("HX0203")) if orders.safety == "reconcilable" => {
                    self.look(&path("look"), &path("found")).await?;
                }
                _ => return Err(format!("{status}: {verdict}")),
            }
        }
        Err("looked up, and not decided".into())
    }

    async fn perform(&self, settle: &str, grant: &Value, until_ms: u64) -> Result<u64, String> {
        let orders = self.orders;
        tokio::time::sleep(Duration::from_millis(orders.work_ms)).await;
        // Opaque work is granted to no other attempt, so it may go on.
        if orders.safety != "opaque" && boot_ms() >= until_ms {
            return Err("stopped in time".into());
        }
        let fence = grant["fence"].as_u64().unwrap_or_default();
        let sink_answer = SinkClient::connect(orders.sink)
            .and_then(|mut sink| sink.execute(&orders.target, orders.by, fence, orders.rule));
        let (attempt, by) = (&grant["attempt"], orders.by);
        let report = match sink_answer.map_err(|error| error.to_string())? {
            Answer::Found(by) => {
                json!({ "attempt": attempt, "fence": fence, "report": "succeeded", "body": by.to_string() })
            }
            _ => {
                json!({ "attempt": attempt, "fence": fence, "report": "failed", "reason": "refused" })
            }
        };
        let (status, answer) = self.ask(settle, &report).await?;
        match status.is_success() && report["report"] == "succeeded" {
            true => Ok(by),
            false => Err(format!("{status}: {answer}")),
        }
    }

    async fn look(&self, look: &str, found: &str) -> Result<(), String> {
        let orders = self.orders;
        let (status, lookup) = self.ask(look, &json!({})).await?;
        if !status.is_success() {
            return Err(format!("{status}: {lookup}"));
        }
        let fence = lookup["fence"].as_u64().unwrap_or_default();
        let sink_answer = SinkClient::connect(orders.sink)
            .and_then(|mut sink| sink.look(&orders.target, fence + 1, orders.rule));
        let mut finding = json!({
            "attempt": lookup["attempt"], "fence": fence, "began": lookup["began"],
        });
        match sink_answer.map_err(|error| error.to_string())? {
            Answer::Found(by) => {
                (finding["happened"], finding["body"]) = (true.into(), by.to_string().into());
            }
            _ => finding["happened"] = false.into(),
        }
        self.ask(found, &finding).await.map(|_| ())
    }

    async fn through_proxy(&self) -> Result<u64, String> {
        let orders = self.orders;
        let url = format!("{}/{}", orders.at[0], orders.target);
        let (status, body) = self.send(&url, Some(&orders.key), orders.work_ms.to_string()).await?;
        match status {
            StatusCode::OK => body.trim().parse().map_err(|_| format!("not a number: {body}")),
            _ => Err(format!("{status}: {body}")),
        }
    }
}

fn author(body: &Value) -> Result<u64, String> {
    let by = body.as_str().and_then(super::author_in);
    by.ok_or_else(|| format!("the outcome says {body}"))
}

fn boot_ms() -> u64 {
    boot_ns() / 1_000_000
}

async fn connect(url: &str) -> Result<PgClient, String> {
    let mut config: Config = url.parse().map_err(|error| format!("{error}"))?;
    config.connect_timeout(CALL);
    let (client, connection) = config.connect(NoTls).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let timeout = "SET statement_timeout = '5s'; SET lock_timeout = '2s'";
    client.batch_execute(timeout).await.map_err(|error| error.to_string())?;
    Ok(client)
}

/// The row that stands for the caller's own work.
const APPLY: &str = "INSERT INTO applied (target, by) VALUES ($1, $2)";
const SETTLE: &str = "SELECT hapax.settle($1, $2, $3, $4)";

/// The attempt and the fence of a claim that was granted; or by whom the effect was done.
fn granted(row: &Row) -> Result<Result<(String, i64), u64>, String> {
    match row.get::<_, &str>(0) {
        "replayed" => {
            let outcome: Vec<u8> = row.get(3);
            let by = std::str::from_utf8(&outcome).ok().and_then(super::author_in);
            by.map(Err).ok_or_else(|| "the outcome has no author".into())
        }
        "granted" => Ok(Ok((row.get(1), row.get(2)))),
        verdict => Err(verdict.to_owned()),
    }
}

/// Claims, works and settles in one transaction, and repeats it when the answer did not come.
async fn sql(orders: &Orders) -> Result<u64, String> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match sql_once(orders).await {
            Ok(by) => return Ok(by),
            Err(error) => last = error,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(last)
}

async fn sql_once(orders: &Orders) -> Result<u64, String> {
    let failed = |error: hapax::tokio_postgres::Error| error.to_string();
    let mut client = connect(&orders.at[0]).await?;
    let tx = client.transaction().await.map_err(failed)?;
    let fingerprint = hapax::Fingerprint::of(orders.target.as_bytes());
    let row = tx
        .query_one(
            "SELECT verdict, attempt_id, fence, outcome
             FROM hapax.claim($1, $2, safety => 'transactional')",
            &[&orders.key, &&fingerprint.as_bytes()[..]],
        )
        .await
        .map_err(failed)?;
    let (attempt, fence) = match granted(&row)? {
        Ok(grant) => grant,
        Err(by) => return Ok(by),
    };
    tokio::time::sleep(Duration::from_millis(orders.work_ms.min(50))).await;
    tx.execute(APPLY, &[&orders.target, &(orders.by as i64)]).await.map_err(failed)?;
    let outcome = orders.by.to_string().into_bytes();
    tx.execute(SETTLE, &[&orders.key, &attempt, &fence, &outcome]).await.map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(orders.by)
}

/// Claims on a lease, then works and settles in a transaction that is repeated when its answer did not
/// come.
async fn sql_leased(orders: &Orders) -> Result<u64, String> {
    let failed = |error: hapax::tokio_postgres::Error| error.to_string();
    let mut client = connect(&orders.at[0]).await?;
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| error.to_string())?;
    let lease = hapax::remote::LeaseId::from_bytes(id).to_string();
    let requested_ms = boot_ms();
    let term = SQL_LEASE_MS as i64;
    client
        .execute("SELECT hapax.renew($1, $2, 'an attacker')", &[&lease, &term])
        .await
        .map_err(failed)?;
    let fingerprint = hapax::Fingerprint::of(orders.target.as_bytes());
    let row = client
        .query_one(
            "SELECT verdict, attempt_id, fence, outcome
             FROM hapax.claim($1, $2, $3, safety => 'transactional')",
            &[&orders.key, &&fingerprint.as_bytes()[..], &lease],
        )
        .await
        .map_err(failed)?;
    let (attempt, fence) = match granted(&row)? {
        Ok(grant) => grant,
        Err(by) => return Ok(by),
    };
    tokio::time::sleep(Duration::from_millis(orders.work_ms)).await;
    if boot_ms() - requested_ms >= SQL_LEASE_MS * 7 / 8 {
        return Err("stopped in time".into());
    }
    let outcome = orders.by.to_string().into_bytes();
    for _ in 0..TRIES {
        let result = async {
            let tx = client.transaction().await?;
            tx.execute(APPLY, &[&orders.target, &(orders.by as i64)]).await?;
            tx.execute(SETTLE, &[&orders.key, &attempt, &fence, &outcome]).await?;
            tx.commit().await
        };
        match result.await {
            Ok(()) => return Ok(orders.by),
            Err(error) if error.code().is_some_and(|code| code.code() == "HX116") => {
                // The first time was committed, and its answer was lost.
                return Ok(orders.by);
            }
            Err(error) if error.code().is_some_and(|code| code.code().starts_with("HX")) => {
                return Err(error.to_string());
            }
            Err(_) => client = connect(&orders.at[0]).await?,
        }
    }
    Err("the transaction was not committed".into())
}
