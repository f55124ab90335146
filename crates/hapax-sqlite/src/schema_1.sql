-- The ledger, version 1. Constraints repeat the state rules of hapax-core; they are the
-- second line, not the first. They avoid IN, which builds a temporary table for each row.

CREATE TABLE namespace (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO namespace (id, name) VALUES (1, 'default');

-- What the store knows about itself: one row.
CREATE TABLE self (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    notice      INTEGER NOT NULL DEFAULT 0,
    swept       INTEGER NOT NULL DEFAULT 0,
    pulse_era   INTEGER NOT NULL DEFAULT 0,
    pulse_last  INTEGER NOT NULL DEFAULT 0,
    pulse_since INTEGER NOT NULL DEFAULT 0,
    -- The wall clock and the boot-time clock at the first use in this era.
    anchor_era  INTEGER NOT NULL DEFAULT 0,
    anchor_wall INTEGER NOT NULL DEFAULT 0,
    anchor_ms   INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO self (id) VALUES (1);

-- Large outcomes, once each.
CREATE TABLE body (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    size   INTEGER NOT NULL,
    lz4    BLOB NOT NULL
) STRICT;

CREATE TABLE effect (
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
    -- The state again, where somebody must look: 3, 4 and 5.
    stuck       INTEGER,
    cause       INTEGER,
    reason      TEXT,
    outcome     BLOB,
    body        INTEGER REFERENCES body (id),
    digest      BLOB,
    size        INTEGER,
    CHECK ((safety = 1) = (settling_ms IS NOT NULL)),
    CHECK ((state = 0) = (lease IS NOT NULL)),
    CHECK ((state = 1) = (outcome IS NOT NULL OR digest IS NOT NULL)),
    CHECK ((state = 2) = (cause IS NOT NULL)),
    CHECK ((state = 4) = (tries IS NOT NULL)),
    CHECK ((state BETWEEN 3 AND 5) = (stuck IS NOT NULL)),
    CHECK ((state <= 1) = (reason IS NULL)),
    CHECK (expires IS NULL OR state = 1 OR state = 2 OR state = 6)
) STRICT;

-- Rows lie in the order of arrival; only this index is in the order of keys, and only on
-- half of them. The whole key is compared in the row.
CREATE UNIQUE INDEX effect_key ON effect (namespace, substr(key, 1, 16));
-- Small sets. Each depends on a column of its own, so that the most common change, from
-- running to succeeded, touches only the first, and for transactional work, of which a dead
-- holder leaves nothing to look after, not even that.
CREATE INDEX effect_running ON effect (lease) WHERE lease IS NOT NULL AND safety <> 0;
CREATE INDEX effect_deadline ON effect (at_ms) WHERE at_ms IS NOT NULL;
CREATE INDEX effect_stuck ON effect (stuck) WHERE stuck IS NOT NULL;
CREATE INDEX effect_expires ON effect (expires) WHERE expires IS NOT NULL;
CREATE INDEX effect_body ON effect (body) WHERE body IS NOT NULL;

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

CREATE TABLE step (
    id        INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    key       BLOB NOT NULL CHECK (length(key) = 32),
    attempt   BLOB NOT NULL CHECK (length(attempt) = 16),
    name      TEXT NOT NULL,
    payload   BLOB NOT NULL
) STRICT;
CREATE INDEX step_attempt ON step (attempt);

CREATE TABLE journal (
    id         INTEGER PRIMARY KEY,
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

-- The journal only grows, and only by the next number: no update, no delete, and no
-- replacing insert, which would delete without firing a delete trigger. FAIL rather than
-- ABORT, because a statement that may abort has to keep copies of every page it touches.
CREATE TRIGGER journal_grows BEFORE INSERT ON journal
WHEN NEW.id <> (SELECT ifnull(max(id), 0) + 1 FROM journal)
BEGIN SELECT RAISE(FAIL, 'the journal only grows by the next number'); END;
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
BEGIN SELECT RAISE(FAIL, 'the journal cannot be updated'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal
BEGIN SELECT RAISE(FAIL, 'the journal cannot be deleted from'); END;

-- The Merkle tree over the journal: up to 256 hashes a tile.
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

-- Signed heads of the tree.
CREATE TABLE head (
    size INTEGER PRIMARY KEY,
    note TEXT NOT NULL
) STRICT;
CREATE TRIGGER head_grows BEFORE INSERT ON head
WHEN NEW.size <= (SELECT ifnull(max(size), 0) FROM head)
BEGIN SELECT RAISE(ABORT, 'heads only grow'); END;
CREATE TRIGGER head_no_update BEFORE UPDATE ON head
BEGIN SELECT RAISE(ABORT, 'a head cannot be updated'); END;
CREATE TRIGGER head_no_delete BEFORE DELETE ON head
BEGIN SELECT RAISE(ABORT, 'a head cannot be deleted'); END;

-- For people with an SQL prompt.
CREATE VIEW effects AS
SELECT 'sha256:' || lower(hex(e.key)) AS key, n.name AS namespace, e.label,
       CASE e.state WHEN 0 THEN 'running' WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed'
           WHEN 3 THEN 'partial' WHEN 4 THEN 'unknown' WHEN 5 THEN 'indeterminate'
           ELSE 'skipped' END AS state,
       'att_' || lower(hex(e.attempt)) AS attempt, e.fence, e.generation, e.attempts, e.reason,
       datetime(e.created / 1000, 'unixepoch') AS created,
       datetime(e.updated / 1000, 'unixepoch') AS updated
FROM effect e JOIN namespace n ON n.id = e.namespace;
