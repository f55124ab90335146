//! Recent results of operations on datasets: a fold over the sealed journal, kept up to date.
//!
//! Operations are counted, not attempts: the newest end of an operation is its result. Entries that are not sealed yet, about a second's worth, are not counted. Neither are refusals
//! by a guard.

use std::collections::HashMap;

use hapax::{Hapax, Key, Namespace, Slo, Tally, Timestamp};
use tokio::sync::Mutex;

use crate::error::Error;
use crate::lifecycle::is_refusal;
use crate::run::{Fold, RunChange};

/// How many leaves are read at once.
const PAGE: u64 = 2_048;

/// The ends of operations, for the datasets and the longest window that callers have requested.
#[derive(Default)]
pub(crate) struct Tallies(Mutex<Ends>);

#[derive(Default)]
struct Ends {
    /// The longest window that callers have requested.
    window_ms: u64,
    /// The next leaf to read.
    next: u64,
    fold: Fold,
    /// The newest end of each operation on a dataset: when it was, and whether the operation failed.
    ends: HashMap<(Namespace, String), HashMap<Key, (Timestamp, bool)>>,
}

impl Tallies {
    /// The results of operations on this dataset in the window of its objective.
    pub(crate) async fn lately(
        &self,
        hapax: &Hapax,
        dataset: &str,
        slo: Slo,
    ) -> Result<Tally, Error> {
        let now = hapax.maintenance().wall().await?;
        let name = (hapax.namespace().clone(), dataset.to_owned());
        let mut ends = self.0.lock().await;
        // A new dataset or a longer window starts the fold again.
        if ends.window_ms < slo.window_ms || !ends.ends.contains_key(&name) {
            ends.ends.insert(name.clone(), HashMap::new());
            ends.window_ms = ends.window_ms.max(slo.window_ms);
            ends.begin(hapax, now).await?;
        }
        ends.read(hapax).await?;
        Ok(ends.count(&name, now, slo.window_ms))
    }
}

fn before(now: Timestamp, ms: u64) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)))
}

impl Ends {
    /// Forgets everything, and finds the first leaf in the window by bisection: entries are nearly
    /// in the order of time.
    async fn begin(&mut self, hapax: &Hapax, now: Timestamp) -> Result<(), Error> {
        let since = before(now, self.window_ms);
        let (mut low, mut high) = (0, hapax.journal().sealed(u64::MAX, 0).await?.size);
        while low < high {
            let middle = low + (high - low) / 2;
            let there = hapax.journal().sealed(middle, 1).await?.entries;
            match there.first() {
                Some((_, entry)) if entry.at >= since => high = middle,
                _ => low = middle + 1,
            }
        }
        (self.next, self.fold) = (low, Fold::default());
        self.ends.values_mut().for_each(HashMap::clear);
        Ok(())
    }

    async fn read(&mut self, hapax: &Hapax) -> Result<(), Error> {
        loop {
            let page = hapax.journal().sealed(self.next, PAGE).await?;
            for (_, entry) in &page.entries {
                let Some(moment) = self.fold.push(entry) else { continue };
                let failed = match &moment.change {
                    RunChange::Complete { .. } => false,
                    RunChange::Fail { reason } if is_refusal(reason) => continue,
                    RunChange::Fail { .. } | RunChange::Abort { .. } => true,
                    RunChange::Start | RunChange::Running { .. } => continue,
                };
                let (key, at) = (moment.run.key, moment.mark.at);
                let name = (moment.run.namespace, moment.run.about.operation.dataset_id);
                if let Some(ends) = self.ends.get_mut(&name) {
                    ends.insert(key, (at, failed));
                }
            }
            self.next = page.next;
            if page.next >= page.size {
                return Ok(());
            }
        }
    }

    fn count(&mut self, name: &(Namespace, String), now: Timestamp, window_ms: u64) -> Tally {
        let Some(ends) = self.ends.get_mut(name) else { return Tally::default() };
        let (oldest, since) = (before(now, self.window_ms), before(now, window_ms));
        ends.retain(|_, (at, _)| *at >= oldest);
        let counted = ends.values().filter(|(at, _)| *at >= since);
        counted.fold(Tally::default(), |tally, (_, failed)| Tally {
            ended: tally.ended + 1,
            failed: tally.failed + u64::from(*failed),
        })
    }
}
