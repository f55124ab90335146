//! Notices: changes that every live process must see before the caller that made them goes on.

use std::time::Duration;

use hapax_store::{call, command, read};

use crate::engine::Hapax;
use crate::error::Error;

impl Hapax {
    /// Waits until every lease in force has seen the newest notice. A dead holder stops counting as soon as the
    /// store knows of its death. A silent one stops counting once its lease has lapsed by the store's pulse, so a
    /// clock that jumps excuses no live holder.
    pub(crate) async fn seen_by_all(&self) -> Result<(), Error> {
        let store = &*self.inner.store;
        let notice = read(store, |view| view.notice()).await?;
        loop {
            let behind = read(store, move |view| {
                let (now, pulse) = (view.now(), view.pulse()?);
                let mut behind = view.leases()?;
                behind.retain(|lease| lease.seen < notice && !lease.lapsed(now, &pulse));
                behind.retain(|lease| !view.is_gone(lease));
                let late = behind.iter().filter(|lease| lease.until.reached(now.lease));
                Ok((behind.len(), late.map(|lease| lease.term_ms).min()))
            });
            let (behind, late) = behind.await?;
            if behind == 0 {
                return Ok(());
            }
            // This process must beat the pulse, or a silent lease would never be judged.
            if let Some(term_ms) = late {
                call(store, command::Expire { limit: 0 }).await?;
                let pause = Duration::from_millis((term_ms / 8).clamp(5, 100));
                tokio::time::sleep(pause).await;
            } else {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}
