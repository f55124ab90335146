-- The tables, indexes, triggers and views of a new file. Generated from migrations/ by
-- tests/schema.rs: UPDATE_EXPECT=1 cargo test -p hapax-sqlite --test schema

CREATE TABLE artifact (
    namespace  INTEGER NOT NULL,
    dataset_id TEXT NOT NULL,
    version    TEXT NOT NULL,
    checksum   TEXT NOT NULL CHECK (checksum <> ''),
    uri        TEXT NOT NULL CHECK (uri <> ''),
    record     INTEGER NOT NULL REFERENCES outbox_record (seq),
    PRIMARY KEY (namespace, dataset_id, version)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER artifact_no_delete BEFORE DELETE ON artifact
BEGIN SELECT RAISE(FAIL, 'a published version cannot be deleted'); END;
CREATE TRIGGER artifact_no_update BEFORE UPDATE ON artifact
BEGIN SELECT RAISE(FAIL, 'a published version cannot be changed'); END;
CREATE TRIGGER artifact_once BEFORE INSERT ON artifact
WHEN EXISTS (SELECT 1 FROM artifact WHERE namespace = NEW.namespace
             AND dataset_id = NEW.dataset_id AND version = NEW.version)
BEGIN SELECT RAISE(FAIL, 'a version is published once'); END;
CREATE TRIGGER artifact_told BEFORE INSERT ON artifact
WHEN NOT EXISTS (SELECT 1 FROM outbox_record WHERE seq = NEW.record AND namespace = NEW.namespace
                 AND dataset_id = NEW.dataset_id)
BEGIN SELECT RAISE(FAIL, 'an artifact is published with an outbox record of its dataset'); END;

CREATE TABLE body (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    size   INTEGER NOT NULL,
    lz4    BLOB NOT NULL
) STRICT;

CREATE TABLE cache_access (
    id        INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    key       BLOB NOT NULL CHECK (length(key) = 32),
    ontology  TEXT NOT NULL,
    -- 0 hit, 1 miss, 2 shared
    kind      INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 2),
    times     INTEGER NOT NULL,
    about     TEXT NOT NULL,
    at        INTEGER NOT NULL
) STRICT;
CREATE INDEX cache_access_at ON cache_access (at);

CREATE TABLE dataset (
    name        TEXT PRIMARY KEY,
    declaration TEXT NOT NULL
) STRICT, WITHOUT ROWID;

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
CREATE TRIGGER delivery_no_delete BEFORE DELETE ON delivery
WHEN NOT EXISTS (SELECT 1 FROM dispatched WHERE seq = OLD.seq AND sink = OLD.sink)
BEGIN SELECT RAISE(FAIL, 'a delivery ends when its sink has it'); END;
CREATE TRIGGER delivery_no_replace BEFORE INSERT ON delivery
WHEN EXISTS (SELECT 1 FROM delivery WHERE sink = NEW.sink AND namespace = NEW.namespace
             AND seq = NEW.seq)
BEGIN SELECT RAISE(FAIL, 'a delivery is made once'); END;
CREATE TRIGGER delivery_state_only BEFORE UPDATE ON delivery
WHEN NEW.sink <> OLD.sink OR NEW.seq <> OLD.seq OR NEW.namespace <> OLD.namespace
    OR NEW.ordering_hash <> OLD.ordering_hash
BEGIN SELECT RAISE(FAIL, 'only the state of a delivery changes'); END;

