-- Datasets.

-- The declaration of a dataset, as JSON. hapax-core checks events against it; `hapax.emit` alone
-- does not.
CREATE TABLE hapax.dataset (
    name        text PRIMARY KEY,
    declaration text NOT NULL
);
