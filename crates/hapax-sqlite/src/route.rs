//! Sinks and routes as rows.

use std::collections::BTreeMap;

use hapax_core::route::{Route, SinkName};
use hapax_store::route::{Routing, Sink};
use hapax_store::{RouteTxn, RouteView, StoreError};
use rusqlite::types::Type;
use rusqlite::{Row, params};

use crate::query::{rows, run};
use crate::txn::SqliteTxn;

impl RouteView for SqliteTxn<'_> {
    fn routing(&mut self) -> Result<Routing, StoreError> {
        let sql = "SELECT name, remembers_ms FROM sink WHERE declared ORDER BY id";
        let sinks = rows(self.db, sql, [], |row| {
            Ok((sink_name(row, 0)?, row.get::<_, Option<i64>>(1)?.map(|ms| ms as u64)))
        })?;
        let sql = "SELECT r.nth, r.event, r.dataset, s.name FROM route r
            LEFT JOIN sink s ON s.id = r.sink ORDER BY r.id";
        let mut routes: BTreeMap<i64, Route> = BTreeMap::new();
        rows(self.db, sql, [], |row| {
            let (event, dataset) = (row.get(1)?, row.get(2)?);
            let new = Route { event, dataset, sinks: Vec::new() };
            let route = routes.entry(row.get(0)?).or_insert(new);
            if row.get::<_, Option<String>>(3)?.is_some() {
                route.sinks.push(sink_name(row, 3)?);
            }
            Ok(())
        })?;
        Ok(Routing { sinks, routes: routes.into_values().collect() })
    }

    fn sinks(&mut self) -> Result<Vec<Sink>, StoreError> {
        let sql = "SELECT name, paused, changed, remembers_ms FROM sink ORDER BY name";
        rows(self.db, sql, [], |row| {
            Ok(Sink {
                name: sink_name(row, 0)?,
                paused: row.get(1)?,
                changed: row.get::<_, i64>(2)? as u64,
                remembers_ms: row.get::<_, Option<i64>>(3)?.map(|ms| ms as u64),
            })
        })
    }
}

impl RouteTxn for SqliteTxn<'_> {
    fn put_routing(&mut self, routing: &Routing) -> Result<(), StoreError> {
        run(self.db, "DELETE FROM route", [])?;
        run(self.db, "UPDATE sink SET declared = 0", [])?;
        for (name, remembers) in &routing.sinks {
            run(
                self.db,
                "INSERT INTO sink (name, remembers_ms) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET declared = 1, remembers_ms = ?2",
                params![name.as_str(), remembers.map(|ms| ms as i64)],
            )?;
        }
        for (nth, route) in routing.routes.iter().enumerate() {
            let sql = "INSERT INTO route (nth, event, dataset, sink) VALUES (?1, ?2, ?3, ?4)";
            let put = |sink: Option<i64>| {
                run(self.db, sql, params![nth as i64, route.event, route.dataset, sink])
            };
            if route.sinks.is_empty() {
                put(None)?;
            }
            for sink in &route.sinks {
                put(self.sink_id(sink)?)?;
            }
        }
        Ok(())
    }

    fn put_paused(&mut self, sink: &SinkName, paused: bool) -> Result<bool, StoreError> {
        let sql = "UPDATE sink SET paused = ?2, changed = changed + 1 WHERE name = ?1";
        Ok(run(self.db, sql, params![sink.as_str(), paused])? > 0)
    }
}

impl SqliteTxn<'_> {
    /// The number of a sink, if it is known.
    pub(crate) fn sink_id(&self, name: &SinkName) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT id FROM sink WHERE name = ?1";
        Ok(rows(self.db, sql, [name.as_str()], |row| row.get(0))?.pop())
    }
}

/// The sink whose name is in this column.
pub(crate) fn sink_name(row: &Row<'_>, at: usize) -> rusqlite::Result<SinkName> {
    let name: String = row.get(at)?;
    SinkName::new(&name)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, Box::new(error)))
}
