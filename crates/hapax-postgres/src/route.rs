//! Sinks and routes as rows.

use std::collections::BTreeMap;

use hapax_core::route::{Route, SinkName};
use hapax_store::route::{Routing, Sink};
use hapax_store::{RouteTxn, RouteView, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::Param;
use crate::error::PgFailure;
use crate::txn::PgTxn;

impl RouteView for PgTxn<'_> {
    fn routing(&mut self) -> Result<Routing, StoreError> {
        let routing = self.try_routing();
        self.keep_failure(routing)
    }

    fn sinks(&mut self) -> Result<Vec<Sink>, StoreError> {
        let sinks = self.try_sinks();
        self.keep_failure(sinks)
    }
}

impl RouteTxn for PgTxn<'_> {
    fn put_routing(&mut self, routing: &Routing) -> Result<(), StoreError> {
        let put = self.try_put_routing(routing);
        self.keep_failure(put)
    }

    fn put_paused(&mut self, sink: &SinkName, paused: bool) -> Result<bool, StoreError> {
        let sql = "UPDATE hapax.sink SET paused = $2, changed = changed + 1 WHERE name = $1";
        let params: [Param<'_>; 2] = [(&sink.as_str(), Type::TEXT), (&paused, Type::BOOL)];
        self.keep_failure(self.link.execute(sql, &params)).map(|rows| rows > 0)
    }
}

impl PgTxn<'_> {
    /// The number of a sink, if it is known.
    pub(crate) fn sink_id(&self, name: &SinkName) -> Result<Option<i16>, PgFailure> {
        let sql = "SELECT id FROM hapax.sink WHERE name = $1";
        let rows = self.link.query_prepared((sql, &[(&name.as_str(), Type::TEXT)]))?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    fn try_routing(&self) -> Result<Routing, PgFailure> {
        let sinks = "SELECT name, remembers_ms FROM hapax.sink WHERE declared ORDER BY id";
        let routes = "SELECT r.nth, r.event, r.dataset, s.name FROM hapax.route r
            LEFT JOIN hapax.sink s ON s.id = r.sink ORDER BY r.id";
        let (sinks, rows) = self.link.query_both((sinks, &[]), (routes, &[]))?;
        let read = |row: &Row| {
            Ok((sink_name(row, 0)?, row.try_get::<_, Option<i64>>(1)?.map(|ms| ms as u64)))
        };
        let sinks = sinks.iter().map(read).collect::<Result<_, PgFailure>>()?;
        let mut routes: BTreeMap<i32, Route> = BTreeMap::new();
        for row in &rows {
            let (event, dataset) = (row.try_get(1)?, row.try_get(2)?);
            let new = Route { event, dataset, sinks: Vec::new() };
            let route = routes.entry(row.try_get(0)?).or_insert(new);
            if row.try_get::<_, Option<&str>>(3)?.is_some() {
                route.sinks.push(sink_name(row, 3)?);
            }
        }
        Ok(Routing { sinks, routes: routes.into_values().collect() })
    }

    pub(crate) fn try_sinks(&self) -> Result<Vec<Sink>, PgFailure> {
        let sql = "SELECT name, paused, changed, remembers_ms FROM hapax.sink ORDER BY name";
        let read = |row: &Row| {
            Ok(Sink {
                name: sink_name(row, 0)?,
                paused: row.try_get(1)?,
                changed: row.try_get::<_, i64>(2)? as u64,
                remembers_ms: row.try_get::<_, Option<i64>>(3)?.map(|ms| ms as u64),
            })
        };
        self.link.query_prepared((sql, &[]))?.iter().map(read).collect()
    }

    fn try_put_routing(&self, routing: &Routing) -> Result<(), PgFailure> {
        let link = self.link;
        link.run("DELETE FROM hapax.route; UPDATE hapax.sink SET declared = false")?;
        for (name, remembers) in &routing.sinks {
            link.execute(
                "INSERT INTO hapax.sink (name, remembers_ms) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET declared = true, remembers_ms = $2",
                &[(&name.as_str(), Type::TEXT), (&remembers.map(|ms| ms as i64), Type::INT8)],
            )?;
        }
        for (nth, route) in routing.routes.iter().enumerate() {
            let put = |sink: Option<i16>| {
                link.execute(
                    "INSERT INTO hapax.route (nth, event, dataset, sink) VALUES ($1, $2, $3, $4)",
                    &[
                        (&(nth as i32), Type::INT4),
                        (&route.event, Type::TEXT),
                        (&route.dataset, Type::TEXT),
                        (&sink, Type::INT2),
                    ],
                )
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
}

/// The sink whose name is in this column.
pub(crate) fn sink_name(row: &Row, at: usize) -> Result<SinkName, PgFailure> {
    let name = SinkName::new(row.try_get(at)?);
    name.map_err(|error| StoreError::Corrupt(error.to_string()).into())
}
