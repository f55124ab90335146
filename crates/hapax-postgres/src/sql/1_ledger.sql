-- The ledger, version 1. Constraints repeat the state rules of hapax-core; they are the
-- second line, not the first.

-- Domains rather than constraints of tables: those are read anew for every statement.
CREATE DOMAIN hapax.bytes16 AS bytea CHECK (length(VALUE) = 16);
CREATE DOMAIN hapax.bytes32 AS bytea CHECK (length(VALUE) = 32);
-- 0 running, 1 succeeded, 2 failed, 3 partial, 4 unknown, 5 indeterminate, 6 skipped
CREATE DOMAIN hapax.state AS smallint CHECK (VALUE BETWEEN 0 AND 6);
-- 0 transactional, 1 reconcilable after settling_ms, 2 reconcilable at once, 3 opaque
CREATE DOMAIN hapax.safety AS smallint CHECK (VALUE BETWEEN 0 AND 3);
-- 0 granted, 1 settled, 2 expired, 3 reconciled, 4 resolved, 5 rolled back, 6 reset,
-- 7 contradicted
CREATE DOMAIN hapax.event AS smallint CHECK (VALUE BETWEEN 0 AND 7);

CREATE TABLE hapax.namespace (
    id   int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z][a-z0-9._-]{0,63}$')
);
INSERT INTO hapax.namespace (name) VALUES ('default');

-- Numbers journal entries and, with them, fences. No cache: a number is given when it is used,
-- so that whoever overtakes an attempt has the greater one.
CREATE SEQUENCE hapax.entry CACHE 1;

-- What the store knows about itself: one row.
CREATE TABLE hapax.self (
    id          int PRIMARY KEY CHECK (id = 1),
    -- Which ledger this is, and the public key of whoever was the first to seal its journal.
    ledger      uuid NOT NULL DEFAULT gen_random_uuid(),
    public_key  text,
    notice      bigint NOT NULL DEFAULT 0,
    swept       bigint NOT NULL DEFAULT 0,
    -- The last beat of the pulse and the first one after a gap, and the timeline they were
    -- beaten on: after a failover there was a gap, whatever the clocks say.
    pulse_last  bigint NOT NULL DEFAULT 0,
    pulse_since bigint NOT NULL DEFAULT 0,
    timeline    text NOT NULL DEFAULT ''
);
INSERT INTO hapax.self (id) VALUES (1);

-- What the sealer knows: one row, which is its own, for it takes its time.
CREATE TABLE hapax.sealing (
    id          int PRIMARY KEY CHECK (id = 1),
    -- How far the journal is sealed, the numbers below that may still appear, and when they no
    -- longer can: once every transaction before `mark_xid` is over, up to `mark_entry`.
    sealed      bigint NOT NULL DEFAULT 0,
    gaps        int8multirange NOT NULL DEFAULT '{}',
    mark_xid    bigint,
    mark_entry  bigint
);
INSERT INTO hapax.sealing (id) VALUES (1);

-- Large outcomes, once each. PostgreSQL compresses them.
CREATE TABLE hapax.body (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest hapax.bytes32 NOT NULL UNIQUE,
    data   bytea NOT NULL
);

