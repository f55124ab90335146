//! Background work on workflows: it runs what is due, looks up mutations whose outcome is unknown,
//! and announces escalations.
//!
//! A pass takes no input: its work is in the ledger. It looks through all namespaces every minute.
//! Every five seconds it looks at those that have work or workflows, or that this server had runs
//! or scripts for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;
use hapax::{AttemptId, Key, Namespace};
use hapax_items::{Error, Items, Reconciled};

use crate::server::Server;

/// The pause between two passes.
pub(crate) const ROUND: Duration = Duration::from_secs(5);

/// How often all namespaces are looked through.
const ALL: Duration = Duration::from_secs(60);

/// In how many namespaces mutations are looked up at once.
const AT_ONCE: usize = 8;

/// The kinds of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Begin the runs that are due.
    RunDue,
    /// Look up mutations whose outcome is unknown.
    Reconcile,
}

/// Does one kind of work, in all namespaces.
pub(crate) struct Maintenance {
    chore: Chore,
    items: Items,
    /// The namespaces that the next pass looks at, because the last one found work or a workflow.
    busy: BTreeSet<Namespace>,
    /// When a pass last looked through all namespaces.
    full_pass: Option<Instant>,
    /// The open escalations that this process has announced.
    announced: BTreeMap<Namespace, BTreeSet<(Key, AttemptId)>>,
}

/// The result of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// How many runs began, and how many escalations are open.
    Run { begun: usize, escalations: usize },
    /// The result of the lookups.
    Reconciled(Reconciled),
}

impl Maintenance {
    pub(crate) fn new(chore: Chore, items: Items) -> Self {
        Self { chore, items, busy: BTreeSet::new(), full_pass: None, announced: BTreeMap::new() }
    }

    /// One pass.
    pub(crate) async fn pass(&mut self, server: &Server) -> Result<Pass, Error> {
        match self.chore {
            Chore::RunDue => self.run_due(server).await,
            Chore::Reconcile => self.reconcile(server).await,
        }
    }

    async fn run_due(&mut self, server: &Server) -> Result<Pass, Error> {
        let now = server.hapax.maintenance().wall().await?;
        let (mut all_begun, mut escalations) = (0, 0);
        for namespace in self.namespaces(server).await? {
            let items = self.items.on(server.hapax.in_namespace(namespace.clone()));
            let begun = async {
                let mut begun = 0;
                for due in items.due(now).await? {
                    if server.runs.is_driven(&namespace, &due.workflow) {
                        continue;
                    }
                    // A run that finds no room now is still due in the next pass.
                    let run = server.runs.begin(items.clone(), &due.workflow, due.run);
                    begun += usize::from(run.is_ok());
                }
                Ok::<_, Error>((begun, items.count_escalations().await?))
            };
            match begun.await {
                Ok((begun, open)) => {
                    all_begun += begun;
                    escalations += open;
                    self.announce(&items, open > 0).await;
                    self.keep(&namespace, begun > 0 || open > 0 || has_any(&items).await);
                }
                Err(error) => warn(&namespace, &error),
            }
        }
        server.metrics.escalations.set(i64::try_from(escalations).unwrap_or(i64::MAX));
        Ok(Pass::Run { begun: all_begun, escalations })
    }

    /// Announces escalations whose own process could not: it may have died after it recorded them.
    async fn announce(&mut self, items: &Items, open: bool) {
        let namespace = items.hapax().namespace();
        if !open {
            self.announced.remove(namespace);
            return;
        }
        let mut announced = self.announced.get(namespace).cloned().unwrap_or_default();
        match items.emit_open_escalations(&mut announced).await {
            Ok(()) => _ = self.announced.insert(namespace.clone(), announced),
            Err(error) => warn(namespace, &error),
        }
    }

    async fn reconcile(&mut self, server: &Server) -> Result<Pass, Error> {
        let items = self.items.clone();
        let namespaces = self.namespaces(server).await?;
        let mut passes = stream::iter(namespaces)
            .map(|namespace| async {
                let items = items.on(server.hapax.in_namespace(namespace.clone()));
                let pass = items.reconcile().await;
                (namespace, pass)
            })
            .buffer_unordered(AT_ONCE);
        let mut sum = Reconciled::default();
        while let Some((namespace, pass)) = passes.next().await {
            match pass {
                Ok(pass) => {
                    sum.looked += pass.looked;
                    sum.decided += pass.decided;
                    sum.escalated += pass.escalated;
                    sum.waiting += pass.waiting;
                    self.keep(&namespace, pass != Reconciled::default());
                }
                Err(error) => warn(&namespace, &error),
            }
        }
        let counter = &server.metrics.reconciled;
        for (result, count) in [
            ("decided", sum.decided),
            ("undecided", sum.looked.saturating_sub(sum.decided)),
            ("escalated", sum.escalated),
        ] {
            counter.with_label_values(&[result]).inc_by(count as u64);
        }
        Ok(Pass::Reconciled(sum))
    }

