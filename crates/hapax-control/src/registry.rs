//! The known computations, and how each is retried.

use std::collections::BTreeMap;
use std::time::Duration;

use hapax::{Domain, Safety};

/// How a computation is retried.
///
/// ```
/// use std::time::Duration;
/// use hapax_control::Retry;
///
/// let retry = Retry::doubling(3, Duration::from_secs(1));
/// let pauses: Vec<_> = (1..).map_while(|nth| retry.pause_before(nth)).collect();
/// assert_eq!(pauses, [1, 2, 4].map(Duration::from_secs));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often it is sent again, at most.
    pub retries: u32,
    /// How long to wait before each time.
    pub pause: Pause,
}

/// How long to wait before a request is sent again. There is no jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// The same pause each time.
    Fixed(Duration),
    /// This pause before the first retry, and twice the last one before each later retry.
    Doubling(Duration),
}

/// The longest pause there is, however often it was doubled.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

impl Retry {
    /// So many retries, with the same pause before each.
    pub fn fixed(retries: u32, pause: Duration) -> Self {
        Self { retries, pause: Pause::Fixed(pause) }
    }

    /// So many retries, with this pause before the first and twice the last one before each later
    /// retry.
    pub fn doubling(retries: u32, first: Duration) -> Self {
        Self { retries, pause: Pause::Doubling(first) }
    }

    /// The pause before the nth retry, from 1; none when there are no more.
    pub fn pause_before(&self, nth: u32) -> Option<Duration> {
        if !(1..=self.retries).contains(&nth) {
            return None;
        }
        let pause = match self.pause {
            Pause::Fixed(pause) => pause,
            Pause::Doubling(first) => {
                first.saturating_mul(1u32.checked_shl(nth - 1).unwrap_or(u32::MAX))
            }
        };
        Some(pause.min(LONGEST_PAUSE))
    }
}

/// One kind of request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Computation {
    name: String,
    domain: Domain,
    retry: Option<Retry>,
    safety: Safety,
}

/// Why a computation was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// It is not named `domain.computation.vN`.
    #[error(
        "computation {0:?} is not named domain.computation.vN, such as connector.health_probe.v1"
    )]
    Name(String),
    /// It is registered already.
    #[error("computation {0} is registered already, or built in")]
    Twice(String),
    /// It has too many retries.
    #[error("computation {0} has more than {MOST_RETRIES} retries")]
    Retries(String),
    /// There are too many.
    #[error("more than {MOST} computations")]
    Full,
}

/// Why a name stands for no computation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnresolvedName {
    /// No computation has it.
    #[error("computation {0:?} is not registered")]
    Unknown(String),
    /// It is the short name of several. These are their full names.
    #[error("the short name stands for several computations: {}", .0.join(", "))]
    Ambiguous(Vec<String>),
}

/// How often a computation may be retried at most.
const MOST_RETRIES: u32 = 100;

/// How many computations there may be.
const MOST: usize = 1_000;

impl Computation {
    /// A computation that may be retried. The peer honours its key, so after a crash it is sent
    /// again.
    pub fn retryable(name: &str, retry: Retry) -> Result<Self, RegistryError> {
        if retry.retries > MOST_RETRIES {
            return Err(RegistryError::Retries(name.to_owned()));
        }
        let retry = Some(retry);
        Ok(Self {
            domain: domain_of(name)?,
            name: name.to_owned(),
            retry,
            safety: Safety::Transactional,
        })
    }

    /// A computation that has no key and is sent once. If its outcome is unknown, an operator must
    /// look.
    pub fn fail_fast(name: &str) -> Result<Self, RegistryError> {
        let (domain, name) = (domain_of(name)?, name.to_owned());
        Ok(Self { name, domain, retry: None, safety: Safety::Opaque })
    }

    /// Sets what happens if the sender dies, where that is not the default of its kind.
    pub fn safety(mut self, safety: Safety) -> Self {
        self.safety = safety;
        self
    }

