//! Ontologies, in memory.

use hapax_core::name::Namespace;
use hapax_core::result_index::Ontology;

use super::MemoryTxn;
use crate::error::StoreError;
use crate::ontology::{OntologyTxn, OntologyView};

impl OntologyView for MemoryTxn<'_> {
    fn ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<Ontology>, StoreError> {
        let key = (namespace.clone(), id.to_owned());
        Ok(self.tables.ontologies.get(&key).cloned())
    }

    fn ontology_version(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        Ok(self.ontology(namespace, id)?.map(|ontology| ontology.version))
    }

    fn ontologies(&mut self, namespace: &Namespace) -> Result<Vec<Ontology>, StoreError> {
        let ours = self.tables.ontologies.iter().filter(|((of, _), _)| of == namespace);
        let listed = |ontology: &Ontology| Ontology { content: String::new(), ..ontology.clone() };
        Ok(ours.map(|(_, ontology)| listed(ontology)).collect())
    }
}

impl OntologyTxn for MemoryTxn<'_> {
    fn hold_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        self.ontology_version(namespace, id)
    }

    fn put_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
        ontology: Option<&Ontology>,
    ) -> Result<(), StoreError> {
        let key = (namespace.clone(), id.to_owned());
        self.set(|tables| &mut tables.ontologies, key, ontology.cloned());
        Ok(())
    }
}
