//! Effects that belong together.

pub use hapax_core::part::{Part, PartFilter, PartRecord};
use hapax_store::read;

use crate::engine::Hapax;
use crate::error::Error;
use hapax_core::key::Key;
use hapax_core::name::Name;

/// # Effects that belong together
impl Hapax {
    /// The whole that an effect is a part of, and the data kept with it.
    pub async fn part(&self, key: Key) -> Result<Option<Part>, Error> {
        let name = Name { namespace: self.namespace.clone(), key };
        Ok(read(&*self.inner.store, move |view| view.part(&name)).await?)
    }

    /// Parts, each with its effect.
    ///
    /// ```
    /// use hapax::part::{Part, PartFilter};
    /// use hapax::{Failure, Hapax, Key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let whole = Key::derive("order.v1", &[("id", b"42")])?;
    /// let charge = Key::derive("charge.v1", &[("order", b"42")])?;
    /// let part = Part { whole, kind: "charge".into(), body: b"EUR 10.00".to_vec() };
    /// hapax.effect(charge).part(part).run(|_| async { Ok::<_, Failure>("receipt 7") }).await?;
    ///
    /// let sought =
    ///     PartFilter { whole: Some(whole), kind: "charge".into(), limit: 10, ..PartFilter::default() };
    /// let found = hapax.parts(sought).await?;
    /// assert_eq!((found[0].name.key, &found[0].part.body[..]), (charge, &b"EUR 10.00"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn parts(&self, sought: PartFilter) -> Result<Vec<PartRecord>, Error> {
        let namespace = self.namespace.clone();
        Ok(read(&*self.inner.store, move |view| view.parts(&namespace, &sought)).await?)
    }
}
