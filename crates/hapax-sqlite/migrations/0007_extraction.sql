-- Extraction: ontologies, the result index and its use.

CREATE TABLE ontology (
    namespace INTEGER NOT NULL,
    id        TEXT NOT NULL CHECK (length(id) > 0),
    version   TEXT NOT NULL,
    content   TEXT NOT NULL,
    metadata  TEXT NOT NULL,
    updated   INTEGER NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT;

-- The index entry of a result. The result itself is the outcome of the effect of this key.
CREATE TABLE shelf (
    namespace   INTEGER NOT NULL,
    key         BLOB NOT NULL CHECK (length(key) = 32),
    ontology    TEXT NOT NULL,
    version     TEXT NOT NULL,
    text_hash   TEXT NOT NULL,
    params_hash TEXT NOT NULL,
    whole       INTEGER NOT NULL CHECK (whole BETWEEN 0 AND 1),
    bytes       INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    used        INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX shelf_ontology ON shelf (namespace, ontology);
CREATE INDEX shelf_used ON shelf (namespace, used);
CREATE INDEX shelf_text ON shelf (namespace, text_hash) WHERE whole = 1;

-- Cache accesses, which leave no journal entry: counted, and written in bulk.
CREATE TABLE heard (
    id        INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    key       BLOB NOT NULL CHECK (length(key) = 32),
    ontology  TEXT NOT NULL,
    -- 0 hit, 1 miss, 2 shared
    what      INTEGER NOT NULL CHECK (what BETWEEN 0 AND 2),
    times     INTEGER NOT NULL,
    about     TEXT NOT NULL,
    at        INTEGER NOT NULL
) STRICT;
CREATE INDEX heard_at ON heard (at);
