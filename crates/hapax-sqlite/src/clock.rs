//! The machine's clocks: wall time for people, boot time for leases.
//!
//! Boot time also counts while the machine sleeps, and no adjustment moves it. A new boot is a new
//! era: the leases of this machine's processes from before it have lapsed.

use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_store::Clock;
use rustix::time::{ClockId, clock_gettime};

/// The machine's own clocks.
#[derive(Debug, Clone, Copy)]
pub struct BootClock {
    era: u64,
}

impl Default for BootClock {
    fn default() -> Self {
        Self { era: boot_era() }
    }
}

impl Clock for BootClock {
    fn now(&self) -> Now {
        let wall = clock_gettime(ClockId::Realtime);
        let boot = clock_gettime(ClockId::Boottime);
        Now {
            wall: Timestamp(wall.tv_sec * 1000 + wall.tv_nsec / 1_000_000),
            lease: LeaseInstant {
                era: self.era,
                ms: boot.tv_sec as u64 * 1000 + boot.tv_nsec as u64 / 1_000_000,
            },
            wall_trusted: true,
        }
    }
}

/// A number for this boot: the head of the kernel's random boot id. Without a boot id every process
/// is an era of its own, so that instants are never compared that cannot be.
fn boot_era() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    let era = u64::from_str_radix(&hex, 16).ok().or_else(|| getrandom::u64().ok()).unwrap_or(1);
    era >> 1
}

/// How far the wall clock may run ahead of the boot clock before it is doubted.
const TOLERANCE_MS: i64 = 60_000;

/// Both clocks at the first use of the store in this era. The store keeps it in its `anchor_…` columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockAnchor {
    pub(crate) wall: Timestamp,
    pub(crate) lease: LeaseInstant,
}

impl ClockAnchor {
    /// Whether wall time has not outrun the machine's uptime since the anchor was set. One
    /// part in a thousand is allowed for slewing of the wall clock.
    pub(crate) fn trusts(&self, now: Now) -> bool {
        let wall = now.wall.0.saturating_sub(self.wall.0);
        let up = now.lease.ms.saturating_sub(self.lease.ms) as i64;
        self.lease.era == now.lease.era && wall <= up + up / 1000 + TOLERANCE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves K-17.
    #[test]
    fn a_wall_clock_that_outruns_the_uptime_is_doubted() {
        let start = BootClock::default().now();
        let anchor = ClockAnchor { wall: start.wall, lease: start.lease };
        let after = |wall_ms, up_ms| Now {
            wall: start.wall.plus_ms(wall_ms),
            lease: start.lease.plus_ms(up_ms),
            ..start
        };
        assert!(anchor.trusts(after(3_600_000, 3_600_000)));
        assert!(anchor.trusts(after(0, 3_600_000)), "behind is harmless");
        assert!(!anchor.trusts(after(3_600_000, 0)));
        assert!(!anchor.trusts(after(10 * 365 * 86_400_000, 1000)));
    }
}
