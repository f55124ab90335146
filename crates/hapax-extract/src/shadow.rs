//! Compares the keys of another cache with ours.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use hapax::Fingerprint;

use crate::identity::Identity;
use crate::service::ExtractionRequest;

/// How many keys are held. When there are more, the comparison begins anew.
const MOST: usize = 100_000;

/// Where another cache's keys differ from ours, since this process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Differences {
    /// Requests that brought another cache's key.
    pub compared: u64,
    /// Requests for which it would have missed our result: the same request under a new key.
    pub bypassed: u64,
    /// Requests that it would have answered with another request's result: a new request under a
    /// known key.
    pub mistaken: u64,
}

#[derive(Default)]
pub(crate) struct Shadow(Mutex<Compared>);

#[derive(Default)]
struct Compared {
    differences: Differences,
    by_theirs: HashMap<String, Fingerprint>,
    by_ours: HashMap<Fingerprint, String>,
}

impl Shadow {
    /// Compares the key that a request brought with ours.
    pub(crate) fn compare(&self, request: &ExtractionRequest, identity: &Identity) {
        let Some(theirs) = &request.shadow_key else { return };
        let ours = identity.fingerprint;
        let mut compared = self.lock();
        let mistaken = compared.by_theirs.get(theirs).is_some_and(|known| *known != ours);
        let bypassed = compared.by_ours.get(&ours).is_some_and(|known| known != theirs);
        compared.differences.compared += 1;
        compared.differences.mistaken += u64::from(mistaken);
        compared.differences.bypassed += u64::from(bypassed);
        if compared.by_theirs.len() >= MOST {
            compared.by_theirs.clear();
            compared.by_ours.clear();
        }
        compared.by_theirs.insert(theirs.clone(), ours);
        compared.by_ours.entry(ours).or_insert_with(|| theirs.clone());
        drop(compared);
        let short = identity.components.short();
        if mistaken {
            tracing::warn!(name: "shadow_mistaken", idempotency_key = short, shadow_key = theirs, "the other key would have found another request's result");
        }
        if bypassed {
            tracing::info!(name: "shadow_bypassed", idempotency_key = short, shadow_key = theirs, "the other key would have missed this result");
        }
    }

    pub(crate) fn differences(&self) -> Differences {
        self.lock().differences
    }

    fn lock(&self) -> MutexGuard<'_, Compared> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
