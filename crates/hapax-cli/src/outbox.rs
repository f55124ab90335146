//! `hapax outbox`: lists, redrives and delivers events.

pub(crate) mod dispatch;

use std::io::Write as _;
use std::path::Path;

use hapax::Hapax;
use hapax::outbox::{RecordFilter, RecordStatus, Redrive, SinkName, Status};
use hapax_pipeline::{RefusalEvent, Refusals};
use hapax_postgres::History;
use hapax_server::wire;
use serde_json::{Value, json};

use crate::archive;
use crate::args::{Global, Outbox, RedriveArgs};
use crate::config::Config;
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::output::{self, ago};

/// How many deliveries are redriven in one transaction.
const AT_ONCE: usize = 1_000;

pub(crate) async fn main(global: &Global, outbox: Outbox) -> Result<Exit, Failed> {
    let outbox = match outbox {
        Outbox::Dispatch(dispatch) => return dispatch::main(global, &dispatch).await,
        Outbox::Archive(args) => return archive::main(global, History::Outbox, &args).await,
        other => other,
    };
    let hapax = output::open(global).await?;
    match outbox {
        Outbox::List { status, sink, before, limit } => {
            let status = status.as_deref().map(status_named).transpose()?;
            let sink = sink.as_deref().map(sink_named).transpose()?;
            list(global, &hapax, RecordFilter { status, sink, before, limit, namespace: None })
                .await
        }
        Outbox::Show { id } => show(global, &hapax, &id).await,
        Outbox::Redrive(redriven) => redrive(global, &hapax, &redriven).await,
        Outbox::Pause { sink } => pause(global, &hapax, &sink, true).await,
        Outbox::Resume { sink } => pause(global, &hapax, &sink, false).await,
        Outbox::Stats => stats(global, &hapax).await,
        Outbox::Configure { config } => configure(global, &hapax, &config).await,
        Outbox::Export { to } => export(global, &hapax, to.as_deref()).await,
        Outbox::Dispatch(_) | Outbox::Archive(_) => Ok(Exit::Done),
    }
}

fn status_named(text: &str) -> Result<Status, Failed> {
    Status::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
        Failed::usage(format!("--status {text:?} is none of pending, dispatched, failed"))
    })
}

fn sink_named(text: &str) -> Result<SinkName, Failed> {
    SinkName::new(text).map_err(|error| Failed::usage(error.to_string()))
}

async fn list(global: &Global, hapax: &Hapax, filter: RecordFilter) -> Result<Exit, Failed> {
    let limit = filter.limit;
    let found = hapax.outbox().records(filter).await?;
    if global.json {
        found.iter().for_each(|found| output::json(&wire::Record::of(found)));
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        output::print("No events.");
        return Ok(Exit::Done);
    }
    let rows: Vec<_> = found.iter().map(row).collect();
    output::table(
        &["OUTBOX ID", "EVENT", "DATASET", "STATUS", "TRIED", "RECORDED", "ERROR"],
        &rows,
    );
    if found.len() == limit {
        let last = found.last().map_or(0, |found| found.record.seq);
        eprintln!("hapax: the newest {limit} are shown; go on with --before {last}");
    }
    Ok(Exit::Done)
}

fn row(found: &RecordStatus) -> Vec<String> {
    let record = &found.record;
    let tried = found.deliveries.iter().map(|delivery| delivery.tried).max().unwrap_or(0);
    let error = wire::last_error(found).unwrap_or_default();
    vec![
        record.id.to_string(),
        console::truncate_str(&record.event.name, 40, "…").into_owned(),
        console::truncate_str(&record.event.dataset, 40, "…").into_owned(),
        status(found.status),
        tried.to_string(),
        ago(record.created),
        console::truncate_str(error, 60, "…").into_owned(),
    ]
}

fn status(status: Status) -> String {
    let style = console::style(status.as_str());
    match status {
        Status::Pending => style.yellow(),
        Status::Dispatched => style.green(),
        Status::Failed => style.red(),
    }
    .to_string()
}

