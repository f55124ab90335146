//! What a script can do to the world.
//!
//! A tool says what a call changes (its identity) and how (its payload), performs it, and, where
//! it can, finds out later whether it happened. The key is derived from the identity by the
//! host; neither the tool nor the script has a say in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use hapax::{AttemptId, Claim, Fence, Finding, Key, Namespace, Safety};
use hapax_core::json::Json;

use crate::class::Class;
use crate::sandbox;

/// Something that scripts call by its name.
///
/// Calls of one tool may run at the same time, for other items.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What scripts call it: letters, digits and underscores.
    fn name(&self) -> &str;

    /// What it can do.
    fn operations(&self) -> &[Operation];

    /// What a mutation changes, and how, by its arguments. Asks nobody.
    fn plan(&self, operation: &str, arguments: &Json) -> Result<Plan, ToolError>;

    /// How much two payloads differ that are not the same.
    fn compare_payload(&self, operation: &str, recorded: &Json, asked: &Json) -> Difference {
        let _ = (operation, recorded, asked);
        Difference::Significant
    }

    /// What it means when nobody knows whether a mutation happened.
    /// [`Safety::Reconcilable`] for one that [`reconcile`](Self::reconcile) can look for.
    fn safety(&self, operation: &str) -> Safety {
        let _ = operation;
        Safety::Opaque
    }

    /// Performs a mutation. An error other than [`Class::Indeterminate`] says that nothing
    /// happened, for certain.
    ///
    /// The claim is for tools whose target can settle it in its own transaction.
    async fn mutate(&self, call: &Call, claim: &Claim) -> Result<Json, ToolError>;

    /// Looks whether a mutation happened. What it finds is the JSON that
    /// [`mutate`](Self::mutate) would have answered.
    async fn reconcile(&self, call: &Call) -> Finding {
        Finding::CannotTell(format!("{} cannot look up {}", self.name(), call.operation))
    }

    /// Answers a question that changes nothing.
    async fn read(&self, operation: &str, arguments: &Json) -> Result<Json, ToolError> {
        let _ = arguments;
        Err(ToolError::logic(format!("{} has no operation {operation}", self.name())))
    }

    /// The same tool for another namespace, where that makes a difference.
    fn within(&self, namespace: &Namespace) -> Option<Arc<dyn Tool>> {
        let _ = namespace;
        None
    }

    /// What a person can look at to find out whether a mutation happened.
    fn check_by_hand(&self, call: &Call) -> String {
        format!("whether {} of {} happened", call.operation, call.plan.target)
    }
}

/// One thing that a tool can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// What scripts call it.
    pub name: &'static str,
    /// Whether it changes anything outside.
    pub mutates: bool,
}

/// What a mutation changes, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The thing that is changed: a server, a mailbox, a directory.
    pub target: String,
    /// What says which change it is. Part of the key.
    pub identity: Json,
    /// What else there is. Compared on replay, no part of the key.
    pub payload: Json,
}

/// A mutation, as the tool that performs it sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What to do.
    pub operation: String,
    /// To what, and how.
    pub plan: Plan,
    /// Its key, for targets that keep ids.
    pub key: Key,
    /// The attempt of the ledger's that it is.
    pub attempt: AttemptId,
    /// A number that grows with each attempt, for targets that compare numbers.
    pub fence: Fence,
}

/// How much a payload differs from the one that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Difference {
    /// It means the same.
    Equivalent,
    /// It means something else, and that does not matter.
    Minor,
    /// Somebody has to look.
    Significant,
}

impl Difference {
    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equivalent => "equivalent",
            Self::Minor => "minor",
            Self::Significant => "significant",
        }
    }
}

/// Why a tool did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct ToolError {
    /// Who deals with it.
    pub class: Class,
    /// What is wrong, for people. No secrets.
    pub message: String,
}

impl ToolError {
    /// It may go better in a while; nothing happened.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { class: Class::Transient, message: message.into() }
    }

    /// The script is wrong; nothing happened.
    pub fn logic(message: impl Into<String>) -> Self {
        Self { class: Class::Logic, message: message.into() }
    }

    /// Somebody has to allow it; nothing happened.
    pub fn permission(message: impl Into<String>) -> Self {
        Self { class: Class::Permission, message: message.into() }
    }

    /// The world is not as it has to be; nothing happened.
    pub fn precondition(message: impl Into<String>) -> Self {
        Self { class: Class::Precondition, message: message.into() }
    }

    /// Nobody knows whether it happened.
    pub fn indeterminate(message: impl Into<String>) -> Self {
        Self { class: Class::Indeterminate, message: message.into() }
    }
}

/// What scripts find of these tools.
pub(crate) fn operations(tools: &BTreeMap<String, Arc<dyn Tool>>) -> sandbox::Tools {
    let names = |tool: &Arc<dyn Tool>| {
        tool.operations().iter().map(|operation| operation.name.to_owned()).collect()
    };
    sandbox::Tools(tools.iter().map(|(name, tool)| (name.clone(), names(tool))).collect())
}
