-- Extraction: ontologies, the result index and its use.

CREATE TABLE hapax.ontology (
    namespace int NOT NULL,
    id        text NOT NULL CHECK (id <> ''),
    version   text NOT NULL,
    content   text NOT NULL,
    metadata  text NOT NULL,
    updated   bigint NOT NULL,
    PRIMARY KEY (namespace, id)
);

-- The index entry of a result. The result itself is the outcome of the effect of this key.
CREATE TABLE hapax.result_index (
    namespace   int NOT NULL,
    bytes       bigint NOT NULL,
    created     bigint NOT NULL,
    used        bigint NOT NULL,
    whole       boolean NOT NULL,
    key         hapax.bytes32 NOT NULL,
    ontology    text NOT NULL,
    version     text NOT NULL,
    text_hash   text NOT NULL,
    params_hash text NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX result_index_ontology ON hapax.result_index (namespace, ontology);
CREATE INDEX result_index_used ON hapax.result_index (namespace, used);
CREATE INDEX result_index_text ON hapax.result_index (namespace, text_hash) WHERE whole;

-- Cache accesses, which leave no journal entry: counted, and written in bulk.
CREATE TABLE hapax.cache_access (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace int NOT NULL,
    -- 0 hit, 1 miss, 2 shared
    kind      smallint NOT NULL CHECK (kind BETWEEN 0 AND 2),
    times     bigint NOT NULL,
    at        bigint NOT NULL,
    key       hapax.bytes32 NOT NULL,
    ontology  text NOT NULL,
    about     text NOT NULL
);
CREATE INDEX cache_access_at ON hapax.cache_access (at);
