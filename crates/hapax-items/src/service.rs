//! Workflows: runs of them, one at a time, and the next step after a failure.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hapax::part::{PartFilter, PartRecord};
use hapax::{Failure, Hapax, Key, Safety, State};

use crate::bridge;
use crate::error::Error;
use crate::identity;
use crate::note::{self, Account, RunNote};
use crate::repair::{Maintainer, Repair};
use crate::route::FailureBudget;
use crate::run::{Run, RunStart, now_ms};
use crate::sandbox::Limits;
use crate::schedule;
use crate::script::{Script, check_name};
use crate::script_threads::ScriptThreads;
use crate::stop::{StopReason, Stopped};
use crate::tool::Tool;
use crate::version::Version;

/// Items and mutations on a ledger. Cheap to clone.
///
/// ```
/// use hapax::Hapax;
/// use hapax_items::{Items, ItemState};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let items = Items::new(hapax, Vec::new(), Vec::new())?;
/// let script = r#"
///     for (const id of ["a", "b"]) {
///         await withItem(id, `Item ${id}`, async (ctx) => {
///             if (ctx.item.isDone) return;
///             // await mail.send({ to: "ada@example.org", subject: "Hello", text: "…" });
///         });
///     }
/// "#;
/// items.publish("greetings", script, "grace").await?;
/// for _ in 0..2 {
///     items.drive("greetings", None).await?;
/// }
/// let done = items.list("greetings", &[ItemState::Done], None, 10).await?;
/// assert_eq!(done.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Items(Arc<Inner>);

struct Inner {
    hapax: Hapax,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    workflows: BTreeMap<String, Arc<Settings>>,
    threads: Arc<ScriptThreads>,
}

/// The settings of a workflow.
#[derive(Clone)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// The tools it may use; all, if none are named.
    pub tools: Option<Vec<String>>,
    /// How long one call of a tool may take.
    pub tool_timeout: Duration,
    /// The limits of its script.
    pub limits: Limits,
    /// The budget that may be spent before an escalation.
    pub budget: FailureBudget,
    /// The maintainer that repairs its script.
    pub maintainer: Option<Arc<dyn Maintainer>>,
    /// When it runs by itself: a cron expression in UTC, of five fields, or six with seconds first.
    pub schedule: Option<String>,
}

impl Settings {
    /// The default settings of a workflow.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            tools: None,
            tool_timeout: Duration::from_secs(90),
            limits: Limits::default(),
            budget: FailureBudget::default(),
            maintainer: None,
            schedule: None,
        }
    }
}

/// A run that came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedRun {
    /// Its key.
    pub key: Key,
    /// Its id.
    pub id: String,
    /// The version of the script.
    pub version: Version,
    /// How many items it took up.
    pub items: usize,
}

impl Items {
    /// Items on this ledger, with these tools and workflows.
    pub fn new(
        hapax: Hapax,
        tools: Vec<Arc<dyn Tool>>,
        workflows: Vec<Settings>,
    ) -> Result<Self, Error> {
        let mut named: BTreeMap<String, Arc<dyn Tool>> = BTreeMap::new();
        for tool in tools {
            let name = tool.name().to_owned();
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let taken = RESERVED.split_whitespace().any(|word| word == name);
            if !name.starts_with(|c: char| !c.is_ascii_digit()) || !name.chars().all(fits) || taken
            {
                return Err(Error::Invalid(format!("no tool can be called {name:?}")));
            }
            if named.insert(name.clone(), tool).is_some() {
                return Err(Error::Invalid(format!("two tools are called {name:?}")));
            }
        }
        for settings in &workflows {
            check_name(&settings.name)?;
            if let Some(schedule) = &settings.schedule {
                schedule::parse(schedule)?;
            }
            let unknown = settings.tools.iter().flatten().find(|tool| !named.contains_key(*tool));
            if let Some(tool) = unknown {
                let name = &settings.name;
                return Err(Error::Invalid(format!("{name} names a tool {tool:?}; there is none")));
            }
        }
        let workflows =
            workflows.into_iter().map(|each| (each.name.clone(), Arc::new(each))).collect();
        Ok(Self(Arc::new(Inner { hapax, tools: named, workflows, threads: Arc::default() })))
    }