-- One row an effect. Rows lie in the order of arrival, with room on each page for the settle
-- to be written beside the claim; then no index has to be touched again. Never partitioned.
CREATE TABLE hapax.effect (
    namespace   int NOT NULL,
    state       hapax.state NOT NULL,
    safety      hapax.safety NOT NULL,
    -- The newest journal entry of this effect; each entry names the one before. It is the
    -- version of the row: whoever writes names the one it has read.
    entry       bigint NOT NULL,
    fence       bigint NOT NULL,
    created     bigint NOT NULL,
    updated     bigint NOT NULL,
    generation  int NOT NULL,
    attempts    int NOT NULL,
    key         hapax.bytes32 NOT NULL,
    fingerprint hapax.bytes32 NOT NULL,
    attempt     hapax.bytes16 NOT NULL,
    lease       hapax.bytes16,
    -- The lease again, where somebody must look after what a dead holder left.
    watch       bytea,
    -- The deadline of a running effect, or since when one is unknown.
    at_ms       bigint,
    settling_ms bigint,
    ttl_ms      bigint,
    expires     bigint,
    lock        bigint,
    label       text,
    tries       int,
    -- The state again, where somebody must look: 3, 4 and 5.
    stuck       smallint,
    cause       smallint,
    reason      text,
    outcome     bytea,
    body        bigint REFERENCES hapax.body (id),
    digest      bytea,
    size        bigint,
    PRIMARY KEY (namespace, key),
    CHECK ((safety = 1) = (settling_ms IS NOT NULL)),
    -- What only one state knows is there in that state and in no other.
    CHECK (state = CASE WHEN lease IS NOT NULL THEN 0 WHEN outcome IS NOT NULL OR digest IS NOT NULL
        THEN 1 WHEN cause IS NOT NULL THEN 2 WHEN tries IS NOT NULL THEN 4 ELSE coalesce(stuck, 6) END),
    CHECK ((state > 1) = (reason IS NOT NULL))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- Small sets, each on a column of its own.
CREATE INDEX effect_watch ON hapax.effect (watch) WHERE watch IS NOT NULL;
CREATE INDEX effect_at ON hapax.effect (at_ms) WHERE at_ms IS NOT NULL;
CREATE INDEX effect_stuck ON hapax.effect (stuck) WHERE stuck IS NOT NULL;
CREATE INDEX effect_expires ON hapax.effect (expires) WHERE expires IS NOT NULL;
CREATE INDEX effect_body ON hapax.effect (body) WHERE body IS NOT NULL;

CREATE TABLE hapax.lease (
    id       hapax.bytes16 PRIMARY KEY,
    term_ms  bigint NOT NULL CHECK (term_ms > 0),
    until_ms bigint NOT NULL,
    dead     boolean NOT NULL,
    holder   text NOT NULL,
    seen     bigint NOT NULL
);

CREATE FUNCTION hapax.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'HX105';
END $$;

CREATE TRIGGER dead_is_dead BEFORE UPDATE ON hapax.lease FOR EACH ROW
    WHEN (OLD.dead AND NOT NEW.dead)
    EXECUTE FUNCTION hapax.refuse('a dead lease is never revived');

CREATE TABLE hapax.lock (
    namespace int NOT NULL,
    lock      bigint NOT NULL,
    holder    hapax.bytes32 NOT NULL,
    attempt   hapax.bytes16 NOT NULL,
    PRIMARY KEY (namespace, lock)
);

CREATE TABLE hapax.step (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace int NOT NULL,
    key       hapax.bytes32 NOT NULL,
    attempt   hapax.bytes16 NOT NULL,
    name      text NOT NULL,
    payload   bytea NOT NULL
);
CREATE INDEX step_attempt ON hapax.step (attempt);

CREATE TABLE hapax.journal (
    id         bigint NOT NULL,
    prev       bigint,
    at         bigint NOT NULL,
    namespace  int NOT NULL,
    generation int NOT NULL,
    event      hapax.event NOT NULL,
    state      hapax.state NOT NULL,
    key        hapax.bytes32 NOT NULL,
    attempt    hapax.bytes16 NOT NULL,
    digest     bytea,
    actor      text,
    note       text,
    PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
-- What no partition was made for in time; empty where `hapax doctor` is content.
CREATE TABLE hapax.journal_default PARTITION OF hapax.journal DEFAULT;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.journal FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('the journal cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.journal FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the journal cannot be truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.journal_default FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the journal cannot be truncated');

-- Makes the journal's partitions of this month and those to come, where they are missing. Gives
-- up quietly when somebody is in the way, or when entries of a month went to the default
-- partition; it will be asked again.
CREATE FUNCTION hapax.make_partitions(ahead int DEFAULT 2) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    month timestamptz;
    part text;
    made int := 0;
    since bigint;
    until bigint;
    there boolean;
BEGIN
    FOR n IN 0..ahead LOOP
        month := date_trunc('month', clock_timestamp(), 'UTC') + make_interval(months => n);
        part := 'journal_' || to_char(month AT TIME ZONE 'UTC', 'YYYY_MM');
        CONTINUE WHEN to_regclass('hapax.' || part) IS NOT NULL;
        since := extract(epoch FROM month) * 1000;
        until := extract(epoch FROM month + interval '1 month') * 1000;
        SELECT EXISTS (SELECT 1 FROM hapax.journal_default j WHERE j.at >= since AND j.at < until)
        INTO there;
        CONTINUE WHEN there;
        EXECUTE format('CREATE TABLE hapax.%I PARTITION OF hapax.journal FOR VALUES FROM (%s) TO (%s)',
                       part, since, until);
        EXECUTE format('CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.%I FOR EACH STATEMENT
                        EXECUTE FUNCTION hapax.refuse(%L)', part, 'the journal cannot be truncated');
        made := made + 1;
    END LOOP;
    RETURN made;
EXCEPTION WHEN lock_not_available OR duplicate_table THEN
    RETURN 0;
END $$;
SELECT hapax.make_partitions();

-- The Merkle tree over the journal: up to 256 hashes a tile. The lowest tiles also name the
-- entries that are their leaves: numbers have gaps, and entries may commit out of order.
CREATE TABLE hapax.tile (
    level   int NOT NULL,
    place   bigint NOT NULL,
    hashes  bytea NOT NULL CHECK (length(hashes) BETWEEN 32 AND 8192 AND length(hashes) % 32 = 0),
    entries bigint[] CHECK ((level = 0) = (entries IS NOT NULL)),
    -- The least and the greatest of them.
    least    bigint,
    greatest bigint,
    CHECK (level > 0 OR cardinality(entries) * 32 = length(hashes)),
    PRIMARY KEY (level, place)
);
CREATE TRIGGER grows BEFORE UPDATE ON hapax.tile FOR EACH ROW
    WHEN (substring(NEW.hashes, 1, length(OLD.hashes)) <> OLD.hashes
        OR NEW.level <> OLD.level OR NEW.place <> OLD.place
        OR NEW.entries[:cardinality(OLD.entries)] <> OLD.entries)
    EXECUTE FUNCTION hapax.refuse('a tile only grows');
CREATE TRIGGER no_delete BEFORE DELETE ON hapax.tile FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('a tile cannot be deleted');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.tile FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('tiles cannot be truncated');

-- Signed heads of the tree.
CREATE TABLE hapax.head (
    size bigint PRIMARY KEY,
    note text NOT NULL
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.head FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('a head cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.head FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('heads cannot be truncated');

-- Partitions of the journal that have left: which leaves, and the digest of the file they were
-- exported to. Their hashes stay in the tree.
CREATE TABLE hapax.archive (
    partition text PRIMARY KEY,
    leaves    int8multirange NOT NULL,
    digest    hapax.bytes32 NOT NULL,
    at        timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.archive FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('the archive cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.archive FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the archive cannot be truncated');

-- The store's one clock, in milliseconds.
CREATE FUNCTION hapax.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
    RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- The next number for an entry. The transaction has its own before it takes one: when every
-- transaction up to some number is over, so is every entry below (see sql/sealing.sql).
CREATE FUNCTION hapax.next_entry() RETURNS bigint LANGUAGE sql VOLATILE
    RETURN CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('hapax.entry') END;

-- What is about to be committed reaches the disk, and a synchronous standby where there is one,
-- whatever the session is used to.
CREATE FUNCTION hapax.durably() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Claims of new keys and successes of running effects, as many as are waiting, in one round
-- trip and one commit. Returns those that took hold; the others found something else than they
-- had reckoned with, and are looked at one by one. The arrays come sorted by key, so that two
-- calls cannot wait for each other, and all settles go before all claims.
--
-- The settings keep to plans that look up each key in the index. They are made once a session,
-- perhaps while the table is empty, and have to do when it is not.
CREATE FUNCTION hapax.quick(
    now bigint,
    s_namespace int[], s_key bytea[], s_entry bigint[], s_outcome bytea[], s_digest bytea[],
    s_expires bigint[],
    c_namespace int[], c_key bytea[], c_fingerprint bytea[], c_safety smallint[],
    c_settling bigint[], c_attempt bytea[], c_label text[], c_ttl bigint[], c_lease bytea[],
    c_deadline bigint[]
) RETURNS TABLE (namespace int, key bytea, entry bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '50ms'
AS $$
#variable_conflict use_column
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM hapax.durably();
    END IF;
    IF cardinality(s_key) > 0 THEN
        RETURN QUERY
        WITH done AS (
            UPDATE hapax.effect e
            SET state = 1, updated = now, entry = hapax.next_entry(), lease = NULL,
                watch = NULL, at_ms = NULL, outcome = s.outcome, expires = s.expires
            FROM unnest(s_namespace, s_key, s_entry, s_outcome, s_digest, s_expires)
                AS s (namespace, key, entry, outcome, digest, expires)
            WHERE e.namespace = s.namespace AND e.key = s.key AND e.entry = s.entry AND e.state = 0
            RETURNING e.entry, s.entry AS prev, e.namespace, e.key, e.generation, e.attempt,
                s.digest
        ), noted AS (
            INSERT INTO hapax.journal
                (id, prev, at, namespace, generation, event, state, key, attempt, digest)
            SELECT d.entry, d.prev, now, d.namespace, d.generation, 1, 1, d.key, d.attempt, d.digest
            FROM done d
        )
        SELECT d.namespace, d.key::bytea, d.entry FROM done d;
    END IF;
    IF cardinality(c_key) > 0 THEN
        RETURN QUERY
        WITH made AS (
            INSERT INTO hapax.effect AS e
                (namespace, state, safety, entry, fence, created, updated, generation, attempts,
                 key, fingerprint, attempt, lease, watch, at_ms, settling_ms, ttl_ms, label)
            SELECT n.namespace, 0, n.safety, n.entry, n.entry, now, now, 1, 1, n.key,
                n.fingerprint, n.attempt, n.lease, CASE WHEN n.safety <> 0 THEN n.lease END,
                n.deadline, n.settling, n.ttl, n.label
            FROM (
                SELECT hapax.next_entry() AS entry, c.*
                FROM unnest(c_namespace, c_key, c_fingerprint, c_safety, c_settling, c_attempt,
                            c_label, c_ttl, c_lease, c_deadline)
                    AS c (namespace, key, fingerprint, safety, settling, attempt, label, ttl,
                          lease, deadline)
                WHERE (SELECT e.entry FROM hapax.effect e
                       WHERE e.namespace = c.namespace AND e.key = c.key) IS NULL
                    AND EXISTS (SELECT 1 FROM hapax.lease l WHERE l.id = c.lease AND NOT l.dead)
            ) n
            ON CONFLICT DO NOTHING
            RETURNING e.entry, e.namespace, e.key, e.attempt, e.fingerprint
        ), noted AS (
            INSERT INTO hapax.journal
                (id, at, namespace, generation, event, state, key, attempt, digest)
            SELECT m.entry, now, m.namespace, 1, 0, 0, m.key, m.attempt, m.fingerprint FROM made m
        )
        SELECT m.namespace, m.key::bytea, m.entry FROM made m;
    END IF;
END $$;

CREATE FUNCTION hapax.state_name(code int) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN (ARRAY['running', 'succeeded', 'failed', 'partial', 'unknown', 'indeterminate',
                  'skipped'])[code + 1];

-- For people with an SQL prompt.
CREATE VIEW hapax.effects AS
SELECT 'sha256:' || encode(e.key, 'hex') AS key, n.name AS namespace, e.label,
       hapax.state_name(e.state) AS state,
       'att_' || encode(e.attempt, 'hex') AS attempt, e.fence, e.generation, e.attempts, e.reason,
       to_timestamp(e.created / 1000.0) AS created, to_timestamp(e.updated / 1000.0) AS updated
FROM hapax.effect e JOIN hapax.namespace n ON n.id = e.namespace;

-- The log of the pipeline documents, under their names. What they call a pipeline, a task and a
-- dataset is recorded with pipeline operations; other effects have none.
CREATE VIEW hapax.idempotency_log AS
SELECT 'sha256:' || encode(e.key, 'hex') AS idem_key, NULL::text AS pipeline_id,
       NULL::text AS task_id, NULL::text AS dataset_id, NULL::text AS operation_type,
       CASE WHEN e.state = 1 THEN 'success' WHEN e.state IN (2, 6) THEN 'failure' ELSE 'partial' END
           AS status,
       CASE WHEN e.state = 1 THEN 'sha256:' || encode(coalesce(e.digest, sha256(e.outcome)), 'hex') END
           AS result_hash,
       to_timestamp(e.created / 1000.0) AS created_at, to_timestamp(e.updated / 1000.0) AS updated_at,
       'sha256:' || encode(e.fingerprint, 'hex') AS raw_checksum, NULL::text AS params_hash,
       e.entry::text AS wal_pointer
FROM hapax.effect e WHERE e.state <> 0;
