//! Parts as rows: effects that belong to one whole.

use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::part::{Part, PartFilter, PartRecord};
use hapax_store::{PartTxn, PartView, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::{Link, Param};
use crate::effect::{self, COLUMNS, EffectRowKey, bytes};
use crate::error::PgFailure;
use crate::txn::PgTxn;

impl PartView for PgTxn<'_> {
    fn part(&mut self, name: &Name) -> Result<Option<Part>, StoreError> {
        let part = self.try_part(name);
        self.keep_failure(part)
    }

    fn parts(
        &mut self,
        namespace: &Namespace,
        filter: &PartFilter,
    ) -> Result<Vec<PartRecord>, StoreError> {
        let found = self.try_parts(namespace, filter);
        self.keep_failure(found)
    }
}

impl PartTxn for PgTxn<'_> {
    fn put_part(&mut self, name: &Name, part: &Part) -> Result<(), StoreError> {
        let number = self.namespace(&name.namespace);
        let row_key = (self.keep_failure(number)?, name.key);
        self.staged.parts.insert(row_key, part.clone());
        Ok(())
    }
}

impl PgTxn<'_> {
    fn try_part(&self, name: &Name) -> Result<Option<Part>, PgFailure> {
        let Some(number) = self.namespaces.find(self.link, &name.namespace)? else {
            return Ok(None);
        };
        let key = &name.key.as_bytes()[..];
        let rows = self.link.query(
            "SELECT whole, kind, kept FROM hapax.part WHERE namespace = $1 AND key = $2",
            &[(&number, Type::INT4), (&key, Type::BYTEA)],
        )?;
        let part = rows.first().map(|row| {
            let whole = Key::from_bytes(bytes(row, "whole")?);
            Ok(Part { whole, kind: row.try_get(1)?, body: row.try_get(2)? })
        });
        part.transpose()
    }

    fn try_parts(
        &self,
        namespace: &Namespace,
        filter: &PartFilter,
    ) -> Result<Vec<PartRecord>, PgFailure> {
        let Some(number) = self.namespaces.find(self.link, namespace)? else {
            return Ok(Vec::new());
        };
        let states: Vec<i16> = filter.states.iter().map(|state| state.code().into()).collect();
        let stuck = !states.is_empty() && filter.states.iter().all(|s| s.needs_attention());
        // Lets the planner see that the index of stuck effects covers the query.
        let column = if stuck { "stuck" } else { "state" };
        let (beyond, order) = match filter.newest_first {
            true => ("<", "DESC"),
            false => (">", "ASC"),
        };
        let whole = filter.whole.map(|whole| whole.as_bytes().to_vec());
        let which = format!(
            "p.namespace = $1 AND p.kind = $2 AND ($3::bytea IS NULL OR p.whole = $3)
                 AND (cardinality($4::smallint[]) = 0 OR e.{column} = ANY ($4))
                 AND ($5::bigint IS NULL OR p.place {beyond} $5)
             ORDER BY p.place {order} LIMIT $6"
        );
        let rows = parts(
            self.link,
            &which,
            &[
                (&number, Type::INT4),
                (&filter.kind, Type::TEXT),
                (&whole, Type::BYTEA),
                (&states, Type::INT2_ARRAY),
                (&filter.beyond.map(|position| position as i64), Type::INT8),
                (&(filter.limit as i64), Type::INT8),
            ],
        )?;
        rows.iter()
            .map(|row| {
                let ((_, key), stored) = effect::read(row)?;
                let whole = Key::from_bytes(bytes(row, "whole")?);
                let (kind, body) = (row.try_get("kind")?, row.try_get("kept")?);
                Ok(PartRecord {
                    position: row.try_get::<_, i64>("place")? as u64,
                    name: Name { namespace: namespace.clone(), key },
                    effect: stored.effect,
                    part: Part { whole, kind, body },
                })
            })
            .collect()
    }
}

/// Rows of effects that are parts, with the columns of the part.
fn parts(link: &Link, which: &str, params: &[Param<'_>]) -> Result<Vec<Row>, PgFailure> {
    let sql = format!(
        "{}coalesce(e.outcome, b.data) AS outcome, p.place, p.whole, p.kind, p.kept
         FROM hapax.part p JOIN hapax.effect e ON e.namespace = p.namespace AND e.key = p.key
         LEFT JOIN hapax.body b ON b.id = e.body WHERE {which}",
        COLUMNS
    );
    link.query(&sql, params)
}

/// Writes the parts' rows, in their order.
pub(crate) fn put(link: &Link, parts: &[(EffectRowKey, Part)]) -> Result<(), PgFailure> {
    if parts.is_empty() {
        return Ok(());
    }
    let namespace: Vec<i32> = parts.iter().map(|((namespace, _), _)| *namespace).collect();
    let key: Vec<&[u8]> = parts.iter().map(|((_, key), _)| &key.as_bytes()[..]).collect();
    let whole: Vec<&[u8]> = parts.iter().map(|(_, part)| &part.whole.as_bytes()[..]).collect();
    let kind: Vec<&str> = parts.iter().map(|(_, part)| part.kind.as_str()).collect();
    let kept: Vec<&[u8]> = parts.iter().map(|(_, part)| &part.body[..]).collect();
    link.query_prepared((
        "INSERT INTO hapax.part (namespace, key, whole, kind, kept)
         SELECT * FROM unnest($1::int[], $2::bytea[], $3::bytea[], $4::text[], $5::bytea[])
         ON CONFLICT (namespace, key) DO UPDATE SET whole = excluded.whole, kind = excluded.kind,
             kept = excluded.kept",
        &[
            (&namespace, Type::INT4_ARRAY),
            (&key, Type::BYTEA_ARRAY),
            (&whole, Type::BYTEA_ARRAY),
            (&kind, Type::TEXT_ARRAY),
            (&kept, Type::BYTEA_ARRAY),
        ],
    ))?;
    Ok(())
}
