//! Effects that belong together.

use hapax_core::key::Key;
pub use hapax_core::part::{Part, PartFilter, PartRecord};
use hapax_store::read;

use crate::engine::Hapax;
use crate::error::Error;

/// The effects of one namespace that are parts of a whole. Made by [`Hapax::parts`].
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    hapax: &'a Hapax,
}

impl Hapax {
    /// The effects that belong together, and the data kept with them.
    pub fn parts(&self) -> Parts<'_> {
        Parts { hapax: self }
    }
}

impl Parts<'_> {
    /// The whole that an effect is a part of, and the data kept with it.
    pub async fn show(self, key: Key) -> Result<Option<Part>, Error> {
        let name = self.hapax.name(key);
        Ok(read(&*self.hapax.inner.store, move |view| view.part(&name)).await?)
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
    /// let filter =
    ///     PartFilter { whole: Some(whole), kind: "charge".into(), limit: 10, ..PartFilter::default() };
    /// let found = hapax.parts().search(filter).await?;
    /// assert_eq!((found[0].name.key, &found[0].part.body[..]), (charge, &b"EUR 10.00"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn search(self, filter: PartFilter) -> Result<Vec<PartRecord>, Error> {
        let namespace = self.hapax.namespace.clone();
        Ok(read(&*self.hapax.inner.store, move |view| view.parts(&namespace, &filter)).await?)
    }
}
