//! What the library has to say: warnings for people, and telemetry of each dispatch in a file.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::exit::{Exit, Failed};

/// The variable that says how much is told: `error`, `warn`, `info`, `debug`, `trace`, `off`.
const VARIABLE: &str = "HAPAX_LOG";

/// Where dispatches are told of.
const DISPATCH: &str = "hapax::dispatch";

/// Begins to listen. Dispatches are written into this file as well, if there is one.
pub(crate) fn listen(telemetry: Option<&Path>) -> Result<(), Failed> {
    let level = match std::env::var(VARIABLE) {
        Ok(text) => text.parse::<LevelFilter>().map_err(|_| {
            Failed::usage(format!("{VARIABLE}={text:?}"))
                .next("It is one of error, warn, info, debug, trace, off.")
        })?,
        Err(_) => LevelFilter::WARN,
    };
    let people = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_filter(Targets::new().with_target("hapax", level));
    let file = telemetry.map(Telemetry::append_to).transpose()?;
    let file =
        file.map(|file| file.with_filter(Targets::new().with_target(DISPATCH, LevelFilter::DEBUG)));
    tracing_subscriber::registry().with(people).with(file).init();
    Ok(())
}

/// A file with one JSON object a line for each dispatch.
struct Telemetry {
    file: Arc<Mutex<File>>,
}

impl Telemetry {
    fn append_to(path: &Path) -> Result<Self, Failed> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|error| {
            Failed::new(Exit::Unreachable, format!("telemetry: {}: {error}", path.display()))
        })?;
        Ok(Self { file: Arc::new(Mutex::new(file)) })
    }
}

impl<S: Subscriber> Layer<S> for Telemetry {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        fields.0.insert("timestamp".into(), now.to_string().into());
        event.record(&mut fields);
        let mut line = Value::Object(fields.0).to_string();
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Err(error) = file.write_all(line.as_bytes()) {
            eprintln!("hapax: telemetry is lost: {error}");
        }
    }
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
