-- Items: effects that are parts of other effects, and the values that scripts keep.

-- The effects that others are parts of, once for each kind of part, in the order in which they were
-- first seen.
CREATE TABLE whole (
    number INTEGER PRIMARY KEY,
    name   BLOB NOT NULL CHECK (length(name) = 32),
    kind   TEXT NOT NULL CHECK (length(kind) > 0),
    -- The first and the last bucket that has parts of it.
    first  INTEGER NOT NULL DEFAULT 0,
    last   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX whole_name ON whole (substr(name, 1, 16), kind);

-- The document of a part. Parts are indexed in buckets of 2,048 effects, in the order of their
-- grants, and in a bucket by their whole. So callers that add to many wholes at once write the pages
-- of one bucket, and not one page for each whole.
CREATE TABLE part (
    effect INTEGER PRIMARY KEY,
    whole  INTEGER NOT NULL,
    kept   BLOB NOT NULL
) STRICT;
CREATE INDEX part_bucket ON part (effect >> 11, whole);

-- Values that scripts keep, written in the transaction that settles the mutation.
CREATE TABLE kv (
    namespace TEXT NOT NULL,
    store     TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (namespace, store, key)
) STRICT, WITHOUT ROWID;
