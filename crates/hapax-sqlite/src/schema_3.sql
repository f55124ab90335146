-- Datasets, version 3 of the schema.

ALTER TABLE guard ADD COLUMN registered INTEGER NOT NULL DEFAULT 0;

-- What is declared of a dataset, as JSON.
CREATE TABLE dataset (
    name        TEXT PRIMARY KEY,
    declaration TEXT NOT NULL
) STRICT, WITHOUT ROWID;
