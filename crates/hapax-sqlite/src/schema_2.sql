-- The outbox, version 2 of the schema.

-- Where events go, and what is known of each place.
CREATE TABLE sink (
    id           INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    declared     INTEGER NOT NULL DEFAULT 1,
    paused       INTEGER NOT NULL DEFAULT 0 CHECK (paused BETWEEN 0 AND 1),
    changed      INTEGER NOT NULL DEFAULT 0,
    remembers_ms INTEGER
) STRICT;

-- Which events go where; several rows where a route has several sinks, one without a sink where
-- it has none.
CREATE TABLE route (
    id      INTEGER PRIMARY KEY,
    nth     INTEGER NOT NULL,
    event   TEXT NOT NULL,
    dataset TEXT NOT NULL,
    sink    INTEGER REFERENCES sink (id)
) STRICT;

-- What payloads must not have in them: one row.
CREATE TABLE guard (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    personal INTEGER NOT NULL DEFAULT 1,
    secrets  INTEGER NOT NULL DEFAULT 1
) STRICT;
INSERT INTO guard (id) VALUES (1);

-- Events as they were recorded. `seq` is their order.
CREATE TABLE outbox_record (
    seq             INTEGER PRIMARY KEY,
    outbox_id       BLOB NOT NULL UNIQUE CHECK (length(outbox_id) = 16),
    namespace       INTEGER NOT NULL,
    idempotency_key BLOB NOT NULL CHECK (length(idempotency_key) = 32),
    ordinal         INTEGER NOT NULL,
    event_name      TEXT NOT NULL CHECK (event_name <> ''),
    dataset_id      TEXT NOT NULL CHECK (dataset_id <> ''),
    pipeline_id     TEXT,
    version         TEXT,
    -- 0 in the order of its dataset, 1 of another key, 2 of none
    ordering        INTEGER NOT NULL CHECK (ordering BETWEEN 0 AND 2),
    order_key       TEXT CHECK ((ordering = 1) = (order_key IS NOT NULL)),
    track           INTEGER NOT NULL,
    payload         TEXT NOT NULL CHECK (json_valid(payload)),
    created_at      INTEGER NOT NULL,
    -- What it says was published.
    artifact_version TEXT,
    checksum        TEXT CHECK ((checksum IS NULL) = (artifact_version IS NULL)),
    uri             TEXT CHECK ((uri IS NULL) = (artifact_version IS NULL))
) STRICT;

CREATE TRIGGER outbox_record_grows BEFORE INSERT ON outbox_record
WHEN EXISTS (SELECT 1 FROM outbox_record WHERE seq = NEW.seq OR outbox_id = NEW.outbox_id)
BEGIN SELECT RAISE(FAIL, 'an outbox record is written once'); END;
CREATE TRIGGER outbox_record_no_update BEFORE UPDATE ON outbox_record
BEGIN SELECT RAISE(FAIL, 'an outbox record cannot be changed'); END;
CREATE TRIGGER outbox_record_no_delete BEFORE DELETE ON outbox_record
BEGIN SELECT RAISE(FAIL, 'an outbox record cannot be deleted'); END;

