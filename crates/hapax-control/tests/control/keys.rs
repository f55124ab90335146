//! Keys of a million requests.

use std::collections::HashMap;

use hapax_control::derive_key;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

/// Proves C-1: different requests have different keys, wherever the boundaries between their parts
/// fall. The parts come from a small alphabet, so that a derivation that ran two of them together
/// would collide all the time.
#[test]
fn no_two_of_a_million_requests_share_a_key() {
    const TRIPLES: usize = 1_000_000;
    let mut dice = SmallRng::seed_from_u64(7);
    let mut text = |most: usize| {
        let length = dice.random_range(0..=most);
        (0..length).map(|_| b"a.\0\x01\x1f"[dice.random_range(0..5)]).collect::<Vec<u8>>()
    };
    let mut known: HashMap<_, (Vec<u8>, u64, Vec<u8>)> = HashMap::with_capacity(TRIPLES);
    let mut derived = 0;
    while derived < TRIPLES {
        let (name, epoch, bytes) = (text(6), text(8), text(6));
        let epoch = epoch.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let computation = String::from_utf8(name.clone()).expect("ASCII");
        let Ok(key) = derive_key(&computation, epoch, &bytes) else { continue };
        derived += 1;
        let request = (name, epoch, bytes);
        if let Some(before) = known.insert(key, request.clone()) {
            assert_eq!(before, request, "two requests have the key {key}");
        }
    }
    assert!(known.len() > TRIPLES / 2, "{} different requests", known.len());
}
