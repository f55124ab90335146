//! The examination of the journal for problems with operations: stale failures, retry loops,
//! starvation, two writers on a sovereign dataset at once, missing or wrong lineage.

use std::collections::HashMap;

use hapax::outbox::{RecordFilter, routed};
use hapax::{DoctorFinding, Domain, Hapax, Key, Namespace, Severity, Timestamp};

use crate::error::Error;
use crate::projector::{self, EVENT};
use crate::run::{Fold, Moment, RunChange};

/// How long after a failure an operation that was not retried is stale.
const STALE_MS: i64 = 7 * 24 * 3600 * 1000;

/// How long an operation may hold up the others on its dataset.
const STARVED_MS: i64 = 3600 * 1000;

/// How often an operation may be tried without success before it is a loop.
const LOOP: u32 = 10;

/// The most findings of a kind that are listed.
const NAMED: usize = 20;

/// How many of the newest entries of the journal are read.
const READ: u64 = 1_000_000;

const PAGE: usize = 2_000;

/// The last change of one operation, and its tries since it last succeeded.
struct OperationHistory {
    last: Moment,
    tries: u32,
}

/// Examines the operations of this namespace.
pub async fn examine(hapax: &Hapax) -> Result<Vec<DoctorFinding>, Error> {
    let now = hapax.maintenance().wall().await?;
    let newest = hapax.journal().last_entry().await?;
    let (mut fold, mut after) = (Fold::default(), newest.saturating_sub(READ));
    let mut histories: HashMap<Key, OperationHistory> = HashMap::new();
    let mut writers: HashMap<String, Key> = HashMap::new();
    let mut findings = Findings::default();
    loop {
        let page = hapax.journal().entries(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        for moment in page.iter().filter_map(|entry| fold.push(entry)) {
            if moment.run.namespace != *hapax.namespace() {
                continue;
            }
            findings.overlap(&mut writers, &moment);
            let tries = histories.get(&moment.run.key).map_or(0, |history| history.tries);
            let tries = match moment.change {
                RunChange::Start => tries + 1,
                RunChange::Complete { .. } => 0,
                _ => tries,
            };
            histories.insert(moment.run.key, OperationHistory { last: moment, tries });
        }
    }
    for history in histories.values() {
        findings.judge(history, now);
    }
    findings.lineage(hapax).await?;
    Ok(findings.0)
}

#[derive(Default)]
struct Findings(Vec<DoctorFinding>);

impl Findings {
    fn add(&mut self, what: String, next: &str) {
        let kind = what.split_whitespace().last().unwrap_or_default().to_owned();
        if self.0.iter().filter(|finding| finding.what.ends_with(&kind)).count() < NAMED {
            let next = next.to_owned();
            self.0.push(DoctorFinding { severity: Severity::Error, what, next });
        }
    }

    /// Only one operation at a time may write to a sovereign dataset.
    fn overlap(&mut self, writers: &mut HashMap<String, Key>, moment: &Moment) {
        let (run, dataset) = (&moment.run, &moment.run.about.operation.dataset_id);
        if !run.about.terms.sovereign {
            return;
        }
        match &moment.change {
            RunChange::Start => {
                let before = writers.insert(dataset.clone(), run.key);
                if let Some(other) = before.filter(|other| *other != run.key) {
                    let what = format!(
                        "{} began on the sovereign dataset {dataset} while {other} was at work",
                        run.key
                    );
                    self.add(
                        what,
                        "compare what both wrote; then find the program that bypasses the lock",
                    );
                }
            }
            RunChange::Running { .. } => {}
            _ => drop(writers.remove(dataset)),
        }
    }

    fn judge(&mut self, history: &OperationHistory, now: Timestamp) {
        let OperationHistory { last, tries } = history;
        let (key, age) = (last.run.key, now.0.saturating_sub(last.mark.at.0));
        let dataset = &last.run.about.operation.dataset_id;
        match &last.change {
            RunChange::Fail { .. } | RunChange::Abort { .. } if *tries >= LOOP => {
                let what =
                    format!("{key} on {dataset} was tried {tries} times without success: a loop");
                self.add(what, "find out why; until then: hapax effects resolve --skip");
            }
            RunChange::Fail { .. } | RunChange::Abort { .. } if age > STALE_MS => {
                let days = age / (24 * 3600 * 1000);
                let what = format!(
                    "{key} on {dataset} failed {days} days ago, and was not retried: it is stale"
                );
                self.add(what, "run it again, or let it go: hapax effects resolve --skip");
            }
            RunChange::Start if age > STARVED_MS => {
                let hours = age / (3600 * 1000);
                let what = format!(
                    "{key} has been at work on {dataset} for {hours} h, and others wait: starvation"
                );
                self.add(
                    what,
                    "see whether it still does something; shards let others work beside it",
                );
            }
            _ => {}
        }
    }

    /// Compares the lineage events in the outbox with those that follow from the journal up to the
    /// projector's cursor.
    async fn lineage(&mut self, hapax: &Hapax) -> Result<(), Error> {
        let routes = hapax.outbox().routes().await?;
        let is_routed = |moment: &Moment| {
            let dataset = &moment.run.about.operation.dataset_id;
            routed(&routes, EVENT, dataset).is_some()
        };
        let ledger = hapax.in_namespace(Namespace::default());
        let domain = Domain::new("lineage").map_err(|error| Error::Invalid(error.to_string()))?;
        let emitted_up_to = ledger.epochs().current(&domain).await?;
        let (mut fold, mut next, mut expected) = (Fold::default(), 0, HashMap::new());
        while next < emitted_up_to {
            let page =
                hapax.journal().sealed(next, (emitted_up_to - next).min(PAGE as u64)).await?;
            let moments = page.entries.iter().filter_map(|(_, entry)| fold.push(entry));
            let ours = moments.filter(|moment| moment.run.namespace == *hapax.namespace());
            let ours = ours.filter(is_routed);
            expected.extend(ours.map(|moment| (moment.mark.entry, moment.document())));
            match page.next > next {
                true => next = page.next,
                false => break,
            }
        }
        let mut before = None;
        loop {
            let filter = RecordFilter { limit: PAGE, before, ..RecordFilter::default() };
            let page = hapax.outbox().records(filter).await?;
            let Some(last) = page.last() else { break };
            before = Some(last.record.seq);
            for moment in page.iter().filter_map(|found| projector::moment(&found.record)) {
                match expected.remove(&moment.mark.entry) {
                    Some(document) if document == moment.document() => {}
                    _ => self.add(
                        format!("the outbox and the journal differ about entry {}: a mismatch", moment.mark.entry),
                        "verify the journal: hapax journal verify; then write lineage anew: hapax lineage export --to",
                    ),
                }
            }
        }
        let mut missing: Vec<u64> = expected.into_keys().collect();
        missing.sort_unstable();
        if let Some(first) = missing.first() {
            let what = format!(
                "lineage of {} entries, the first {first}, is missing: a mismatch",
                missing.len()
            );
            self.add(
                what,
                "see the log for lineage_withheld; write it anew: hapax lineage export --to",
            );
        }
        Ok(())
    }
}
