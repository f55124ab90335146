//! Extraction: the cost of a known answer over HTTP, of an edit, and of having many results.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hapax::{Fingerprint, Hapax, Key};
use hapax_extract::{
    Builtin, Class, Extract, ExtractionRequest, Individual, Ontology, Property, Settings,
};
use hapax_server::access::{Access, Allowance};
use hapax_server::server::{Server, ServerSettings};
use rusqlite::{Connection, params};

use crate::load::{self, runtime};
use crate::report::{Bar, Report, human};
use crate::{Error, Options, Progress, ROUNDS, http, median, say};

const IRI: &str = "https://example.org/rivers";

/// The size that a large result index is compared with.
const FEW: u64 = 10_000;

const CALLERS: usize = 64;

pub(crate) fn measure(
    options: &Options,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    hits(options, directory, report)?;
    edit(directory, report)?;
    many(options, directory, report)
}

/// Known answers over HTTP, in turns with a bare echo of the same requests.
fn hits(options: &Options, directory: &Path, report: &mut Report) -> Result<(), Error> {
    say("known answers over HTTP, in turns with a bare echo");
    let mut rounds = [(0.0, 0.0); ROUNDS];
    for (nth, round) in rounds.iter_mut().enumerate() {
        let runtime = runtime()?;
        *round = runtime.block_on(async {
            let hapax = Hapax::open(directory.join(format!("hits-{nth}.db"))).await?;
            let allowance = Allowance { rate: u32::MAX, burst: u32::MAX, ..Allowance::default() };
            let settings = ServerSettings { allowance, ..ServerSettings::default() };
            let server = Server::new(hapax.clone(), Access::Everybody, settings);
            let extract = builtin(&hapax);
            extract.put_ontology(&rivers(), None, "bench").await?;
            let (echo, ours) = (http::bare().await?, http::served(server.router()).await?);
            // Once, so that the answer is known.
            http::rate(ours, Duration::from_millis(200), extraction_request).await?;
            let echoed = http::rate(echo, options.time, extraction_request).await?;
            let answered = http::rate(ours, options.time, extraction_request).await?;
            hapax.close().await?;
            Ok::<_, Error>((answered, echoed))
        })?;
        runtime.shutdown_background();
    }
    let (rate, echo) = (median(rounds.map(|r| r.0)), median(rounds.map(|r| r.1)));
    report.fact("known answers, 64 connections", "extraction.hit.64.per_s", rate, "requests/s");
    report.figure("http.echo.64.per_s", echo);
    let ratio = median(rounds.map(|(answered, echoed)| answered / echoed));
    let beside = format!("× echo {}", human(echo));
    report.ratio("", "extraction.hit.64.vs_echo", ratio, beside, Bar::AtLeast(0.5));
    Ok(())
}

