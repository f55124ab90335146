//! `[datasets.…]` and `[pipeline]`: declarations of datasets, and how operations are run.

use std::collections::BTreeMap;
use std::time::Duration;

use hapax::{Dataset, LockPolicy, Retries, Slo, Sovereignty};
use serde::Deserialize;

use super::{Config, humantime_text};
use crate::exit::Failed;

/// How operations of pipelines are run.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PipelineSection {
    /// The `env` label of metrics.
    environment: Option<String>,
    /// The watts of a busy core, and the grams that a kilowatt-hour emits.
    watts_per_core: Option<f64>,
    grams_per_kwh: Option<f64>,
    /// The width of the buckets that logical times are rounded down to.
    #[serde(default, with = "humantime_text")]
    bucket: Option<Duration>,
    /// How long to wait for another operation that holds the dataset's lock.
    #[serde(default, with = "humantime_text")]
    lock_wait: Option<Duration>,
}

/// The declaration of a dataset.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DatasetSection {
    owner: Option<String>,
    masked: Option<u8>,
    care_label: Option<String>,
    #[serde(default)]
    restricted: bool,
    sovereignty: Option<String>,
    order: Option<String>,
    /// JSON Schemas: the text itself, or `file:PATH`.
    input_contract: Option<String>,
    output_contract: Option<String>,
    slo: Option<Objective>,
    on_lock: Option<String>,
    retries: Option<RetrySection>,
    #[serde(default)]
    review: bool,
    #[serde(default)]
    shards: u32,
}

/// The service level objective.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Objective {
    window: String,
    /// The share that has to succeed.
    objective: f64,
}

/// How often an operation is tried again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetrySection {
    quick: Option<u32>,
    again: Option<u32>,
    #[serde(default, with = "humantime_text")]
    backoff: Option<Duration>,
    #[serde(default, with = "humantime_text")]
    max_backoff: Option<Duration>,
}

impl Config {
    /// The datasets that the file declares.
    pub(crate) fn datasets(&self) -> Result<BTreeMap<String, Dataset>, Failed> {
        let declared = self.datasets.iter();
        let dataset = |(name, declared): (&String, &DatasetSection)| {
            let dataset = self.declared(declared).and_then(|dataset| match dataset.flaw() {
                Some(flaw) => Err(flaw),
                None => Ok(dataset),
            });
            let refuse =
                |flaw| Failed::usage(format!("{}: datasets.{name}: {flaw}", self.path.display()));
            Ok((name.clone(), dataset.map_err(refuse)?))
        };
        declared.map(dataset).collect()
    }

    fn declared(&self, declared: &DatasetSection) -> Result<Dataset, String> {
        let named = |name: &str, known: &str| format!("{name:?} is none of {known}");
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let contract =
            |text: &Option<String>| text.as_ref().map(|text| self.value(text)).transpose();
        let slo = declared.slo.as_ref().map(|slo| {
            let window =
                humantime::parse_duration(&slo.window).map_err(|error| error.to_string())?;
            let share = (0.0..=1.0).contains(&slo.objective).then_some(slo.objective * 1e6);
            let share = share.ok_or("slo.objective is a share from 0 to 1")?;
            Ok::<_, String>(Slo { window_ms: millis(window), objective_ppm: share.round() as u32 })
        });
        let usual = Retries::default();
        let retries = declared.retries.as_ref().map_or(usual, |tried| Retries {
            quick: tried.quick.unwrap_or(usual.quick),
            again: tried.again.unwrap_or(usual.again),
            base_ms: tried.backoff.map_or(usual.base_ms, millis),
            cap_ms: tried.max_backoff.map_or(usual.cap_ms, millis),
        });
        let sovereignty = declared.sovereignty.as_deref().map(|name| {
            let known = "sovereign, tribal, heritage, archaeology";
            Sovereignty::named(name).ok_or_else(|| named(name, known))
        });
        let on_lock = declared.on_lock.as_deref().map(|name| {
            LockPolicy::named(name).ok_or_else(|| named(name, "skip, backoff, escalate"))
        });
        Ok(Dataset {
            owner: declared.owner.clone(),
            masked: declared.masked,
            care_label: declared.care_label.clone(),
            restricted: declared.restricted,
            sovereignty: sovereignty.transpose()?,
            order: declared.order.clone(),
            input_contract: contract(&declared.input_contract)?,
            output_contract: contract(&declared.output_contract)?,
            slo: slo.transpose()?,
            on_lock: on_lock.transpose()?.unwrap_or_default(),
            retries,
            review: declared.review,
            shards: declared.shards,
        })
    }

    /// The width of the buckets of logical times, a day unless the file says otherwise.
    pub(crate) fn bucket(&self) -> Duration {
        self.pipeline.bucket.unwrap_or(Duration::from_secs(24 * 3600))
    }

    /// How operations are run. `wait` overrules the file's `lock_wait`.
    pub(crate) fn pipeline(&self, wait: Option<Duration>) -> hapax_pipeline::Settings {
        let (usual, section) = (hapax_pipeline::Settings::default(), &self.pipeline);
        let whole = |n: f64| n.clamp(0.0, 1e9).round() as u64;
        hapax_pipeline::Settings {
            environment: section.environment.clone().unwrap_or(usual.environment),
            grid: hapax_pipeline::Grid {
                milliwatts_per_core: section
                    .watts_per_core
                    .map_or(usual.grid.milliwatts_per_core, |watts| whole(watts * 1e3)),
                grams_per_kwh: section.grams_per_kwh.map_or(usual.grid.grams_per_kwh, whole),
            },
            bucket: section.bucket.unwrap_or(usual.bucket),
            lock_wait: wait.or(section.lock_wait).unwrap_or(usual.lock_wait),
        }
    }
}
