//! What became of requests, counted here and written down in bulk: a hit costs no write.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

use hapax::shelf::{Heard, What};
use hapax::{Name, Namespace};

/// How many different things are counted until they are written down. Those beyond are not.
const MOST: usize = 4_096;

#[derive(Default)]
pub(crate) struct Attention(Mutex<Book>);

#[derive(Default)]
struct Book {
    noted: HashMap<(Name, What), Noted>,
    /// Where something was ever asked for.
    namespaces: BTreeSet<Namespace>,
}

struct Noted {
    ontology: String,
    times: u64,
}

impl Attention {
    /// Counts one.
    pub(crate) fn note(&self, name: Name, what: What, ontology: &str) {
        let mut book = self.lock();
        let place = (name, what);
        if let Some(known) = book.noted.get_mut(&place) {
            known.times += 1;
        } else if book.noted.len() < MOST {
            book.namespaces.insert(place.0.namespace.clone());
            book.noted.insert(place, Noted { ontology: ontology.to_owned(), times: 1 });
        }
    }

    /// Everything that was counted, to be written down, and where anything was ever asked for.
    pub(crate) fn take(&self) -> (Vec<Heard>, BTreeSet<Namespace>) {
        let (noted, namespaces) = {
            let mut book = self.lock();
            (std::mem::take(&mut book.noted), book.namespaces.clone())
        };
        let mut heard: Vec<Heard> = noted
            .into_iter()
            .map(|((name, what), Noted { ontology, times })| Heard {
                name,
                ontology,
                what,
                times,
                about: "{}".into(),
            })
            .collect();
        heard.sort_by(|a, b| (&a.name, a.what).cmp(&(&b.name, b.what)));
        (heard, namespaces)
    }

    /// What could not be written down is counted on.
    pub(crate) fn put_back(&self, heard: Vec<Heard>) {
        let mut book = self.lock();
        for Heard { name, ontology, what, times, .. } in heard {
            let noted = book.noted.entry((name, what));
            noted.or_insert(Noted { ontology, times: 0 }).times += times;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
