-- The ledger: namespaces, effects, leases and locks. The database repeats the state rules of
-- hapax-core; it is the second line of defence, not the first. Constraints avoid IN, for which
-- SQLite builds a temporary table for each row.

CREATE TABLE namespace (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO namespace (id, name) VALUES (1, 'default');

-- The store's own state: one row.
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
INSERT INTO self (id, pulse_gaps) VALUES (1, zeroblob(416));

-- Large outcomes, once each.
CREATE TABLE body (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    size   INTEGER NOT NULL,
    lz4    BLOB NOT NULL
) STRICT;

-- One row per effect, in the order of arrival.
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

-- Small sets. Each depends on a column of its own, so that the most common change, from running to
-- succeeded, touches only the first. A transactional effect is not even in that: a dead holder
-- leaves nothing of it to expire early.
CREATE INDEX effect_running ON effect (lease) WHERE lease IS NOT NULL AND safety <> 0;
CREATE INDEX effect_deadline ON effect (at_ms) WHERE at_ms IS NOT NULL;
CREATE INDEX effect_stuck ON effect (stuck) WHERE stuck IS NOT NULL;
CREATE INDEX effect_expires ON effect (expires) WHERE expires IS NOT NULL;
CREATE INDEX effect_body ON effect (body) WHERE body IS NOT NULL;
CREATE INDEX effect_voidable ON effect (voidable) WHERE voidable IS NOT NULL;

-- Effects by the first halves of their keys; the whole key is compared in the row. Each key is in
-- one of three tables. A single index in the order of keys would cost each new effect a page of the
-- log, where a commit has fewer effects than the index has pages. So a new key goes into `key_tail`,
-- which has few pages; from there into `key_middle`, and from there into `key_index`, each time with
-- many others, in their order.
CREATE TABLE key_tail (
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
CREATE TABLE key_index (
    namespace INTEGER NOT NULL,
    prefix      BLOB NOT NULL CHECK (length(prefix) = 16),
    effect    INTEGER NOT NULL,
    PRIMARY KEY (namespace, prefix)
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

CREATE TABLE lock (
    namespace INTEGER NOT NULL,
    lock      INTEGER NOT NULL,
    holder    BLOB NOT NULL CHECK (length(holder) = 32),
    attempt   BLOB NOT NULL CHECK (length(attempt) = 16),
    PRIMARY KEY (namespace, lock)
) STRICT, WITHOUT ROWID;

-- How to undo one step of an attempt.
CREATE TABLE step (
    id        INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    key       BLOB NOT NULL CHECK (length(key) = 32),
    attempt   BLOB NOT NULL CHECK (length(attempt) = 16),
    name      TEXT NOT NULL,
    payload   BLOB NOT NULL
) STRICT;
CREATE INDEX step_attempt ON step (attempt);
