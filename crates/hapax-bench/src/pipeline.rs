//! The whole lifecycle of an operation around nothing, beside a bare claim and settle.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hapax::{Hapax, Safety};
use hapax_pipeline::{Operation, Pipeline, WorkError, WorkResult};

use crate::load::{self, runtime};
use crate::postgres::Scratch;
use crate::report::{Bar, Report, human};
use crate::{Error, Options, ROUNDS, engine, median, say};

const CALLERS: usize = 64;

/// How many datasets are worked on: many more than there are callers.
const DATASETS: u64 = 1_024;

pub(crate) fn measure(
    options: &Options,
    url: Option<&str>,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let scratch = url.map(|url| Scratch::make(url, directory)).transpose()?;
    let prefix = if url.is_some() { "pg." } else { "" };
    say("operations, 64 callers, in turns with bare claims and settles");
    let mut rounds = [(0.0, 0.0); ROUNDS];
    for (nth, round) in rounds.iter_mut().enumerate() {
        let place = |name: &str| match &scratch {
            Some(scratch) => scratch.url().into(),
            None => directory.join(format!("{name}-{nth}.db")),
        };
        let quiet = || scratch.as_ref().map_or(Ok(()), Scratch::quiet);
        quiet()?;
        let before = engine::new_keys(&place("bare"), CALLERS, options.time / 2)?;
        quiet()?;
        let operations = operations(&place("operations"), options.time)?;
        quiet()?;
        let after = engine::new_keys(&place("bare"), CALLERS, options.time / 2)?;
        *round = (operations, (before + after) / 2.0);
    }
    let (rate, bare) = (median(rounds.map(|r| r.0)), median(rounds.map(|r| r.1)));
    report.fact(
        "operations around nothing, 64 callers",
        &format!("{prefix}pipeline.64.per_s"),
        rate,
        "a second",
    );
    report.figure(&format!("{prefix}bare.64.per_s"), bare);
    let cost = median(rounds.map(|(operations, bare)| bare / operations));
    let beside = format!("× a bare claim + settle {}", human(bare));
    report.ratio("", &format!("{prefix}pipeline.64.cost"), cost, beside, Bar::Below(2.0));
    Ok(())
}

/// Operations a second.
fn operations(place: &Path, time: Duration) -> Result<f64, Error> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed) ^ u64::from(std::process::id()) << 32;
    runtime()?.block_on(async {
        let hapax = Hapax::open(place).await?;
        let pipeline = Pipeline::new(hapax.clone());
        let work = move |n: u64| {
            let pipeline = pipeline.clone();
            async move {
                let operation = Operation {
                    pipeline_id: "bench".into(),
                    task_id: "nothing".into(),
                    dataset_id: format!("dataset-{}", n % DATASETS),
                    operation_type: "append".into(),
                    version: format!("{run}-{n}"),
                    checksum_in: "sha256:5f2b".into(),
                    params_hash: "sha256:9c41".into(),
                    timestamp_bucket: "2026-11-16T00:00:00Z".into(),
                    ..Operation::default()
                };
                let builder = pipeline.operation(operation);
                let builder = builder.with(|effect| effect.safety(Safety::Transactional));
                builder
                    .run(|_| async { Ok::<_, WorkError>(WorkResult::new("receipt 0123456789")) })
                    .await?;
                Ok(())
            }
        };
        let per_s = load::per_s(CALLERS, time, work).await?;
        hapax.close().await?;
        Ok(per_s)
    })
}
