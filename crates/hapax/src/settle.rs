//! Reporting how it went, until the ledger has heard it.

use std::sync::Arc;
use std::time::Duration;

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Report, Settled};
use hapax_core::name::Name;
use hapax_core::retry::Backoff;
use hapax_store::failpoint::{Point, pass};
use hapax_store::outbox::Telling;
use hapax_store::{Answer, Command, StoreError};

use crate::claim::tell;
use crate::engine::{Inner, random};

/// How often a settle is tried again before its caller is told.
const SETTLE_RETRIES: Backoff = Backoff { base_ms: 20, cap_ms: 2_000, attempts: 20 };

/// Reports, and again while the store cannot be reached: the same attempt may report twice
/// without harm. The caller is told when that takes too long; the report is made all the same.
pub(crate) async fn settle(
    inner: &Arc<Inner>,
    name: &Name,
    attempt: AttemptId,
    report: Report,
    telling: Telling,
) -> Result<Settled, StoreError> {
    for nth in 1.. {
        let (name_again, report_again) = (name.clone(), report.clone());
        let command = Command::Settle {
            name: name_again,
            attempt,
            report: report_again,
            telling: telling.clone(),
        };
        let asked = match pass(Point::SettleAsk) {
            Ok(()) => inner.ask(command).await,
            Err(error) => Err(error),
        };
        match asked.and_then(|answer| pass(Point::SettleTold).map(|()| answer)) {
            Ok(Answer::Settle(settled)) => return Ok(settled),
            Ok(_) => return Err(StoreError::Corrupt("a settle got another answer".into())),
            Err(error) if error.is_transient() => {
                let dice = random().map_or(u64::MAX, u64::from_be_bytes);
                let Some(pause) = SETTLE_RETRIES.delay_ms(nth, dice) else {
                    tell(inner, name, attempt, report, telling);
                    return Err(error);
                };
                tracing::warn!(name: "outcome_not_recorded_yet", %error, key = %name.key, "the outcome is not recorded yet");
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Unavailable("gave up settling".into()))
}
