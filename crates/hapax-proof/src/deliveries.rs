//! Compares the deliveries that should have arrived with those that did.

use std::collections::HashMap;
use std::hash::Hash;

/// How two lists of deliveries differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Difference {
    /// Promised, and never arrived.
    pub lost: u64,
    /// Arrived more than once, counted beyond the first.
    pub duplicate: u64,
    /// Arrived, although it was never sent.
    pub unexpected: u64,
    /// Arrived for the first time after a later delivery of the same key.
    pub reordered: u64,
}

/// Compares the promised and the possible deliveries with those that arrived. Each has a key and a
/// number that only grows within the key.
pub fn compare<K: Eq + Hash + Clone>(
    promised: &[(K, u64)],
    possible: &[(K, u64)],
    arrived: &[(K, u64)],
) -> Difference {
    let mut times: HashMap<(K, u64), u64> = HashMap::new();
    let mut newest: HashMap<K, u64> = HashMap::new();
    let mut difference = Difference::default();
    let known: std::collections::HashSet<&(K, u64)> = promised.iter().chain(possible).collect();
    for delivery in arrived {
        difference.unexpected += u64::from(!known.contains(delivery));
        let times = times.entry(delivery.clone()).or_default();
        *times += 1;
        if *times > 1 {
            difference.duplicate += 1;
            continue;
        }
        let (key, number) = delivery;
        let newest = newest.entry(key.clone()).or_default();
        difference.reordered += u64::from(number < newest);
        *newest = (*newest).max(*number);
    }
    let lost = promised.iter().filter(|delivery| !times.contains_key(delivery)).count();
    Difference { lost: lost as u64, ..difference }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_is_counted() {
        let promised = [("a", 1), ("a", 2), ("a", 3), ("b", 1)];
        let possible = [("b", 2)];
        assert_eq!(compare(&promised, &possible, &promised), Difference::default());
        let arrived = [("a", 2), ("a", 1), ("a", 2), ("b", 2), ("c", 7)];
        let difference = Difference { lost: 2, duplicate: 1, unexpected: 1, reordered: 1 };
        assert_eq!(compare(&promised, &possible, &arrived), difference);
    }
}
