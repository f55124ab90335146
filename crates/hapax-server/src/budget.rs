//! The memory that the bodies of all requests share.
//!
//! Nobody waits here: a body that grows takes more if it is there, and is refused if it is not. So
//! none can wait for another that waits for it.

use tokio::sync::{Semaphore, SemaphorePermit};

/// What every body may have without asking. Connections are counted elsewhere, so small requests are
/// served also while large ones hold everything there is.
const SMALL: usize = 16 * 1024;

/// What all bodies of this process may have together.
pub(crate) static BODIES: Budget = Budget::new(64 * 1024 * 1024);

/// So many bytes, for all, and room for one body more, however large it may be.
pub(crate) struct Budget {
    bytes: Semaphore,
    /// Held by the one that goes beyond.
    one_more: Semaphore,
}

impl Budget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { bytes: Semaphore::const_new(bytes), one_more: Semaphore::const_new(1) }
    }

    /// The share of one body, which is nothing yet.
    pub(crate) fn share(&'static self) -> Share {
        Share { of: self, bytes: 0, held: None, one_more: None }
    }
}

/// What one body holds, until it is dropped.
pub(crate) struct Share {
    of: &'static Budget,
    /// How large the body may be now.
    bytes: usize,
    held: Option<SemaphorePermit<'static>>,
    one_more: Option<SemaphorePermit<'static>>,
}

impl Share {
    /// Makes it this large, if there is room.
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

    /// Proves S-6: what is held is never more than the budget and one body, and comes back.
    #[test]
    fn a_share_is_refused_when_all_is_taken_and_comes_back() {
        let budget = budget(100_000);
        let (mut first, mut second, mut third) = (budget.share(), budget.share(), budget.share());
        assert!(first.grow(SMALL + 60_000) && first.grow(SMALL + 100_000));
        assert!(second.grow(SMALL + 1), "one may go beyond");
        assert!(second.grow(50_000_000), "and as far as it has to");
        assert!(!third.grow(SMALL + 1), "but only one");
        assert!(third.grow(SMALL), "what is small is not counted");
        drop(second);
        assert!(third.grow(SMALL + 1));
        drop((first, third));
        assert_eq!(
            (budget.bytes.available_permits(), budget.one_more.available_permits()),
            (100_000, 1)
        );
    }
}
