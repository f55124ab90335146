//! `hapax reviews`: reviews of operations, and decisions about them.

use hapax::{Hapax, Judged};
use hapax_pipeline::Pipeline;
use hapax_pipeline::review::{self, Review, ReviewStatus};
use hapax_server::wire;
use serde_json::json;

use crate::args::Global;
use crate::args::pipeline::{DecideReview, OpenReview, Reviews};
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::output::{self, ago};

pub(crate) async fn main(global: &Global, reviews: Reviews) -> Result<Exit, Failed> {
    if let Reviews::Open(opened) = reviews {
        return open(global, &opened).await;
    }
    let hapax = output::open(global).await?;
    match reviews {
        Reviews::List { all, limit } => list(global, &hapax, all, limit).await,
        Reviews::Approve(decided) => decide(global, &hapax, &decided, true).await,
        Reviews::Reject(decided) => decide(global, &hapax, &decided, false).await,
        Reviews::Open(_) => Ok(Exit::Done),
    }
}

async fn list(global: &Global, hapax: &Hapax, all: bool, limit: usize) -> Result<Exit, Failed> {
    let reviews = review::list(hapax, !all, limit).await?;
    if global.json {
        reviews.iter().for_each(|review| output::json(&wire::Review::of(review)));
        return Ok(Exit::Done);
    }
    if reviews.is_empty() {
        output::print(if all { "There are no reviews." } else { "There are no pending reviews." });
        return Ok(Exit::Done);
    }
    let row = |review: &Review| {
        vec![
            review.key.to_string(),
            ago(review.opened),
            review.status.as_str().to_owned(),
            output::plain(Some(&review.dataset_id)),
            output::plain(Some(&review.reason)),
        ]
    };
    let rows: Vec<_> = reviews.iter().map(row).collect();
    output::table(&["REVIEW", "OPENED", "STATUS", "DATASET", "REASON"], &rows);
    Ok(Exit::Done)
}

async fn open(global: &Global, args: &OpenReview) -> Result<Exit, Failed> {
    let (key, note) = (output::key(&args.operation)?, args.by.note.trim());
    let hapax = output::builder(global).open(&global.db).await?;
    let hapax = hapax.in_namespace(output::namespace(global)?);
    let pipeline = Pipeline::new(hapax.clone());
    let escalated = review::escalate(&pipeline, key, (&args.by.by, note)).await?;
    hapax.close().await?;
    let Some((review, status)) = escalated else {
        return Err(Failed::usage(format!("no operation of the key {key} was ever begun"))
            .next(format!("List what there is: {}", command(["journal", "list"]))));
    };
    if status == ReviewStatus::Rejected {
        let message = format!("a reviewer rejected it: {review}");
        return Err(Failed::new(Exit::Conflict, message).next(list_all()));
    }
    match global.json {
        true => output::json(&json!({ "review": review.to_string(), "standing": status.as_str() })),
        false => output::print(&format!("opened: {review}")),
    }
    Ok(Exit::Done)
}

async fn decide(
    global: &Global,
    hapax: &Hapax,
    args: &DecideReview,
    approve: bool,
) -> Result<Exit, Failed> {
    let key = output::key(&args.review)?;
    let unknown = || Failed::usage("there is no such review").next(list_all());
    let effect = hapax.effects().show(key).await?.ok_or_else(unknown)?;
    let by = (args.by.by.as_str(), args.by.note.as_str());
    match review::decide(&Pipeline::new(hapax.clone()), key, effect.attempt, approve, by).await? {
        Judged::Decided(_) => {
            let word = if approve { "approved" } else { "rejected" };
            match global.json {
                true => output::json(&json!({ "review": key.to_string(), "standing": word })),
                false => output::print(&format!("{word}: {key}")),
            }
            Ok(Exit::Done)
        }
        _ => Err(Failed::new(Exit::Conflict, "it is decided already").next(list_all())),
    }
}

fn list_all() -> String {
    format!("List them: {}", command(["reviews", "list", "--all"]))
}
