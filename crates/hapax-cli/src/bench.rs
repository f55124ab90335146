//! `hapax bench`: this machine, each figure beside its baseline in the same run.

mod baseline;
mod engine;
mod extraction;
mod fill;
mod http;
mod items;
mod load;
mod outbox;
mod pipeline;
mod postgres;

use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::args::{self, Global};
use crate::exit::{Exit, Failed};
use crate::output;

/// How many callers ask at once.
const CALLERS: [usize; 4] = [1, 16, 64, 256];

/// How often each figure and its baseline are measured; the median counts.
const ROUNDS: usize = 3;

/// `10M`, `200k`, `5000`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.trim().char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1),
    };
    let number: u64 =
        digits.trim().parse().map_err(|_| "write a number such as 10M or 200k".to_owned())?;
    number
        .checked_mul(factor)
        .filter(|size| (1..=1_000_000_000).contains(size))
        .ok_or_else(|| "write a number from 1 to 1000M".to_owned())
}

/// One figure and, where there is one, the bar it must clear.
struct Line {
    what: String,
    figure: String,
    beside: String,
    bar: String,
    holds: Option<bool>,
}

/// The measurements so far.
#[derive(Default)]
struct Report {
    lines: Vec<Line>,
    figures: Map<String, Value>,
    ratios: Map<String, Value>,
}

impl Report {
    fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.into(), json!(round(value)));
    }

    /// A figure that stands on its own.
    fn fact(&mut self, what: impl Into<String>, name: &str, value: f64, unit: &str) {
        self.figure(name, value);
        let figure = format!("{} {unit}", human(value));
        self.lines.push(Line {
            what: what.into(),
            figure,
            beside: String::new(),
            bar: String::new(),
            holds: None,
        });
    }

    /// A ratio, or another number with a bar to clear.
    fn ratio(&mut self, what: impl Into<String>, name: &str, value: f64, beside: String, bar: Bar) {
        self.ratios.insert(name.into(), json!(round(value)));
        let (bar, holds) = match bar {
            Bar::AtLeast(least) => (format!("≥ {}", human(least)), Some(value >= least)),
            Bar::Below(most) => (format!("< {}", human(most)), Some(value < most)),
            Bar::None => (String::new(), None),
        };
        self.lines.push(Line { what: what.into(), figure: human(value), beside, bar, holds });
    }
}

#[derive(Clone, Copy)]
enum Bar {
    AtLeast(f64),
    Below(f64),
    None,
}

pub(crate) fn main(global: &Global, args: &args::Bench) -> Result<Exit, Failed> {
    let io = |error: std::io::Error| {
        Failed::usage(format!("no directory for the files to measure: {error}"))
    };
    let temporary = match &args.dir {
        Some(dir) => tempfile::Builder::new().prefix("hapax-bench-").tempdir_in(dir),
        None => tempfile::Builder::new().prefix("hapax-bench-").tempdir(),
    };
    let directory = temporary.map_err(io)?;
    let mut report = Report::default();
    if cfg!(debug_assertions) {
        eprintln!("hapax: this is a debug build; the figures mean nothing");
    }
    match &args.postgres {
        url if args.pipeline => {
            pipeline::measure(args, url.as_deref(), directory.path(), &mut report)?;
        }
        Some(url) if args.outbox => outbox::measure(args, url, directory.path(), &mut report)?,
        None if args.outbox => {
            return Err(Failed::usage("--outbox is measured on a server: --postgres URL"));
        }
        None if args.extraction => extraction::measure(args, directory.path(), &mut report)?,
        None if args.items => items::measure(directory.path(), &mut report)?,
        None if args.http => http::measure(args, directory.path(), &mut report)?,
        Some(_) if args.http => {
            return Err(Failed::usage("--http is measured on the embedded store"));
        }
        Some(url) => postgres::measure(args, url, directory.path(), &mut report)?,
        None => measure(args, directory.path(), &mut report)?,
    }
    print(global, &report);
    Ok(Exit::Done)
}

fn measure(args: &args::Bench, directory: &Path, report: &mut Report) -> Result<(), Failed> {
    say("keys");
    keys(args, report);
    let mut new_64 = 0.0;
    for callers in CALLERS {
        say(&format!("new keys, {callers} callers, in turns with the same by hand"));
        let rounds = rounds(args, directory, callers)?;
        let rate = median(rounds.each_ref().map(|round| round.engine));
        let what = format!("new keys, {callers} callers: claim + settle");
        report.fact(what, &format!("new.{callers}.per_s"), rate, "effects/s");
        let naive = median(rounds.each_ref().map(|round| round.naive));
        report.figure(&format!("naive.{callers}.per_s"), naive);
        let bar = match callers {
            1 => Bar::AtLeast(0.8),
            64 => Bar::AtLeast(8.0),
            256 => Bar::AtLeast(12.0),
            _ => Bar::None,
        };
        let beside = format!("× naive {}", human(naive));
        let ratio = median(rounds.each_ref().map(|round| round.engine / round.naive));
        report.ratio("", &format!("new.{callers}.vs_naive"), ratio, beside, bar);
        if callers == 64 {
            new_64 = rate;
            let raw = median(rounds.each_ref().map(|round| round.raw));
            report.figure("raw.per_s", raw);
            let beside = format!("× raw {}", human(raw));
            let ratio = median(rounds.each_ref().map(|round| round.engine / round.raw));
            report.ratio("", "new.64.vs_raw", ratio, beside, Bar::AtLeast(0.6));
        }
    }
    let file = directory.join("engine-256-0.db");
    say("duplicates");
    let (memory_us, store_per_s) = engine::duplicates(&file, args.time)?;
    report.ratio(
        "a duplicate from memory, µs",
        "dup.memory_us",
        memory_us,
        String::new(),
        Bar::Below(2.0),
    );
    report.ratio(
        "duplicates from the store, a second",
        "dup.store_per_s",
        store_per_s,
        String::new(),
        Bar::AtLeast(150_000.0),
    );
    let (ran, micros) = engine::identical(&file, 1000)?;
    report.ratio(
        "1,000 identical requests: executions",
        "same.1000.executions",
        ran,
        format!("in {} µs", human(micros)),
        Bar::Below(1.5),
    );
    if let Some(size) = args.size {
        large(args, directory, size, new_64, report)?;
    }
    Ok(())
}

