//! Counters of operations, under the names and labels that dashboards know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use crate::operation::OperationNote;

/// A counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meter {
    /// Results that were given without doing the work again.
    Replays,
    /// Locks that could not be taken.
    LockFailures,
    /// Tries after the first.
    Retries,
    /// Lineage events that were recorded already when they were projected.
    LineageRewrites,
    /// Operations whose result was known.
    Hits,
    /// Operations whose result was not.
    Misses,
    /// The estimated energy of operations, in millionths of a watt-hour.
    Energy,
    /// Their estimated emissions, in millionths of a gram of carbon dioxide and its equivalents.
    Carbon,
}

impl Meter {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Replays,
        Self::LockFailures,
        Self::Retries,
        Self::LineageRewrites,
        Self::Hits,
        Self::Misses,
        Self::Energy,
        Self::Carbon,
    ];

    /// The name of the metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replays => "kfm.idempotent_replays",
            Self::LockFailures => "kfm.lock_acquire_failures",
            Self::Retries => "kfm.retry_events",
            Self::LineageRewrites => "kfm.lineage_rewrite_ops",
            Self::Hits => "kfm.idem_cache_hits",
            Self::Misses => "kfm.idem_cache_misses",
            Self::Energy => "kfm.energy_joules",
            Self::Carbon => "kfm.carbon_grams",
        }
    }

    /// Its description, for people.
    pub fn description(self) -> &'static str {
        match self {
            Self::Replays => "replayed results",
            Self::LockFailures => "locks that others held",
            Self::Retries => "tries after the first",
            Self::LineageRewrites => "rewritten lineage",
            Self::Hits => "operations whose result was known",
            Self::Misses => "operations whose result was not known",
            Self::Energy => "an estimate of the energy that operations that succeeded took",
            Self::Carbon => "an estimate of what operations that succeeded emitted, as CO2e",
        }
    }

    /// The factor from its count to the unit in its name; `None` where it just counts.
    pub fn unit(self) -> Option<f64> {
        match self {
            Self::Energy => Some(0.003_6),
            Self::Carbon => Some(0.000_001),
            _ => None,
        }
    }
}

/// The labels of a count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Labels {
    /// The pipeline.
    pub pipeline: String,
    /// Its task.
    pub task: String,
    /// The dataset.
    pub dataset_id: String,
    /// The configured environment of this process.
    pub env: String,
    /// The kind of change.
    pub operation_type: String,
    /// Whether the dataset is sovereign.
    pub sovereignty_event: bool,
}

impl Labels {
    /// Their names, in the order of [`values`](Self::values).
    pub const NAMES: [&str; 6] =
        ["pipeline", "task", "dataset_id", "env", "operation_type", "sovereignty_event"];

    /// Their values.
    pub fn values(&self) -> [&str; 6] {
        let sovereign = if self.sovereignty_event { "true" } else { "false" };
        let Self { pipeline, task, dataset_id, env, operation_type, .. } = self;
        [pipeline, task, dataset_id, env, operation_type, sovereign]
    }

    pub(crate) fn of(about: &OperationNote, env: &str) -> Self {
        Self {
            pipeline: about.operation.pipeline_id.clone(),
            task: about.operation.task_id.clone(),
            dataset_id: about.operation.dataset_id.clone(),
            env: env.to_owned(),
            operation_type: about.operation.operation_type.clone(),
            sovereignty_event: about.terms.sovereign,
        }
    }

    /// The labels of operations whose own labels are one set too many.
    fn other(&self) -> Self {
        let other = || "other".to_owned();
        Self {
            pipeline: other(),
            task: other(),
            dataset_id: other(),
            env: self.env.clone(),
            operation_type: other(),
            sovereignty_event: self.sovereignty_event,
        }
    }
}

/// The most counters, each a meter with its labels. Counts beyond them have the labels `other`.
const MOST: usize = 10_000;

/// The counts of this process.
#[derive(Debug, Default)]
pub struct Meters(Mutex<BTreeMap<(Meter, Labels), u64>>);

