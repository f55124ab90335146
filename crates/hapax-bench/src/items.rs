//! Items: the cost of a mutation from script to ledger, how soon a script starts, and how fast
//! applied mutations are replayed.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use hapax::json::Json;
use hapax::{Claim, Failure, Hapax, Key};
use hapax_items::{Call, Items, Operation, Plan, Tool, ToolError};

use crate::load::runtime;
use crate::report::{Bar, Report, human};
use crate::{Error, ROUNDS, median, say};

/// How many workflows run at once, and how many mutations each of them makes.
const CALLERS: [(usize, usize); 3] = [(1, 2_000), (16, 1_000), (64, 1_000)];

/// How many mutations are replayed.
const REPLAYED: usize = 1_000;

pub(crate) fn measure(directory: &Path, report: &mut Report) -> Result<(), Error> {
    for (callers, mutations) in CALLERS {
        mutation(directory, callers, mutations, report)?;
    }
    start(directory, report)?;
    replay(directory, report)
}

/// A tool that does nothing.
struct Nothing;

const OPERATIONS: [Operation; 1] = [Operation { name: "do", mutates: true }];

#[async_trait]
impl Tool for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }

    fn operations(&self) -> &[Operation] {
        &OPERATIONS
    }

    fn plan(&self, _: &str, arguments: &Json) -> Result<Plan, ToolError> {
        let payload = Json::object([("text", Json::text("nothing at all"))]);
        Ok(Plan { target: "nowhere".into(), identity: arguments.clone(), payload })
    }

    async fn mutate(&self, _: &Call, _: &Claim) -> Result<Json, ToolError> {
        Ok(Json::object([("id", Json::text("m-1"))]))
    }
}

fn items(hapax: &Hapax) -> Result<Items, Error> {
    Ok(Items::new(hapax.clone(), vec![Arc::new(Nothing)], Vec::new())?)
}

fn script(mutations: usize, then: &str) -> String {
    format!(
        "await withItem('item', 'An item', async () => {{
             for (let n = 0; n < {mutations}; n++) await nothing.do({{ n }});
             {then}
         }});"
    )
}

/// Mutations of many workflows at once, and bare effects of as many callers before and after them: a growing ledger
/// is slower for both.
fn mutation(
    directory: &Path,
    callers: usize,
    mutations: usize,
    report: &mut Report,
) -> Result<(), Error> {
    say(&format!("mutations of {callers} workflows at once, in turns with bare effects"));
    let mut rounds = [(0.0, 0.0); ROUNDS];
    for (nth, round) in rounds.iter_mut().enumerate() {
        let runtime = runtime()?;
        *round = runtime.block_on(async {
            let file = directory.join(format!("items-{callers}-{nth}.db"));
            let hapax = Hapax::open(file).await?;
            let items = items(&hapax)?;
            for caller in 0..callers {
                items.publish(&format!("w{caller}"), &script(mutations, ""), "bench").await?;
            }
            let before = bare(&hapax, 0, callers, mutations).await?;
            let began = Instant::now();
            let ours = (0..callers).map(|caller| {
                let items = items.clone();
                tokio::spawn(async move {
                    items.run(&format!("w{caller}"), None).await?;
                    Ok(())
                })
            });
            joined(ours.collect()).await?;
            let ours = (callers * mutations) as f64 / began.elapsed().as_secs_f64();
            let after = bare(&hapax, 1, callers, mutations).await?;
            hapax.close().await?;
            Ok::<_, Error>((ours, (before + after) / 2.0))
        })?;
        runtime.shutdown_background();
    }
    let (rate, bare) = (median(rounds.map(|r| r.0)), median(rounds.map(|r| r.1)));
    let label = format!("mutations of {callers} at once: script, tool, ledger");
    report.fact(label, &format!("items.mutation.{callers}.per_s"), rate, "mutations/s");
    report.figure(&format!("items.bare.{callers}.per_s"), bare);
    let ratio = median(rounds.map(|(ours, bare)| ours / bare));
    let beside = format!("× bare claim + settle {}", human(bare));
    let name = format!("items.mutation.{callers}.vs_effect");
    report.ratio("", &name, ratio, beside, Bar::AtLeast(0.5));
    Ok(())
}

