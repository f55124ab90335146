-- The journal, and the Merkle tree over it.

-- Numbers journal entries and, with them, fences. No cache: a number is given when it is used, so
-- a later attempt always has the greater fence.
CREATE SEQUENCE hapax.entry CACHE 1;

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
-- Entries of a month whose partition was not made in time. `hapax doctor` reports them.
CREATE TABLE hapax.journal_default PARTITION OF hapax.journal DEFAULT;

-- Up to 256 hashes a tile. The lowest tiles also name the entries that are their leaves: numbers
-- have gaps, and entries may commit out of order.
CREATE TABLE hapax.tile (
    level    int NOT NULL,
    place    bigint NOT NULL,
    hashes   bytea NOT NULL CHECK (length(hashes) BETWEEN 32 AND 8192 AND length(hashes) % 32 = 0),
    entries  bigint[] CHECK ((level = 0) = (entries IS NOT NULL)),
    -- The least and the greatest of them.
    least    bigint,
    greatest bigint,
    CHECK (level > 0 OR cardinality(entries) * 32 = length(hashes)),
    PRIMARY KEY (level, place)
);
-- Hashes do not compress.
ALTER TABLE hapax.tile ALTER COLUMN hashes SET STORAGE EXTERNAL;

-- Signed heads of the tree.
CREATE TABLE hapax.head (
    size bigint PRIMARY KEY,
    note text NOT NULL
);

-- The sealer's state: one row, in a table of its own, because sealing takes long.
CREATE TABLE hapax.sealing (
    id         int PRIMARY KEY CHECK (id = 1),
    -- How far the journal is sealed, the numbers below that may still appear, and when they no
    -- longer can: once every transaction before `mark_xid` is over, up to `mark_entry`.
    sealed     bigint NOT NULL DEFAULT 0,
    gaps       int8multirange NOT NULL DEFAULT '{}',
    mark_xid   bigint,
    mark_entry bigint
);
INSERT INTO hapax.sealing (id) VALUES (1);

-- Archived partitions of the journal: their leaves, and the digest of the file that each was
-- exported to. Their hashes stay in the tree.
CREATE TABLE hapax.archive (
    partition text PRIMARY KEY,
    leaves    int8multirange NOT NULL,
    digest    hapax.bytes32 NOT NULL,
    at        timestamptz NOT NULL DEFAULT now()
);
