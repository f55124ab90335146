//! Checks of a database's health, and the repair after a restore.

use hapax_store::StoreError;

use crate::connect::Link;
use crate::error::PgFailure;
use crate::store::{PgStore, with_retries};

/// A problem of the database, for an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseProblem {
    /// Whether the operator must act. If not, it is enough to look.
    pub severe: bool,
    /// The problem.
    pub what: String,
    /// The action that the operator should take.
    pub next: String,
}

/// How far the counter of fences jumps after a restore may have turned it back.
const JUMP: i64 = 1 << 40;

impl PgStore {
    /// Looks at the server's settings, the schema's indexes and partitions, bloat, old snapshots
    /// and replication. Blocks.
    pub fn examine(&self) -> Result<Vec<DatabaseProblem>, StoreError> {
        with_retries(|| examine(&self.connect()?))
    }

    /// Call this once after the database was restored from a backup, before anything else. It ends
    /// all leases, so that no process holds a running effect, and lifts the fences above every fence
    /// that was ever given. Returns how many effects were running. Blocks.
    pub fn after_restore(&self) -> Result<u64, StoreError> {
        with_retries(|| {
            let link = self.connect()?;
            link.run("BEGIN; UPDATE hapax.lease SET dead = true")?;
            link.run(&format!(
                "SELECT setval('hapax.entry', (SELECT last_value FROM hapax.entry) + {JUMP}); COMMIT"
            ))?;
            let sql = "SELECT count(*) FROM hapax.effect WHERE state = 0";
            Ok(link.one(sql, &[])?.try_get::<_, i64>(0)? as u64)
        })
    }
}

fn examine(link: &Link) -> Result<Vec<DatabaseProblem>, PgFailure> {
    let mut problems = Vec::new();
    for check in CHECKS {
        for row in link.query(check.sql, &[])? {
            let what: String = row.try_get(0)?;
            problems.push(DatabaseProblem { severe: check.severe, what, next: check.next.into() });
        }
    }
    Ok(problems)
}

/// The durability settings that are off. A session cannot turn them on.
pub(crate) fn turned_off(link: &Link) -> Result<Vec<String>, PgFailure> {
    let sql = "SELECT name FROM pg_settings
        WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name";
    link.query(sql, &[])?.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// A query that returns one row for each problem.
struct Check {
    severe: bool,
    sql: &'static str,
    next: &'static str,
}

const CHECKS: [Check; 10] = [
    Check {
        severe: true,
        sql: "SELECT format('%s is %s: a crash of the server can lose what was acknowledged', name,
                  setting)
              FROM pg_settings
              WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'",
        next: "set it in postgresql.conf, and reload",
    },
    Check {
        severe: false,
        sql: "SELECT format('synchronous_commit is %s: what you commit without hapax can be lost in a crash',
                  reset_val)
              FROM pg_settings WHERE name = 'synchronous_commit' AND reset_val IN ('off', 'local')",
        next: "nothing for hapax, whose sessions and functions turn it on; see whether it is meant",
    },
    Check {
        severe: true,
        sql: "SELECT format('the index hapax.%s is missing or invalid', want)
              FROM unnest(ARRAY['effect_pkey', 'effect_watch', 'effect_at', 'effect_stuck',
                  'effect_expires', 'effect_body', 'lease_pkey', 'lock_pkey', 'step_attempt',
                  'journal_pkey', 'tile_pkey', 'head_pkey', 'body_digest_key']) want
              WHERE NOT EXISTS (SELECT 1 FROM pg_index WHERE indisvalid
                                AND indexrelid = to_regclass('hapax.' || want))",
        next: "make it again, as `hapax migrate --print` shows it; REINDEX an invalid one",
    },
    Check {
        severe: true,
        sql: "SELECT format('the triggers of %s are disabled: the journal can be changed', tgrelid::regclass)
              FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
              WHERE c.relnamespace = 'hapax'::regnamespace AND NOT t.tgisinternal
                  AND t.tgenabled = 'D' GROUP BY tgrelid",
        next: "ALTER TABLE … ENABLE TRIGGER ALL, and verify the journal",
    },
    Check {
        severe: false,
        sql: "SELECT format('%s has %s dead rows beside %s live ones', relid::regclass, n_dead_tup,
                  n_live_tup)
              FROM pg_stat_user_tables
              WHERE schemaname = 'hapax' AND n_dead_tup > 100000 AND n_dead_tup > n_live_tup / 2",
        next: "see that autovacuum runs and keeps up; an old snapshot keeps it from cleaning",
    },
    Check {
        severe: false,
        sql: "SELECT format('process %s (%s) keeps a snapshot for %s s: nothing newer can be cleaned up',
                  pid, coalesce(nullif(application_name, ''), backend_type),
                  extract(epoch FROM clock_timestamp() - xact_start)::int)
              FROM pg_stat_activity
              WHERE xact_start < clock_timestamp() - interval '5 minutes'
                  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
                  AND backend_type <> 'autovacuum worker'",
        next: "end that transaction; while it is open, journal entries of its time are held back from cleaning",
    },
    Check {
        severe: false,
        sql: "SELECT format('there is no partition of the journal for %s', to_char(month, 'YYYY-MM'))
              FROM generate_series(date_trunc('month', now() AT TIME ZONE 'UTC'),
                  date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month', '1 month') month
              WHERE to_regclass('hapax.journal_' || to_char(month, 'YYYY_MM')) IS NULL",
        next: "SELECT hapax.make_partitions(), as the schema's owner",
    },
    Check {
        severe: false,
        sql: "SELECT format('there is no partition of the outbox for %s', to_char(month, 'YYYY-MM'))
              FROM (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month' AS month) next
              WHERE to_regclass('hapax.outbox_record_' || to_char(month, 'YYYY_MM')) IS NULL",
        next: "SELECT hapax.make_partitions(), as the schema's owner",
    },
    Check {
        severe: false,
        sql: "SELECT 'the default partition of the journal has entries: partitions were not made in time'
              WHERE EXISTS (SELECT 1 FROM hapax.journal_default)",
        next: "nothing is lost; maintenance makes the next months' partitions",
    },
    Check {
        severe: false,
        sql: "SELECT format('%s standby servers follow, none of them synchronously: a failover can lose what was acknowledged',
                  count(*))
              FROM pg_stat_replication HAVING count(*) > 0
                  AND count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) = 0",
        next: "set synchronous_standby_names",
    },
];
