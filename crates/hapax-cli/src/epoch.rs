//! `hapax epoch`: the epoch of a domain, and its end.

use hapax::{
    Bound, Domain, EffectRecord, Entry, EntryKind, Filter, Hapax, Judged, Resolution, StateName,
};
use hapax_control::Epochs;
use hapax_server::wire::{self, time};
use serde_json::json;

use crate::args::{Epoch, Global};
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::output;

pub(crate) async fn main(global: &Global, epoch: Epoch) -> Result<Exit, Failed> {
    let hapax = output::open(global).await?;
    match epoch {
        Epoch::Show { domain } => show(global, &hapax, domain.as_deref()).await,
        Epoch::Skip { epoch, note, by } => skip(global, &hapax, &bound(&epoch)?, &by, &note).await,
        Epoch::Advance { domain, seen, to, reason, by } => {
            let domain = named(&domain)?;
            let current = hapax.epochs().current(&domain).await?;
            let seen = seen.unwrap_or(current);
            let to = to.unwrap_or(seen.saturating_add(1));
            if to <= seen {
                return Err(Failed::usage(format!(
                    "epoch {to} is not after {seen}; epochs only grow"
                )));
            }
            if reason.trim().is_empty() || reason.len() > 4096 {
                return Err(Failed::usage("a reason is 1 to 4096 bytes: --reason WHY"));
            }
            let epochs = Epochs::new(hapax);
            let moved = epochs.advance_to(&domain, (seen, to), &by, reason.trim()).await?;
            if current == 0 && moved.moved && !global.json {
                eprintln!("hapax: {domain} was in epoch 0: it was not used before");
            }
            if global.json {
                output::json(&wire::Transition::of(&domain, moved));
            } else if moved.moved {
                output::print(&format!("{domain} is in epoch {} now.", moved.epoch));
                if moved.voided > 0 {
                    let attempts = if moved.voided == 1 { "attempt was" } else { "attempts were" };
                    eprintln!(
                        "hapax: {} {attempts} under way and void: {}",
                        moved.voided,
                        command(["effects", "list", "--stuck"])
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

/// `connector:7`: an epoch of a domain.
pub(crate) fn bound(text: &str) -> Result<Bound, Failed> {
    let refuse = |flaw: String| {
        Failed::usage(format!(
            "invalid epoch {text:?}: {flaw}; write DOMAIN:N, such as connector:7"
        ))
        .next(format!("See which epoch it is: {}", command(["epoch", "show"])))
    };
    let parts = text.split_once(':');
    let (domain, epoch) = parts.ok_or_else(|| refuse("it has no colon".into()))?;
    let domain = Domain::new(domain).map_err(|error| refuse(error.to_string()))?;
    let epoch = epoch.parse().map_err(|error| refuse(format!("{epoch:?}: {error}")))?;
    Ok(Bound { domain, epoch })
}

/// Skips the indeterminate effects of an epoch that is over.
async fn skip(
    global: &Global,
    hapax: &Hapax,
    over: &Bound,
    by: &str,
    note: &str,
) -> Result<Exit, Failed> {
    let current = hapax.epochs().current(&over.domain).await?;
    if over.epoch >= current {
        let message = format!("{over} is not over; {} is in epoch {current}", over.domain);
        return Err(Failed::usage(message));
    }
    let (mut skipped, mut before) = (0, None);
    loop {
        let states = vec![StateName::Indeterminate];
        let found = hapax
            .effects()
            .search(Filter { states, before, limit: PAGE, ..Filter::default() })
            .await?;
        for EffectRecord { name, effect } in &found {
            if effect.bound.as_ref() == Some(over) {
                let decided = hapax
                    .effects()
                    .resolve(name.key, effect.seen(), Resolution::Skip, by, note)
                    .await?;
                skipped += usize::from(matches!(decided, Judged::Decided(_)));
            }
        }
        match found.last().filter(|_| found.len() == PAGE) {
            Some(last) => before = Some(last.effect.fence),
            None => break,
        }
    }
    if global.json {
        output::json(&json!({ "skipped": skipped }));
    } else {
        output::print(&format!("Effects skipped: {skipped}."));
    }
    Ok(Exit::Done)
}

const PAGE: usize = 500;

fn named(text: &str) -> Result<Domain, Failed> {
    Domain::new(text).map_err(|error| Failed::usage(error.to_string()))
}

async fn show(global: &Global, hapax: &Hapax, domain: Option<&str>) -> Result<Exit, Failed> {
    let epochs = match domain {
        Some(text) => {
            let domain = named(text)?;
            vec![Bound { epoch: hapax.epochs().current(&domain).await?, domain }]
        }
        None => hapax.epochs().list().await?,
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
            output::plain(since.and_then(|entry| entry.actor.as_deref())),
            output::plain(since.and_then(|entry| entry.note.as_deref())),
        ]);
    }
    if !global.json {
        output::table(&["DOMAIN", "EPOCH", "SINCE", "BY", "REASON"], &rows);
    }
    Ok(Exit::Done)
}

/// The journal entry of the transition to a domain's epoch.
async fn transition(hapax: &Hapax, bound: &Bound) -> Result<Option<Entry>, Failed> {
    let history = hapax.journal().history(bound.domain.transition(bound.epoch), 100).await?;
    Ok(history.into_iter().rev().find(|entry| entry.event == EntryKind::Settled))
}