/// Rates a second, measured one after the other.
struct Round {
    engine: f64,
    naive: f64,
    raw: f64,
}

/// Each round on fresh files, with the code by hand both before and after, so that a change of the
/// machine's mood hits both sides.
fn rounds(args: &args::Bench, directory: &Path, callers: usize) -> Result<[Round; ROUNDS], Failed> {
    let place = |name: &str, n: usize| directory.join(format!("{name}-{callers}-{n}.db"));
    let by_hand = |n| baseline::naive(&place("naive", n), callers, args.time / 2);
    let mut before = by_hand(ROUNDS)?;
    let mut round = |n| {
        let engine = engine::new_keys(&place("engine", n), callers, args.time)?;
        let raw = match callers {
            64 => baseline::raw(&place("raw", n), args.time / 2)?,
            _ => f64::NAN,
        };
        let after = by_hand(n)?;
        let naive = (before + after) / 2.0;
        before = after;
        Ok::<_, Failed>(Round { engine, naive, raw })
    };
    Ok([round(0)?, round(1)?, round(2)?])
}

fn median(mut values: [f64; ROUNDS]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[ROUNDS / 2]
}

fn keys(args: &args::Bench, report: &mut Report) {
    let (derived, bare) = baseline::keys(args.time);
    report.fact("control.v1 key of 64 KiB", "key.mb_per_s", derived, "MB/s");
    let beside = format!("× bare SHA-256 {} MB/s", human(bare));
    report.ratio("", "key.vs_sha256", derived / bare, beside, Bar::AtLeast(0.7));
}

fn large(
    args: &args::Bench,
    directory: &Path,
    size: u64,
    empty: f64,
    report: &mut Report,
) -> Result<(), Failed> {
    let name = short(size);
    let file = directory.join("large.db");
    say(&format!("filling a ledger with {size} effects"));
    fill::fill(&file, size)?;
    let bytes = std::fs::metadata(&file).map_or(0, |file| file.len()) as f64;
    let opening = Instant::now();
    let rate = engine::new_keys_after(&file, 64, args.time, || opening.elapsed())?;
    report.fact(
        format!("with {size} effects there: new keys, 64 callers"),
        &format!("new.64.{name}.per_s"),
        rate.per_s,
        "effects/s",
    );
    let beside = format!("× empty {}", human(empty));
    report.ratio(
        "",
        &format!("new.64.{name}_vs_empty"),
        rate.per_s / empty,
        beside,
        Bar::AtLeast(0.5),
    );
    report.ratio(
        "open, seconds",
        &format!("open.{name}_s"),
        rate.opened.as_secs_f64(),
        String::new(),
        Bar::Below(1.0),
    );
    report.ratio(
        "resident memory, MB",
        &format!("rss.{name}_mb"),
        resident_mb(),
        String::new(),
        Bar::Below(400.0),
    );
    report.fact("file size", &format!("file.{name}_mb"), bytes / 1e6, "MB");
    Ok(())
}

/// A size as it stands in the names of figures: `10m`.
fn short(size: u64) -> String {
    match size {
        size if size % 1_000_000 == 0 => format!("{}m", size / 1_000_000),
        size => size.to_string(),
    }
}

/// The resident memory of this process.
fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

fn print(global: &Global, report: &Report) {
    let missed: Vec<&str> = report
        .lines
        .iter()
        .filter(|line| line.holds == Some(false))
        .map(|line| line.bar.as_str())
        .collect();
    if global.json {
        output::json(&json!({
            "figures": report.figures, "ratios": report.ratios, "bars_missed": missed.len(),
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
        }));
        return;
    }
    let rows: Vec<_> = report
        .lines
        .iter()
        .map(|line| {
            let holds = match line.holds {
                Some(true) => console::style("holds").green().to_string(),
                Some(false) => console::style("MISSED").red().bold().to_string(),
                None => String::new(),
            };
            vec![
                line.what.clone(),
                line.figure.clone(),
                line.beside.clone(),
                line.bar.clone(),
                holds,
            ]
        })
        .collect();
    output::table(&["MEASURED", "FIGURE", "BESIDE", "BAR", ""], &rows);
}

fn say(what: &str) {
    eprintln!("hapax: measuring {what}");
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Three figures are all that a noisy machine can promise.
fn human(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => {
            let digits = format!("{:.0}", (value / 100.0).round() * 100.0);
            let mut out = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at) % 3 == 0 {
                    out.push(',');
                }
                out.push(digit);
            }
            out
        }
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
