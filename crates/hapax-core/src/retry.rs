//! When to try again: exponential backoff with full jitter, as a pure schedule.

/// How often, and how long to wait before each time.
///
/// ```
/// use hapax_core::retry::Backoff;
///
/// let backoff = Backoff { base_ms: 100, cap_ms: 1_000, attempts: 5 };
/// let longest: Vec<_> = (1..=5).map(|nth| backoff.delay_ms(nth, u64::MAX)).collect();
/// assert_eq!(longest, [Some(100), Some(200), Some(400), Some(800), Some(1_000)]);
/// assert_eq!(backoff.delay_ms(6, 0), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait before the first retry.
    pub base_ms: u64,
    /// The longest wait before any.
    pub cap_ms: u64,
    /// How many retries there are.
    pub attempts: u32,
}

impl Backoff {
    /// The longest wait before the `nth` retry, from 1; `None` when there are no more.
    pub fn ceiling_ms(&self, nth: u32) -> Option<u64> {
        let doubled = || {
            let factor = 1u64.checked_shl(nth.saturating_sub(1)).unwrap_or(u64::MAX);
            self.base_ms.saturating_mul(factor).min(self.cap_ms)
        };
        (1..=self.attempts).contains(&nth).then(doubled)
    }

    /// The wait before the `nth` retry: a point between nothing and the ceiling, picked by
    /// `dice`, which the caller rolled evenly over all of `u64`.
    pub fn delay_ms(&self, nth: u32, dice: u64) -> Option<u64> {
        let choices = u128::from(self.ceiling_ms(nth)?) + 1;
        Some(((u128::from(dice) * choices) >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_spans_everything_up_to_the_ceiling() {
        let backoff = Backoff { base_ms: 10, cap_ms: 80, attempts: 200 };
        assert_eq!(backoff.delay_ms(3, 0), Some(0));
        assert_eq!(backoff.delay_ms(3, u64::MAX / 2), Some(20));
        assert_eq!(backoff.delay_ms(3, u64::MAX), Some(40));
        assert_eq!(backoff.delay_ms(200, u64::MAX), Some(80));
        assert_eq!(backoff.ceiling_ms(0), None);
    }
}
