-- The outbox: sinks, routes, records and their deliveries.

CREATE TABLE hapax.sink (
    id           smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (name ~ '^[a-z][a-z0-9_-]{0,63}$'),
    declared     boolean NOT NULL DEFAULT true,
    paused       boolean NOT NULL DEFAULT false,
    changed      bigint NOT NULL DEFAULT 0,
    remembers_ms bigint
);

-- Which records go to which sink. A route with several sinks has several rows; a route without a
-- sink has one row, whose sink is NULL. Patterns as they were declared, and as LIKE reads them.
CREATE TABLE hapax.route (
    id           int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    nth          int NOT NULL,
    event        text NOT NULL,
    dataset      text NOT NULL,
    sink         smallint REFERENCES hapax.sink (id),
    event_like   text NOT NULL GENERATED ALWAYS AS
        (replace(replace(replace(replace(event, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')) STORED,
    dataset_like text NOT NULL GENERATED ALWAYS AS
        (replace(replace(replace(replace(dataset, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')) STORED
);

-- The guards that payloads must pass: one row. hapax-core checks them; `hapax.emit` alone does
-- not.
CREATE TABLE hapax.guard (
    id         int PRIMARY KEY CHECK (id = 1),
    personal   boolean NOT NULL DEFAULT true,
    secrets    boolean NOT NULL DEFAULT true,
    registered boolean NOT NULL DEFAULT false
);
INSERT INTO hapax.guard (id) VALUES (1);

-- Events as they were recorded. `seq` is their order. A change data capture tool can read this
-- table; Debezium's outbox router needs only the names of its columns. The trigger `is_whole`
-- ties the columns to each other.
--
-- A partition per month. Ids begin with the time at which their effect was first claimed, so the
-- ids of a month are a range, and an id is unique among all months.
CREATE SEQUENCE hapax.outbox_seq CACHE 1;
CREATE TABLE hapax.outbox_record (
    seq              bigint NOT NULL DEFAULT nextval('hapax.outbox_seq'),
    created_at       bigint NOT NULL,
    ordering_hash            bigint NOT NULL,
    namespace        int NOT NULL,
    ordinal          int NOT NULL,
    -- 0 in the order of its dataset, 1 of another key, 2 of none
    ordering         smallint NOT NULL,
    outbox_id        uuid NOT NULL,
    idempotency_key  hapax.bytes32 NOT NULL,
    event_name       text NOT NULL,
    dataset_id       text NOT NULL,
    pipeline_id      text,
    version          text,
    order_key        text,
    payload          json NOT NULL,
    -- The version that the event says was published.
    artifact_version text,
    checksum         text,
    uri              text,
    -- The trace that the event belongs to, as `traceparent` has it.
    trace            text,
    -- Whether the guards have passed it. A dispatcher checks a record that `hapax.emit` wrote
    -- before it sends it.
    judged           boolean NOT NULL DEFAULT false,
    CONSTRAINT outbox_record_outbox_id_key UNIQUE (outbox_id)
) PARTITION BY RANGE (outbox_id);
CREATE INDEX outbox_record_seq ON hapax.outbox_record (seq);
-- Records of a month whose partition was not made in time, or was detached.
CREATE TABLE hapax.outbox_record_default PARTITION OF hapax.outbox_record DEFAULT;

-- Published versions, each with the record that announces it. No foreign key: the trigger
-- `is_told` looks for the record on insert, and a record cannot be deleted.
CREATE TABLE hapax.artifact (
    namespace  int NOT NULL,
    dataset_id text NOT NULL,
    version    text NOT NULL,
    checksum   text NOT NULL CHECK (checksum <> ''),
    uri        text NOT NULL CHECK (uri <> ''),
    record     bigint NOT NULL,
    PRIMARY KEY (namespace, dataset_id, version)
);

-- The working set: records that a sink does not have yet. Only a delivery's state changes.
CREATE TABLE hapax.delivery (
    seq       bigint NOT NULL,
    -- The transaction that recorded the event. Commits finish out of order, so a dispatcher goes
    -- back to the oldest transaction that may have been open.
    xid       bigint NOT NULL,
    ordering_hash     bigint NOT NULL,
    -- When to try next; NULL once it has failed.
    due       bigint,
    updated   bigint NOT NULL,
    namespace int NOT NULL,
    tried     int NOT NULL DEFAULT 0,
    sink      smallint NOT NULL,
    -- Whether later deliveries of its ordering key wait until it is redriven.
    parks     boolean NOT NULL DEFAULT false CHECK (NOT parks OR due IS NULL),
    error     text,
    -- Names the record's month, so that the record is looked for in one partition.
    outbox_id uuid NOT NULL,
    PRIMARY KEY (ordering_hash, seq, sink)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX delivery_queue ON hapax.delivery (sink, namespace, xid, seq) WHERE due IS NOT NULL;
CREATE INDEX delivery_failed ON hapax.delivery (sink, seq) WHERE due IS NULL;

-- Acknowledged deliveries: one row for many records, so that history costs next to nothing.
CREATE TABLE hapax.dispatched (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sink       smallint NOT NULL,
    at         bigint NOT NULL,
    -- From the first to the last of them.
    span       int8range NOT NULL,
    seqs       bigint[] NOT NULL,
    -- How often each was tried, and which of them the sink had before.
    tried      int[] NOT NULL CHECK (cardinality(tried) = cardinality(seqs)),
    duplicates bigint[] NOT NULL DEFAULT '{}'
);
CREATE INDEX dispatched_span ON hapax.dispatched USING gist (span);

-- The buckets that each dispatcher leases.
CREATE TABLE hapax.dispatcher (
    lease   hapax.bytes16 PRIMARY KEY,
    buckets bytea NOT NULL CHECK (length(buckets) = 128)
);

-- The batches that each dispatcher has in flight.
CREATE TABLE hapax.send_batch (
    lease  hapax.bytes16 NOT NULL,
    id     bigint NOT NULL,
    sink   smallint NOT NULL,
    seqs   bigint[] NOT NULL,
    ordering_hashes bigint[] NOT NULL,
    tried  int[] NOT NULL,
    PRIMARY KEY (lease, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Hashes of ordering keys do not compress. Sequences of numbers do, and fastest with lz4, which not
-- every build of PostgreSQL has.
ALTER TABLE hapax.send_batch ALTER COLUMN ordering_hashes SET STORAGE EXTERNAL;
DO $$
BEGIN
    ALTER TABLE hapax.send_batch ALTER COLUMN seqs SET COMPRESSION lz4, ALTER COLUMN tried SET COMPRESSION lz4;
    ALTER TABLE hapax.dispatched ALTER COLUMN seqs SET COMPRESSION lz4, ALTER COLUMN tried SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;
