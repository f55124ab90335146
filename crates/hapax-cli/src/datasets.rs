//! `hapax datasets`: declarations of datasets.

use hapax::Dataset;
use hapax_server::wire;
use serde_json::{Value, json};

use crate::args::Global;
use crate::args::pipeline::Datasets;
use crate::config::Config;
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::output;

pub(crate) async fn main(global: &Global, datasets: Datasets) -> Result<Exit, Failed> {
    let hapax = output::open(global).await?;
    match datasets {
        Datasets::List => {
            let declared = hapax.datasets().list().await?;
            if global.json {
                declared.iter().for_each(|(name, dataset)| output::json(&shown(name, dataset)));
                return Ok(Exit::Done);
            }
            if declared.is_empty() {
                output::print("No datasets are declared.");
                return Ok(Exit::Done);
            }
            let rows: Vec<_> = declared
                .iter()
                .map(|(name, dataset)| {
                    let word = |there: bool, word: &str| {
                        if there { word.to_owned() } else { String::new() }
                    };
                    vec![
                        output::plain(Some(name)),
                        output::plain(dataset.owner.as_deref()),
                        output::plain(dataset.care_label.as_deref()),
                        dataset.sovereignty.map_or("", |whose| whose.as_str()).to_owned(),
                        dataset.masked.map(|cells| cells.to_string()).unwrap_or_default(),
                        dataset.on_lock.as_str().to_owned(),
                        word(dataset.review, "yes"),
                    ]
                })
                .collect();
            let head = ["DATASET", "OWNER", "CARE", "SOVEREIGNTY", "MASKED", "ON LOCK", "REVIEW"];
            output::table(&head, &rows);
            Ok(Exit::Done)
        }
        Datasets::Show { dataset } => match hapax.datasets().list().await?.get(&dataset) {
            Some(declared) => {
                output::json(&shown(&dataset, declared));
                Ok(Exit::Done)
            }
            None => Err(Failed::usage(format!("the dataset {dataset:?} is not declared")).next(
                format!("Declare it in hapax.toml, then: {}", command(["datasets", "declare"])),
            )),
        },
        Datasets::Declare { config } => {
            let declared = Config::read(&config)?.datasets()?;
            for (name, dataset) in &declared {
                hapax.datasets().declare(name, Some(dataset.clone())).await?;
            }
            let names: Vec<&str> = declared.keys().map(String::as_str).collect();
            match global.json {
                true => output::json(&json!({ "declared": names })),
                false => output::print(&format!("Declared: {}.", names.join(", "))),
            }
            Ok(Exit::Done)
        }
        Datasets::Drop { dataset } => {
            let known = hapax.datasets().declare(&dataset, None).await?;
            match (global.json, known) {
                (true, _) => output::json(&json!({ "dropped": known })),
                (false, true) => output::print(&format!("{dataset} is no longer declared.")),
                (false, false) => output::print(&format!("{dataset} was not declared.")),
            }
            Ok(Exit::Done)
        }
    }
}

fn shown(name: &str, dataset: &Dataset) -> Value {
    json!({ "dataset": name, "declared": wire::Dataset::of(dataset) })
}
