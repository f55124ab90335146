//! Leases that clients hold.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A lease in force.
#[derive(Debug, Serialize, ToSchema)]
pub struct Lease {
    /// The id of the lease.
    pub lease: String,
    /// How long an opening or a renewal lasts.
    pub term_ms: u64,
    /// Stop working this many milliseconds after you sent the request that this answers, unless a
    /// later renewal was answered: until then the lease cannot have lapsed. Present only in the
    /// answer to an opening or a renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_ms: Option<u64>,
    /// The name of the holder, for people.
    pub holder: String,
}

impl Lease {
    /// A lease that the client has just opened or renewed.
    pub(crate) fn renewed(lease: &hapax::Lease) -> Self {
        let work_ms = Some(hapax::Lease::working_ms(lease.term_ms));
        Self { work_ms, ..Self::of(lease) }
    }

    pub(crate) fn of(lease: &hapax::Lease) -> Self {
        let holder = match lease.holder.split_once('/') {
            Some((prefix, holder)) if prefix.starts_with("remote:") => holder,
            _ => &lease.holder,
        };
        let (lease, term_ms) = (lease.id.to_string(), lease.term_ms);
        Self { lease, term_ms, work_ms: None, holder: holder.to_owned() }
    }
}

/// The request to open a lease.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenLease {
    /// How long the holder may be silent before the lease lapses and its effects can be taken over.
    #[schema(minimum = 5000, maximum = 3_600_000)]
    pub term_ms: u64,
    /// The name of the holder, for people.
    #[schema(min_length = 1, max_length = 128)]
    pub holder: String,
    /// The id, if the client chooses it: 128 random bits. Opening it again renews it.
    #[schema(pattern = "^lease_[0-9a-f]{32}$")]
    pub lease: Option<String>,
}
