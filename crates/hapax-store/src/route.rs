//! Sinks and routes at the seam: where events go.

use hapax_core::outbox::Event;
use hapax_core::route::{Route, SinkName};

use crate::error::StoreError;
use crate::limits::Limits;
use crate::txn::Txn;

/// The reads of sinks and routes.
pub trait RouteView {
    /// The declared sinks and routes.
    fn routing(&mut self) -> Result<Routing, StoreError>;

    /// All sinks.
    fn sinks(&mut self) -> Result<Vec<Sink>, StoreError>;
}

/// The writes of sinks and routes.
pub trait RouteTxn {
    /// Replaces the declared sinks and routes. Sinks that are no longer declared stay known.
    fn put_routing(&mut self, routing: &Routing) -> Result<(), StoreError>;

    /// Pauses or resumes a sink, and counts the change. Returns whether the sink is known.
    fn put_paused(&mut self, sink: &SinkName, paused: bool) -> Result<bool, StoreError>;
}

/// A sink, as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    /// Its name.
    pub name: SinkName,
    /// Whether it is paused: nothing is sent to it for now.
    pub paused: bool,
    /// How often a pause, a resume or a redrive changed it. A dispatcher that sees a new number
    /// re-reads its deliveries.
    pub changed: u64,
    /// How long its receiver remembers ids, if that was declared.
    pub remembers_ms: Option<u64>,
}

/// The declared sinks and routes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routing {
    /// All sinks, and how long each receiver remembers ids, where that is known.
    pub sinks: Vec<(SinkName, Option<u64>)>,
    /// Which events go where.
    pub routes: Vec<Route>,
}

/// Replaces the routing.
pub(crate) fn configure(txn: &mut dyn Txn, routing: &Routing) -> Result<(), StoreError> {
    for route in &routing.routes {
        for sink in &route.sinks {
            if !routing.sinks.iter().any(|(name, _)| name == sink) {
                return Err(StoreError::Invalid(format!("a route names the unknown sink {sink}")));
            }
        }
        for pattern in [&route.event, &route.dataset] {
            if pattern.is_empty() || pattern.len() > Event::LONGEST_FIELD {
                let what = format!("a route's pattern has 1 to {} bytes", Event::LONGEST_FIELD);
                return Err(StoreError::Invalid(what));
            }
        }
    }
    if routing.sinks.len() > Limits::SINKS || routing.routes.len() > Limits::ROUTES {
        return Err(StoreError::Invalid(format!(
            "at most {} sinks and {} routes",
            Limits::SINKS,
            Limits::ROUTES
        )));
    }
    if txn.routing()? != *routing {
        txn.put_routing(routing)?;
    }
    Ok(())
}