fn extraction_request(connection: u64) -> Vec<u8> {
    let body = format!(
        "{{\"text\":\"Note {connection}: the Danube flows through Vienna.\",\"ontologyId\":\"{IRI}\"}}"
    );
    format!(
        "POST /api/v1/extract HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into()
}

/// A megabyte, one paragraph of which changes.
fn edit(directory: &Path, report: &mut Report) -> Result<(), Error> {
    say("a megabyte of text, and one paragraph changed");
    let mut paragraphs: Vec<String> = (0..4_000_u64).map(paragraph).collect();
    let before = paragraphs.join("\n");
    paragraphs[2_000] = "The Seine is a river that nobody had spoken of.".into();
    let after = paragraphs.join("\n");
    let (first, again, known, chunks, read) = runtime()?.block_on(async {
        let hapax = Hapax::open(directory.join("edit.db")).await?;
        let extract = builtin(&hapax);
        extract.put_ontology(&rivers(), None, "bench").await?;
        let timed = async |text: &str| {
            let began = Instant::now();
            let extracted = extract.extract(&ExtractionRequest::new(text, IRI), None).await?;
            Ok::<_, Error>((began.elapsed().as_secs_f64() * 1e3, extracted))
        };
        let (first, _) = timed(&before).await?;
        let (again, edited) = timed(&after).await?;
        let (known, _) = timed(&after).await?;
        let json: serde_json::Value = serde_json::from_slice(edited.json()).unwrap_or_default();
        let number = |name: &str| json["metadata"][name].as_u64().unwrap_or_default();
        let (chunks, reused) = (number("chunks"), number("reused"));
        hapax.close().await?;
        Ok::<_, Error>((first, again, known, chunks, chunks - reused))
    })?;
    report.fact("1 MB, read for the first time", "extraction.1mb.first_ms", first, "ms");
    report.fact("one paragraph changed", "extraction.1mb.edited_ms", again, "ms");
    report.fact("nothing changed", "extraction.1mb.known_ms", known, "ms");
    let share = 100.0 * read as f64 / chunks.max(1) as f64;
    let beside = format!("% of {chunks} chunks read again");
    report.ratio("", "extraction.1mb.read_again_pct", share, beside, Bar::Below(5.0));
    Ok(())
}

fn paragraph(n: u64) -> String {
    let (a, b) = (n * 7919 % 9973, n * 104_729 % 99_991);
    format!(
        "In year {a} the Danube rose by {b} inches, and paragraph {n} of the chronicle says so. \
         The Danube flows through Vienna, where keeper {b} read the gauge {n} times and wrote down \
         what station {a} had told him before the water fell again."
    )
}

/// Requests whose results are in the store and not in the cache, on a ledger with few of them and
/// on one with many.
fn many(options: &Options, directory: &Path, report: &mut Report) -> Result<(), Error> {
    let Some(size) = options.size else { return Ok(()) };
    let runtime = runtime()?;
    let mut ledgers = Vec::new();
    for (name, size) in [("few", FEW), ("many", size)] {
        say(&format!("{size} results"));
        let file = directory.join(format!("{name}.db"));
        let ledger = runtime.block_on(Looked::filled(&file, size, options.progress))?;
        // As in a server that has been running: each result was looked up before.
        runtime.block_on(ledger.each_once())?;
        ledgers.push(ledger);
    }
    let mut rounds = [(0.0, 0.0); ROUNDS];
    for round in &mut rounds {
        round.0 = runtime.block_on(ledgers[0].lookups(options.time))?;
        round.1 = runtime.block_on(ledgers[1].lookups(options.time))?;
    }
    for ledger in ledgers {
        runtime.block_on(ledger.hapax.close())?;
    }
    let (few, many) = (median(rounds.map(|r| r.0)), median(rounds.map(|r| r.1)));
    report.fact(
        format!("looked up in the store, of {}", human(size as f64)),
        "extraction.lookup.many.per_s",
        many,
        "a second",
    );
    report.figure("extraction.lookup.few.per_s", few);
    let slower = median(rounds.map(|(few, many)| few / many));
    let beside = format!("× as long as of ten thousand, {}", human(few));
    report.ratio("", "extraction.lookup.many_vs_few", slower, beside, Bar::Below(1.3));
    Ok(())
}

fn builtin(hapax: &Hapax) -> Extract {
    Extract::new(hapax.clone(), Arc::new(Builtin::new()), Settings::default())
}

fn request(n: u64) -> ExtractionRequest {
    ExtractionRequest::new(format!("Note {n}: the Danube flows through Vienna."), IRI)
}

/// Results as the store keeps them, made quickly and not durably.
fn fill(
    file: &Path,
    version: &str,
    results: &[(Key, Fingerprint)],
    progress: Progress,
) -> rusqlite::Result<()> {
    let db = Connection::open(file)?;
    db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")?;
    let body = format!("{{\"entities\":[{}],\"relations\":[]}}", "\"0123456789\",".repeat(40));
    let bar = progress("filling", results.len() as u64);
    {
        let mut entry = db.prepare(
            "INSERT OR FAIL INTO journal (at, namespace, key, event, state, attempt, generation)
             VALUES (1800000000000, 1, ?1, 1, 1, zeroblob(16), 1)",
        )?;
        let mut effect = db.prepare(
            "INSERT OR FAIL INTO effect (id, namespace, key, fingerprint, state, safety, attempt, fence,
                 generation, attempts, created, updated, entry, outcome)
             VALUES (?2, 1, ?1, ?4, 1, 0, zeroblob(16), ?2, 1, 1, 1800000000000, 1800000000000, ?2, ?3)",
        )?;
        let mut entries = db.prepare(
            "INSERT INTO result_index (namespace, key, ontology, version, text_hash, params_hash, whole, bytes,
                 created, used) VALUES (1, ?1, ?2, ?3, ?4, 'p', 1, 500, 1800000000000, ?5)",
        )?;
        for (n, (key, print)) in (0_i64..).zip(results) {
            let number = entry.insert([key.as_bytes()])?;
            effect.execute(params![key.as_bytes(), number, body.as_bytes(), print.as_bytes()])?;
            entries.execute(params![key.as_bytes(), IRI, version, format!("{n:016x}"), n])?;
            bar.set_position(n as u64);
        }
    }
    bar.finish_and_clear();
    db.execute_batch(
        "INSERT INTO key_index SELECT namespace, prefix, effect FROM key_tail ORDER BY namespace, prefix;
         DELETE FROM key_tail; COMMIT; PRAGMA journal_mode = WAL",
    )
}

