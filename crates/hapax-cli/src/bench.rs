//! `hapax bench`: this machine, each figure beside its baseline in the same run.

use hapax_bench::{Options, Report, Subject};
use serde_json::json;

use crate::args::{self, Global};
use crate::exit::{Exit, Failed};
use crate::output;

pub(crate) fn main(global: &Global, args: &args::Bench) -> Result<Exit, Failed> {
    if cfg!(debug_assertions) {
        eprintln!("hapax: this is a debug build; the figures mean nothing");
    }
    let options = Options {
        subject: subject(args),
        size: args.size,
        time: args.time,
        postgres: args.postgres.clone(),
        dir: args.dir.clone(),
        progress: output::progress,
    };
    print(global, &hapax_bench::run(&options)?);
    Ok(Exit::Done)
}

fn subject(args: &args::Bench) -> Subject {
    match args {
        args if args.pipeline => Subject::Pipeline,
        args if args.outbox => Subject::Outbox,
        args if args.extraction => Subject::Extraction,
        args if args.items => Subject::Items,
        args if args.http => Subject::Http,
        _ => Subject::Effects,
    }
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
                line.label.clone(),
                line.figure.clone(),
                line.beside.clone(),
                line.bar.clone(),
                holds,
            ]
        })
        .collect();
    output::table(&["MEASURED", "FIGURE", "BESIDE", "BAR", ""], &rows);
}
