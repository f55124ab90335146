//! The budget of retries.

use std::time::Duration;

use tokio::time::Instant;

/// Limits retries: one for ten first tries, and one a second besides.
///
/// ```
/// use hapax::Budget;
///
/// let now = tokio::time::Instant::now();
/// let mut budget = Budget::new(now);
/// assert_eq!((0..100).filter(|_| budget.retry(now)).count(), 10);
/// budget.first(20);
/// assert_eq!((0..100).filter(|_| budget.retry(now)).count(), 2);
/// ```
#[derive(Debug)]
pub struct Budget {
    tenths: u64,
    since: Instant,
}

impl Budget {
    const MOST: u64 = 1_000;

    /// With ten retries to begin with.
    pub fn new(now: Instant) -> Self {
        Self { tenths: 100, since: now }
    }

    /// Counts first tries: ten of them allow one more retry.
    pub fn first(&mut self, tries: usize) {
        self.tenths = (self.tenths + tries as u64).min(Self::MOST);
    }

    /// Takes another retry out of the budget. Returns whether there was one.
    pub fn retry(&mut self, now: Instant) -> bool {
        let seconds = now.duration_since(self.since).as_secs();
        self.since += Duration::from_secs(seconds);
        self.tenths = (self.tenths + 10 * seconds).min(Self::MOST);
        let may = self.tenths >= 10;
        self.tenths -= if may { 10 } else { 0 };
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_tenth_of_first_tries() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        let spend = |budget: &mut Budget, now| (0..1_000).filter(|_| budget.retry(now)).count();
        assert_eq!(spend(&mut budget, now), 10);
        budget.first(50);
        assert_eq!(spend(&mut budget, now), 5);
        assert_eq!(spend(&mut budget, now + Duration::from_secs(3)), 3);
        budget.first(1_000_000);
        assert_eq!(spend(&mut budget, now + Duration::from_secs(3)), 100);
    }
}