    /// The same tools and workflows, on another namespace.
    pub fn on(&self, hapax: Hapax) -> Self {
        let Inner { tools, workflows, threads, .. } = &*self.0;
        let within = |tool: &Arc<dyn Tool>| {
            tool.within(hapax.namespace()).unwrap_or_else(|| Arc::clone(tool))
        };
        let tools = tools.iter().map(|(name, tool)| (name.clone(), within(tool))).collect();
        let (workflows, threads) = (workflows.clone(), threads.clone());
        Self(Arc::new(Inner { hapax, tools, workflows, threads }))
    }

    /// The ledger.
    pub fn hapax(&self) -> &Hapax {
        &self.0.hapax
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.0.tools.get(name)
    }

    /// Whether any tools are set up.
    pub(crate) fn has_tools(&self) -> bool {
        !self.0.tools.is_empty()
    }

    /// The tools that a workflow may use.
    pub(crate) fn tools_of(&self, settings: &Settings) -> BTreeMap<String, Arc<dyn Tool>> {
        let may = |name: &String| settings.tools.as_ref().is_none_or(|tools| tools.contains(name));
        let tools = self.0.tools.iter().filter(|(name, _)| may(name));
        tools.map(|(name, tool)| (name.clone(), tool.clone())).collect()
    }

    pub(crate) fn settings(&self, workflow: &str) -> Arc<Settings> {
        let known = self.0.workflows.get(workflow).cloned();
        known.unwrap_or_else(|| Arc::new(Settings::new(workflow)))
    }

    /// Runs a workflow's script once. `id` names the run: a run that has come to its end under this
    /// id does not run again.
    pub async fn run(&self, workflow: &str, id: Option<&str>) -> Result<CompletedRun, Error> {
        let script = self.script(workflow).await?;
        let settings = self.settings(workflow);
        let threads = self.0.threads.clone();
        let work = |run| bridge::execute(run, settings, script.source, threads);
        self.conduct(workflow, script.version, id, work).await
    }