async fn show(global: &Global, hapax: &Hapax, id: &str) -> Result<Exit, Failed> {
    let id = id.parse().map_err(|error| Failed::usage(format!("{error}")))?;
    let Some(found) = hapax.outbox().record(id).await? else {
        return Err(Failed::usage(format!("there is no event {id} in this namespace"))
            .next(format!("List them: {}", command(["outbox", "list"]))));
    };
    let document = wire::Record::of(&found);
    if global.json {
        output::json(&document);
    } else {
        output::print(&serde_json::to_string_pretty(&document).unwrap_or_default());
    }
    Ok(Exit::Done)
}

async fn redrive(global: &Global, hapax: &Hapax, args: &RedriveArgs) -> Result<Exit, Failed> {
    let id = args.id.as_deref().map(str::parse).transpose();
    let redrive = Redrive {
        id: id.map_err(|error| Failed::usage(format!("--id: {error}")))?,
        sink: args.sink.as_deref().map(sink_named).transpose()?,
        may_duplicate: args.may_duplicate,
        limit: AT_ONCE,
        ..Redrive::default()
    };
    let failed = RecordFilter {
        status: Some(Status::Failed),
        sink: redrive.sink.clone(),
        limit: 1,
        ..RecordFilter::default()
    };
    let bar = output::progress("redriven", 0);
    let mut redriven = 0;
    loop {
        match hapax.outbox().redrive(redrive.clone()).await? {
            0 => break,
            some => redriven += some,
        }
        bar.set_position(redriven as u64);
    }
    bar.finish_and_clear();
    let left = hapax.outbox().records(failed).await?.len();
    if global.json {
        output::json(&json!({ "redriven": redriven, "left": left > 0 }));
    } else {
        output::print(&format!("{redriven} will be tried again."));
    }
    if left > 0 && !args.may_duplicate && redrive.id.is_none() {
        return Err(Failed::new(Exit::Refused, "some are older than their receiver remembers ids")
            .next("If a second arrival does no harm, add --may-duplicate."));
    }
    Ok(Exit::Done)
}

async fn pause(global: &Global, hapax: &Hapax, sink: &str, paused: bool) -> Result<Exit, Failed> {
    let sink = sink_named(sink)?;
    if !hapax.outbox().pause(&sink, paused).await? {
        return Err(Failed::usage(format!("there is no sink {sink}"))
            .next(format!("List them: {}", command(["outbox", "stats"]))));
    }
    if global.json {
        output::json(&json!({ "sink": sink.as_str(), "paused": paused }));
    } else {
        let state = if paused { "gets nothing until it is resumed" } else { "goes on" };
        output::print(&format!("{sink} {state}."));
    }
    Ok(Exit::Done)
}

