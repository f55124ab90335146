//! The keys of everything that is recorded: workflows, versions, runs, items, mutations.

use hapax::{Key, KeyError, Namespace};

use crate::version::Version;

/// The whole that the runs, versions and items of a workflow are parts of.
pub(crate) fn workflow(namespace: &Namespace, workflow: &str) -> Result<Key, KeyError> {
    derive("workflow.v1", namespace, workflow, &[])
}

/// The whole that all workflows of a namespace are parts of.
pub(crate) fn all(namespace: &Namespace) -> Result<Key, KeyError> {
    Key::derive("workflows.v1", &[("namespace", namespace.as_str().as_bytes())])
}

pub(crate) fn script(
    namespace: &Namespace,
    workflow: &str,
    version: Version,
) -> Result<Key, KeyError> {
    let (major, minor) = (version.major.to_be_bytes(), version.minor.to_be_bytes());
    derive("script.v1", namespace, workflow, &[("major", &major), ("minor", &minor)])
}

pub(crate) fn run(namespace: &Namespace, workflow: &str, id: &str) -> Result<Key, KeyError> {
    derive("run.v1", namespace, workflow, &[("run", id.as_bytes())])
}

pub(crate) fn item(namespace: &Namespace, workflow: &str, id: &str) -> Result<Key, KeyError> {
    derive("item.v1", namespace, workflow, &[("item", id.as_bytes())])
}

/// The first sight of a workflow's schedule: its instants count from then on.
pub(crate) fn schedule(
    namespace: &Namespace,
    workflow: &str,
    schedule: &str,
) -> Result<Key, KeyError> {
    derive("schedule.v1", namespace, workflow, &[("schedule", schedule.as_bytes())])
}

/// The event about an escalation, emitted once.
pub(crate) fn notice(escalated: Key, attempt: &[u8]) -> Result<Key, KeyError> {
    Key::derive("notice.v1", &[("of", escalated.as_bytes()), ("attempt", attempt)])
}

/// The result that a person gave for a mutation whose own result was too large to keep.
pub(crate) fn manual_result(mutation: Key, attempt: &[u8]) -> Result<Key, KeyError> {
    Key::derive("told.v1", &[("of", mutation.as_bytes()), ("attempt", attempt)])
}

/// One question to a maintainer: the failed run, and the version that may come of it.
pub(crate) fn repair(run: Key, version: Version) -> Result<Key, KeyError> {
    let (major, minor) = (version.major.to_be_bytes(), version.minor.to_be_bytes());
    Key::derive("repair.v1", &[("run", run.as_bytes()), ("major", &major), ("minor", &minor)])
}

fn derive(
    name: &str,
    namespace: &Namespace,
    workflow: &str,
    more: &[(&str, &[u8])],
) -> Result<Key, KeyError> {
    let mut fields: Vec<(&str, &[u8])> =
        vec![("namespace", namespace.as_str().as_bytes()), ("workflow", workflow.as_bytes())];
    fields.extend(more);
    Key::derive(name, &fields)
}
