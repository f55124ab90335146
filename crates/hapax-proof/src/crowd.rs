//! Many callers for one key at the same moment, and one of them with another payload.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hapax::{Error, Failure};

use crate::field::{Field, blocking};
use crate::report::Report;
use crate::worker::key;

/// How many callers want each key.
const CALLERS: u64 = 64;

/// Lets 64 callers of two engines run each of these keys at once.
pub fn crowd(keys: u64, report: &mut Report) {
    let field = Field::in_file();
    blocking(async {
        let engines =
            [field.open().await.expect("a ledger"), field.open().await.expect("a ledger")];
        for n in 0..keys {
            let executed = Arc::new(AtomicU64::new(0));
            let mut callers = Vec::new();
            for caller in 0..CALLERS {
                let (hapax, executed) = (engines[(caller % 2) as usize].clone(), executed.clone());
                let payload = if caller == n % CALLERS { "other" } else { "same" };
                callers.push(tokio::spawn(async move {
                    let effect = hapax.effect(key(0, n)).payload(payload.as_bytes());
                    let result = effect
                        .run(|_| async move {
                            executed.fetch_add(1, Ordering::Relaxed);
                            tokio::task::yield_now().await;
                            Ok::<_, Failure>(payload)
                        })
                        .await;
                    (payload, result)
                }));
            }
            for caller in callers {
                let (payload, result) = caller.await.expect("no panic");
                report.count("callers", 1);
                match result {
                    Ok(done) if done.body() == Some(payload.as_bytes()) => {}
                    Ok(_) => report.violation(format!(
                        "key {n}: answered with the outcome of another payload"
                    )),
                    Err(Error::Conflict { .. }) => {
                        report.count("callers answered with the conflict", 1)
                    }
                    Err(error) => report.violation(format!("key {n}: {error}")),
                }
            }
            let executed = executed.load(Ordering::Relaxed);
            report.count("keys", 1);
            report.count("executions", executed);
            report.expect(executed == 1, || format!("key {n}: executed {executed} times"));
        }
    });
    field.verify(report);
}
