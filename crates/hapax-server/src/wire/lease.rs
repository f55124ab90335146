//! Leases that clients hold.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A lease in force.
#[derive(Debug, Serialize, ToSchema)]
pub struct Lease {
    /// Which.
    pub lease: String,
    /// How long a renewal lasts.
    pub term_ms: u64,
    /// Stop working this long after you sent the request that was answered with this, unless a later
    /// renewal was answered: by then the lease cannot have lapsed.
    pub work_ms: u64,
    /// Who holds it, for people.
    pub holder: String,
}

impl Lease {
    pub(crate) fn of(lease: &hapax::Lease) -> Self {
        let holder = match lease.holder.split_once('/') {
            Some((prefix, holder)) if prefix.starts_with("remote:") => holder,
            _ => &lease.holder,
        };
        let (term_ms, work_ms) = (lease.term_ms, hapax::Lease::working_ms(lease.term_ms));
        Self { lease: lease.id.to_string(), term_ms, work_ms, holder: holder.to_owned() }
    }
}

/// A lease to be opened.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenLease {
    /// How long its holder may be silent before others take over.
    #[schema(minimum = 5000, maximum = 3_600_000)]
    pub term_ms: u64,
    /// Who holds it, for people.
    #[schema(min_length = 1, max_length = 128)]
    pub holder: String,
    /// Its id, if the client chooses it: 128 random bits. Opening it again changes nothing.
    #[schema(pattern = "^lease_[0-9a-f]{32}$")]
    pub lease: Option<String>,
}
