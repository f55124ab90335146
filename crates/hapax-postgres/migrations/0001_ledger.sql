-- The ledger: namespaces, effects, leases and locks. The database repeats the state rules of
-- hapax-core; it is the second line of defence, not the first.

-- Domains, because PostgreSQL loads the CHECK constraints of a table again for every statement.
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

-- The store's own state: one row.
CREATE TABLE hapax.self (
    id         int PRIMARY KEY CHECK (id = 1),
    -- The id of this ledger, and the public key that its journal is sealed with: the first key
    -- that a node offered.
    ledger     uuid NOT NULL DEFAULT gen_random_uuid(),
    public_key text,
    notice     bigint NOT NULL DEFAULT 0,
    swept      bigint NOT NULL DEFAULT 0,
    -- The last beat of the pulse, and the timeline of the server that it was on. A failover
    -- changes the timeline and counts as a gap, whatever the clocks say.
    pulse_last bigint NOT NULL DEFAULT 0,
    timeline   text NOT NULL DEFAULT '',
    -- When the newest gap between two beats of more than 32, 38, 45, 53, 64 … 217088 ms ended.
    -- Each lease is judged by the gaps that matter to its own term.
    pulse_gaps bigint[] NOT NULL DEFAULT array_fill(0::bigint, ARRAY[52])
);
INSERT INTO hapax.self (id) VALUES (1);

-- Large outcomes, once each. PostgreSQL compresses them.
CREATE TABLE hapax.body (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest hapax.bytes32 NOT NULL UNIQUE,
    data   bytea NOT NULL
);

-- One row per effect. Rows lie in the order of arrival, with room on each page for the settle to
-- be written beside its claim; then no index has to be touched again. Never partitioned. The
-- trigger `is_whole` ties columns to states.
CREATE TABLE hapax.effect (
    namespace   int NOT NULL,
    state       hapax.state NOT NULL,
    safety      hapax.safety NOT NULL,
    -- The newest journal entry of this effect; each entry names the one before. It is the version
    -- of the row: a writer names the version that it has read.
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
    -- Repeats the lease of every effect that is not transactional: a dead holder leaves such an
    -- effect to be expired.
    watch       bytea,
    -- The deadline of a running effect, or since when one is unknown.
    at_ms       bigint,
    settling_ms bigint,
    ttl_ms      bigint,
    expires     bigint,
    lock        bigint,
    label       text,
    tries       int,
    -- Repeats the state of an effect that an operator must look at: 3, 4 and 5.
    stuck       smallint,
    cause       smallint,
    reason      text,
    outcome     bytea,
    body        bigint REFERENCES hapax.body (id),
    digest      bytea,
    size        bigint,
    -- The domain and epoch that the effect is bound to, if any.
    domain      text,
    epoch       bigint,
    -- Repeats the domain in states 0, 4 and 5, in which the end of the epoch voids the effect. A
    -- column of its own, so that the common change of state touches no index.
    voidable    text,
    PRIMARY KEY (namespace, key)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- Small sets, each on a column of its own.
CREATE INDEX effect_watch ON hapax.effect (watch) WHERE watch IS NOT NULL;
CREATE INDEX effect_at ON hapax.effect (at_ms) WHERE at_ms IS NOT NULL;
CREATE INDEX effect_stuck ON hapax.effect (stuck) WHERE stuck IS NOT NULL;
CREATE INDEX effect_expires ON hapax.effect (expires) WHERE expires IS NOT NULL;
CREATE INDEX effect_body ON hapax.effect (body) WHERE body IS NOT NULL;
CREATE INDEX effect_voidable ON hapax.effect (voidable) WHERE voidable IS NOT NULL;

CREATE TABLE hapax.lease (
    id       hapax.bytes16 PRIMARY KEY,
    term_ms  bigint NOT NULL CHECK (term_ms > 0),
    until_ms bigint NOT NULL,
    dead     boolean NOT NULL,
    holder   text NOT NULL,
    seen     bigint NOT NULL
);

CREATE TABLE hapax.lock (
    namespace int NOT NULL,
    lock      bigint NOT NULL,
    holder    hapax.bytes32 NOT NULL,
    attempt   hapax.bytes16 NOT NULL,
    PRIMARY KEY (namespace, lock)
);

-- How to undo one step of an attempt.
CREATE TABLE hapax.step (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace int NOT NULL,
    key       hapax.bytes32 NOT NULL,
    attempt   hapax.bytes16 NOT NULL,
    name      text NOT NULL,
    payload   bytea NOT NULL
);
CREATE INDEX step_attempt ON hapax.step (attempt);
