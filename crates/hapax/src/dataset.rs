//! Declarations of datasets.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::dataset::{Dataset, Registry};
use hapax_store::{command, read};

use crate::engine::Hapax;
use crate::error::Error;

/// The datasets that are declared on a ledger. Made by [`Hapax::datasets`].
#[derive(Clone, Copy)]
pub struct Datasets<'a> {
    hapax: &'a Hapax,
}

impl Hapax {
    /// The declared datasets, for all namespaces.
    pub fn datasets(&self) -> Datasets<'_> {
        Datasets { hapax: self }
    }
}

impl Datasets<'_> {
    /// Declares a dataset in place of its earlier declaration, or removes the declaration. Holds
    /// for every process on this ledger and in every namespace. Returns whether it was declared before.
    ///
    /// ```
    /// use hapax::Hapax;
    /// use hapax::outbox::Dataset;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let wells = Dataset { masked: Some(7), ..Dataset::default() };
    /// assert!(!hapax.datasets().declare("wells", Some(wells.clone())).await?);
    /// assert_eq!(hapax.datasets().list().await?.get("wells"), Some(&wells));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn declare(self, name: &str, dataset: Option<Dataset>) -> Result<bool, Error> {
        self.hapax.call(command::Declare { name: name.to_owned(), dataset }).await
    }

    /// All declared datasets, by name.
    pub async fn list(self) -> Result<BTreeMap<String, Dataset>, Error> {
        Ok(read(&*self.hapax.inner.store, |view| view.datasets()).await?)
    }

    /// The guards that are up, and the declarations of these datasets.
    pub async fn registry_of(
        self,
        datasets: impl IntoIterator<Item = &str>,
    ) -> Result<Registry, Error> {
        let names: Vec<String> = datasets.into_iter().map(str::to_owned).collect();
        let registry = move |view: &mut dyn hapax_store::View| {
            view.registry(&names.iter().map(String::as_str).collect::<BTreeSet<_>>())
        };
        Ok(read(&*self.hapax.inner.store, registry).await?)
    }
}
