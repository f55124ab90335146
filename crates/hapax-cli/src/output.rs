//! Text for people: times, tables, the names of things.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hapax::{Builder, Hapax, Key, Namespace, StateName, Timestamp};
use hapax_server::wire;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::args::Global;
use crate::exit::Failed;

/// Opens the ledger for a query: no lease, no background work.
pub(crate) async fn open(global: &Global) -> Result<Hapax, Failed> {
    let namespace = namespace(global)?;
    Ok(builder(global).background(false).open(&global.db).await?.in_namespace(namespace))
}

/// The settings with which all commands open the ledger.
pub(crate) fn builder(global: &Global) -> Builder {
    match &global.signing_key {
        Some(path) => Hapax::builder().signing_key(path),
        None => Hapax::builder(),
    }
}

pub(crate) fn namespace(global: &Global) -> Result<Namespace, Failed> {
    Namespace::new(&global.namespace).map_err(|error| Failed::usage(error.to_string()))
}

/// The key that a person means: a printed key, or the name given to `run`.
pub(crate) fn key(text: &str) -> Result<Key, Failed> {
    if text.trim().is_empty() {
        return Err(Failed::usage("--key is blank").next("Name what must happen once."));
    }
    wire::key(text).map_err(|error| Failed::usage(format!("--key: {error}")))
}

/// How long ago, in one word.
pub(crate) fn ago(at: Timestamp) -> String {
    let then = UNIX_EPOCH + Duration::from_millis(at.0.max(0) as u64);
    let seconds = SystemTime::now().duration_since(then).unwrap_or_default().as_secs();
    match seconds {
        0 => "now".into(),
        1..=59 => format!("{seconds}s ago"),
        60..=3599 => format!("{}m ago", seconds / 60),
        3600..=86_399 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

pub(crate) fn state(name: StateName) -> String {
    let styled = console::style(name.as_str());
    match name {
        StateName::Succeeded => styled.green(),
        StateName::Running => styled.cyan(),
        StateName::Failed => styled.yellow(),
        state if state.needs_attention() => styled.red().bold(),
        _ => styled.dim(),
    }
    .to_string()
}

/// A text from another author, fit for one line of a terminal.
pub(crate) fn plain(text: Option<&str>) -> String {
    let text = text.unwrap_or_default().chars();
    text.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Columns, aligned. The last one is not padded.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) {
    let heads: Vec<String> =
        head.iter().map(|cell| console::style(cell).bold().to_string()).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain(std::iter::once(&heads));
        cells.map(|row| console::measure_text_width(&row[column])).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < row.len() {
                let pad = widths[column] - console::measure_text_width(cell) + 2;
                line.extend(std::iter::repeat_n(' ', pad));
            }
        }
        print(line.trim_end());
    }
}

/// One JSON document on a line of its own.
pub(crate) fn json(document: &impl Serialize) {
    print(&serde_json::to_string(document).unwrap_or_default());
}

/// Prints a line; a reader that went away is no error.
pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A progress bar that shows itself only on a terminal and only after a while.
pub(crate) fn progress(label: &'static str, total: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{prefix} {bar:30} {human_pos}/{human_len} {per_sec} {eta}");
    ProgressBar::new(total)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_prefix(label)
}
