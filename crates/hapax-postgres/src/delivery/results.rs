//! Delivery results as rows.

use std::collections::btree_map::{BTreeMap, Entry};
use std::error::Error;

use bytes::BytesMut;
use hapax_core::lease::LeaseId;
use hapax_core::name::Namespace;
use hapax_core::route::SinkName;
use hapax_core::time::Now;
use hapax_store::delivery::{DeliveryResult, Disposition};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::error::PgFailure;
use crate::txn::PgTxn;

impl PgTxn<'_> {
    /// Writes delivery results, and removes the send batches that are over.
    pub(super) fn try_put_results(
        &self,
        lease: LeaseId,
        results: &[DeliveryResult],
        ended: &[u64],
        now: Now,
    ) -> Result<(), PgFailure> {
        let mut requests: BTreeMap<(&SinkName, &Namespace), (i16, i32)> = BTreeMap::new();
        for one in results {
            if let Entry::Vacant(request) = requests.entry((&one.sink, &one.namespace)) {
                let sink = self.sink_id(&one.sink)?.unwrap_or(-1);
                request.insert((sink, self.namespace(&one.namespace)?));
            }
        }
        let numbered: Vec<_> =
            results.iter().map(|one| (requests[&(&one.sink, &one.namespace)], one)).collect();
        let (at_address, mut rest): (Vec<_>, Vec<_>) = numbered.iter().partition(|(_, one)| {
            one.row > 0 && matches!(one.disposition, Disposition::Delivered { .. })
        });
        let ended: Vec<i64> = ended.iter().map(|id| *id as i64).collect();
        if self.put_delivered(&at_address, (lease, &ended), now)? < at_address.len() {
            rest = numbered;
        }
        if !rest.is_empty() {
            self.put_each(lease, &rest, now)?;
        }
        Ok(())
    }

    /// Marks deliveries as acknowledged if each row still lies where it was read, and deletes the
    /// finished batches. Returns how many rows still lay there.
    fn put_delivered(
        &self,
        results: &[((i16, i32), &DeliveryResult)],
        (lease, ended): (LeaseId, &Vec<i64>),
        now: Now,
    ) -> Result<usize, PgFailure> {
        let row_addresses: Vec<RowAddress> =
            results.iter().map(|(_, one)| RowAddress(one.row)).collect();
        let sinks: Vec<i16> = results.iter().map(|((sink, _), _)| *sink).collect();
        let seqs: Vec<i64> = results.iter().map(|(_, one)| one.seq as i64).collect();
        let tried: Vec<i32> = results.iter().map(|(_, one)| one.tried as i32).collect();
        let states: Vec<i16> = results.iter().map(|(_, one)| state(&one.disposition)).collect();
        let (found, _) = self.link.query_both(
            (
                "SELECT hapax.put_delivered($1, $2, $3, $4, $5, $6)",
                &[
                    (&now.wall.0, Type::INT8),
                    (&row_addresses, Type::TID_ARRAY),
                    (&sinks, Type::INT2_ARRAY),
                    (&seqs, Type::INT8_ARRAY),
                    (&tried, Type::INT4_ARRAY),
                    (&states, Type::INT2_ARRAY),
                ],
            ),
            (
                "DELETE FROM hapax.send_batch WHERE lease = $1 AND id = ANY ($2)",
                &[(&&lease.as_bytes()[..], Type::BYTEA), (ended, Type::INT8_ARRAY)],
            ),
        )?;
        Ok(found.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))? as usize)
    }

    /// Records delivery results; finds each row by its sink, namespace, transaction and number.
    fn put_each(
        &self,
        lease: LeaseId,
        results: &[((i16, i32), &DeliveryResult)],
        now: Now,
    ) -> Result<(), PgFailure> {
        let (now, ended) = (now.wall, Vec::<i64>::new());
        let (l_sink, l_namespace): (Vec<i16>, Vec<i32>) =
            results.iter().map(|(request, _)| *request).unzip();
        let results = || results.iter().map(|(_, one)| one);
        let l_seq: Vec<i64> = results().map(|one| one.seq as i64).collect();
        let l_xid: Vec<i64> = results().map(|one| one.transaction as i64).collect();
        let l_tried: Vec<i32> = results().map(|one| one.tried as i32).collect();
        let l_state: Vec<i16> = results().map(|one| state(&one.disposition)).collect();
        let l_due: Vec<Option<i64>> = results()
            .map(|one| match one.disposition {
                Disposition::Again { in_ms, .. } => Some(now.plus_ms(in_ms).0),
                _ => None,
            })
            .collect();
        let l_error: Vec<Option<&str>> = results()
            .map(|one| match &one.disposition {
                Disposition::Again { error, .. } | Disposition::Failed { error, .. } => {
                    Some(error.as_str())
                }
                Disposition::Delivered { .. } => None,
            })
            .collect();
        self.link.query_prepared((
            "SELECT hapax.put_results($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            &[
                (&&lease.as_bytes()[..], Type::BYTEA),
                (&now.0, Type::INT8),
                (&ended, Type::INT8_ARRAY),
                (&l_sink, Type::INT2_ARRAY),
                (&l_namespace, Type::INT4_ARRAY),
                (&l_xid, Type::INT8_ARRAY),
                (&l_seq, Type::INT8_ARRAY),
                (&l_tried, Type::INT4_ARRAY),
                (&l_state, Type::INT2_ARRAY),
                (&l_due, Type::INT8_ARRAY),
                (&l_error, Type::TEXT_ARRAY),
            ],
        ))?;
        Ok(())
    }
}

/// The code of a delivery result.
fn state(disposition: &Disposition) -> i16 {
    match disposition {
        Disposition::Delivered { duplicate } => i16::from(*duplicate),
        Disposition::Again { .. } => 2,
        Disposition::Failed { park, .. } => 3 + i16::from(*park),
    }
}

/// The position of a row (`ctid`): its page, and its index in the page.
pub(super) struct RowAddress(pub(super) u64);

impl<'a> FromSql<'a> for RowAddress {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let raw: [u8; 6] = raw.try_into()?;
        Ok(Self(raw.iter().fold(0, |address, byte| address << 8 | u64::from(*byte))))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TID
    }
}

impl ToSql for RowAddress {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes()[2..]);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TID
    }

    to_sql_checked!();
}

impl std::fmt::Debug for RowAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({},{})", self.0 >> 16, self.0 & 0xffff)
    }
}