impl Meters {
    pub(crate) fn add(&self, meter: Meter, labels: &Labels, count: u64) {
        let mut counts = self.lock();
        let full = counts.len() >= MOST;
        let known = (meter, labels.clone());
        let place =
            if full && !counts.contains_key(&known) { (meter, labels.other()) } else { known };
        let sum = counts.entry(place).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Everything that was counted.
    pub fn counts(&self) -> Vec<(Meter, Labels, u64)> {
        let counts = self.lock();
        counts.iter().map(|((meter, labels), count)| (*meter, labels.clone(), *count)).collect()
    }

    /// The same for a collector: under the labels of each operation all meters, and 0 for those that
    /// did not count it.
    pub fn series(&self) -> Vec<(Meter, Labels, u64)> {
        let counts = self.lock();
        let labels: BTreeSet<&Labels> = counts.keys().map(|(_, labels)| labels).collect();
        let mut series = Vec::with_capacity(labels.len() * Meter::ALL.len());
        for meter in Meter::ALL {
            for labels in &labels {
                let known = (meter, Labels::clone(labels));
                let count = counts.get(&known).copied().unwrap_or_default();
                series.push((meter, known.1, count));
            }
        }
        series
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Meter, Labels), u64>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves P-15: the names and the labels of the specification.
    #[test]
    fn meters_have_the_names_that_dashboards_know() {
        let names: Vec<_> = Meter::ALL.into_iter().map(Meter::name).collect();
        assert_eq!(
            names,
            [
                "kfm.idempotent_replays",
                "kfm.lock_acquire_failures",
                "kfm.retry_events",
                "kfm.lineage_rewrite_ops",
                "kfm.idem_cache_hits",
                "kfm.idem_cache_misses",
                "kfm.energy_joules",
                "kfm.carbon_grams",
            ]
        );
        let labels =
            ["pipeline", "task", "dataset_id", "env", "operation_type", "sovereignty_event"];
        assert_eq!(Labels::NAMES, labels);
        let mut about = OperationNote::default();
        about.operation.pipeline_id = "hydrology".into();
        about.operation.task_id = "load".into();
        about.operation.dataset_id = "flow".into();
        about.operation.operation_type = "append".into();
        about.terms.sovereign = true;
        let values = ["hydrology", "load", "flow", "test", "append", "true"];
        assert_eq!(Labels::of(&about, "test").values(), values);
    }

    /// Proves P-15: a collector gets each meter of an operation with all its labels, and nothing
    /// with empty labels.
    #[test]
    fn every_series_has_labels() {
        let meters = Meters::default();
        assert!(meters.series().is_empty());
        let named = |name: String| Labels {
            pipeline: name.clone(),
            task: name.clone(),
            dataset_id: name.clone(),
            env: "test".into(),
            operation_type: name,
            sovereignty_event: false,
        };
        meters.add(Meter::Hits, &named("flow".into()), 2);
        let series = meters.series();
        assert_eq!(series.len(), Meter::ALL.len());
        for (meter, labels, count) in series {
            assert_eq!(
                (labels.pipeline.as_str(), count),
                ("flow", u64::from(meter == Meter::Hits) * 2)
            );
        }
        for nth in 0..MOST {
            meters.add(Meter::Hits, &named(nth.to_string()), 1);
        }
        let series = meters.series();
        assert!(
            series.iter().all(|(_, labels, _)| labels.values().iter().all(|it| !it.is_empty()))
        );
        let other = series.iter().find(|(meter, labels, _)| {
            (*meter, labels.pipeline.as_str()) == (Meter::Hits, "other")
        });
        assert_eq!(other.map(|(.., count)| *count), Some(1));
    }

    #[test]
    fn a_millionth_of_a_watt_hour_is_so_many_joules() {
        let all = |meter: Meter, count: f64| meter.unit().map(|unit| unit * count);
        assert_eq!(all(Meter::Energy, 1e6), Some(3_600.0));
        assert_eq!(all(Meter::Carbon, 1e6), Some(1.0));
        assert_eq!(Meter::Hits.unit(), None);
    }
}
