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
CREATE TABLE result_index (
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
CREATE INDEX result_index_ontology ON result_index (namespace, ontology);
CREATE INDEX result_index_used ON result_index (namespace, used);
CREATE INDEX result_index_text ON result_index (namespace, text_hash) WHERE whole = 1;

-- Cache accesses, which leave no journal entry: counted, and written in bulk.
CREATE TABLE cache_access (
    id        INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    key       BLOB NOT NULL CHECK (length(key) = 32),
    ontology  TEXT NOT NULL,
    -- 0 hit, 1 miss, 2 shared
    kind      INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 2),
    times     INTEGER NOT NULL,
    about     TEXT NOT NULL,
    at        INTEGER NOT NULL
) STRICT;
CREATE INDEX cache_access_at ON cache_access (at);
