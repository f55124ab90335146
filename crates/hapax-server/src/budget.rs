//! The memory that the bodies of all requests share.
//!
//! A body never waits for memory: if the budget has no more, the body is refused. So two bodies
//! cannot wait for each other.

use tokio::sync::{Semaphore, SemaphorePermit};

/// The bytes that every body may have outside of the budget. The listener limits connections, so
/// small requests are served even while large ones hold the whole budget.
const SMALL: usize = 16 * 1024;

/// The budget of all bodies in this process.
pub(crate) static BODIES: Budget = Budget::new(64 * 1024 * 1024);

/// A number of bytes for all bodies, plus room for one more body of any size.
pub(crate) struct Budget {
    bytes: Semaphore,
    /// Held by the body that exceeds the budget.
    one_more: Semaphore,
}

impl Budget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { bytes: Semaphore::const_new(bytes), one_more: Semaphore::const_new(1) }
    }

    /// The share of one body, which is empty at first.
    pub(crate) fn share(&'static self) -> Share {
        Share { of: self, bytes: 0, held: None, one_more: None }
    }
}

/// The bytes that one body holds, until it is dropped.
pub(crate) struct Share {
    of: &'static Budget,
    /// How large the body may be now.
    bytes: usize,
    held: Option<SemaphorePermit<'static>>,
    one_more: Option<SemaphorePermit<'static>>,
}

impl Share {
    /// Grows the share to this size. False if the budget has no room.
    #[must_use]
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes.max(SMALL));
        if self.one_more.is_none() && more > 0 {
            match u32::try_from(more)
                .ok()
                .and_then(|more| self.of.bytes.try_acquire_many(more).ok())
            {
                Some(taken) => match &mut self.held {
                    Some(held) => held.merge(taken),
                    None => self.held = Some(taken),
                },
                None => match self.of.one_more.try_acquire() {
                    Ok(taken) => self.one_more = Some(taken),
                    Err(_) => return false,
                },
            }
        }
        self.bytes = self.bytes.max(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes: usize) -> &'static Budget {
        Box::leak(Box::new(Budget::new(bytes)))
    }

    /// Proves S-6: bodies hold at most the budget and one body more, and give it all back.
    #[test]
    fn a_share_is_refused_when_all_is_taken_and_comes_back() {
        let budget = budget(100_000);
        let (mut first, mut second, mut third) = (budget.share(), budget.share(), budget.share());
        assert!(first.grow(SMALL + 60_000) && first.grow(SMALL + 100_000));
        assert!(second.grow(SMALL + 1), "one may go beyond");
        assert!(second.grow(50_000_000), "and as far as it has to");
        assert!(!third.grow(SMALL + 1), "but only one");
        assert!(third.grow(SMALL), "small bodies are not counted");
        drop(second);
        assert!(third.grow(SMALL + 1));
        drop((first, third));
        assert_eq!(
            (budget.bytes.available_permits(), budget.one_more.available_permits()),
            (100_000, 1)
        );
    }
}
