//! The verdict on an attack: the judge, the callers and the ledger are compared.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use hapax::tokio_postgres::NoTls;
use hapax::{Effect, Hapax, State, StateName};

use super::{Attack, Kind, author_in};
use crate::field::blocking;
use crate::report::Report;

/// How long after the attack all leases have lapsed.
const LAPSED: Duration = Duration::from_secs(90);

impl Attack {
    /// The number of each key that callers have claimed, by its text.
    pub(super) fn numbers(&self) -> HashMap<String, u64> {
        let front = self.progress().front;
        (0..front).map(|n| (self.key(n).to_string(), n)).collect()
    }

    /// The callers that did it, by the judge and by the callers' own table.
    pub(super) fn executed(&self, n: u64) -> Vec<u64> {
        self.all_executed().remove(&self.target(n)).unwrap_or_default()
    }

    fn all_executed(&self) -> BTreeMap<String, Vec<u64>> {
        let mut executed = self.sink.executed();
        if self.ledger.contains("://") {
            let rows = blocking(async {
                let (client, connection) =
                    hapax::tokio_postgres::connect(&self.ledger, NoTls).await?;
                tokio::spawn(connection);
                client.query("SELECT target, by FROM applied", &[]).await
            });
            for row in rows.unwrap_or_default() {
                let by: i64 = row.get(1);
                executed.entry(row.get(0)).or_default().push(by as u64);
            }
        }
        executed
    }

    /// Compares the executions, the acknowledged outcomes, and the ledger.
    pub(super) fn judge(&self, report: &mut Report) {
        let executed = self.all_executed();
        let effects = match blocking(self.effects(report)) {
            Ok(effects) => effects,
            Err(error) => return report.violation(format!("the ledger cannot be read: {error}")),
        };
        let progress = self.progress();
        for (how, count) in &progress.exits {
            report.count(format!("callers: {how}"), *count);
        }
        let mut acknowledged = 0;
        for n in 0..progress.front {
            let none = Vec::new();
            let executed = executed.get(&self.target(n)).unwrap_or(&none);
            let authors = progress.authors.get(&n).unwrap_or(&none);
            acknowledged += u64::from(!authors.is_empty());
            let name = match self.kind(n) {
                Kind::Proxy => format!("POST /{0} {0}", self.target(n)),
                _ => self.key(n).to_string(),
            };
            let resets = progress.resets.get(&n).copied().unwrap_or(0);
            self.judge_key(n, executed, authors, resets, effects.get(&name), report);
        }
        let keys = progress.front;
        report.count("keys with an acknowledged outcome", acknowledged);
        report.expect(acknowledged * 2 >= keys, || {
            format!("vacuous: {acknowledged} of {keys} keys have an outcome")
        });
    }

    fn judge_key(
        &self,
        n: u64,
        executed: &[u64],
        authors: &[u64],
        resets: u64,
        effect: Option<&Effect>,
        report: &mut Report,
    ) {
        let kind = self.kind(n);
        let state = effect.map(|effect| &effect.state);
        let wrong = |violation: String| {
            let state = state.map(|state| state.name());
            format!(
                "key {n}, {kind:?}: {violation}; executed by {executed:?}, callers got {authors:?}, \
                 {resets} resets, now {state:?}"
            )
        };
        report.count("keys judged", 1);
        report.count("effects executed", executed.len() as u64);
        report.count("outcomes acknowledged", authors.len() as u64);
        let times = executed.len() as u64;
        report.count("executed more often than asked for", times.saturating_sub(1 + resets));
        report.expect(times <= 1 + resets, || wrong("executed more often than asked for".into()));
        let lost = authors.iter().filter(|by| !executed.contains(by)).count();
        report.count("acknowledged and lost", lost as u64);
        report.expect(lost == 0, || wrong("acknowledged, and not done".into()));
        let recorded = match state {
            Some(State::Succeeded(outcome)) => {
                let body = outcome.body().unwrap_or_default();
                author_in(&String::from_utf8_lossy(body))
            }
            _ => None,
        };
        if let Some(by) = recorded {
            report.expect(executed.contains(&by), || wrong(format!("recorded as done by {by}")));
        }
        let name = state.map(State::name);
        if resets == 0 {
            report.expect(authors.is_empty() || name == Some(StateName::Succeeded), || {
                wrong("acknowledged, and not recorded".into())
            });
            // All callers of a key get the same outcome.
            let one = authors.windows(2).all(|two| two[0] == two[1]);
            report.expect(one, || wrong("callers got different outcomes".into()));
            let shown = matches!(
                name,
                Some(StateName::Succeeded | StateName::Unknown | StateName::Indeterminate)
            );
            report.count(
                "unknown outcomes, shown as needing attention",
                u64::from(times > 0 && shown && recorded.is_none()),
            );
            report.expect(times == 0 || shown, || wrong("executed, and not shown as such".into()));
        }
        // Transactional work waits for the next claim.
        let running = name == Some(StateName::Running) && kind.safety() != "transactional";
        report.expect(!running, || wrong("still running when all callers are gone".into()));
    }

    /// The ledger's effects, by key or by label, once all leases have lapsed. Verifies the journal too.
    async fn effects(&self, report: &mut Report) -> Result<HashMap<String, Effect>, hapax::Error> {
        let builder = Hapax::builder().background(false).signing_key(&self.signing_key);
        let hapax = builder.open(&self.ledger).await?;
        let deadline = Instant::now() + LAPSED;
        while Instant::now() < deadline {
            while hapax.pass().await?.sealed > 0 {}
            let running = hapax.effects().list(&[StateName::Running], 10_000).await?;
            let waits = |effect: &Effect| effect.safety != hapax::Safety::Transactional;
            if !running.iter().any(|found| waits(&found.effect)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        while hapax.pass().await?.sealed > 0 {}
        let verified = hapax.journal().verify(hapax.journal().verifier()?, |_, _| ()).await?;
        report.count("journal entries verified", verified.sealed);
        report.expect(verified.damage.is_empty(), || format!("the journal: {:?}", verified.damage));
        let found = hapax.effects().list(&[], 10_000_000).await?;
        let mut effects = HashMap::new();
        for found in found {
            // A request through the proxy is known by its label.
            let labelled = found.effect.label.clone().filter(|label| label.starts_with("POST "));
            effects.insert(labelled.unwrap_or_else(|| found.name.key.to_string()), found.effect);
        }
        Ok(effects)
    }
}
