//! How operations on datasets went lately: a fold over the sealed journal, kept up to date.
//!
//! What is not sealed yet, about a second's worth, is not counted. What a guard refused is no
//! failure.

use std::collections::{HashMap, VecDeque};

use hapax::{Hapax, Namespace, Slo, Tally, Timestamp};
use tokio::sync::Mutex;

use crate::error::Error;
use crate::lifecycle::is_refusal;
use crate::run::{Fold, What};

/// How many leaves are read at once.
const PAGE: u64 = 2_048;

/// The ends of operations, as far back as somebody has asked for.
#[derive(Default)]
pub(crate) struct Tallies(Mutex<Option<Ends>>);

struct Ends {
    /// Everything since then is counted.
    since: Timestamp,
    /// The leaf to go on from.
    next: u64,
    fold: Fold,
    /// When operations on a dataset ended, and whether they failed.
    ends: HashMap<(Namespace, String), VecDeque<(Timestamp, bool)>>,
}

impl Tallies {
    /// How operations on this dataset went in the window of its objective.
    pub(crate) async fn lately(
        &self,
        hapax: &Hapax,
        dataset: &str,
        slo: Slo,
    ) -> Result<Tally, Error> {
        let window = i64::try_from(slo.window_ms).unwrap_or(i64::MAX);
        let since = Timestamp(hapax.wall().await?.0.saturating_sub(window));
        let mut ends = self.0.lock().await;
        // Asked to look further back than before, it begins anew.
        if ends.as_ref().is_none_or(|ends| ends.since > since) {
            *ends = Some(Ends::since(hapax, since).await?);
        }
        let Some(ends) = ends.as_mut() else { return Ok(Tally::default()) };
        ends.read(hapax).await?;
        Ok(ends.count(hapax.namespace(), dataset, since))
    }
}

impl Ends {
    /// Finds the first leaf that counts: entries lie in the order of time, near enough.
    async fn since(hapax: &Hapax, since: Timestamp) -> Result<Self, Error> {
        let (mut low, mut high) = (0, hapax.sealed(u64::MAX, 0).await?.size);
        while low < high {
            let middle = low + (high - low) / 2;
            let there = hapax.sealed(middle, 1).await?.entries;
            match there.first() {
                Some((_, entry)) if entry.at >= since => high = middle,
                _ => low = middle + 1,
            }
        }
        Ok(Self { since, next: low, fold: Fold::default(), ends: HashMap::new() })
    }

    async fn read(&mut self, hapax: &Hapax) -> Result<(), Error> {
        loop {
            let page = hapax.sealed(self.next, PAGE).await?;
            for (_, entry) in &page.entries {
                let Some(moment) = self.fold.push(entry) else { continue };
                let failed = match &moment.what {
                    What::Complete { .. } => false,
                    What::Fail { reason } if is_refusal(reason) => continue,
                    What::Fail { .. } | What::Abort { .. } => true,
                    What::Start | What::Running { .. } => continue,
                };
                let name = (moment.run.namespace, moment.run.about.operation.dataset_id);
                self.ends.entry(name).or_default().push_back((moment.mark.at, failed));
            }
            self.next = page.next;
            if page.next >= page.size {
                return Ok(());
            }
        }
    }

    fn count(&mut self, namespace: &Namespace, dataset: &str, since: Timestamp) -> Tally {
        let name = (namespace.clone(), dataset.to_owned());
        let Some(ends) = self.ends.get_mut(&name) else { return Tally::default() };
        while ends.front().is_some_and(|(at, _)| *at < self.since) {
            ends.pop_front();
        }
        let counted = ends.iter().filter(|(at, _)| *at >= since);
        counted.fold(Tally::default(), |tally, (_, failed)| Tally {
            ended: tally.ended + 1,
            failed: tally.failed + u64::from(*failed),
        })
    }
}
