//! Getting one record to one sink.
//!
//!   pending ──sent──▶ delivered
//!    │  ▲ └─not sent: wait and retry
//!    ▼  │
//!   failed ──redriven──▶ pending
//!
//! The attempt is recorded before the record is sent, so an attempt that kills its dispatcher
//! counts.

use crate::retry::Backoff;

/// How deliveries to a sink are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How often a record is tried before it has failed.
    pub attempts: u32,
    /// How long to wait in between, with full jitter.
    pub backoff: Backoff,
    /// How a failed record affects later records of its ordering key.
    pub on_exhausted: OnExhausted,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 5,
            backoff: Backoff { base_ms: 1_000, cap_ms: 60_000, attempts: u32::MAX },
            on_exhausted: OnExhausted::default(),
        }
    }
}

impl Policy {
    /// The longest time that the backoff alone takes until a record has failed.
    pub fn horizon_ms(&self) -> u64 {
        let waits = (1..self.attempts).filter_map(|nth| self.backoff.ceiling_ms(nth));
        waits.fold(0, u64::saturating_add)
    }
}

/// How a record that cannot be delivered affects later records of its ordering key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnExhausted {
    /// The record fails, and they wait until an operator redrives it.
    #[default]
    Park,
    /// The record fails, and they go on without it.
    Skip,
    /// The record never fails; it is tried for ever, and they wait.
    Block,
}

impl OnExhausted {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Park => "park",
            Self::Skip => "skip",
            Self::Block => "block",
        }
    }
}

/// A sink's answer for one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The sink has it, and will not lose it.
    Delivered {
        /// Whether the sink had it before.
        duplicate: bool,
    },
    /// The sink does not have it, or its answer is not known.
    Refused(DeliveryRefusal),
    /// It was not sent, because an earlier record was not.
    Held,
}

/// Why a record was not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRefusal {
    /// The sink's reason, without the record's content.
    pub reason: String,
    /// Whether a retry may help.
    pub retryability: Retryability,
}

/// Whether a retry may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retryability {
    /// It may.
    Perhaps,
    /// Nothing can be delivered there at the moment; it is not this record's fault.
    SinkDown,
    /// Not before this long from now, as the sink asked.
    After {
        /// How long.
        ms: u64,
    },
    /// Never.
    Never,
}

/// The next step of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it is done.
    Done,
    /// Try again after this long.
    Again {
        /// How long.
        ms: u64,
    },
    /// Give up. `park` says whether later records of its ordering key wait.
    Fail {
        /// Whether they wait.
        park: bool,
    },
}

/// The next step after the `attempt`th try of a delivery. `dice` was rolled evenly over all of
/// `u64`.
///
/// While a sink is known to be down, its records are not to blame: their tries are counted, and
/// only a refusal that no retry can heal makes one fail.
pub fn judge(policy: &Policy, attempt: u32, sent: &Sent, sink_is_down: bool, dice: u64) -> Next {
    let refusal = match sent {
        Sent::Delivered { .. } => return Next::Done,
        Sent::Held => return Next::Again { ms: 0 },
        Sent::Refused(refusal) => refusal,
    };
    let excused = sink_is_down && !matches!(refusal.retryability, Retryability::Never);
    let spent = attempt >= policy.attempts || refusal.retryability == Retryability::Never;
    if spent && !excused && policy.on_exhausted != OnExhausted::Block {
        return Next::Fail { park: policy.on_exhausted == OnExhausted::Park };
    }
    let wait = policy.backoff.delay_ms(attempt.max(1), dice).unwrap_or(policy.backoff.cap_ms);
    match refusal.retryability {
        Retryability::After { ms } => Next::Again { ms: wait.max(ms) },
        _ => Next::Again { ms: wait },
    }
}

/// A set of buckets, such as those of one dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Buckets([u64; 16]);

impl Buckets {
    /// How many there are.
    pub const COUNT: u16 = 1024;

    /// All of them.
    pub const fn all() -> Self {
        Self([u64::MAX; 16])
    }

    /// Whether a bucket is among them.
    pub fn contains(&self, bucket: u16) -> bool {
        self.0[usize::from(bucket / 64) % 16] >> (bucket % 64) & 1 == 1
    }

    /// With this one.
    pub fn insert(&mut self, bucket: u16) {
        self.0[usize::from(bucket / 64) % 16] |= 1 << (bucket % 64);
    }

