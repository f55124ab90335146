//! The time and the randomness that a script sees.
//!
//! Both are given, so that a replay sees the same. The clock stands still.

use std::cell::Cell;

/// The seed outside of items.
const SEED: u64 = 0x6861_7061_7800_0001;

/// The state behind `Date.now` and `Math.random`.
pub(super) struct Scene {
    outside: Moment,
    now_ms: Cell<i64>,
    random: Cell<u64>,
    /// The state of the randomness outside, while an item is open.
    paused: Cell<u64>,
}

/// A time, and the seed of the randomness.
pub(super) struct Moment {
    /// Milliseconds since 1970.
    pub(super) now_ms: i64,
    /// Any number.
    pub(super) seed: u64,
}

impl Scene {
    /// A scene before the first item.
    pub(super) fn new(started_ms: i64) -> Self {
        Self {
            outside: Moment { now_ms: started_ms, seed: SEED },
            now_ms: Cell::new(started_ms),
            random: Cell::new(SEED),
            paused: Cell::new(SEED),
        }
    }

    /// An item opens.
    pub(super) fn enter(&self, moment: &Moment) {
        self.paused.set(self.random.get());
        self.now_ms.set(moment.now_ms);
        self.random.set(moment.seed);
    }

    /// The item is over.
    pub(super) fn leave(&self) {
        self.now_ms.set(self.outside.now_ms);
        self.random.set(self.paused.get());
    }

    /// Milliseconds, as JavaScript has them.
    pub(super) fn now(&self) -> f64 {
        self.now_ms.get() as f64
    }

    /// A number from 0 to 1, without 1. SplitMix64; its upper 53 bits fit a double.
    pub(super) fn random(&self) -> f64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