/// A ledger with results.
struct Looked {
    hapax: Hapax,
    extract: Extract,
    size: u64,
}

impl Looked {
    async fn filled(file: &Path, size: u64, progress: Progress) -> Result<Self, Error> {
        let (version, results) = Self::identified(file, size).await?;
        fill(file, &version, &results, progress).map_err(http::unreachable)?;
        // Without a cache, so that each lookup asks the store.
        let hapax = Hapax::builder().remember(0).open(file).await?;
        Ok(Self { extract: builtin(&hapax), hapax, size })
    }

    /// The version of the ontology, and the keys and fingerprints of its results.
    async fn identified(
        file: &Path,
        size: u64,
    ) -> Result<(String, Vec<(Key, Fingerprint)>), Error> {
        let hapax = Hapax::open(file).await?;
        let extract = builtin(&hapax);
        let kept = extract.put_ontology(&rivers(), None, "bench").await?;
        let mut results = Vec::new();
        for n in 0..size {
            let (identity, _) = extract.identify(&request(n)).await?;
            results.push((identity.components.key, identity.fingerprint));
        }
        hapax.close().await?;
        Ok((kept.now.unwrap_or_default(), results))
    }

    /// Requests answered from the store a second, in no order.
    async fn lookups(&self, time: Duration) -> Result<f64, Error> {
        let (extract, size) = (self.extract.clone(), self.size);
        let work = move |n: u64| {
            let extract = extract.clone();
            async move { found(&extract, scattered(n) % size).await }
        };
        load::per_s(CALLERS, time, work).await
    }

    async fn each_once(&self) -> Result<(), Error> {
        let (next, size) = (Arc::new(AtomicU64::new(0)), self.size);
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (extract, next) = (self.extract.clone(), next.clone());
                tokio::spawn(async move {
                    loop {
                        match next.fetch_add(1, Ordering::Relaxed) {
                            n if n < size => found(&extract, n).await?,
                            _ => return Ok::<_, Error>(()),
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.map_err(|error| http::unreachable(error.to_string()))??;
        }
        Ok(())
    }
}

async fn found(extract: &Extract, n: u64) -> Result<(), Error> {
    match extract.extract(&request(n), None).await?.is_hit() {
        true => Ok(()),
        false => Err(http::unreachable(format!("the result of note {n} was not found"))),
    }
}

/// Numbers in no order.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn rivers() -> Ontology {
    let iri = |name: &str| format!("{IRI}#{name}");
    let class =
        |name: &str| Class { id: iri(name), label: Some(name.to_lowercase()), ..Class::default() };
    let named = |name: &str, class: &str| Individual {
        id: iri(name),
        label: Some(name.to_owned()),
        types: vec![iri(class)],
        ..Individual::default()
    };
    Ontology {
        id: IRI.into(),
        classes: vec![class("River"), class("City")],
        properties: vec![Property {
            id: iri("flowsThrough"),
            label: Some("flows through".into()),
            domain: vec![iri("River")],
            range: vec![iri("City")],
            ..Property::default()
        }],
        individuals: vec![
            named("Danube", "River"),
            named("Vienna", "City"),
            named("Seine", "River"),
        ],
        ..Ontology::default()
    }
}