async fn stats(global: &Global, hapax: &Hapax) -> Result<Exit, Failed> {
    let stats = hapax.outbox().stats().await?;
    if global.json {
        for stats in &stats {
            output::json(&wire::Sink::of(stats));
        }
        return Ok(Exit::Done);
    }
    if stats.is_empty() {
        output::print(&format!(
            "No sinks. Declare those of hapax.toml: {}",
            command(["outbox", "configure"])
        ));
        return Ok(Exit::Done);
    }
    let row = |stats: &hapax::outbox::SinkStats| {
        vec![
            stats.sink.name.to_string(),
            if stats.sink.paused { "paused".into() } else { String::new() },
            stats.pending.to_string(),
            stats.failed.to_string(),
            stats.oldest.map(ago).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = stats.iter().map(row).collect();
    output::table(&["SINK", "", "PENDING", "FAILED", "OLDEST"], &rows);
    Ok(Exit::Done)
}

async fn configure(global: &Global, hapax: &Hapax, path: &Path) -> Result<Exit, Failed> {
    let config = Config::read(path)?;
    let (sinks, routes) = (config.sinks.len(), config.routes.len());
    hapax.outbox().configure(&config.outbox()?).await?;
    if global.json {
        output::json(&json!({ "sinks": sinks, "routes": routes }));
    } else {
        output::print(&format!("From now on: sinks {sinks}, routes {routes}."));
    }
    Ok(Exit::Done)
}

/// The file name of the governance ledger, which pipelines look for.
const LEDGER: &str = "pipeline_outbox_ledger.json";

/// The governance ledger: every event of the namespace and every refusal, oldest first, as one
/// document.
async fn export(global: &Global, hapax: &Hapax, to: Option<&Path>) -> Result<Exit, Failed> {
    let mut entries = Vec::new();
    let mut before = None;
    loop {
        let filter = RecordFilter { before, limit: 10_000, ..RecordFilter::default() };
        let page = hapax.outbox().records(filter).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.record.seq);
        entries.extend(page.iter().map(|found| (found.record.created, ledger_entry(found))));
    }
    entries.reverse();
    let events = entries.len();
    let refusals = refusals(hapax).await?;
    entries.extend(refusals.iter().map(|refused| (refused.mark.at, refusal_entry(refused))));
    entries.sort_by_key(|(at, _)| *at);
    let lines: Vec<String> = entries.iter().map(|(_, entry)| format!("  {entry}")).collect();
    let ledger = format!("[\n{}\n]", lines.join(",\n"));
    let Some(directory) = to else {
        output::print(&ledger);
        return Ok(Exit::Done);
    };
    let path = directory.join(LEDGER);
    written(&path, &ledger)
        .map_err(|error| Failed::new(Exit::Unreachable, format!("{}: {error}", path.display())))?;
    let refusals = refusals.len();
    match global.json {
        true => output::json(&json!({ "events": events, "refusals": refusals, "to": path })),
        false => {
            output::print(&format!("{events} events, {refusals} refusals, in {}", path.display()))
        }
    }
    Ok(Exit::Done)
}

/// The refusals of guards in this namespace, as the journal has them.
async fn refusals(hapax: &Hapax) -> Result<Vec<RefusalEvent>, Failed> {
    let (mut fold, mut after, mut refused) = (Refusals::default(), 0, Vec::new());
    loop {
        let page = hapax.journal().entries(after, 1_000).await?;
        let Some(last) = page.last() else { return Ok(refused) };
        after = last.id;
        let ours = page.iter().filter(|entry| entry.namespace == *hapax.namespace());
        refused.extend(ours.filter_map(|entry| fold.push(entry)));
    }
}

/// Writes a file as a whole: a reader sees the old one or the new one.
fn written(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let aside = path.with_extension("part");
    let mut file = std::fs::File::create(&aside)?;
    writeln!(file, "{text}")?;
    file.sync_data()?;
    std::fs::rename(&aside, path)?;
    std::fs::File::open(directory)?.sync_all()
}

fn ledger_entry(found: &RecordStatus) -> Value {
    let record = wire::Record::of(found);
    let payload: Value = serde_json::from_str(record.payload.get()).unwrap_or(Value::Null);
    json!({
        "outbox_id": record.outbox_id,
        "event_name": record.event_name,
        "dataset_id": record.dataset_id,
        "care_label": payload.get("care_label"),
        "status": record.status,
        "attempt": record.attempt,
        "last_error": record.last_error,
        "refused_by": null,
    })
}

/// A refusal has no place in the outbox, only one in the journal.
fn refusal_entry(refused: &RefusalEvent) -> Value {
    json!({
        "outbox_id": null,
        "event_name": refused.event,
        "dataset_id": refused.dataset_id,
        "care_label": refused.care_label,
        "status": "refused",
        "attempt": 0,
        "last_error": hapax::guard::redact(&refused.reason),
        "refused_by": refused.guard,
        "idempotency_key": refused.operation.to_string(),
        "wal_pointer": refused.mark.entry,
    })
}
