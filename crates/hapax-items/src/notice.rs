//! Notices: an event in the outbox for each question to a person, once.
//!
//! The event is emitted after the escalation is recorded, so the process may die in between. The
//! server's maintenance then emits it, if the escalation is still open.

use std::collections::BTreeSet;

use hapax::document::Object;
use hapax::json::Json;
use hapax::outbox::{Event, Payload};
use hapax::part::PartRecord;
use hapax::{AttemptId, Failure, Key, Safety, StoreError};

use crate::error::Error;
use crate::escalation::Escalation;
use crate::identity;
use crate::service::Items;
use crate::version::Version;

/// The name of the event about an escalation.
pub const NEEDS_ATTENTION: &str = "item-needs-attention";

/// How many escalations are emitted at once.
const MOST_EMITTED: usize = 1_000;

/// # Notices
impl Items {
    /// Emits an event for each open escalation that is not in `emitted`, once; then sets `emitted`
    /// to the open escalations.
    pub async fn emit_open_escalations(
        &self,
        emitted: &mut BTreeSet<(Key, AttemptId)>,
    ) -> Result<(), Error> {
        let open = self.open_escalations(None, None, MOST_EMITTED).await?;
        let of = |found: &PartRecord| (found.name.key, found.effect.attempt);
        let before = std::mem::replace(emitted, open.iter().map(of).collect());
        let news = open.into_iter().filter(|found| !before.contains(&of(found)));
        self.emit_each(news).await
    }

    /// Emits an event for each escalation of a workflow, once. If that fails,
    /// [`emit_open_escalations`](Self::emit_open_escalations) emits it later.
    pub(crate) async fn emit_escalations(&self, workflow: &str) {
        let emitted = async {
            let open = self.open_escalations(Some(workflow), None, MOST_EMITTED).await?;
            self.emit_each(open).await
        };
        if let Err(error) = emitted.await {
            tracing::warn!(name: "escalations_not_emitted", workflow, %error, "emitting the open escalations failed; the next run retries");
        }
    }

    async fn emit_each(&self, open: impl IntoIterator<Item = PartRecord>) -> Result<(), Error> {
        for found in open {
            let Some(escalation) = self.explain(found).await? else { continue };
            match self.emit_escalation(&escalation, true).await {
                // The guard refused a text that a person or a script wrote: emit the event without
                // such texts.
                Err(hapax::Error::Store(StoreError::Guarded { .. })) => {
                    self.emit_escalation(&escalation, false).await?;
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Emits an event for a version that waits for approval, once.
    pub(crate) async fn emit_held(&self, workflow: &str, version: Version) -> Result<(), Error> {
        let scripts = self.scripts(workflow).await?;
        let Some(script) = scripts.into_iter().find(|script| script.version == version) else {
            return Ok(());
        };
        let document = Object::default()
            .text("workflow", workflow)
            .text("version", version.to_string().as_str())
            .text("attempt", script.attempt.to_string().as_str())
            .text("reason", "a repair waits for approval")
            .list("actions", ["approve", "reject"].map(Json::text));
        let of = (script.key, script.attempt);
        Ok(self.emit_once(of, workflow, document.json(), "a repair waits for approval").await?)
    }

    async fn emit_escalation(
        &self,
        escalation: &Escalation,
        all: bool,
    ) -> Result<(), hapax::Error> {
        let item = escalation.item.as_ref().filter(|_| all);
        let document = Object::default()
            .text("escalation", escalation.key.to_string().as_str())
            .text("attempt", escalation.judged.to_string().as_str())
            .text("workflow", escalation.workflow.as_str())
            .text("item", item.map(|item| item.id.as_str()))
            .text("title", item.map(|item| item.title.as_str()))
            .text("reason", all.then_some(escalation.reason.as_str()))
            .list("actions", escalation.actions.iter().map(|one| Json::text(one.as_str())));
        let of = (escalation.key, escalation.judged);
        self.emit_once(of, &escalation.workflow, document.json(), &escalation.reason).await
    }

    async fn emit_once(
        &self,
        (of, attempt): (Key, AttemptId),
        workflow: &str,
        document: Json,
        why: &str,
    ) -> Result<(), hapax::Error> {
        let key = identity::notice(of, attempt.as_bytes())
            .map_err(|error| hapax::Error::Refused { reason: error.to_string() })?;
        let effect = self.hapax().effect(key).safety(Safety::Transactional);
        let emitted = effect.run(|claim| async move {
            let payload = Payload::of(&document)?;
            claim.emit(Event::new(NEEDS_ATTENTION, workflow, payload))?;
            Ok::<_, Failure>("emitted")
        });
        match emitted.await {
            Ok(_) => Ok(()),
            // No route takes this event.
            Err(hapax::Error::Store(StoreError::Unrouted { .. })) => {
                tracing::warn!(name: "needs_attention", workflow, escalation = %of, "{why}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
