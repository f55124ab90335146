//! The host's part in a tool call, without the host.

use hapax::{AttemptId, Failure, Fence, Finding, Hapax};
use hapax_core::canonical::canonical;
use hapax_core::json::Json;
use hapax_core::key::mutation::Mutation;
use hapax_items::{Call, Difference, Tool, ToolError};

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn text(json: &Json) -> String {
    canonical(json).expect("canonical JSON")
}

/// A mutation of the item `one`, as the host plans it.
pub(crate) fn call(tool: &dyn Tool, operation: &str, arguments: &str) -> Call {
    call_for("one", tool, operation, arguments)
}

pub(crate) fn call_for(item: &str, tool: &dyn Tool, operation: &str, arguments: &str) -> Call {
    let plan = tool.plan(operation, &json(arguments)).expect("a plan");
    let mutation = Mutation {
        namespace: "default",
        workflow: "test",
        item_id: item,
        attempt: 1,
        tool: tool.name(),
        target_resource: &plan.target,
        operation,
        identity: &plan.identity,
        subkey: None,
    };
    let key = mutation.key().expect("a key");
    let (attempt, fence) = (AttemptId::from_bytes([1; 16]), Fence(7));
    Call { operation: operation.to_owned(), plan, key, attempt, fence }
}

/// Performs a mutation under a claim.
pub(crate) async fn mutate(tool: &dyn Tool, call: &Call) -> Result<Json, ToolError> {
    let hapax = Hapax::builder().in_memory();
    let mut result = None;
    let run = hapax.effect(call.key).run(|claim| {
        let result = &mut result;
        async move {
            *result = Some(tool.mutate(call, &claim).await);
            Ok::<_, Failure>("done")
        }
    });
    run.await.expect("a claim");
    result.expect("it was performed")
}

/// How much the payloads of two calls differ.
pub(crate) fn compare(
    tool: &dyn Tool,
    operation: &str,
    recorded: &str,
    requested: &str,
) -> Difference {
    let plan = |arguments| tool.plan(operation, &json(arguments)).expect("a plan");
    let (recorded, requested) = (plan(recorded), plan(requested));
    assert_eq!(text(&recorded.identity), text(&requested.identity), "the same mutation");
    tool.compare_payload(operation, &recorded.payload, &requested.payload)
}

/// The result in a finding that a mutation happened.
pub(crate) fn found(finding: Finding) -> String {
    match finding {
        Finding::Happened(outcome) => {
            String::from_utf8_lossy(outcome.body().expect("a body")).into_owned()
        }
        other => panic!("{other:?}"),
    }
}
