-- The journal, and the Merkle tree over it.

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

-- Up to 256 hashes a tile.
CREATE TABLE tile (
    level   INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    hashes  BLOB NOT NULL CHECK (length(hashes) BETWEEN 32 AND 8192 AND length(hashes) % 32 = 0),
    PRIMARY KEY (level, place)
) STRICT;

-- Signed heads of the tree.
CREATE TABLE head (
    size INTEGER PRIMARY KEY,
    note TEXT NOT NULL
) STRICT;