-- Published versions, each with the event that tells of it.
CREATE TABLE artifact (
    namespace INTEGER NOT NULL,
    dataset_id TEXT NOT NULL,
    version   TEXT NOT NULL,
    checksum  TEXT NOT NULL CHECK (checksum <> ''),
    uri       TEXT NOT NULL CHECK (uri <> ''),
    record    INTEGER NOT NULL REFERENCES outbox_record (seq),
    PRIMARY KEY (namespace, dataset_id, version)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER artifact_once BEFORE INSERT ON artifact
WHEN EXISTS (SELECT 1 FROM artifact WHERE namespace = NEW.namespace
             AND dataset_id = NEW.dataset_id AND version = NEW.version)
BEGIN SELECT RAISE(FAIL, 'a version is published once'); END;
-- Not left to the foreign key, which a connection can do without.
CREATE TRIGGER artifact_told BEFORE INSERT ON artifact
WHEN NOT EXISTS (SELECT 1 FROM outbox_record WHERE seq = NEW.record AND namespace = NEW.namespace
                 AND dataset_id = NEW.dataset_id)
BEGIN SELECT RAISE(FAIL, 'an artifact is published with an outbox record of its dataset'); END;
CREATE TRIGGER artifact_no_update BEFORE UPDATE ON artifact
BEGIN SELECT RAISE(FAIL, 'a published version cannot be changed'); END;
CREATE TRIGGER artifact_no_delete BEFORE DELETE ON artifact
BEGIN SELECT RAISE(FAIL, 'a published version cannot be deleted'); END;

-- The working set: what a sink does not have yet.
CREATE TABLE delivery (
    sink      INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    namespace INTEGER NOT NULL,
    track     INTEGER NOT NULL,
    tried     INTEGER NOT NULL DEFAULT 0,
    -- When to try next; NULL once it has failed.
    due       INTEGER,
    -- Whether those behind it wait until it is redriven.
    parks     INTEGER NOT NULL DEFAULT 0 CHECK (parks = 0 OR due IS NULL),
    error     TEXT,
    updated   INTEGER NOT NULL,
    PRIMARY KEY (sink, namespace, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX delivery_failed ON delivery (sink, seq) WHERE due IS NULL;
CREATE INDEX delivery_of ON delivery (seq);
CREATE INDEX delivery_track ON delivery (track, seq);

-- What each sink has.
CREATE TABLE dispatched (
    seq       INTEGER NOT NULL,
    sink      INTEGER NOT NULL,
    tried     INTEGER NOT NULL,
    duplicate INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    error     TEXT,
    PRIMARY KEY (seq, sink)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER delivery_no_delete BEFORE DELETE ON delivery
WHEN NOT EXISTS (SELECT 1 FROM dispatched WHERE seq = OLD.seq AND sink = OLD.sink)
BEGIN SELECT RAISE(FAIL, 'a delivery ends when its sink has it'); END;
CREATE TRIGGER delivery_state_only BEFORE UPDATE ON delivery
WHEN NEW.sink <> OLD.sink OR NEW.seq <> OLD.seq OR NEW.namespace <> OLD.namespace
    OR NEW.track <> OLD.track
BEGIN SELECT RAISE(FAIL, 'only the state of a delivery changes'); END;
CREATE TRIGGER delivery_no_replace BEFORE INSERT ON delivery
WHEN EXISTS (SELECT 1 FROM delivery WHERE sink = NEW.sink AND namespace = NEW.namespace
             AND seq = NEW.seq)
BEGIN SELECT RAISE(FAIL, 'a delivery is made once'); END;
CREATE TRIGGER dispatched_no_update BEFORE UPDATE ON dispatched
BEGIN SELECT RAISE(FAIL, 'what was delivered cannot be changed'); END;
CREATE TRIGGER dispatched_no_delete BEFORE DELETE ON dispatched
BEGIN SELECT RAISE(FAIL, 'what was delivered cannot be deleted'); END;

-- Who looks after which buckets, and what it is trying.
CREATE TABLE dispatcher (
    lease   BLOB PRIMARY KEY CHECK (length(lease) = 16),
    buckets BLOB NOT NULL CHECK (length(buckets) = 128)
) STRICT, WITHOUT ROWID;
CREATE TABLE flight (
    lease BLOB NOT NULL,
    id    INTEGER NOT NULL,
    sink  INTEGER NOT NULL,
    -- Pairs of a record's place and how often it was tried with this one, as JSON.
    tries TEXT NOT NULL,
    PRIMARY KEY (lease, id)
) STRICT, WITHOUT ROWID;

-- For people with an SQL prompt.
CREATE VIEW outbox AS
SELECT lower(printf('%s-%s-%s-%s-%s', substr(hex(e.outbox_id), 1, 8), substr(hex(e.outbox_id), 9, 4),
           substr(hex(e.outbox_id), 13, 4), substr(hex(e.outbox_id), 17, 4),
           substr(hex(e.outbox_id), 21))) AS outbox_id,
       n.name AS namespace, e.pipeline_id, e.event_name, e.dataset_id, e.version,
       'sha256:' || lower(hex(e.idempotency_key)) AS idempotency_key, e.payload,
       CASE WHEN EXISTS (SELECT 1 FROM delivery d WHERE d.seq = e.seq AND d.due IS NULL) THEN 'failed'
            WHEN EXISTS (SELECT 1 FROM delivery d WHERE d.seq = e.seq) THEN 'pending'
            ELSE 'dispatched' END AS status,
       max(ifnull((SELECT max(d.tried) FROM delivery d WHERE d.seq = e.seq), 0),
           ifnull((SELECT max(d.tried) FROM dispatched d WHERE d.seq = e.seq), 0)) AS attempt,
       (SELECT d.error FROM delivery d WHERE d.seq = e.seq AND d.error IS NOT NULL
        ORDER BY d.updated DESC LIMIT 1) AS last_error,
       strftime('%Y-%m-%dT%H:%M:%SZ', e.created_at / 1000, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%SZ', max(e.created_at,
           ifnull((SELECT max(d.updated) FROM delivery d WHERE d.seq = e.seq), 0),
           ifnull((SELECT max(d.at) FROM dispatched d WHERE d.seq = e.seq), 0)) / 1000,
           'unixepoch') AS updated_at
FROM outbox_record e JOIN namespace n ON n.id = e.namespace;
