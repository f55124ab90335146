//! Sinks and routes, in memory.

use hapax_core::route::SinkName;

use super::MemoryTxn;
use crate::error::StoreError;
use crate::route::{RouteTxn, RouteView, Routing, Sink};

impl RouteView for MemoryTxn<'_> {
    fn routing(&mut self) -> Result<Routing, StoreError> {
        Ok(self.tables.outbox.routing.clone())
    }

    fn sinks(&mut self) -> Result<Vec<Sink>, StoreError> {
        Ok(self.tables.outbox.sinks.values().cloned().collect())
    }
}

impl RouteTxn for MemoryTxn<'_> {
    fn put_routing(&mut self, routing: &Routing) -> Result<(), StoreError> {
        for (name, remembers_ms) in &routing.sinks {
            let known = self.tables.outbox.sinks.get(name).cloned();
            let new = Sink { name: name.clone(), paused: false, changed: 0, remembers_ms: None };
            let sink = Sink { remembers_ms: *remembers_ms, ..known.unwrap_or(new) };
            self.set(|tables| &mut tables.outbox.sinks, name.clone(), Some(sink));
        }
        let before = std::mem::replace(&mut self.tables.outbox.routing, routing.clone());
        self.undo.push(Box::new(move |tables| tables.outbox.routing = before));
        Ok(())
    }

    fn put_paused(&mut self, sink: &SinkName, paused: bool) -> Result<bool, StoreError> {
        let known = self.tables.outbox.sinks.contains_key(sink);
        self.touch(sink, Some(paused));
        Ok(known)
    }
}
