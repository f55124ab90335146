-- The outbox: sinks, routes, records and their deliveries.

CREATE TABLE sink (
    id           INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    declared     INTEGER NOT NULL DEFAULT 1,
    paused       INTEGER NOT NULL DEFAULT 0 CHECK (paused BETWEEN 0 AND 1),
    changed      INTEGER NOT NULL DEFAULT 0,
    remembers_ms INTEGER
) STRICT;

-- Which records go to which sink. A route with several sinks has several rows; a route without a
-- sink has one row, whose sink is NULL.
CREATE TABLE route (
    id      INTEGER PRIMARY KEY,
    nth     INTEGER NOT NULL,
    event   TEXT NOT NULL,
    dataset TEXT NOT NULL,
    sink    INTEGER REFERENCES sink (id)
) STRICT;

-- The guards that payloads must pass: one row.
CREATE TABLE guard (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    personal   INTEGER NOT NULL DEFAULT 1,
    secrets    INTEGER NOT NULL DEFAULT 1,
    registered INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO guard (id) VALUES (1);

-- Events as they were recorded. `seq` is their order.
CREATE TABLE outbox_record (
    seq              INTEGER PRIMARY KEY,
    outbox_id        BLOB NOT NULL UNIQUE CHECK (length(outbox_id) = 16),
    namespace        INTEGER NOT NULL,
    idempotency_key  BLOB NOT NULL CHECK (length(idempotency_key) = 32),
    ordinal          INTEGER NOT NULL,
    event_name       TEXT NOT NULL CHECK (event_name <> ''),
    dataset_id       TEXT NOT NULL CHECK (dataset_id <> ''),
    pipeline_id      TEXT,
    version          TEXT,
    -- 0 in the order of its dataset, 1 of another key, 2 of none
    ordering         INTEGER NOT NULL CHECK (ordering BETWEEN 0 AND 2),
    order_key        TEXT CHECK ((ordering = 1) = (order_key IS NOT NULL)),
    ordering_hash            INTEGER NOT NULL,
    payload          TEXT NOT NULL CHECK (json_valid(payload)),
    created_at       INTEGER NOT NULL,
    -- The version that the event says was published.
    artifact_version TEXT,
    checksum         TEXT CHECK ((checksum IS NULL) = (artifact_version IS NULL)),
    uri              TEXT CHECK ((uri IS NULL) = (artifact_version IS NULL)),
    -- The trace that the event belongs to, as `traceparent` has it.
    trace            TEXT
) STRICT;

-- Published versions, each with the record that announces it.
CREATE TABLE artifact (
    namespace  INTEGER NOT NULL,
    dataset_id TEXT NOT NULL,
    version    TEXT NOT NULL,
    checksum   TEXT NOT NULL CHECK (checksum <> ''),
    uri        TEXT NOT NULL CHECK (uri <> ''),
    record     INTEGER NOT NULL REFERENCES outbox_record (seq),
    PRIMARY KEY (namespace, dataset_id, version)
) STRICT, WITHOUT ROWID;

-- The working set: records that a sink does not have yet. Only a delivery's state changes.
CREATE TABLE delivery (
    sink      INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    namespace INTEGER NOT NULL,
    ordering_hash     INTEGER NOT NULL,
    tried     INTEGER NOT NULL DEFAULT 0,
    -- When to try next; NULL once it has failed.
    due       INTEGER,
    -- Whether later deliveries of its ordering key wait until it is redriven.
    parks     INTEGER NOT NULL DEFAULT 0 CHECK (parks = 0 OR due IS NULL),
    error     TEXT,
    updated   INTEGER NOT NULL,
    PRIMARY KEY (sink, namespace, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX delivery_failed ON delivery (sink, seq) WHERE due IS NULL;
CREATE INDEX delivery_of ON delivery (seq);
CREATE INDEX delivery_ordering ON delivery (ordering_hash, seq);

-- Acknowledged deliveries.
CREATE TABLE dispatched (
    seq       INTEGER NOT NULL,
    sink      INTEGER NOT NULL,
    tried     INTEGER NOT NULL,
    duplicate INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    error     TEXT,
    PRIMARY KEY (seq, sink)
) STRICT, WITHOUT ROWID;

-- The buckets that each dispatcher leases.
CREATE TABLE dispatcher (
    lease   BLOB PRIMARY KEY CHECK (length(lease) = 16),
    buckets BLOB NOT NULL CHECK (length(buckets) = 128)
) STRICT, WITHOUT ROWID;

-- The batches that each dispatcher has in flight.
CREATE TABLE send_batch (
    lease BLOB NOT NULL,
    id    INTEGER NOT NULL,
    sink  INTEGER NOT NULL,
    -- Pairs, as JSON: the number of a record, and how often it was tried, this time included.
    tries TEXT NOT NULL,
    PRIMARY KEY (lease, id)
) STRICT, WITHOUT ROWID;
