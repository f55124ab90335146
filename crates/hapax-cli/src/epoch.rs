//! `hapax epoch`: which epoch a domain is in, and ending it.

use hapax::{Bound, Domain, Entry, Event, Hapax};
use hapax_control::Epochs;
use hapax_server::wire::{self, time};
use serde_json::json;

use crate::args::{Epoch, Global};
use crate::exit::{Exit, Failed};
use crate::output;

pub(crate) async fn main(global: &Global, epoch: Epoch) -> Result<Exit, Failed> {
    let hapax = output::open(global).await?;
    match epoch {
        Epoch::Show { domain } => show(global, &hapax, domain.as_deref()).await,
        Epoch::Advance { domain, seen, to, reason, by } => {
            let domain = named(&domain)?;
            let seen = match seen {
                Some(seen) => seen,
                None => hapax.epoch(&domain).await?,
            };
            let to = to.unwrap_or(seen.saturating_add(1));
            if to <= seen {
                return Err(Failed::usage(format!(
                    "{domain} was in epoch {seen}, and epochs only grow"
                )));
            }
            if reason.trim().is_empty() {
                return Err(Failed::usage("a transition has a reason: --reason WHY"));
            }
            let epochs = Epochs::new(hapax);
            let moved = epochs.advance_to(&domain, to, &by, reason.trim()).await?;
            if global.json {
                output::json(&wire::Transition::of(&domain, moved));
            } else if moved.moved {
                output::print(&format!("{domain} is in epoch {} now.", moved.epoch));
                if moved.voided > 0 {
                    let what = if moved.voided == 1 { "attempt was" } else { "attempts were" };
                    eprintln!(
                        "hapax: {} {what} under way and void; see: hapax effects list --stuck",
                        moved.voided
                    );
                }
            } else {
                output::print(&format!(
                    "{domain} is in epoch {} already; nothing happened.",
                    moved.epoch
                ));
            }
            Ok(Exit::Done)
        }
    }
}

fn named(text: &str) -> Result<Domain, Failed> {
    Domain::new(text).map_err(|error| Failed::usage(error.to_string()))
}

async fn show(global: &Global, hapax: &Hapax, domain: Option<&str>) -> Result<Exit, Failed> {
    let epochs = match domain {
        Some(text) => {
            let domain = named(text)?;
            vec![Bound { epoch: hapax.epoch(&domain).await?, domain }]
        }
        None => hapax.epochs().await?,
    };
    if epochs.is_empty() && !global.json {
        output::print(
            "No domains yet; each begins in epoch 0. Advance one: hapax epoch advance DOMAIN --reason WHY",
        );
        return Ok(Exit::Done);
    }
    let mut rows = Vec::new();
    for bound in &epochs {
        let since = transition(hapax, bound).await?;
        let since = since.as_ref();
        if global.json {
            output::json(&json!({
                "domain": bound.domain.as_str(),
                "epoch": bound.epoch,
                "since": since.map(|entry| time(entry.at)),
                "by": since.and_then(|entry| entry.actor.as_deref()),
                "reason": since.and_then(|entry| entry.note.as_deref()),
            }));
        }
        rows.push(vec![
            bound.domain.to_string(),
            bound.epoch.to_string(),
            since.map(|entry| time(entry.at)).unwrap_or_default(),
            since.and_then(|entry| entry.actor.clone()).unwrap_or_default(),
            since.and_then(|entry| entry.note.clone()).unwrap_or_default(),
        ]);
    }
    if !global.json {
        output::table(&["DOMAIN", "EPOCH", "SINCE", "BY", "REASON"], &rows);
    }
    Ok(Exit::Done)
}

/// How a domain came to be in its epoch.
async fn transition(hapax: &Hapax, bound: &Bound) -> Result<Option<Entry>, Failed> {
    let history = hapax.history(bound.domain.transition(bound.epoch), 100).await?;
    Ok(history.into_iter().rev().find(|entry| entry.event == Event::Settled))
}