/// Bare effects a second, half as many as there are mutations; each time under new keys.
async fn bare(hapax: &Hapax, time: u8, callers: usize, mutations: usize) -> Result<f64, Error> {
    let (began, count) = (Instant::now(), mutations / 2);
    let callers: Vec<_> = (0..callers)
        .map(|caller| {
            let hapax = hapax.clone();
            tokio::spawn(async move { effects(&hapax, time, caller, count).await })
        })
        .collect();
    let total = (callers.len() * count) as f64;
    joined(callers).await?;
    Ok(total / began.elapsed().as_secs_f64())
}

async fn effects(hapax: &Hapax, time: u8, caller: usize, count: usize) -> Result<(), Error> {
    for n in 0..count {
        let fields: [(&str, &[u8]); 3] =
            [("time", &[time]), ("caller", &caller.to_be_bytes()), ("n", &n.to_be_bytes())];
        let key =
            Key::derive("bench.v1", &fields).map_err(|error| Error::Invalid(error.to_string()))?;
        let effect = hapax.effect(key).payload(b"nothing at all");
        effect.run(|_| async { Ok::<_, Failure>("{\"id\":\"m-1\"}") }).await?;
    }
    Ok(())
}

async fn joined(tasks: Vec<tokio::task::JoinHandle<Result<(), Error>>>) -> Result<(), Error> {
    for task in tasks {
        task.await.map_err(|error| Error::Invalid(format!("a caller ended: {error}")))??;
    }
    Ok(())
}

/// How soon a script gets to its first line, everything on the ledger included but the run's own
/// record.
fn start(directory: &Path, report: &mut Report) -> Result<(), Error> {
    say("a script that does nothing");
    let starts = runtime()?.block_on(async {
        let hapax = Hapax::open(directory.join("start.db")).await?;
        let items = items(&hapax)?;
        items.publish("nothing", "1;", "bench").await?;
        let (mut run, mut bare) = (Vec::new(), Vec::new());
        for nth in 0..200_usize {
            let began = Instant::now();
            effects(&hapax, 2, 7_000 + nth, 1).await?;
            bare.push(began.elapsed().as_secs_f64() * 1e3);
            let began = Instant::now();
            items.run("nothing", None).await?;
            run.push(began.elapsed().as_secs_f64() * 1e3);
        }
        hapax.close().await?;
        Ok::<_, Error>((middle(run), middle(bare)))
    })?;
    let (run, bare) = starts;
    let beside = format!("ms, of which {} are its record's", human(bare));
    report.ratio("a script starts within", "items.start_ms", run, beside, Bar::Below(5.0));
    Ok(())
}

fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// An item whose mutations were all applied, and whose handler did not end, in turns with an item
/// that has none: the difference is the cost of the replay.
fn replay(directory: &Path, report: &mut Report) -> Result<(), Error> {
    say("an item with a thousand mutations that were applied");
    let times = runtime()?.block_on(async {
        let hapax = Hapax::open(directory.join("replay.db")).await?;
        let items = items(&hapax)?;
        let (mut many, mut none) = (Vec::new(), Vec::new());
        for nth in 0..20 {
            many.push(again(&items, &format!("many{nth}"), REPLAYED).await?);
            none.push(again(&items, &format!("none{nth}"), 0).await?);
        }
        hapax.close().await?;
        Ok::<_, Error>((middle(many), middle(none)))
    })?;
    let (many, none) = times;
    let label = "a run that tells 1,000 mutations again";
    report.fact(label, "items.replay_ms", many * 1e3, "ms");
    let beside = format!("mutations/s, without the {} ms of a run with none", human(none * 1e3));
    let rate = REPLAYED as f64 / (many - none);
    report.ratio("", "items.replay.per_s", rate, beside, Bar::AtLeast(100_000.0));
    Ok(())
}

/// How long a run takes after one that applied this many mutations and failed.
async fn again(items: &Items, workflow: &str, mutations: usize) -> Result<f64, Error> {
    items.publish(workflow, &script(mutations, "throw new Error('not yet');"), "bench").await?;
    let _ = items.run(workflow, None).await;
    for one in items.escalations(Some(workflow), 1).await? {
        let (action, by) = (hapax_items::Action::TryAgain, ("bench", "again"));
        items.act(one.key, one.judged, action, None, by).await?;
    }
    let began = Instant::now();
    let _ = items.run(workflow, None).await;
    Ok(began.elapsed().as_secs_f64())
}
