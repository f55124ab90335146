//! Keeping a ledger: the doctor, repairs, and facts about its processes and its server.

use hapax_core::lease::Lease;
use hapax_core::name::Namespace;
use hapax_core::time::Timestamp;
use hapax_store::read;

use crate::doctor::{Doctor, DoctorFinding, NAMED, examine, unheld_effect};
use crate::engine::{Hapax, blocking};
use crate::error::Error;

/// The calls that keep a ledger healthy. Made by [`Hapax::maintenance`].
///
/// ```
/// use hapax::{Failure, Hapax, Key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let key = Key::derive("e-mail.v1", &[("to", b"ada")])?;
/// let lost = hapax.effect(key).run(|_| async { Err::<(), _>(Failure::ambiguous("timeout")) });
/// assert!(lost.await.is_err());
///
/// let maintenance = hapax.maintenance();
/// assert_eq!(maintenance.leases().await?.len(), 1);
/// for finding in maintenance.doctor().await?.findings {
///     println!("{:?}: {}; {}", finding.severity, finding.what, finding.next);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Maintenance<'a> {
    hapax: &'a Hapax,
}

impl Hapax {
    /// The doctor, repairs, and facts about the processes and the server of this ledger.
    pub fn maintenance(&self) -> Maintenance<'_> {
        Maintenance { hapax: self }
    }
}

impl Maintenance<'_> {
    /// Begins this process's background work now: it opens its lease, and expires effects that dead
    /// holders left. Otherwise that begins with the process's first claim. Call it in a process that
    /// serves others and may be idle for long.
    pub async fn start(self) -> Result<(), Error> {
        Ok(self.hapax.inner.start_now().await?)
    }

    /// Looks for problems that need attention.
    pub async fn doctor(self) -> Result<Doctor, Error> {
        let namespaces = self.namespaces().await?;
        let seen = namespaces.clone();
        let mut doctor = read(&*self.hapax.inner.store, move |view| examine(view, &seen)).await?;
        let unheld = self.hapax.effects().unheld(NAMED).await?;
        doctor.add(unheld.iter().map(|status| unheld_effect(status, &namespaces)));
        if let Some(sqlite) = self.hapax.inner.sqlite.clone() {
            let problems = blocking(move || sqlite.examine()).await?;
            doctor.add(problems.into_iter().map(DoctorFinding::from));
        }
        #[cfg(feature = "postgres")]
        let doctor = match self.hapax.inner.postgres.clone() {
            Some(postgres) => {
                let problems = blocking(move || postgres.examine()).await?;
                doctor.with(problems)
            }
            None => doctor,
        };
        Ok(doctor)
    }

    /// Repairs a ledger in a file: removes second rows of one key, and indexes rows that are not
    /// found by their keys. Their history stays in the journal. Returns how many rows.
    pub async fn repair(self) -> Result<usize, Error> {
        let sqlite = self.hapax.inner.sqlite.clone();
        let sqlite = sqlite.ok_or(Error::Unsupported("only a ledger in a file is repaired"))?;
        Ok(blocking(move || sqlite.repair()).await?)
    }

    /// Call this once after the ledger's database was restored from a backup, before any work is
    /// done. It ends all leases, so no holder keeps the effects that were running, and raises the
    /// fences above all that were ever given. Returns how many effects were running. A ledger in a
    /// file needs none of this: its leases end with the boot they were taken in.
    pub async fn after_restore(self) -> Result<u64, Error> {
        #[cfg(feature = "postgres")]
        if let Some(postgres) = self.hapax.inner.postgres.clone() {
            return Ok(blocking(move || postgres.after_restore()).await?);
        }
        Err(Error::Unsupported("this ledger is not in a database"))
    }

    /// The leases that are in force.
    pub async fn leases(self) -> Result<Vec<Lease>, Error> {
        Ok(read(&*self.hapax.inner.store, |view| view.leases()).await?)
    }

    /// All namespaces that have ever been used on this ledger.
    pub async fn namespaces(self) -> Result<Vec<Namespace>, Error> {
        Ok(read(&*self.hapax.inner.store, |view| view.namespaces()).await?)
    }

    /// The time by the store's clock.
    pub async fn wall(self) -> Result<Timestamp, Error> {
        Ok(read(&*self.hapax.inner.store, |view| Ok(view.now().wall)).await?)
    }

    /// The settings that durability depends on and that are turned off now, as a reload of the server's
    /// configuration can do. Empty if what is acknowledged reaches the disk, and for a ledger in a file.
    pub async fn turned_off(self) -> Result<Vec<String>, Error> {
        #[cfg(feature = "postgres")]
        if let Some(postgres) = self.hapax.inner.postgres.clone() {
            return Ok(blocking(move || postgres.turned_off()).await?);
        }
        Ok(Vec::new())
    }
}
