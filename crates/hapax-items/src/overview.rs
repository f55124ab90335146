//! Views for a console beside single items: pages, runs by their id, tools.

use hapax::StateName;
use hapax::part::PartFilter;

use crate::error::Error;
use crate::identity;
use crate::ledger::{ItemView, RunView, run_view};
use crate::note::{ITEM, RUN};
use crate::service::Items;
use crate::state::ItemState;
use crate::tool::Operation;

/// A page of a workflow's items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemPage {
    /// The items.
    pub items: Vec<ItemView>,
    /// The place to continue after; none if there are no more.
    pub next: Option<u64>,
}

/// At most this many items and this many runs are counted.
const COUNTED: usize = 1_000;

/// # At a glance
impl Items {
    /// Items of a workflow, the newest first, as [`list`](Self::list) has them. Looks at no more
    /// than `limit` items, so a page of one state may be short or empty although more items follow.
    pub async fn page(
        &self,
        workflow: &str,
        states: &[ItemState],
        beyond: Option<u64>,
        limit: usize,
    ) -> Result<ItemPage, Error> {
        let whole = Some(identity::workflow(self.hapax().namespace(), workflow)?);
        let mut wanted: Vec<StateName> =
            states.iter().flat_map(|state| state.effects()).copied().collect();
        // An item with an unknown outcome is recorded as failed until it is escalated.
        if states.contains(&ItemState::NeedsAttention) && !wanted.contains(&StateName::Failed) {
            wanted.push(StateName::Failed);
        }
        let filter = PartFilter {
            whole,
            kind: ITEM.to_owned(),
            states: wanted,
            newest_first: true,
            beyond,
            limit,
        };
        let found = self.hapax().parts().search(filter).await?;
        let next = found.last().filter(|_| found.len() == limit).map(|found| found.position);
        let mut items = Vec::with_capacity(found.len());
        for found in found {
            items.extend(self.item_view(found).await?);
        }
        items.retain(|item| states.is_empty() || states.contains(&item.state));
        Ok(ItemPage { items, next })
    }

    /// One run.
    pub async fn show_run(&self, workflow: &str, id: &str) -> Result<RunView, Error> {
        let key = identity::run(self.hapax().namespace(), workflow, id)?;
        let found = self.found(key).await?.as_ref().and_then(run_view);
        found.ok_or_else(|| Error::NotFound(format!("run {id:?} of workflow {workflow:?}")))
    }

    /// How many items and runs are escalated, up to a limit.
    pub async fn count_escalations(&self) -> Result<usize, Error> {
        let mut count = 0;
        for kind in [ITEM, RUN] {
            let (kind, states) = (kind.to_owned(), vec![StateName::Partial]);
            let filter = PartFilter { kind, states, limit: COUNTED, ..PartFilter::default() };
            count += self.hapax().parts().search(filter).await?.len();
        }
        Ok(count)
    }

    /// The tools that a workflow may use, and their operations.
    pub fn tools(&self, workflow: &str) -> Vec<(String, Vec<Operation>)> {
        let settings = self.settings(workflow);
        let tools = self.tools_of(&settings).into_iter();
        tools.map(|(name, tool)| (name, tool.operations().to_vec())).collect()
    }
}
