//! What became of requests, counted here and written down in bulk: a hit costs no write.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use hapax::Name;
use hapax::shelf::{Heard, What};

/// How many different things are counted until they are written down. Those beyond are not.
const MOST: usize = 4_096;

#[derive(Default)]
pub(crate) struct Attention(Mutex<HashMap<(Name, What), Noted>>);

struct Noted {
    ontology: String,
    times: u64,
}

impl Attention {
    /// Counts one.
    pub(crate) fn note(&self, name: Name, what: What, ontology: &str) {
        let mut noted = self.lock();
        let place = (name, what);
        if let Some(known) = noted.get_mut(&place) {
            known.times += 1;
        } else if noted.len() < MOST {
            noted.insert(place, Noted { ontology: ontology.to_owned(), times: 1 });
        }
    }

    /// Everything that was counted, to be written down.
    pub(crate) fn take(&self) -> Vec<Heard> {
        let noted = std::mem::take(&mut *self.lock());
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
        heard
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Name, What), Noted>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
