//! Scripts and their versions.
//!
//! A version is an effect that happens once. A published version is usable; a held version waits
//! for a person to approve or reject it; a refused version is never used. The highest usable
//! version is active.

use hapax::document::{Object, list, number, text, words};
use hapax::json::Json;
use hapax::part::{Part, PartFilter, PartRecord};
use hapax::{
    AttemptId, Effect, Failure, Fingerprint, Judged, Key, Outcome, Resolution, StateName, Timestamp,
};

use crate::error::Error;
use crate::identity;
use crate::note::{SCRIPT, WORKFLOW};
use crate::sandbox;
use crate::service::Items;
use crate::version::Version;

/// The largest script, in bytes.
pub const MAX_SCRIPT: usize = 256 * 1024;

/// A version of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Its key.
    pub key: Key,
    /// The attempt that a decision about it has to name.
    pub attempt: AttemptId,
    /// Its workflow.
    pub workflow: String,
    /// Its version.
    pub version: Version,
    /// The script.
    pub source: String,
    /// Its author.
    pub by: String,
    /// When it was recorded.
    pub made: Timestamp,
    /// Whether it may be used.
    pub status: VersionStatus,
    /// Why it may not be used, for people.
    pub reason: Option<String>,
    /// The details of the repair, if it is one.
    pub repair: Option<RepairDetails>,
}

/// The details of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairDetails {
    /// The version it repairs.
    pub of: Version,
    /// The change, and the reason for it.
    pub explanation: String,
    /// Whether items may have been treated wrongly while the fault existed.
    pub impactful: bool,
    /// Its cost, in thousandths.
    pub cost: u64,
    /// Items that were processed while the fault existed, if a person has to decide.
    pub blast_radius: Vec<String>,
    /// Whether there are more of them than are named.
    pub blast_radius_cut: bool,
}

/// Whether a version may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionStatus {
    /// It may be used; it is, if no usable version is higher.
    Usable,
    /// A person has to approve it.
    Held,
    /// A person has rejected it.
    Rejected,
    /// It did not pass the checks.
    Refused,
}

impl VersionStatus {
    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Held => "held",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
        }
    }

    fn of(state: StateName) -> Self {
        match state {
            StateName::Succeeded => Self::Usable,
            StateName::Skipped => Self::Rejected,
            state if state.needs_attention() => Self::Held,
            _ => Self::Refused,
        }
    }
}

/// A version that is about to be recorded.
pub(crate) struct Draft {
    pub(crate) version: Version,
    pub(crate) source: String,
    pub(crate) by: String,
    pub(crate) repair: Option<RepairDetails>,
}

impl Draft {
    fn part(&self, workflow: &str, whole: Key) -> Part {
        let document = Object::default()
            .text("workflow", workflow)
            .text("version", self.version.to_string().as_str())
            .text("source", self.source.as_str())
            .text("by", self.by.as_str());
        let document = match &self.repair {
            Some(repair) => document
                .text("of", repair.of.to_string().as_str())
                .text("explanation", repair.explanation.as_str())
                .flag("impactful", repair.impactful)
                .number("cost", repair.cost)
                .list("blast_radius", repair.blast_radius.iter().map(|id| Json::text(id)))
                .flag("blast_radius_cut", repair.blast_radius_cut),
            None => document,
        };
        Part { whole, kind: SCRIPT.into(), body: document.print().into_bytes() }
    }
}

impl Script {
    fn read(found: &PartRecord) -> Option<Self> {
        let json = Json::parse(&found.part.body).ok()?;
        let Effect { attempt, created, state, .. } = &found.effect;
        let repair = text(&json, "of").and_then(|of| {
            Some(RepairDetails {
                of: of.parse().ok()?,
                explanation: text(&json, "explanation").unwrap_or_default(),
                impactful: hapax::document::flag(&json, "impactful"),
                cost: number(&json, "cost").unwrap_or_default(),
                blast_radius: list(&json, "blast_radius", words),
                blast_radius_cut: hapax::document::flag(&json, "blast_radius_cut"),
            })
        });
        Some(Self {
            key: found.name.key,
            attempt: *attempt,
            workflow: text(&json, "workflow")?,
            version: text(&json, "version")?.parse().ok()?,
            source: text(&json, "source")?,
            by: text(&json, "by")?,
            made: *created,
            status: VersionStatus::of(state.name()),
            reason: state.reason().map(str::to_owned),
            repair,
        })
    }
}

/// At most this many versions are read.
const VERSIONS: usize = 1_000;

/// How often publishing tries again after another publisher took the version number.
const TRIES: u32 = 16;

/// # Scripts
impl Items {
    /// Publishes a script as a new major version, unless it or a repair of it is active already.
    pub async fn publish(&self, workflow: &str, source: &str, by: &str) -> Result<Version, Error> {
        check_name(workflow)?;
        if source.len() > MAX_SCRIPT {
            let size = source.len();
            return Err(Error::Invalid(format!("a script of {size} bytes; at most {MAX_SCRIPT}")));
        }
        sandbox::check(source).map_err(|error| Error::Invalid(format!("the script: {error}")))?;
        self.enrol(workflow).await?;
        for _ in 0..TRIES {
            let known = self.scripts(workflow).await?;
            // Either the script itself is active, or a repair of it.
            let published = known.iter().find(|script| script.repair.is_none());
            let counts = active(&known).filter(|script| {
                let same = |of: &Script| of.source == source;
                same(script)
                    || published.is_some_and(|published| {
                        same(published) && published.version.major == script.version.major
                    })
            });
            if let Some(script) = counts {
                return Ok(script.version);
            }
            let newest = known.iter().map(|script| script.version).max();
            let version = newest.map_or(Version::FIRST, Version::next_major);
            let (source, by) = (source.to_owned(), by.to_owned());
            let draft = Draft { version, source, by, repair: None };
            match self.record(workflow, &draft, Ok(())).await {
                Err(Error::Hapax(hapax::Error::Conflict { .. })) => {}
                recorded => return recorded.map(|_| version),
            }
        }
        Err(Error::Invalid(format!("others keep publishing {workflow}; try again")))
    }

