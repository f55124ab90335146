-- Items, version 8 of the schema: effects that belong together, and what scripts remember.

-- What an effect is a part of, and what is kept of it beside its outcome.
CREATE TABLE part (
    effect INTEGER PRIMARY KEY,
    whole  BLOB NOT NULL CHECK (length(whole) = 32),
    kind   TEXT NOT NULL CHECK (length(kind) > 0),
    kept   BLOB NOT NULL
) STRICT;
CREATE INDEX part_whole ON part (substr(whole, 1, 16), kind, effect);
CREATE INDEX part_kind ON part (kind, effect);

-- What scripts remember, written in the transaction that settles the mutation.
CREATE TABLE kv (
    namespace TEXT NOT NULL,
    store     TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (namespace, store, key)
) STRICT, WITHOUT ROWID;
