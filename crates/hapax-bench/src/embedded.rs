//! The engine on the embedded store, beside code by hand, raw SQL and bare SHA-256.

use std::path::Path;
use std::time::Instant;

use crate::report::{Bar, Report, human};
use crate::{Error, Options, ROUNDS, baseline, engine, fill, median, say, short};

/// How many callers ask at once.
const CALLERS: [usize; 4] = [1, 16, 64, 256];

pub(crate) fn measure(
    options: &Options,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    say("keys");
    keys(options, report);
    let mut new_64 = 0.0;
    for callers in CALLERS {
        say(&format!("new keys, {callers} callers, in turns with the same by hand"));
        let rounds = rounds(options, directory, callers)?;
        let rate = median(rounds.each_ref().map(|round| round.engine));
        let label = format!("new keys, {callers} callers: claim + settle");
        report.fact(label, &format!("new.{callers}.per_s"), rate, "effects/s");
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
    let (memory_us, store_per_s) = engine::duplicates(&file, options.time)?;
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
    if let Some(size) = options.size {
        large(options, directory, size, new_64, report)?;
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
fn rounds(options: &Options, directory: &Path, callers: usize) -> Result<[Round; ROUNDS], Error> {
    let place = |name: &str, n: usize| directory.join(format!("{name}-{callers}-{n}.db"));
    let by_hand = |n| baseline::naive(&place("naive", n), callers, options.time / 2);
    let mut before = by_hand(ROUNDS)?;
    let mut round = |n| {
        let engine = engine::new_keys(&place("engine", n), callers, options.time)?;
        let raw = match callers {
            64 => baseline::raw(&place("raw", n), options.time / 2)?,
            _ => f64::NAN,
        };
        let after = by_hand(n)?;
        let naive = (before + after) / 2.0;
        before = after;
        Ok::<_, Error>(Round { engine, naive, raw })
    };
    Ok([round(0)?, round(1)?, round(2)?])
}

fn keys(options: &Options, report: &mut Report) {
    let (derived, bare) = baseline::keys(options.time);
    report.fact("control.v1 key of 64 KiB", "key.mb_per_s", derived, "MB/s");
    let beside = format!("× bare SHA-256 {} MB/s", human(bare));
    report.ratio("", "key.vs_sha256", derived / bare, beside, Bar::AtLeast(0.7));
}

fn large(
    options: &Options,
    directory: &Path,
    size: u64,
    empty: f64,
    report: &mut Report,
) -> Result<(), Error> {
    let name = short(size);
    let file = directory.join("large.db");
    say(&format!("filling a ledger with {size} effects"));
    fill::fill(&file, size, options.progress)?;
    let bytes = std::fs::metadata(&file).map_or(0, |file| file.len()) as f64;
    let opening = Instant::now();
    let rate = engine::new_keys_after(&file, 64, options.time, || opening.elapsed())?;
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

/// The resident memory of this process.
fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}