CREATE TABLE dispatched (
    seq       INTEGER NOT NULL,
    sink      INTEGER NOT NULL,
    tried     INTEGER NOT NULL,
    duplicate INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    error     TEXT,
    PRIMARY KEY (seq, sink)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER dispatched_no_delete BEFORE DELETE ON dispatched
BEGIN SELECT RAISE(FAIL, 'what was delivered cannot be deleted'); END;
CREATE TRIGGER dispatched_no_update BEFORE UPDATE ON dispatched
BEGIN SELECT RAISE(FAIL, 'what was delivered cannot be changed'); END;

CREATE TABLE dispatcher (
    lease   BLOB PRIMARY KEY CHECK (length(lease) = 16),
    buckets BLOB NOT NULL CHECK (length(buckets) = 128)
) STRICT, WITHOUT ROWID;

CREATE TABLE effect (
    -- The number of the effect's first journal entry. So numbers only grow.
    id          INTEGER PRIMARY KEY,
    namespace   INTEGER NOT NULL,
    key         BLOB NOT NULL CHECK (length(key) = 32),
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    -- 0 running, 1 succeeded, 2 failed, 3 partial, 4 unknown, 5 indeterminate, 6 skipped
    state       INTEGER NOT NULL CHECK (state BETWEEN 0 AND 6),
    -- 0 transactional, 1 reconcilable after settling_ms, 2 reconcilable at once, 3 opaque
    safety      INTEGER NOT NULL CHECK (safety BETWEEN 0 AND 3),
    settling_ms INTEGER,
    attempt     BLOB NOT NULL CHECK (length(attempt) = 16),
    fence       INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    updated     INTEGER NOT NULL,
    -- The newest journal entry of this effect; each entry names the one before.
    entry       INTEGER NOT NULL,
    lock        INTEGER,
    label       TEXT,
    ttl_ms      INTEGER,
    expires     INTEGER,
    lease       BLOB,
    -- The deadline of a running effect, or since when one is unknown.
    at_era      INTEGER,
    at_ms       INTEGER,
    tries       INTEGER,
    -- Repeats the state of an effect that an operator must look at: 3, 4 and 5.
    stuck       INTEGER,
    cause       INTEGER,
    reason      TEXT,
    outcome     BLOB,
    body        INTEGER REFERENCES body (id),
    digest      BLOB,
    size        INTEGER,
    -- The domain and epoch that the effect is bound to, if any.
    domain      TEXT,
    epoch       INTEGER,
    -- Repeats the domain in states 0, 4 and 5, in which the end of the epoch voids the effect.
    voidable    TEXT,
    CHECK ((safety = 1) = (settling_ms IS NOT NULL)),
    CHECK ((state = 0) = (lease IS NOT NULL)),
    CHECK ((state = 1) = (outcome IS NOT NULL OR digest IS NOT NULL)),
    CHECK ((state = 2) = (cause IS NOT NULL)),
    CHECK ((state = 4) = (tries IS NOT NULL)),
    CHECK ((state BETWEEN 3 AND 5) = (stuck IS NOT NULL)),
    CHECK ((state <= 1) = (reason IS NULL)),
    CHECK (expires IS NULL OR state = 1 OR state = 2 OR state = 6),
    CHECK ((epoch IS NULL) = (domain IS NULL)),
    CHECK (voidable IS CASE WHEN state = 0 OR state = 4 OR state = 5 THEN domain END)
) STRICT;
CREATE INDEX effect_body ON effect (body) WHERE body IS NOT NULL;
CREATE INDEX effect_deadline ON effect (at_ms) WHERE at_ms IS NOT NULL;
CREATE INDEX effect_expires ON effect (expires) WHERE expires IS NOT NULL;
CREATE INDEX effect_running ON effect (lease) WHERE lease IS NOT NULL AND safety <> 0;
CREATE INDEX effect_stuck ON effect (stuck) WHERE stuck IS NOT NULL;
CREATE INDEX effect_voidable ON effect (voidable) WHERE voidable IS NOT NULL;
CREATE TRIGGER effect_gone AFTER DELETE ON effect
BEGIN
    DELETE FROM key_tail WHERE namespace = OLD.namespace AND prefix = substr(OLD.key, 1, 16) AND effect = OLD.id;
    DELETE FROM key_middle WHERE namespace = OLD.namespace AND prefix = substr(OLD.key, 1, 16) AND effect = OLD.id;
    DELETE FROM key_index WHERE namespace = OLD.namespace AND prefix = substr(OLD.key, 1, 16) AND effect = OLD.id;
END;
CREATE TRIGGER effect_indexed AFTER INSERT ON effect
BEGIN
    INSERT INTO key_tail (namespace, prefix, effect) VALUES (NEW.namespace, substr(NEW.key, 1, 16), NEW.id);
END;
CREATE TRIGGER effect_new BEFORE INSERT ON effect
WHEN NEW.id <> NEW.fence
    OR EXISTS (SELECT 1 FROM key_tail WHERE namespace = NEW.namespace AND prefix = substr(NEW.key, 1, 16))
    OR EXISTS (SELECT 1 FROM key_middle WHERE namespace = NEW.namespace AND prefix = substr(NEW.key, 1, 16))
    OR EXISTS (SELECT 1 FROM key_index WHERE namespace = NEW.namespace AND prefix = substr(NEW.key, 1, 16))
BEGIN
    SELECT CASE WHEN NEW.id <> NEW.fence
        THEN RAISE(FAIL, 'an effect has the number of its first entry') ELSE RAISE(IGNORE) END;
END;

CREATE TABLE epoch (
    namespace INTEGER NOT NULL,
    domain    TEXT NOT NULL,
    epoch     INTEGER NOT NULL CHECK (epoch >= 0),
    PRIMARY KEY (namespace, domain)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER epoch_grows BEFORE UPDATE ON epoch WHEN NEW.epoch <= OLD.epoch
BEGIN SELECT RAISE(ABORT, 'an epoch only grows'); END;

CREATE TABLE guard (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    personal   INTEGER NOT NULL DEFAULT 1,
    secrets    INTEGER NOT NULL DEFAULT 1,
    registered INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE head (
    size INTEGER PRIMARY KEY,
    note TEXT NOT NULL
) STRICT;
CREATE TRIGGER head_grows BEFORE INSERT ON head
WHEN NEW.size <= (SELECT ifnull(max(size), 0) FROM head)
BEGIN SELECT RAISE(ABORT, 'heads only grow'); END;
CREATE TRIGGER head_no_delete BEFORE DELETE ON head
BEGIN SELECT RAISE(ABORT, 'a head cannot be deleted'); END;
CREATE TRIGGER head_no_update BEFORE UPDATE ON head
BEGIN SELECT RAISE(ABORT, 'a head cannot be updated'); END;

CREATE TABLE journal (
    -- Numbers are positive; a trigger tells an insert without a number by its -1.
    id         INTEGER PRIMARY KEY CHECK (id > 0),
    prev       INTEGER,
    at         INTEGER NOT NULL,
    namespace  INTEGER NOT NULL,
    key        BLOB NOT NULL,
    event      INTEGER NOT NULL CHECK (event BETWEEN 0 AND 7),
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 6),
    attempt    BLOB NOT NULL,
    generation INTEGER NOT NULL,
    digest     BLOB,
    actor      TEXT,
    note       TEXT
) STRICT;
CREATE TRIGGER journal_grows BEFORE INSERT ON journal
WHEN NEW.id <> -1 AND NEW.id <> (SELECT ifnull(max(id), 0) + 1 FROM journal)
BEGIN SELECT RAISE(FAIL, 'the journal only grows by the next number'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal
BEGIN SELECT RAISE(FAIL, 'the journal cannot be deleted from'); END;
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
BEGIN SELECT RAISE(FAIL, 'the journal cannot be updated'); END;

CREATE TABLE key_index (
    namespace INTEGER NOT NULL,
    prefix      BLOB NOT NULL CHECK (length(prefix) = 16),
    effect    INTEGER NOT NULL,
    PRIMARY KEY (namespace, prefix)
) STRICT, WITHOUT ROWID;

CREATE TABLE key_middle (
    namespace INTEGER NOT NULL,
    prefix      BLOB NOT NULL CHECK (length(prefix) = 16),
    effect    INTEGER NOT NULL,
    PRIMARY KEY (namespace, prefix)
) STRICT, WITHOUT ROWID;

CREATE TABLE key_tail (
    namespace INTEGER NOT NULL,
    prefix      BLOB NOT NULL CHECK (length(prefix) = 16),
    effect    INTEGER NOT NULL,
    PRIMARY KEY (namespace, prefix)
) STRICT, WITHOUT ROWID;

CREATE TABLE kv (
    namespace TEXT NOT NULL,
    store     TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (namespace, store, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
    id        BLOB PRIMARY KEY CHECK (length(id) = 16),
    term_ms   INTEGER NOT NULL CHECK (term_ms > 0),
    until_era INTEGER NOT NULL,
    until_ms  INTEGER NOT NULL,
    dead      INTEGER NOT NULL CHECK (dead BETWEEN 0 AND 1),
    holder    TEXT NOT NULL,
    seen      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER lease_dead_is_dead BEFORE UPDATE ON lease WHEN OLD.dead = 1 AND NEW.dead = 0
BEGIN SELECT RAISE(ABORT, 'a dead lease is never revived'); END;

CREATE TABLE lock (
    namespace INTEGER NOT NULL,
    lock      INTEGER NOT NULL,
    holder    BLOB NOT NULL CHECK (length(holder) = 32),
    attempt   BLOB NOT NULL CHECK (length(attempt) = 16),
    PRIMARY KEY (namespace, lock)
) STRICT, WITHOUT ROWID;

CREATE TABLE namespace (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE ontology (
    namespace INTEGER NOT NULL,
    id        TEXT NOT NULL CHECK (length(id) > 0),
    version   TEXT NOT NULL,
    content   TEXT NOT NULL,
    metadata  TEXT NOT NULL,
    updated   INTEGER NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT;

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
CREATE TRIGGER outbox_record_grows BEFORE INSERT ON outbox_record
WHEN EXISTS (SELECT 1 FROM outbox_record WHERE seq = NEW.seq OR outbox_id = NEW.outbox_id)
BEGIN SELECT RAISE(FAIL, 'an outbox record is written once'); END;
CREATE TRIGGER outbox_record_no_delete BEFORE DELETE ON outbox_record
BEGIN SELECT RAISE(FAIL, 'an outbox record cannot be deleted'); END;
CREATE TRIGGER outbox_record_no_update BEFORE UPDATE ON outbox_record
BEGIN SELECT RAISE(FAIL, 'an outbox record cannot be changed'); END;

CREATE TABLE part (
    effect INTEGER PRIMARY KEY,
    whole  INTEGER NOT NULL,
    kept   BLOB NOT NULL
) STRICT;
CREATE INDEX part_bucket ON part (effect >> 11, whole);

CREATE TABLE result_index (
    namespace   INTEGER NOT NULL,
    key         BLOB NOT NULL CHECK (length(key) = 32),
    ontology    TEXT NOT NULL,
    version     TEXT NOT NULL,
    text_hash   TEXT NOT NULL,
    params_hash TEXT NOT NULL,
    whole       INTEGER NOT NULL CHECK (whole BETWEEN 0 AND 1),
    bytes       INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    used        INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX result_index_ontology ON result_index (namespace, ontology);
CREATE INDEX result_index_text ON result_index (namespace, text_hash) WHERE whole = 1;
CREATE INDEX result_index_used ON result_index (namespace, used);

CREATE TABLE route (
    id      INTEGER PRIMARY KEY,
    nth     INTEGER NOT NULL,
    event   TEXT NOT NULL,
    dataset TEXT NOT NULL,
    sink    INTEGER REFERENCES sink (id)
) STRICT;

CREATE TABLE self (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    notice      INTEGER NOT NULL DEFAULT 0,
    swept       INTEGER NOT NULL DEFAULT 0,
    pulse_era   INTEGER NOT NULL DEFAULT 0,
    pulse_last  INTEGER NOT NULL DEFAULT 0,
    -- The wall clock and the boot-time clock at the first use in this era.
    anchor_era  INTEGER NOT NULL DEFAULT 0,
    anchor_wall INTEGER NOT NULL DEFAULT 0,
    anchor_ms   INTEGER NOT NULL DEFAULT 0,
    -- When the newest gap between two beats of more than 32, 38, 45, 53, 64 … 217088 ms ended: 52
    -- numbers of 8 bytes. Each lease is judged by the gaps that matter to its own term.
    pulse_gaps  BLOB NOT NULL DEFAULT x''
) STRICT;

CREATE TABLE send_batch (
    lease BLOB NOT NULL,
    id    INTEGER NOT NULL,
    sink  INTEGER NOT NULL,
    -- Pairs, as JSON: the number of a record, and how often it was tried, this time included.
    tries TEXT NOT NULL,
    PRIMARY KEY (lease, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE sink (
    id           INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    declared     INTEGER NOT NULL DEFAULT 1,
    paused       INTEGER NOT NULL DEFAULT 0 CHECK (paused BETWEEN 0 AND 1),
    changed      INTEGER NOT NULL DEFAULT 0,
    remembers_ms INTEGER
) STRICT;

CREATE TABLE step (
    id        INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    key       BLOB NOT NULL CHECK (length(key) = 32),
    attempt   BLOB NOT NULL CHECK (length(attempt) = 16),
    name      TEXT NOT NULL,
    payload   BLOB NOT NULL
) STRICT;
CREATE INDEX step_attempt ON step (attempt);

CREATE TABLE tile (
    level   INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    hashes  BLOB NOT NULL CHECK (length(hashes) BETWEEN 32 AND 8192 AND length(hashes) % 32 = 0),
    PRIMARY KEY (level, place)
) STRICT;
CREATE TRIGGER tile_grows BEFORE UPDATE ON tile
WHEN substr(NEW.hashes, 1, length(OLD.hashes)) <> OLD.hashes
    OR NEW.level <> OLD.level OR NEW.place <> OLD.place
BEGIN SELECT RAISE(ABORT, 'a tile only grows'); END;
CREATE TRIGGER tile_no_delete BEFORE DELETE ON tile
BEGIN SELECT RAISE(ABORT, 'a tile cannot be deleted'); END;
CREATE TRIGGER tile_no_replace BEFORE INSERT ON tile
WHEN EXISTS (SELECT 1 FROM tile WHERE level = NEW.level AND place = NEW.place
             AND substr(NEW.hashes, 1, length(hashes)) <> hashes)
BEGIN SELECT RAISE(ABORT, 'a tile only grows'); END;

CREATE TABLE token (
    id        BLOB PRIMARY KEY CHECK (length(id) = 8),
    -- The SHA-256 of the secret. The secret itself is not stored.
    digest    BLOB NOT NULL CHECK (length(digest) = 32),
    -- 0 viewer, 1 operator, 2 steward
    role      INTEGER NOT NULL CHECK (role BETWEEN 0 AND 2),
    -- NULL: every namespace.
    namespace TEXT,
    holder    TEXT NOT NULL,
    created   INTEGER NOT NULL,
    expires   INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE whole (
    number INTEGER PRIMARY KEY,
    name   BLOB NOT NULL CHECK (length(name) = 32),
    kind   TEXT NOT NULL CHECK (length(kind) > 0),
    -- The first and the last bucket that has parts of it.
    first  INTEGER NOT NULL DEFAULT 0,
    last   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX whole_name ON whole (substr(name, 1, 16), kind);

CREATE VIEW effects AS
SELECT 'sha256:' || lower(hex(e.key)) AS key, n.name AS namespace, e.label,
       CASE e.state WHEN 0 THEN 'running' WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed'
           WHEN 3 THEN 'partial' WHEN 4 THEN 'unknown' WHEN 5 THEN 'indeterminate'
           ELSE 'skipped' END AS state,
       'att_' || lower(hex(e.attempt)) AS attempt, e.fence, e.generation, e.attempts, e.reason,
       datetime(e.created / 1000, 'unixepoch') AS created,
       datetime(e.updated / 1000, 'unixepoch') AS updated
FROM effect e JOIN namespace n ON n.id = e.namespace;

CREATE VIEW execution_handles AS
SELECT 'sha256:' || lower(hex(e.key)) AS idempotency_key,
       CASE e.state WHEN 0 THEN 'running' WHEN 1 THEN 'completed' ELSE 'failed' END AS status,
       CAST(e.outcome AS TEXT) AS result,
       CASE WHEN e.reason IS NOT NULL THEN json_object('error', e.reason) END AS error,
       strftime('%Y-%m-%dT%H:%M:%fZ', g.at / 1000.0, 'unixepoch') AS started_at,
       CASE WHEN e.state <> 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', e.updated / 1000.0, 'unixepoch') END
           AS completed_at, n.name AS namespace
FROM effect e
JOIN namespace n ON n.id = e.namespace
JOIN extraction_grant g ON g.id = e.fence;

CREATE VIEW extraction_audit_log AS
SELECT 'j' || g.id AS id, 'sha256:' || lower(hex(g.key)) AS idempotency_key, g.ontology_id,
       'extraction_started' AS event_type, g.about AS metadata,
       strftime('%Y-%m-%dT%H:%M:%fZ', g.at / 1000.0, 'unixepoch') AS created_at, n.name AS namespace
FROM extraction_grant g JOIN namespace n ON n.id = g.namespace
UNION ALL
SELECT 'j' || j.id, 'sha256:' || lower(hex(j.key)), g.ontology_id,
       CASE j.state WHEN 1 THEN 'extraction_completed' ELSE 'extraction_failed' END,
       CASE j.state WHEN 1 THEN ifnull(j.note, '{}') ELSE json_object('error', j.note) END,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.at / 1000.0, 'unixepoch'), n.name
FROM journal j JOIN extraction_grant g ON g.id = j.prev JOIN namespace n ON n.id = j.namespace
WHERE j.event <> 0
UNION ALL
SELECT 'h' || h.id, 'sha256:' || lower(hex(h.key)), h.ontology,
       CASE h.kind WHEN 0 THEN 'cache_hit' WHEN 1 THEN 'cache_miss' ELSE 'concurrent_deduplicated' END,
       json_set(h.about, '$.times', h.times),
       strftime('%Y-%m-%dT%H:%M:%fZ', h.at / 1000.0, 'unixepoch'), n.name
FROM cache_access h JOIN namespace n ON n.id = h.namespace;

CREATE VIEW extraction_grant AS
SELECT id, at, namespace, key, note ->> 'ontologyId' AS ontology_id, note AS about FROM journal
WHERE event = 0 AND note LIKE '{%' AND json_valid(note) AND note ->> 'kind' = 'extraction.v1';

CREATE VIEW extraction_results AS
WITH newest (namespace, effect) AS (
    SELECT namespace, effect FROM key_tail UNION ALL SELECT namespace, effect FROM key_middle
), placed (namespace, key, effect) AS (
    SELECT s.namespace, s.key, k.effect FROM result_index s
    JOIN key_index k ON k.namespace = s.namespace AND k.prefix = substr(s.key, 1, 16)
    UNION ALL
    SELECT s.namespace, s.key, k.effect FROM newest k CROSS JOIN effect e ON e.id = k.effect
    CROSS JOIN result_index s ON s.namespace = k.namespace AND s.key = e.key
)
SELECT 'sha256:' || lower(hex(s.key)) AS idempotency_key, s.ontology AS ontology_id,
       s.version AS ontology_version, s.text_hash, s.params_hash AS extraction_params_hash,
       CAST(e.outcome AS TEXT) -> 'entities' AS entities,
       CAST(e.outcome AS TEXT) -> 'relations' AS relations,
       CAST(e.outcome AS TEXT) -> 'metadata' AS metadata,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.created / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.expires / 1000.0, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.used / 1000.0, 'unixepoch') AS accessed_at, n.name AS namespace
FROM placed p
JOIN result_index s ON s.namespace = p.namespace AND s.key = p.key
JOIN effect e ON e.id = p.effect
JOIN namespace n ON n.id = s.namespace
WHERE s.whole = 1 AND e.state = 1;

CREATE VIEW idempotency_log AS
SELECT 'sha256:' || lower(hex(e.key)) AS idem_key, a.about ->> 'pipeline_id' AS pipeline_id,
       a.about ->> 'task_id' AS task_id, a.about ->> 'dataset_id' AS dataset_id,
       a.about ->> 'operation_type' AS operation_type,
       CASE e.state WHEN 1 THEN 'success' WHEN 2 THEN 'failure' WHEN 6 THEN 'failure'
           ELSE 'partial' END AS status,
       CASE e.state WHEN 1 THEN 'sha256:' || lower(hex(s.digest)) END AS result_hash,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.created / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.updated / 1000.0, 'unixepoch') AS updated_at,
       a.about ->> 'checksum_in' AS raw_checksum, a.about ->> 'params_hash' AS params_hash,
       CAST(e.entry AS TEXT) AS wal_pointer
FROM effect e
JOIN (
    SELECT id, note AS about FROM journal
    WHERE event = 0 AND note LIKE '{%' AND json_valid(note) AND note ->> 'kind' = 'pipeline.v1'
) a ON a.id = e.fence
LEFT JOIN journal s ON s.id = e.entry
WHERE e.state <> 0 AND a.about ->> 'pipeline_id' IS NOT NULL AND a.about ->> 'task_id' IS NOT NULL
    AND a.about ->> 'dataset_id' IS NOT NULL AND a.about ->> 'operation_type' IS NOT NULL;

CREATE VIEW ontologies AS
SELECT o.id, o.version, o.content, o.metadata, substr(o.version, -64, 16) AS content_hash,
       strftime('%Y-%m-%dT%H:%M:%fZ', o.updated / 1000.0, 'unixepoch') AS updated_at,
       n.name AS namespace
FROM ontology o JOIN namespace n ON n.id = o.namespace;

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
