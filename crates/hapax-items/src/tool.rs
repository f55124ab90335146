//! Tools: the operations that a script can call.
//!
//! A tool names what a call changes (its identity) and how (its payload), performs it, and, where
//! it can, finds out later whether it happened. The host derives the key from the identity; neither
//! the tool nor the script can choose it.

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
    /// The name that scripts call it by: letters, digits and underscores.
    fn name(&self) -> &str;

    /// Its operations.
    fn operations(&self) -> &[Operation];

    /// Plans a mutation from its arguments: what it changes, and how. Sends no request.
    fn plan(&self, operation: &str, arguments: &Json) -> Result<Plan, ToolError>;

    /// How much two different payloads differ.
    fn compare_payload(&self, operation: &str, recorded: &Json, requested: &Json) -> Difference {
        let _ = (operation, recorded, requested);
        Difference::Significant
    }

    /// How an unknown outcome of a mutation can be resolved. [`Safety::Reconcilable`] if
    /// [`reconcile`](Self::reconcile) can look for it.
    fn safety(&self, operation: &str) -> Safety {
        let _ = operation;
        Safety::Opaque
    }

    /// Performs a mutation. An error other than [`Class::Indeterminate`] means that nothing
    /// happened, for certain.
    ///
    /// The claim is for tools whose target can settle it in its own transaction.
    async fn mutate(&self, call: &Call, claim: &Claim) -> Result<Json, ToolError>;

    /// Looks whether a mutation happened. If it did, the finding has the JSON that
    /// [`mutate`](Self::mutate) would have returned.
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

    /// The check by which a person can find out whether a mutation happened.
    fn check_by_hand(&self, call: &Call) -> String {
        format!("whether {} of {} happened", call.operation, call.plan.target)
    }
}

/// One operation of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The name that scripts call it by.
    pub name: &'static str,
    /// Whether it changes anything outside.
    pub mutates: bool,
}

/// The plan of a mutation: what it changes, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The thing that is changed: a server, a mailbox, a directory.
    pub target: String,
    /// The identity of the change. Part of the key.
    pub identity: Json,
    /// All other data. Compared on replay, not part of the key.
    pub payload: Json,
}

/// A mutation, as the tool that performs it sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The operation.
    pub operation: String,
    /// The target, the identity and the payload.
    pub plan: Plan,
    /// Its key, for targets that keep ids.
    pub key: Key,
    /// The attempt in the ledger.
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
    /// A person has to look.
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

/// Why a tool call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct ToolError {
    /// The class, which decides how the failure is handled.
    pub class: Class,
    /// The error message, for people. No secrets.
    pub message: String,
}

impl ToolError {
    /// A later retry may succeed; nothing happened.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { class: Class::Transient, message: message.into() }
    }

    /// The script is wrong; nothing happened.
    pub fn logic(message: impl Into<String>) -> Self {
        Self { class: Class::Logic, message: message.into() }
    }

    /// A person has to allow it; nothing happened.
    pub fn permission(message: impl Into<String>) -> Self {
        Self { class: Class::Permission, message: message.into() }
    }

    /// A precondition in the outside world is not met; nothing happened.
    pub fn precondition(message: impl Into<String>) -> Self {
        Self { class: Class::Precondition, message: message.into() }
    }

    /// It is unknown whether it happened.
    pub fn indeterminate(message: impl Into<String>) -> Self {
        Self { class: Class::Indeterminate, message: message.into() }
    }
}

/// The names of these tools and operations, for scripts.
pub(crate) fn operations(tools: &BTreeMap<String, Arc<dyn Tool>>) -> sandbox::Tools {
    let names = |tool: &Arc<dyn Tool>| {
        tool.operations().iter().map(|operation| operation.name.to_owned()).collect()
    };
    sandbox::Tools(tools.iter().map(|(name, tool)| (name.clone(), names(tool))).collect())
}
