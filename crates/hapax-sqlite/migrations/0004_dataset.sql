-- Datasets.

-- The declaration of a dataset, as JSON.
CREATE TABLE dataset (
    name        TEXT PRIMARY KEY,
    declaration TEXT NOT NULL
) STRICT, WITHOUT ROWID;
