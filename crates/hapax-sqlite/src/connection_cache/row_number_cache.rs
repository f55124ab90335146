//! The row number cache: a 4-way set-associative cache of the row numbers of effects, by key prefix.
//!
//! The key index of a million effects fits no processor's cache, and each lookup costs as much as
//! reading the effect. A cached number counts only if its row has the key that the caller looks for.
//! No other effect ever gets the number of a removed effect. So a lookup by that number finds no row,
//! and the key index is searched.

use super::KeyPrefix;

/// How many sets there are, of four entries each: two million effects, 32 MB when all are taken.
const SETS: usize = 1 << 19;

/// Row numbers of effects by the first halves of their keys, which are as good as random.
#[derive(Default)]
pub(super) struct RowNumberCache {
    /// Four pairs of tag and row number, the newest first; 0 is no number. Memory is taken as it
    /// is written to.
    sets: Vec<[u64; 8]>,
}

impl RowNumberCache {
    /// A cache that has room.
    pub(super) fn with_room() -> Self {
        Self { sets: vec![[0; 8]; SETS] }
    }

    /// Whether it has room.
    pub(super) fn has_room(&self) -> bool {
        !self.sets.is_empty()
    }

    /// The cached row number of the effect with this key prefix, if there is one.
    pub(super) fn find(&self, prefix: &KeyPrefix) -> Option<i64> {
        let (set, tag) = set_and_tag(prefix);
        let set = self.sets.get(set)?;
        let found = set.as_chunks().0.iter().find(|[known, number]| *known == tag && *number > 0);
        found.map(|[_, number]| *number as i64)
    }

    /// Caches a row number, in place of the oldest of its set.
    pub(super) fn keep(&mut self, prefix: &KeyPrefix, number: i64) {
        let (set, tag) = set_and_tag(prefix);
        let Some(set) = self.sets.get_mut(set) else { return };
        let same = set.as_chunks::<2>().0.iter().position(|[known, _]| *known == tag);
        let upto = same.map_or(8, |at| 2 * at + 2);
        set[..upto].rotate_right(2);
        (set[0], set[1]) = (tag, number as u64);
    }
}

/// The index of a prefix's set, and the tag that distinguishes it from others in the set.
fn set_and_tag((namespace, prefix): &KeyPrefix) -> (usize, u64) {
    let (front, back) = prefix.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let tag = number(back) ^ (*namespace as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number(front) as usize % SETS, tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(set: u64, tag: u64) -> KeyPrefix {
        let mut prefix = [0; 16];
        prefix[..8].copy_from_slice(&set.to_be_bytes());
        prefix[8..].copy_from_slice(&tag.to_be_bytes());
        (1, prefix)
    }

    #[test]
    fn a_set_keeps_four_numbers_and_drops_the_oldest() {
        let mut cache = RowNumberCache::with_room();
        let all: Vec<KeyPrefix> = (0..5).map(|nth| prefix(7 + nth * SETS as u64, nth)).collect();
        for (nth, prefix) in all.iter().enumerate() {
            cache.keep(prefix, 100 + nth as i64);
        }
        let found: Vec<_> = all.iter().map(|prefix| cache.find(prefix)).collect();
        assert_eq!(found, [None, Some(101), Some(102), Some(103), Some(104)]);
        cache.keep(&all[2], 200);
        cache.keep(&all[0], 300);
        let found: Vec<_> = all.iter().map(|prefix| cache.find(prefix)).collect();
        assert_eq!(found, [Some(300), None, Some(200), Some(103), Some(104)]);
    }

    #[test]
    fn a_cache_without_room_keeps_nothing() {
        let mut cache = RowNumberCache::default();
        cache.keep(&prefix(1, 2), 3);
        assert_eq!(cache.find(&prefix(1, 2)), None);
    }

    #[test]
    fn the_same_key_in_another_namespace_has_another_tag() {
        let mut cache = RowNumberCache::with_room();
        let (_, prefix) = prefix(1, 2);
        cache.keep(&(1, prefix), 3);
        assert_eq!((cache.find(&(1, prefix)), cache.find(&(2, prefix))), (Some(3), None));
    }
}
