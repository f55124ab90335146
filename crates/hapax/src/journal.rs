//! The journal of a ledger: its entries, its signed heads, and what proves them.

use hapax_core::checkpoint::Verifier;
use hapax_core::journal::Entry;
use hapax_core::key::Key;
use hapax_store::journal::{Proof, Verified, verify};
use hapax_store::read;

use crate::engine::Hapax;
use crate::error::Error;

/// The journal of a ledger, of all namespaces. Made by [`Hapax::journal`].
///
/// ```
/// use hapax::{Failure, Hapax, Key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let key = Key::derive("charge.v1", &[("order", b"42")])?;
/// hapax.effect(key).run(|_| async { Ok::<_, Failure>("receipt 7") }).await?;
///
/// let journal = hapax.journal();
/// let history = journal.history(key, 10).await?;
/// let events: Vec<_> = history.iter().map(|entry| entry.event.as_str()).collect();
/// assert_eq!(events, ["granted", "settled"]);
/// assert_eq!(journal.entries(0, 10).await?.len() as u64, journal.last_entry().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Journal<'a> {
    hapax: &'a Hapax,
}

impl Hapax {
    /// The journal: the record of every transition, sealed and provable.
    pub fn journal(&self) -> Journal<'_> {
        Journal { hapax: self }
    }
}

impl Journal<'_> {
    /// The journal of the whole ledger after an entry, oldest first.
    pub async fn entries(self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        Ok(read(&*self.hapax.inner.store, move |view| view.entries(None, after, limit)).await?)
    }

    /// The journal of one effect of this namespace, oldest first.
    pub async fn history(self, key: Key, limit: usize) -> Result<Vec<Entry>, Error> {
        self.history_after(key, 0, limit).await
    }

    /// The same after an entry. For an effect whose record is gone, the store searches the journal
    /// from there on.
    pub async fn history_after(
        self,
        key: Key,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, Error> {
        let name = self.hapax.name(key);
        Ok(read(&*self.hapax.inner.store, move |view| view.entries(Some(&name), after, limit))
            .await?)
    }

    /// Sealed entries from this leaf on, each with its leaf; archived entries are left out. Leaves
    /// have no gaps and never change places, so a reader that takes them in order misses nothing.
    pub async fn sealed(self, first: u64, limit: u64) -> Result<Sealed, Error> {
        let sealed = read(&*self.hapax.inner.store, move |view| {
            let size = view.newest_head()?.map_or(0, |head| head.size);
            let first = first.min(size);
            let count = (size - first).min(limit);
            let entries = view.leaf_entries(first, count)?;
            let entries = (first..).zip(entries).filter_map(|(leaf, entry)| Some((leaf, entry?)));
            Ok(Sealed { entries: entries.collect(), next: first + count, size })
        });
        Ok(sealed.await?)
    }

    /// The newest signed head of the journal, if there is one.
    pub async fn checkpoint(self) -> Result<Option<String>, Error> {
        let head = read(&*self.hapax.inner.store, |view| view.newest_head()).await?;
        Ok(head.map(|head| head.note))
    }

    /// The number of the newest journal entry.
    pub async fn last_entry(self) -> Result<u64, Error> {
        Ok(read(&*self.hapax.inner.store, |view| view.last_entry()).await?)
    }

    /// The public key that verifies this ledger's journal.
    pub fn verifier(self) -> Result<Verifier, Error> {
        let verifier = self.hapax.inner.verifier.clone();
        verifier.ok_or(Error::Unsupported("this ledger's journal is not sealed"))
    }

    /// Signs a message with the key that signs the journal's heads, and says which key that is. The
    /// message should name its own type, as an envelope of DSSE does.
    pub fn sign(self, message: &[u8]) -> Result<(String, Vec<u8>), Error> {
        let signer = self.hapax.inner.signer.as_ref();
        let signer = signer.ok_or(Error::Unsupported("this node has no key to sign with"))?;
        Ok(signer.sign_bytes(message))
    }

    /// Compares every sealed entry of the journal with its tree and its signed heads. `progress`
    /// gets the number of entries read so far, and of all entries.
    pub async fn verify(
        self,
        verifier: Verifier,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<Verified, Error> {
        Ok(read(&*self.hapax.inner.store, move |view| verify(view, &verifier, progress)).await?)
    }

    /// A proof that an entry is in the journal; `None` if it is not there or not sealed yet.
    ///
    /// ```
    /// use hapax::{Failure, Hapax, Key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("hapax.db");
    /// let hapax = Hapax::open(&path).await?;
    /// let key = Key::derive("charge.v1", &[("order", b"42")])?;
    /// hapax.effect(key).run(|_| async { Ok::<_, Failure>("receipt 7") }).await?;
    /// hapax.pass().await?;
    ///
    /// let verifier = hapax.journal().verifier()?;
    /// let verified = hapax.journal().verify(verifier.clone(), |_done, _of| ()).await?;
    /// assert_eq!((verified.sealed, verified.damage.len()), (2, 0));
    /// // A proof needs neither the ledger nor us, only the public key.
    /// let proof = hapax.journal().prove(1).await?.ok_or("not sealed yet")?;
    /// assert_eq!(proof.verify(&verifier)?.size, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn prove(self, entry: u64) -> Result<Option<Proof>, Error> {
        Ok(read(&*self.hapax.inner.store, move |view| Proof::of(view, entry)).await?)
    }
}

/// Sealed entries of the journal. See [`Journal::sealed`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Each with its leaf, in order.
    pub entries: Vec<(u64, Entry)>,
    /// The leaf to go on from.
    pub next: u64,
    /// How many leaves there are.
    pub size: u64,
}