    /// How many these are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The buckets of both sets.
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// These buckets without those of the other set.
    pub fn without(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// At most this many of them, the lowest.
    pub fn first(self, count: usize) -> Self {
        let mut some = Self::default();
        let these = (0..Self::COUNT).filter(|bucket| self.contains(*bucket));
        these.take(count).for_each(|bucket| some.insert(bucket));
        some
    }

    /// As bytes, the lowest bucket in the lowest bit of the first.
    pub fn to_bytes(self) -> [u8; 128] {
        let mut bytes = [0; 128];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From bytes.
    pub fn from_bytes(bytes: &[u8; 128]) -> Self {
        let mut words = [0; 16];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        Self(words)
    }
}

/// The buckets that one dispatcher gets: its own, unless another dispatcher has them, and free ones
/// up to its fair share.
pub fn share(others: &[Buckets], mine: Buckets) -> Buckets {
    let taken = others.iter().fold(Buckets::default(), |all, some| all.union(*some));
    let mine = mine.without(taken);
    let free = Buckets::all().without(taken).without(mine);
    mine.union(free.first(fair(others.len() + 1).saturating_sub(mine.len())))
}

/// How many buckets each of so many dispatchers should have.
pub fn fair(dispatchers: usize) -> usize {
    usize::from(Buckets::COUNT).div_ceil(dispatchers.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(retryability: Retryability) -> Sent {
        Sent::Refused(DeliveryRefusal { reason: "no".into(), retryability })
    }

    /// Proves O-6: a record fails after five tries with growing waits, and at once if no retry can
    /// help. While the sink is known to be down, only such a record fails. No retry comes before
    /// the sink allows it.
    #[test]
    fn every_result_of_a_try_has_its_next_step() {
        let policy = Policy::default();
        let next = |attempt, sent: Sent, down| judge(&policy, attempt, &sent, down, u64::MAX);
        let park = Next::Fail { park: true };
        assert_eq!(next(1, Sent::Delivered { duplicate: false }, false), Next::Done);
        assert_eq!(next(1, refused(Retryability::Perhaps), false), Next::Again { ms: 1_000 });
        assert_eq!(next(4, refused(Retryability::Perhaps), false), Next::Again { ms: 8_000 });
        assert_eq!(next(5, refused(Retryability::Perhaps), false), park);
        assert_eq!(next(5, refused(Retryability::SinkDown), false), park);
        assert_eq!(next(9, refused(Retryability::SinkDown), true), Next::Again { ms: 60_000 });
        assert_eq!(next(1, refused(Retryability::Never), true), park);
        assert_eq!(
            next(1, refused(Retryability::After { ms: 7_000 }), false),
            Next::Again { ms: 7_000 }
        );
        assert_eq!(next(3, Sent::Held, false), Next::Again { ms: 0 });
        let with = |on_exhausted| Policy { on_exhausted, ..policy };
        let tenth =
            |on_exhausted| judge(&with(on_exhausted), 10, &refused(Retryability::Never), false, 0);
        assert_eq!(tenth(OnExhausted::Skip), Next::Fail { park: false });
        assert_eq!(tenth(OnExhausted::Block), Next::Again { ms: 0 });
        assert_eq!(policy.horizon_ms(), 15_000);
    }

    #[test]
    fn buckets_are_a_set() {
        let of = |buckets: &[u16]| {
            let mut set = Buckets::default();
            buckets.iter().for_each(|bucket| set.insert(*bucket));
            set
        };
        let (some, others) = (of(&[0, 63, 64, 1023]), of(&[1, 64, 512]));
        assert!(Buckets::default().is_empty() && !some.is_empty());
        assert_eq!((some.len(), of(&[7, 7]).len()), (4, 1));
        assert_eq!(some.union(others), of(&[0, 1, 63, 64, 512, 1023]));
        assert_eq!(some.without(others), of(&[0, 63, 1023]));
        assert_eq!(some.first(2), of(&[0, 63]));
        assert!(some.contains(1023) && !some.contains(959) && !some.contains(1));
    }

    #[test]
    fn each_policy_for_exhausted_tries_has_a_word() {
        let words =
            [OnExhausted::Park, OnExhausted::Skip, OnExhausted::Block].map(OnExhausted::as_str);
        assert_eq!(words, ["park", "skip", "block"]);
    }

    /// Proves O-4: no bucket has two dispatchers, none is left over, and no dispatcher has more
    /// than its fair share.
    #[test]
    fn buckets_are_shared_out() {
        let mut owners = vec![share(&[], Buckets::default())];
        assert_eq!(owners[0], Buckets::all());
        for _ in 0..4 {
            // A new dispatcher finds no free bucket; the others give some up; then each asks again.
            let newcomer = share(&owners, Buckets::default());
            owners.push(newcomer);
            let most = fair(owners.len());
            for owner in &mut owners {
                *owner = owner.first(most);
            }
            for nth in 0..owners.len() {
                let mut others = owners.clone();
                let mine = others.remove(nth);
                owners[nth] = share(&others, mine);
            }
            let sizes: Vec<_> = owners.iter().map(Buckets::len).collect();
            assert_eq!(sizes.iter().sum::<usize>(), 1024, "{sizes:?}");
            assert!(sizes.iter().all(|size| *size <= most), "{sizes:?}");
        }
        let bytes = owners[2].to_bytes();
        assert_eq!(Buckets::from_bytes(&bytes), owners[2]);
        let lowest = Buckets::all().first(1).to_bytes();
        assert_eq!((lowest[0], lowest[1]), (1, 0));
    }
}