    /// Its full name, which is hashed into the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The domain whose epochs apply to it.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// How it is retried, if it is.
    pub fn retry(&self) -> Option<Retry> {
        self.retry
    }

    /// Its safety: what happens if the sender dies.
    pub fn meaning(&self) -> Safety {
        self.safety
    }
}

/// The second word of `domain.computation.vN`.
fn short_name(name: &str) -> Option<&str> {
    name.split('.').nth(1)
}

/// The first word of `domain.computation.vN`.
fn domain_of(name: &str) -> Result<Domain, RegistryError> {
    let refused = || RegistryError::Name(name.chars().take(200).collect());
    let mut words = name.split('.');
    let (Some(domain), Some(computation), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(refused());
    };
    let number = version.strip_prefix('v').unwrap_or_default();
    let numbered = number.starts_with(|c: char| matches!(c, '1'..='9'))
        && number.len() <= 9
        && number.chars().all(|c| c.is_ascii_digit());
    // The name of a computation follows the rules of a domain.
    if !numbered || Domain::new(computation).is_err() {
        return Err(refused());
    }
    Domain::new(domain).map_err(|_| refused())
}

/// The computations that may be dispatched and received.
///
/// ```
/// use std::time::Duration;
/// use hapax_control::{Computation, Registry, Retry};
///
/// let charge = Computation::retryable("billing.charge.v1", Retry::fixed(2, Duration::from_secs(1)))?;
/// let registry = Registry::standard().with(charge)?;
/// assert_eq!(registry.iter().count(), 6);
/// assert!(registry.find("connector.fencing_acquire.v1").is_some_and(|it| it.retry().is_none()));
/// # Ok::<(), hapax_control::RegistryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registry(BTreeMap<String, Computation>);

impl Registry {
    /// A registry without computations.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The five of the design: three of a connector and one of a federation that are retried, and
    /// one that is not.
    pub fn standard() -> Self {
        let second = Duration::from_secs(1);
        let retried = [
            ("connector.health_probe.v1", Retry::fixed(2, second)),
            ("connector.rollout_notify.v1", Retry::fixed(1, 2 * second)),
            ("connector.migration_step.v1", Retry::doubling(3, second)),
            ("federation.sync_delta.v1", Retry::fixed(2, 3 * second)),
        ];
        let retried = retried.map(|(name, retry)| Computation::retryable(name, retry));
        let all =
            retried.into_iter().chain([Computation::fail_fast("connector.fencing_acquire.v1")]);
        Self(all.flatten().map(|computation| (computation.name.clone(), computation)).collect())
    }

    /// Adds a computation.
    pub fn with(mut self, computation: Computation) -> Result<Self, RegistryError> {
        if self.0.len() >= MOST {
            return Err(RegistryError::Full);
        }
        if self.0.contains_key(&computation.name) {
            return Err(RegistryError::Twice(computation.name));
        }
        self.0.insert(computation.name.clone(), computation);
        Ok(self)
    }

    /// The computation of this full name.
    pub fn find(&self, name: &str) -> Option<&Computation> {
        self.0.get(name)
    }

