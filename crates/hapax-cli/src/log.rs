//! The log: warnings for people, and telemetry of each dispatch in a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
#[cfg(feature = "otlp")]
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LogFormat;
use crate::exit::{Exit, Failed};

/// The variable with the log level: `error`, `warn`, `info`, `debug`, `trace`, `off`.
const VARIABLE: &str = "HAPAX_LOG";

/// The target of log events about dispatches.
const DISPATCH: &str = "hapax::dispatch";

/// The target of the decisions of the control plane, which are logged unless a level is given.
const CONTROL: &str = "hapax::control";

/// Begins to log. Dispatches are written into this file as well, if there is one.
pub(crate) fn listen(telemetry: Option<&Path>, format: LogFormat) -> Result<(), Failed> {
    let ours = logged(std::env::var(VARIABLE).ok().as_deref())?;
    let text = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let text = (format == LogFormat::Text).then(|| text.with_filter(ours.clone()));
    let json = Lines { out: Arc::new(Mutex::new(std::io::stderr())), is_log: true };
    let json = (format == LogFormat::Json).then(|| json.with_filter(ours));
    let file = telemetry.map(appended).transpose()?;
    let file = file.map(|file| Lines { out: Arc::new(Mutex::new(file)), is_log: false });
    let file =
        file.map(|file| file.with_filter(Targets::new().with_target(DISPATCH, LevelFilter::DEBUG)));
    let all = tracing_subscriber::registry().with(text).with(json).with(file);
    #[cfg(feature = "otlp")]
    let all = all.with(collected());
    all.init();
    Ok(())
}

/// The events to log at this level. Unless one is given: warnings, and the decisions of the control
/// plane.
fn logged(level: Option<&str>) -> Result<Targets, Failed> {
    let Some(text) = level else {
        let warnings = Targets::new().with_target("hapax", LevelFilter::WARN);
        return Ok(warnings.with_target(CONTROL, LevelFilter::INFO));
    };
    let level = text.parse::<LevelFilter>().map_err(|_| {
        Failed::usage(format!("{VARIABLE}={text:?}"))
            .next("It is one of error, warn, info, debug, trace, off.")
    })?;
    Ok(Targets::new().with_target("hapax", level))
}

/// Sends log events to a collector, and prints nothing.
#[cfg(feature = "otlp")]
pub(crate) fn collect() {
    let _ = tracing_subscriber::registry().with(collected()).try_init();
}

#[cfg(feature = "otlp")]
fn collected<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    OtlpLayer.with_filter(Targets::new().with_target("hapax", LevelFilter::INFO))
}

/// Prints that an outcome cannot be recorded yet, for as long as that is tried.
pub(crate) fn progress() {
    let text = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let text = text.without_time().with_level(false).with_target(false);
    let text = text.with_filter(Targets::new().with_target("hapax::settle", LevelFilter::WARN));
    let _ = tracing_subscriber::registry().with(text).try_init();
}

/// Prints a message that people should read also when nothing is wrong.
pub(crate) fn say(format: LogFormat, event: &str, message: &str) {
    match format {
        LogFormat::Text => eprintln!("hapax: {message}"),
        LogFormat::Json => {
            let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
            let record = serde_json::json!({
                "timestamp": now, "level": "info", "target": "hapax", "event": event,
                "message": message,
            });
            eprint!("{}", line(&record));
        }
    }
}

fn appended(path: &Path) -> Result<File, Failed> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map_err(|error| {
        Failed::new(Exit::Unreachable, format!("telemetry: {}: {error}", path.display()))
    })
}

/// Sends log events to a collector, if there is one.
#[cfg(feature = "otlp")]
struct OtlpLayer;

#[cfg(feature = "otlp")]
impl<S: Subscriber> Layer<S> for OtlpLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        hapax_server::telemetry::record(event.metadata(), fields.0);
    }
}

/// One JSON object a line.
struct Lines<W> {
    out: Arc<Mutex<W>>,
    /// Whether lines have the fields of a log: the level, the target, and the event's name.
    is_log: bool,
}

impl<S: Subscriber, W: Write + Send + 'static> Layer<S> for Lines<W> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        fields.0.insert("timestamp".into(), now.to_string().into());
        if self.is_log {
            let about = event.metadata();
            let level = about.level().as_str().to_ascii_lowercase();
            fields.0.insert("level".into(), level.into());
            fields.0.insert("target".into(), about.target().into());
            // An event without a name is called after its place in the code, which is left out.
            if !about.name().starts_with("event ") {
                fields.0.insert("event".into(), about.name().into());
            }
        }
        event.record(&mut fields);
        let line = line(&Value::Object(fields.0));
        let mut out = self.out.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Err(error) = out.write_all(line.as_bytes()) {
            eprintln!("hapax: a line is lost: {error}");
        }
    }
}

/// An object as one line, without characters that a terminal or a line reader takes for a command: JSON itself
/// escapes only some of them.
fn line(object: &Value) -> String {
    let mut line = String::new();
    for character in object.to_string().chars() {
        match character {
            character if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') => {
                line.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            character => line.push(character),
        }
    }
    line.push('\n');
    line
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves C-6: each decision of the control plane is logged, unless the operator says otherwise.
    #[test]
    fn the_decisions_of_the_control_plane_are_logged_by_default() {
        let logs = |level: Option<&str>, target: &str, at: tracing::Level| {
            logged(level).expect("a level").would_enable(target, &at)
        };
        assert!(logs(None, "hapax::control", tracing::Level::INFO));
        assert!(!logs(None, "hapax::control", tracing::Level::DEBUG));
        assert!(logs(None, "hapax::outbox", tracing::Level::WARN));
        assert!(!logs(None, "hapax::outbox", tracing::Level::INFO));
        assert!(!logs(Some("warn"), "hapax::control", tracing::Level::INFO));
        assert!(logs(Some("debug"), "hapax::control", tracing::Level::DEBUG));
        assert!(logged(Some("loud")).is_err());
    }

    /// Proves S-6 for logs: whatever is logged stays in its line and in its field.
    #[test]
    fn control_characters_are_escaped() {
        let out = Arc::new(Mutex::new(Vec::new()));
        let lines = Lines { out: out.clone(), is_log: true };
        let odd = "a\nb\r\u{1b}[31m\0\u{7f}\u{9b}31m\u{2028}\", \"event\": \"forged";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::warn!(name: "tls_reloaded", text = odd, shown = %odd, "{odd}");
        });
        let text = String::from_utf8(out.lock().expect("no panic").clone()).expect("text");
        let inside = text.strip_suffix('\n').expect("a line");
        let plain = |character: char| !character.is_control() && character != '\u{2028}';
        assert!(inside.chars().all(plain), "{inside:?}");
        let record: Value = serde_json::from_str(inside).expect("JSON");
        assert_eq!(record["event"], "tls_reloaded");
        for field in ["text", "shown", "message"] {
            assert_eq!(record[field], odd, "{field}");
        }
    }
}
