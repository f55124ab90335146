//! Counts the outcomes of requests in memory and hands them over in bulk, so that a cache hit
//! writes nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

use hapax::result_index::{AccessKind, CacheAccess};
use hapax::{Name, Namespace};

/// How many different counts are held until they are recorded. Further ones are dropped.
const MOST: usize = 4_096;

#[derive(Default)]
pub(crate) struct Attention(Mutex<Book>);

#[derive(Default)]
struct Book {
    noted: HashMap<(Name, AccessKind), Noted>,
    /// The namespaces in which a request was ever counted.
    namespaces: BTreeSet<Namespace>,
}

struct Noted {
    ontology: String,
    times: u64,
}

impl Attention {
    /// Counts one outcome.
    pub(crate) fn note(&self, name: Name, kind: AccessKind, ontology: &str) {
        let mut book = self.lock();
        let place = (name, kind);
        if let Some(known) = book.noted.get_mut(&place) {
            known.times += 1;
        } else if book.noted.len() < MOST {
            book.namespaces.insert(place.0.namespace.clone());
            book.noted.insert(place, Noted { ontology: ontology.to_owned(), times: 1 });
        }
    }

    /// Takes the counts, for recording, and lists all namespaces in which a request was ever
    /// counted.
    pub(crate) fn take(&self) -> (Vec<CacheAccess>, BTreeSet<Namespace>) {
        let (noted, namespaces) = {
            let mut book = self.lock();
            (std::mem::take(&mut book.noted), book.namespaces.clone())
        };
        let mut accesses: Vec<CacheAccess> = noted
            .into_iter()
            .map(|((name, kind), Noted { ontology, times })| CacheAccess {
                name,
                ontology,
                kind,
                times,
                about: "{}".into(),
            })
            .collect();
        accesses.sort_by(|a, b| (&a.name, a.kind).cmp(&(&b.name, b.kind)));
        (accesses, namespaces)
    }

    /// Adds back counts whose recording failed.
    pub(crate) fn put_back(&self, accesses: Vec<CacheAccess>) {
        let mut book = self.lock();
        for CacheAccess { name, ontology, kind, times, .. } in accesses {
            let noted = book.noted.entry((name, kind));
            noted.or_insert(Noted { ontology, times: 0 }).times += times;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
