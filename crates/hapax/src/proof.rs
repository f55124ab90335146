//! Randomness that a harness decides in place of the machine.

use std::cell::Cell;

thread_local! {
    static DICE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on, all randomness on this thread follows from this seed.
pub fn seed(seed: u64) {
    DICE.set(Some(seed));
}

pub(crate) fn rolled<const N: usize>() -> Option<[u8; N]> {
    let mut state = DICE.get()?;
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes()[..chunk.len()]);
    }
    DICE.set(Some(state));
    Some(bytes)
}