    /// Runs a program of your own as a workflow, with the same promises as a script.
    ///
    /// ```
    /// use hapax::Hapax;
    /// use hapax::json::Json;
    /// use hapax_items::{Items, Version};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let items = Items::new(hapax, Vec::new(), Vec::new())?;
    /// let ran = items
    ///     .perform("invoices", Version::FIRST, None, |run| async move {
    ///         run.with_item("2026-11", "November", |item| async move {
    ///             if item.is_done() {
    ///                 return Ok(Json::Null);
    ///             }
    ///             // let sent = item.call("mail", "send", &arguments).await;
    ///             Ok::<_, String>(Json::text("sent"))
    ///         })
    ///         .await;
    ///         Ok::<_, String>(())
    ///     })
    ///     .await?;
    /// assert_eq!(ran.items, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn perform<F, Fut, E>(
        &self,
        workflow: &str,
        version: Version,
        id: Option<&str>,
        work: F,
    ) -> Result<CompletedRun, Error>
    where
        F: FnOnce(Run) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: std::fmt::Display,
    {
        let work = |run: Run| async move {
            let worked = work(run.clone()).await;
            worked.map_err(|error| run.stop(StopReason::logic(error.to_string())))
        };
        self.conduct(workflow, version, id, work).await
    }

    async fn conduct<F, Fut>(
        &self,
        workflow: &str,
        version: Version,
        id: Option<&str>,
        work: F,
    ) -> Result<CompletedRun, Error>
    where
        F: FnOnce(Run) -> Fut,
        Fut: Future<Output = Result<(), Stopped>>,
    {
        check_name(workflow)?;
        let hapax = self.hapax();
        let id = match id {
            Some(id) if (1..=512).contains(&id.trim().len()) => id.to_owned(),
            Some(_) => return Err(Error::Invalid("the id of a run has 1 to 512 bytes".into())),
            None => hapax::AttemptId::from_bytes(hapax::remote::random_id()?).to_string(),
        };
        let (key, whole) = (
            identity::run(hapax.namespace(), workflow, &id)?,
            identity::workflow(hapax.namespace(), workflow)?,
        );
        let settings = self.settings(workflow);
        let account = self.account(workflow).await?;
        let repaired = self.repaired(workflow, version, &settings).await?;
        let begun = RunNote {
            workflow: workflow.to_owned(),
            id: id.clone(),
            version,
            began_ms: now_ms(),
            items: Vec::new(),
            unnamed: 0,
            item: None,
            log: Vec::new(),
            reads: Vec::new(),
            reads_cut: false,
            account,
            failure: None,
        };
        let mut ended = None;
        let effect = hapax
            .effect(key)
            .safety(Safety::Transactional)
            .lock(&["items", hapax.namespace().as_str(), workflow])
            .label(format!("{workflow} {version}").chars().take(60).collect::<String>())
            .part(begun.part(whole))
            .wait(Duration::ZERO);
        let items = self.clone();
        let ended_of = &mut ended;
        let ran = effect.run(|claim| async move {
            let note = begun;
            let run = Run::begin(RunStart {
                items,
                settings,
                claim: claim.clone(),
                whole,
                note,
                repaired,
            });
            let _stop = StopOnDrop(run.clone());
            let work = async {
                work(run.clone()).await?;
                run.close().await
            };
            let worked = tokio::select! {
                biased;
                worked = work => worked,
                () = run.brake().over() => Err(Stopped(())),
            };
            if worked.is_err() {
                run.brake().over().await;
            }
            let mut note = run.note().clone();
            if worked.is_ok() {
                (note.item, note.account) = (None, Account::default());
                claim.keep(note.part(whole));
                let count = note.count();
                *ended_of = Some(note);
                return Ok(count.to_string());
            }
            // If an item failed, the item is escalated and not the run.
            let (failure, escalated) = match note.failure.take() {
                Some(failure) => (failure, false),
                None => {
                    note.item = run.late().or(note.item);
                    let (failure, escalated) = run.failed(account);
                    note.account = account.after(&failure, now_ms());
                    (failure, escalated)
                }
            };
            let reason = format!("{}: {}", failure.class, failure.message);
            note.failure = Some(failure);
            claim.keep(note.part(whole));
            *ended_of = Some(note);
            Err(match escalated {
                true => Failure::partial(reason),
                false => Failure::not_done(reason),
            })
        });
        // Boxed, like the other steps down to a mutation: each is a large future inside of another.
        let ran = Box::pin(ran).await;
        let next = ended.iter().filter_map(|note| note.failure.as_ref()).map(|why| &*why.next);
        let waits = matches!((&ran, &ended), (Err(hapax::Error::Blocked(_)), None));
        if waits || next.into_iter().any(|next| matches!(next, "escalate" | "wait")) {
            self.emit_escalations(workflow).await;
        }
        match (ran, ended) {
            (Ok(_), Some(note)) => Ok(CompletedRun { key, id, version, items: note.count() }),
            // A run of this id came to its end before.
            (Ok(done), None) => {
                let items =
                    done.body().and_then(|body| std::str::from_utf8(body).ok()?.parse().ok());
                Ok(CompletedRun { key, id, version, items: items.unwrap_or(0) })
            }
            (Err(hapax::Error::Failed { .. } | hapax::Error::Blocked(_)), Some(note)) => {
                let failure = note
                    .failure
                    .ok_or_else(|| Error::Invalid("the run ended without a reason".into()))?;
                tracing::warn!(name: "run_failed", workflow, run = %key, item = note.item, class = %failure.class, next = failure.next, "{}", failure.message);
                Err(Error::Failed { item: note.item, failure: Box::new(failure) })
            }
            (Err(hapax::Error::Locked { .. } | hapax::Error::InFlight { .. }), _) => {
                Err(Error::Running { workflow: workflow.to_owned() })
            }
            (Err(hapax::Error::Blocked(blocked)), None) => Err(Error::Attention {
                what: format!("a run of {workflow}"),
                key: blocked.holder.unwrap_or(key),
                reason: blocked.reason,
            }),
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Runs a workflow until it has come to its end or a person is needed. Transient failures are
    /// retried, and the script is repaired if a maintainer is set up.
    pub async fn drive(&self, workflow: &str, id: Option<&str>) -> Result<CompletedRun, Error> {
        loop {
            let ended = Box::pin(self.run(workflow, id)).await;
            let Err(Error::Failed { item, failure }) = &ended else { return ended };
            match failure.next.as_str() {
                "retry" => {
                    let wait_ms = failure.retry_at.unwrap_or_default().saturating_sub(now_ms());
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                }
                "repair" => match self.repair_run(workflow, id).await? {
                    Repair::Activated(version) => {
                        tracing::info!(name: "script_repaired", workflow, %version, "the run continues with the repaired script");
                    }
                    Repair::Held(version) => {
                        self.emit_held(workflow, version).await?;
                        let what = format!("version {version} of {workflow}");
                        let key = identity::script(self.hapax().namespace(), workflow, version)?;
                        let reason = "a repair waits for approval".into();
                        return Err(Error::Attention { what, key, reason });
                    }
                    Repair::Refused(why) => {
                        self.escalate(workflow, id, item.as_deref(), &why).await?;
                        return ended;
                    }
                },
                _ => return ended,
            }
        }
    }

    /// The run of this id, or the newest one.
    pub(crate) async fn run_or_newest(
        &self,
        workflow: &str,
        id: Option<&str>,
    ) -> Result<Option<(PartRecord, RunNote)>, Error> {
        let Some(id) = id else { return self.newest_run(workflow).await };
        let found = self.found(identity::run(self.hapax().namespace(), workflow, id)?).await?;
        Ok(found.and_then(|found| RunNote::read(&found.part).map(|note| (found, note))))
    }

    /// The newest run of a workflow.
    pub(crate) async fn newest_run(
        &self,
        workflow: &str,
    ) -> Result<Option<(PartRecord, RunNote)>, Error> {
        let whole = Some(identity::workflow(self.hapax().namespace(), workflow)?);
        let (kind, limit) = (note::RUN.to_owned(), 1);
        let filter = PartFilter { whole, kind, newest_first: true, limit, ..PartFilter::default() };
        let found = self.hapax().parts().search(filter).await?.pop();
        Ok(found.and_then(|found| RunNote::read(&found.part).map(|note| (found, note))))
    }

    /// The failures of runs outside of any item, since a person last decided.
    async fn account(&self, workflow: &str) -> Result<Account, Error> {
        let newest = self.newest_run(workflow).await?;
        Ok(newest.map_or_else(Account::default, |(found, note)| match found.effect.state {
            State::Failed(ref failure) if failure.cause == hapax_core::outcome::Cause::Resolved => {
                Account::default()
            }
            _ => note.account,
        }))
    }

    /// How often a version was repaired lately, and the cost of that.
    pub(crate) async fn repaired(
        &self,
        workflow: &str,
        version: Version,
        settings: &Settings,
    ) -> Result<(u32, u64), Error> {
        if version.minor == 0 && settings.maintainer.is_none() {
            return Ok((0, 0));
        }
        let since = now_ms().saturating_sub(settings.budget.repair_ms) as i64;
        let scripts = self.scripts(workflow).await?;
        let lately =
            |script: &&Script| script.version.major == version.major && script.made.0 >= since;
        let repairs = scripts.iter().filter(lately).filter_map(|script| script.repair.as_ref());
        Ok(repairs.fold((0, 0), |(count, cost), repair| (count + 1, cost + repair.cost)))
    }
}

/// Ends a run if the waiting caller is gone.
struct StopOnDrop(Run);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(StopReason::logic("the run was cut off"));
    }
}

/// Names that mean something else in scripts.
const RESERVED: &str = "withItem console globalThis undefined NaN Infinity Date Math JSON Promise \
    Object Array String Number Boolean Symbol BigInt Map Set WeakMap WeakSet Error Reflect Proxy \
    RegExp Function eval parseInt parseFloat isNaN isFinite";