    /// The namespaces that this pass looks at.
    async fn namespaces(&mut self, server: &Server) -> Result<Vec<Namespace>, Error> {
        if self.full_pass.is_none_or(|last| last.elapsed() >= ALL) {
            let all = server.hapax.maintenance().namespaces().await?;
            self.full_pass = Some(Instant::now());
            return Ok(all);
        }
        let mut some = server.runs.namespaces();
        some.extend(self.busy.iter().cloned());
        Ok(some.into_iter().collect())
    }

    fn keep(&mut self, namespace: &Namespace, busy: bool) {
        match busy {
            true => self.busy.insert(namespace.clone()),
            false => self.busy.remove(namespace),
        };
    }
}

/// Whether the namespace has a workflow, which may become due.
async fn has_any(items: &Items) -> bool {
    items.workflows().await.is_ok_and(|workflows| !workflows.is_empty())
}

/// Logs an error in one namespace, so that the pass goes on with the others.
fn warn(namespace: &Namespace, error: &Error) {
    tracing::warn!(name: "workflows_not_maintained", %namespace, %error, "maintaining workflows failed; retrying");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hapax::Hapax;
    use hapax::outbox::{Acks, Delivery, OutboxConfig, RecordFilter, Sink};
    use hapax_items::Version;

    use super::*;
    use crate::access::Access;
    use crate::server::{ServerSettings, Systems};

    fn server(hapax: &Hapax) -> (Arc<Server>, Items) {
        let items = Items::new(hapax.clone(), Vec::new(), Vec::new()).expect("nothing to refuse");
        let systems = Systems { items: Some(items.clone()), ..Systems::default() };
        (Server::with(hapax.clone(), Access::Everybody, ServerSettings::default(), systems), items)
    }

    /// A run whose process died goes on in any namespace, without a request to this server.
    #[tokio::test]
    async fn due_workflows_are_found_in_every_namespace() {
        let hapax = Hapax::builder().in_memory();
        let (server, items) = server(&hapax);
        let mut there = Vec::new();
        for name in ["one", "two"] {
            let namespace = Namespace::new(name).expect("a name");
            let items = items.on(hapax.in_namespace(namespace));
            items
                .publish("w", "await withItem('a', 'A', async () => 1);", "ada")
                .await
                .expect("one");
            let (begun, running) = tokio::sync::oneshot::channel();
            let broken_off = tokio::spawn({
                let items = items.clone();
                async move {
                    let work = |_| async move {
                        begun.send(()).expect("the receiver waits");
                        std::future::pending::<Result<(), String>>().await
                    };
                    items.perform("w", Version::FIRST, Some("r"), work).await
                }
            });
            running.await.expect("it has begun");
            broken_off.abort();
            there.push(items);
        }
        let mut maintenance = Maintenance::new(Chore::RunDue, items.clone());
        let ended = async |items: &Items| {
            items.show_run("w", "r").await.is_ok_and(|run| run.state == "succeeded")
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !(ended(&there[0]).await && ended(&there[1]).await) {
            assert!(Instant::now() < deadline);
            maintenance.pass(&server).await.expect("a pass");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let pass = maintenance.pass(&server).await.expect("a pass");
        assert_eq!(pass, Pass::Run { begun: 0, escalations: 0 });
        let pass = Maintenance::new(Chore::Reconcile, items).pass(&server).await.expect("a pass");
        assert_eq!(pass, Pass::Reconciled(Reconciled::default()));
        // No run begins once the server has drained.
        server.drained().await;
        assert!(server.runs.begin(there[0].clone(), "w", "late".into()).is_err());
    }

    /// Proves I-12: an escalation that its own process could not announce is announced later, once.
    #[tokio::test]
    async fn escalations_that_were_not_announced_are_announced() {
        let hapax = Hapax::builder().in_memory();
        let (server, items) = server(&hapax);
        items.publish("w", "throw new Error('no');", "ada").await.expect("published");
        assert!(items.drive("w", None).await.is_err());
        let outbox = OutboxConfig::new().sink("people", Silent).expect("a sink");
        let outbox = outbox.route("item-*", "*", &["people"]).expect("a route");
        hapax.outbox().configure(&outbox).await.expect("set up");
        for items in [items.clone(), items] {
            let mut maintenance = Maintenance::new(Chore::RunDue, items);
            for _ in 0..2 {
                maintenance.pass(&server).await.expect("a pass");
                let filter = RecordFilter { limit: 10, ..RecordFilter::default() };
                assert_eq!(hapax.outbox().records(filter).await.expect("records").len(), 1);
            }
        }
    }

    struct Silent;

    impl Sink for Silent {
        async fn send(&self, _: &[Delivery], _: &Acks) {}
    }

    /// Open escalations are counted in the pass that finds them.
    #[tokio::test]
    async fn escalations_are_counted() {
        let hapax = Hapax::builder().in_memory();
        let (server, items) = server(&hapax);
        items.publish("w", "throw new Error('no');", "ada").await.expect("published");
        assert!(items.drive("w", None).await.is_err());
        let mut maintenance = Maintenance::new(Chore::RunDue, items);
        let pass = maintenance.pass(&server).await.expect("a pass");
        assert_eq!(pass, Pass::Run { begun: 0, escalations: 1 });
        assert_eq!(server.metrics.escalations.get(), 1);
    }
}