    /// The computation of this full name, or of this short name if it belongs to one computation
    /// only.
    ///
    /// ```
    /// use hapax_control::{Computation, Registry, UnresolvedName};
    ///
    /// let probe = Registry::standard().resolve("health_probe").map(|it| it.name().to_owned());
    /// assert_eq!(probe, Ok("connector.health_probe.v1".to_owned()));
    ///
    /// let second = Computation::fail_fast("federation.health_probe.v1")?;
    /// let registry = Registry::standard().with(second)?;
    /// assert!(matches!(registry.resolve("health_probe"), Err(UnresolvedName::Ambiguous(_))));
    /// # Ok::<(), hapax_control::RegistryError>(())
    /// ```
    pub fn resolve(&self, name: &str) -> Result<&Computation, UnresolvedName> {
        if let Some(computation) = self.find(name) {
            return Ok(computation);
        }
        let has_name = |computation: &&Computation| short_name(&computation.name) == Some(name);
        let candidates: Vec<_> = self.iter().filter(has_name).collect();
        match candidates[..] {
            [computation] => Ok(computation),
            [] => Err(UnresolvedName::Unknown(name.chars().take(200).collect())),
            _ => {
                let names = candidates.iter().map(|computation| computation.name.clone());
                Err(UnresolvedName::Ambiguous(names.collect()))
            }
        }
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Computation> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves C-2.
    #[test]
    fn the_five_of_the_design_are_as_its_table_has_them() {
        let registry = Registry::standard();
        let row = |computation: &Computation| {
            let retry = computation.retry();
            let pauses = (1..).map_while(|nth| retry?.pause_before(nth));
            let pauses: Vec<_> = pauses.map(|pause| pause.as_secs()).collect();
            (computation.name().to_owned(), computation.domain().to_string(), pauses)
        };
        let table: Vec<_> = registry.iter().map(row).collect();
        let expected = [
            ("connector.fencing_acquire.v1", "connector", vec![]),
            ("connector.health_probe.v1", "connector", vec![1, 1]),
            ("connector.migration_step.v1", "connector", vec![1, 2, 4]),
            ("connector.rollout_notify.v1", "connector", vec![2]),
            ("federation.sync_delta.v1", "federation", vec![3, 3]),
        ];
        let expected = expected.map(|(name, domain, pauses)| (name.into(), domain.into(), pauses));
        assert_eq!(table, expected);
    }

    #[test]
    fn a_computation_is_named_by_domain_computation_and_version() {
        let name = |name: &str| Computation::fail_fast(name).is_ok();
        assert!(name("a.b.v1") && name("connector.health-probe_2.v12"));
        for bad in [
            "", "a.v1", "a.b", "a.b.c.v1", "a.b.v0", "a.b.v01", "a.b.v", "A.b.v1", "a..v1",
            "a.b c.v1",
        ] {
            assert!(!name(bad), "{bad:?}");
        }
        let twice =
            Registry::standard().with(Computation::fail_fast("connector.health_probe.v1").unwrap());
        assert!(matches!(twice, Err(RegistryError::Twice(_))));
        let often = Retry::fixed(MOST_RETRIES + 1, Duration::ZERO);
        assert!(matches!(Computation::retryable("a.b.v1", often), Err(RegistryError::Retries(_))));
    }

    /// Proves C-2: the document's table has short names. One that several computations have is
    /// refused, and is never resolved to the first of them.
    #[test]
    fn a_short_name_stands_for_one_computation() {
        let registry = Registry::standard();
        for full in registry.iter().map(Computation::name) {
            let short = short_name(full).unwrap();
            for name in [full, short] {
                assert_eq!(registry.resolve(name).map(Computation::name), Ok(full));
            }
        }
        for bad in ["", "connector", "v1", "connector.health_probe", "health_probe.v1", "probe"] {
            let unknown = Err(UnresolvedName::Unknown(bad.to_owned()));
            assert_eq!(registry.resolve(bad), unknown);
        }
        let next = Computation::fail_fast("connector.health_probe.v2").unwrap();
        let registry = registry.with(next).unwrap();
        let both = ["connector.health_probe.v1", "connector.health_probe.v2"];
        let ambiguous = Err(UnresolvedName::Ambiguous(both.map(str::to_owned).to_vec()));
        assert_eq!(registry.resolve("health_probe"), ambiguous);
        assert!(both.iter().all(|name| registry.resolve(name).is_ok()));
    }

    #[test]
    fn a_doubled_pause_has_an_end() {
        let retry = Retry::doubling(100, Duration::from_secs(1));
        assert_eq!(retry.pause_before(100), Some(LONGEST_PAUSE));
        assert_eq!((retry.pause_before(0), retry.pause_before(101)), (None, None));
    }
}
