//! The row cache: a 4-way set-associative cache of the row numbers of effects, by key prefix.
//!
//! The key index of a million effects fits no processor's cache, and each lookup costs as much as
//! reading the effect. A cached number is only a hint: it counts only if its row has the key that
//! was asked for. The number of a removed effect is not given again, so its row is not found, and
//! the key index is searched.

use crate::key_index::KeyPrefix;

/// How many sets there are, of four entries each: two million effects, 32 MB when all are taken.
const SETS: usize = 1 << 19;

/// Row numbers of effects by the first halves of their keys, which are as good as random.
#[derive(Default)]
pub(crate) struct RowCache {
    /// Four pairs of mark and row number, the newest first; 0 is no number. Memory is taken as it
    /// is written to.
    sets: Vec<[u64; 8]>,
}

impl RowCache {
    /// A cache that has room.
    pub(crate) fn with_room() -> Self {
        Self { sets: vec![[0; 8]; SETS] }
    }

    /// Whether it has room.
    pub(crate) fn has_room(&self) -> bool {
        !self.sets.is_empty()
    }

    /// The cached row number of the effect with this key prefix, if there is one.
    pub(crate) fn find(&self, half: &KeyPrefix) -> Option<i64> {
        let (set, mark) = self.place(half);
        let set = self.sets.get(set)?;
        let found = set.as_chunks().0.iter().find(|[known, number]| *known == mark && *number > 0);
        found.map(|[_, number]| *number as i64)
    }

    /// Caches a row number, in place of the oldest of its set.
    pub(crate) fn keep(&mut self, half: &KeyPrefix, number: i64) {
        let (set, mark) = self.place(half);
        let Some(set) = self.sets.get_mut(set) else { return };
        let same = set.as_chunks::<2>().0.iter().position(|[known, _]| *known == mark);
        let upto = same.map_or(8, |at| 2 * at + 2);
        set[..upto].rotate_right(2);
        (set[0], set[1]) = (mark, number as u64);
    }

    fn place(&self, (namespace, half): &KeyPrefix) -> (usize, u64) {
        let (front, back) = half.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let mark = number(back) ^ (*namespace as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (number(front) as usize % SETS, mark)
    }
}

#[cfg(test)]
mod tests {
    use hapax_core::key::Key;
    use rusqlite::{Connection, params};

    use super::{RowCache, SETS};
    use crate::effect;
    use crate::key_index::{self, KeyPrefix};
    use crate::statement_cache::StatementCache;

    fn half(set: u64, mark: u64) -> KeyPrefix {
        let mut half = [0; 16];
        half[..8].copy_from_slice(&set.to_be_bytes());
        half[8..].copy_from_slice(&mark.to_be_bytes());
        (1, half)
    }

    #[test]
    fn four_of_a_set_are_kept_and_the_oldest_goes() {
        let mut seen = RowCache::with_room();
        let all: Vec<KeyPrefix> = (0..5).map(|nth| half(7 + nth * SETS as u64, nth)).collect();
        for (nth, half) in all.iter().enumerate() {
            seen.keep(half, 100 + nth as i64);
        }
        let found: Vec<_> = all.iter().map(|half| seen.find(half)).collect();
        assert_eq!(found, [None, Some(101), Some(102), Some(103), Some(104)]);
        seen.keep(&all[2], 200);
        seen.keep(&all[0], 300);
        let found: Vec<_> = all.iter().map(|half| seen.find(half)).collect();
        assert_eq!(found, [Some(300), None, Some(200), Some(103), Some(104)]);
    }

    #[test]
    fn what_leads_elsewhere_is_not_believed() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(crate::SCHEMA).unwrap();
        let keys = [1, 2].map(|byte| Key::from_bytes([byte; 32]));
        for (number, key) in (1_i64..).zip(&keys) {
            let entry =
                "INSERT INTO journal (at, namespace, key, event, state, attempt, generation)
                VALUES (1, 1, ?1, 1, 1, zeroblob(16), 1)";
            db.execute(entry, [key.as_bytes()]).unwrap();
            let effect =
                "INSERT INTO effect (id, namespace, key, fingerprint, state, safety, attempt,
                    fence, generation, attempts, created, updated, entry, outcome)
                VALUES (?2, 1, ?1, ?1, 1, 0, zeroblob(16), ?2, 1, 1, 1, 1, ?2, x'00')";
            db.execute(effect, params![key.as_bytes(), number]).unwrap();
        }
        let (mut hot, mut seen) = (StatementCache::of(&db), RowCache::with_room());
        let half = key_index::prefix(1, &keys[0]);
        // The row of another effect, and one that is gone.
        for wrong in [2, 77] {
            seen.keep(&half, wrong);
            let row = effect::load(&mut hot, &mut seen, 1, keys[0]).unwrap();
            assert_eq!(row.map(|row| (row.id, row.key)), Some((1, keys[0])));
            assert_eq!(seen.find(&half), Some(1));
        }
    }

    #[test]
    fn one_without_room_keeps_nothing() {
        let mut seen = RowCache::default();
        seen.keep(&half(1, 2), 3);
        assert_eq!(seen.find(&half(1, 2)), None);
    }

    #[test]
    fn namespaces_are_told_apart() {
        let mut seen = RowCache::with_room();
        let (_, bytes) = half(1, 2);
        seen.keep(&(1, bytes), 3);
        assert_eq!((seen.find(&(1, bytes)), seen.find(&(2, bytes))), (Some(3), None));
    }
}
