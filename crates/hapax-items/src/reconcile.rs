//! Looking for mutations whose outcome is unknown, until it is known or somebody is asked.

use std::time::Duration;

use hapax::part::{Found, Sought};
use hapax::{Backoff, Effect, State, StateName, Timestamp};

use crate::error::Error;
use crate::identity;
use crate::note::{MUTATION, MutationNote};
use crate::run::now_ms;
use crate::scope::look;
use crate::service::Items;
use crate::state::ItemState;

/// How long to wait before a mutation is looked for again, by how often that has led to nothing. The
/// ledger itself says when to stop looking.
const LOOKS: Backoff = Backoff { base_ms: 2_000, cap_ms: 120_000, attempts: u32::MAX };

/// How many are read at once, and how many are looked at in one pass.
const PAGE: usize = 100;
const PASS: usize = 10_000;

/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// How many were looked for.
    pub looked: usize,
    /// How many of them are decided now.
    pub decided: usize,
    /// How many items a person is asked about now.
    pub escalated: usize,
    /// How many wait until they are looked for again.
    pub waiting: usize,
}

/// # Reconciliation
impl Items {
    /// Looks for mutations whose outcome is unknown, as far as they are due, and asks a person about
    /// those that nobody can tell of. What was looked for, and when, is in the ledger: a restart
    /// forgets nothing.
    pub async fn reconcile(&self) -> Result<Reconciled, Error> {
        self.reconcile_by(Timestamp(now_ms() as i64)).await
    }

    /// The same, for what is due by this time.
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
            // Where no tools are set up at all, others look.
            if tool.is_some() || self.has_tools() {
                look(self.hapax(), key, &note, tool, PATIENCE).await?;
            }
            let state = self.hapax().show(key).await?.map(|effect| effect.state.name());
            pass.decided += usize::from(state != Some(StateName::Unknown));
        }
        for found in self.mutations_in(StateName::Indeterminate).await? {
            let Some(note) = MutationNote::read(&found.part.body) else { continue };
            pass.escalated += usize::from(self.ask_about(&note, &found).await?);
        }
        Ok(pass)
    }

    /// Has a person be asked about the item of a mutation that nobody can tell of. Whether that is
    /// news.
    async fn ask_about(&self, note: &MutationNote, found: &Found) -> Result<bool, Error> {
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

    async fn mutations_in(&self, state: StateName) -> Result<Vec<Found>, Error> {
        let mut all = Vec::new();
        loop {
            let (kind, states) = (MUTATION.to_owned(), vec![state]);
            let beyond = all.last().map(|found: &Found| found.place);
            let sought = Sought { kind, states, beyond, limit: PAGE, ..Sought::default() };
            let page = self.hapax().parts(sought).await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last || all.len() >= PASS {
                return Ok(all);
            }
        }
    }
}

/// When a mutation is to be looked for again, in milliseconds since 1970.
fn due_ms(effect: &Effect) -> u64 {
    let State::Unknown { tries, .. } = effect.state else { return 0 };
    let wait = LOOKS.ceiling_ms(tries.max(1)).unwrap_or(0);
    (effect.updated.0.max(0) as u64).saturating_add(wait)
}