    /// Records a version: usable, held for a person to decide, or refused.
    pub(crate) async fn record(
        &self,
        workflow: &str,
        draft: &Draft,
        verdict: Result<(), Failure>,
    ) -> Result<Key, Error> {
        let namespace = self.hapax().namespace();
        let key = identity::script(namespace, workflow, draft.version)?;
        let whole = identity::workflow(namespace, workflow)?;
        let effect = self
            .hapax()
            .effect(key)
            .fingerprint(Fingerprint::of(draft.source.as_bytes()))
            .label(format!("{workflow} {}", draft.version).chars().take(60).collect::<String>())
            .part(draft.part(workflow, whole));
        match effect.run(|_| async { verdict.map(|()| Outcome::from("usable")) }).await {
            Ok(_) | Err(hapax::Error::Blocked(_) | hapax::Error::Failed { .. }) => Ok(key),
            Err(error) => Err(error.into()),
        }
    }

    /// All versions of a workflow's script, the newest first.
    pub async fn scripts(&self, workflow: &str) -> Result<Vec<Script>, Error> {
        let whole = Some(identity::workflow(self.hapax().namespace(), workflow)?);
        let (kind, limit) = (SCRIPT.to_owned(), VERSIONS);
        let filter = PartFilter { whole, kind, newest_first: true, limit, ..PartFilter::default() };
        let found = self.hapax().parts().search(filter).await?;
        let mut scripts: Vec<Script> = found.iter().filter_map(Script::read).collect();
        scripts.sort_by_key(|script| std::cmp::Reverse(script.version));
        Ok(scripts)
    }

    /// The versions that a person has to approve, the newest first; of one workflow, if named.
    pub async fn held(&self, workflow: Option<&str>) -> Result<Vec<Script>, Error> {
        let namespace = self.hapax().namespace();
        let whole = workflow.map(|name| identity::workflow(namespace, name)).transpose()?;
        let (kind, states) =
            (SCRIPT.to_owned(), vec![StateName::Unknown, StateName::Indeterminate]);
        let filter =
            PartFilter { whole, kind, states, newest_first: true, limit: VERSIONS, beyond: None };
        let found = self.hapax().parts().search(filter).await?;
        Ok(found.iter().filter_map(Script::read).collect())
    }

    /// The active version.
    pub async fn script(&self, workflow: &str) -> Result<Script, Error> {
        let known = self.scripts(workflow).await?;
        let found = active(&known).cloned();
        found.ok_or_else(|| Error::NotFound(format!("usable script of workflow {workflow:?}")))
    }

    /// Approves or rejects a held version. `attempt` is the one that the person was shown.
    pub async fn decide_script(
        &self,
        workflow: &str,
        version: Version,
        attempt: AttemptId,
        approve: bool,
        (actor, note): (&str, &str),
    ) -> Result<(), Error> {
        let key = identity::script(self.hapax().namespace(), workflow, version)?;
        let resolution = match approve {
            true => Resolution::Happened(Outcome::from("usable")),
            false => Resolution::Skip,
        };
        let seen = self.hapax().effects().seen(key, attempt).await?;
        match self.hapax().effects().resolve(key, seen, resolution, actor, note).await? {
            Judged::Decided(_) => Ok(()),
            _ => Err(Error::Stale { what: format!("version {version} of {workflow}"), attempt }),
        }
    }

    /// Lists a workflow among all workflows.
    async fn enrol(&self, workflow: &str) -> Result<(), Error> {
        let namespace = self.hapax().namespace();
        let key = identity::workflow(namespace, workflow)?;
        let whole = identity::all(namespace)?;
        let part = Part { whole, kind: WORKFLOW.into(), body: workflow.into() };
        let effect = self.hapax().effect(key).label(workflow).part(part);
        effect.run(|_| async { Ok::<_, Failure>("enrolled") }).await?;
        Ok(())
    }

    /// The names of all workflows that have a script.
    pub async fn workflows(&self) -> Result<Vec<String>, Error> {
        let whole = Some(identity::all(self.hapax().namespace())?);
        let filter =
            PartFilter { whole, kind: WORKFLOW.into(), limit: 10_000, ..PartFilter::default() };
        let found = self.hapax().parts().search(filter).await?;
        let mut names: Vec<String> =
            found.into_iter().filter_map(|found| String::from_utf8(found.part.body).ok()).collect();
        names.sort();
        Ok(names)
    }
}

/// The active version: the highest that may be used.
pub(crate) fn active(scripts: &[Script]) -> Option<&Script> {
    let usable = scripts.iter().filter(|script| script.status == VersionStatus::Usable);
    usable.max_by_key(|script| script.version)
}

pub(crate) fn check_name(workflow: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=64).contains(&workflow.len()) && workflow.chars().all(fits) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "invalid workflow name {workflow:?}: write 1 to 64 letters, digits, `-`, `_` or `.`"
    )))
}
