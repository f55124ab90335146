//! Looks up mutations of unknown outcome, until it is known or escalated.

use std::time::Duration;

use hapax::part::{PartFilter, PartRecord};
use hapax::{Backoff, Effect, State, StateName, Timestamp};

use crate::error::Error;
use crate::identity;
use crate::note::{MUTATION, MutationNote};
use crate::run::now_ms;
use crate::scope::look;
use crate::service::Items;
use crate::state::ItemState;

/// How long to wait before the next lookup of a mutation, by the number of lookups that did not
/// decide. The ledger itself decides when to stop.
const LOOKS: Backoff = Backoff { base_ms: 2_000, cap_ms: 120_000, attempts: u32::MAX };

/// The size of a page, and the most mutations of one pass.
const PAGE: usize = 100;
const PASS: usize = 10_000;

/// How long one lookup may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The counts of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// Mutations that were looked up.
    pub looked: usize,
    /// Those of them that are decided now.
    pub decided: usize,
    /// Items that are escalated now.
    pub escalated: usize,
    /// Mutations that wait for their next lookup.
    pub waiting: usize,
}

/// # Reconciliation
impl Items {
    /// Looks up the mutations of unknown outcome that are due, and escalates those that
    /// no lookup can decide. The lookups and their times are in the ledger: a restart forgets
    /// nothing.
    pub async fn reconcile(&self) -> Result<Reconciled, Error> {
        self.reconcile_by(Timestamp(now_ms() as i64)).await
    }

    /// The same, for mutations that are due by this time.
    pub async fn reconcile_by(&self, now: Timestamp) -> Result<Reconciled, Error> {
        let mut pass = Reconciled::default();
        for found in self.mutations_in(StateName::Unknown).await? {
            let Some(note) = MutationNote::read(&found.part.body) else { continue };
            let due = due_ms(&found.effect);
            if due > now.0.max(0) as u64 {
                pass.waiting += 1;
                continue;
            }
            pass.looked += 1;
            let key = found.name.key;
            let tool = self.tool(&note.tool).map(|tool| &**tool);
            // A process without any tools leaves the lookups to other processes.
            if tool.is_some() || self.has_tools() {
                look(self.hapax(), key, &note, tool, LOOKUP_TIMEOUT).await?;
            }
            let state = self.hapax().effects().show(key).await?.map(|effect| effect.state.name());
            pass.decided += usize::from(state != Some(StateName::Unknown));
        }
        for found in self.mutations_in(StateName::Indeterminate).await? {
            let Some(note) = MutationNote::read(&found.part.body) else { continue };
            pass.escalated += usize::from(self.escalate_item_of(&note, &found).await?);
        }
        Ok(pass)
    }

    /// Escalates the item of a mutation that no lookup can decide. Returns whether it was not
    /// escalated before.
    async fn escalate_item_of(
        &self,
        note: &MutationNote,
        found: &PartRecord,
    ) -> Result<bool, Error> {
        let key = identity::item(self.hapax().namespace(), &note.workflow, &note.item)?;
        let Some(item) = self.found(key).await? else { return Ok(false) };
        let same = item.effect.generation == note.attempt;
        let noticed = item.effect.state.name() != StateName::Failed;
        let Some(item) = self.item_view(item).await? else { return Ok(false) };
        if noticed || !same || item.state != ItemState::NeedsAttention {
            return Ok(false);
        }
        let why = found.effect.state.reason().unwrap_or("its outcome is not known");
        let why = format!("{}.{}: {why}", note.tool, note.operation);
        self.escalate(&note.workflow, None, Some(&note.item), &why).await?;
        Ok(true)
    }

    async fn mutations_in(&self, state: StateName) -> Result<Vec<PartRecord>, Error> {
        let mut all = Vec::new();
        loop {
            let (kind, states) = (MUTATION.to_owned(), vec![state]);
            let beyond = all.last().map(|found: &PartRecord| found.position);
            let filter = PartFilter { kind, states, beyond, limit: PAGE, ..PartFilter::default() };
            let page = self.hapax().parts().search(filter).await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last || all.len() >= PASS {
                return Ok(all);
            }
        }
    }
}

/// When the next lookup of a mutation is due, in milliseconds since 1970.
fn due_ms(effect: &Effect) -> u64 {
    let State::Unknown { tries, .. } = effect.state else { return 0 };
    let wait = LOOKS.ceiling_ms(tries.max(1)).unwrap_or(0);
    (effect.updated.0.max(0) as u64).saturating_add(wait)
}
