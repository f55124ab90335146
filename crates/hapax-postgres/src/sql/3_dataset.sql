-- Datasets, version 3 of the schema.

ALTER TABLE hapax.guard ADD COLUMN registered boolean NOT NULL DEFAULT false;

-- What is declared of a dataset. Judged by whoever has hapax-core, as guards are.
CREATE TABLE hapax.dataset (
    name        text PRIMARY KEY,
    declaration text NOT NULL
);
