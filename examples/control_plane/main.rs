//! A control plane with two nodes and a peer that cannot be relied on: answers get lost, an epoch
//! ends while a request waits to be sent again, a node is killed. The output lists each step.
//!
//!   cargo run -p hapax-control --features axum --example control_plane
//!
//! Each node is a process of its own; both share a ledger in one file. The peer, which is reached
//! over HTTP, has another.

mod node;
mod peer;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use hapax::{Domain, Hapax, StateName};
use hapax_control::Epochs;

use node::{Node, PROBE, ROLLOUT, STEP};
use peer::{Mood, Peer};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A story that takes longer than a minute has gone wrong.
const LONG: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["node", name, ledger, peer, computation, request] => {
            node::main(name, Path::new(ledger), peer, computation, request).await
        }
        [] => tokio::time::timeout(LONG, story()).await?,
        _ => Err("run it without arguments".into()),
    }
}

async fn story() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let ledger = directory.path().join("ours.db");
    let peer = Peer::start(&directory.path().join("theirs.db")).await?;
    let hapax = Hapax::builder().holder("the narrator").open(&ledger).await?;
    let epochs = Epochs::new(hapax.clone());
    let connector = Domain::new("connector")?;
    let node = |name| Node { name, ledger: ledger.clone(), peer: peer.address.clone() };
    let (a, b) = (node("A"), node("B"));

    headline(
        "1. Two nodes send the same notice. The peer does it, and its first answer gets lost.",
    );
    peer.is(Mood::LosesAnswers(1));
    let (first, second) = tokio::try_join!(a.send(ROLLOUT, "1.4.2"), b.send(ROLLOUT, "1.4.2"))?;
    check(first && second && peer.done() == 1, "both have the answer, and it was done once")?;
    check(a.send(ROLLOUT, "1.4.2").await?, "the third call sends nothing")?;
    check(peer.requests() == 2, "the peer got two requests in all: one, and its repeat")?;

    headline("2. The epoch ends while a request waits to be sent again.");
    peer.is(Mood::Down);
    let before = peer.requests();
    let sending = a.start(STEP, "step 3")?;
    until(|| peer.requests() > before).await?;
    let transition = epochs.advance(&connector, 0, "narrator", "the leader was replaced").await?;
    println!("   connector is in epoch {} now; {} void", transition.epoch, transition.voided);
    check(!sending.answered().await?, "node A got ERR_EPOCH_MISMATCH")?;
    check(peer.requests() == before + 1, "and did not send it again")?;
    peer.follow(&connector, transition.epoch).await?;
    peer.is(Mood::Well);
    check(a.send(STEP, "step 3").await?, "in the new epoch it has a new key, and is done")?;

    headline("3. A node is killed while the peer is thinking.");
    peer.is(Mood::Hangs);
    let before = peer.requests();
    let (probing, fencing) = (b.start(PROBE, "{}")?, b.start(node::FENCING, "{}")?);
    until(|| peer.requests() >= before + 2).await?;
    probing.kill().await?;
    fencing.kill().await?;
    peer.is(Mood::Well);
    check(
        a.send(PROBE, "{}").await?,
        "the probe may be sent again: node A does, and has an answer",
    )?;
    until_stuck(&hapax, 2).await?;
    for found in hapax.effects().list(&[StateName::Indeterminate], 10).await? {
        let label = found.effect.label.unwrap_or_default();
        println!("   {label}: {}", found.effect.state.reason().unwrap_or_default());
    }
    check(
        true,
        "an operator decides about effects that may not be sent again or that the epoch voided",
    )?;
    hapax.close().await?;
    Ok(())
}

fn headline(text: &str) {
    println!("\n{text}");
}

fn check(holds: bool, text: &str) -> Result<()> {
    println!("   {} {text}", if holds { "✓" } else { "✗" });
    if holds { Ok(()) } else { Err(format!("it is not so that {text}").into()) }
}

async fn until(holds: impl Fn() -> bool) -> Result<()> {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Waits until this many requests are shown to the operator.
async fn until_stuck(hapax: &Hapax, count: usize) -> Result<()> {
    while hapax.effects().list(&[StateName::Indeterminate], 10).await?.len() < count {
        hapax.pass().await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
