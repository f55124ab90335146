-- Extraction, version 7 of the schema: results that may be forgotten, and what they are made from.

CREATE TABLE ontology (
    namespace INTEGER NOT NULL,
    id        TEXT NOT NULL CHECK (length(id) > 0),
    version   TEXT NOT NULL,
    content   TEXT NOT NULL,
    metadata  TEXT NOT NULL,
    updated   INTEGER NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT;

-- What a result is found by. The result itself is the outcome of the effect of this key.
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

-- What became of requests that no effect tells of, counted and written in bulk.
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

-- Under the names and with the columns that extraction knows. What is larger than 64 KiB lies
-- compressed elsewhere, and is not shown.
CREATE VIEW extraction_results AS
SELECT 'sha256:' || lower(hex(s.key)) AS idempotency_key, s.ontology AS ontology_id,
       s.version AS ontology_version, s.text_hash, s.params_hash AS extraction_params_hash,
       CAST(e.outcome AS TEXT) -> 'entities' AS entities,
       CAST(e.outcome AS TEXT) -> 'relations' AS relations,
       CAST(e.outcome AS TEXT) -> 'metadata' AS metadata,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.created / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.expires / 1000.0, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.used / 1000.0, 'unixepoch') AS accessed_at, n.name AS namespace
FROM shelf s
JOIN namespace n ON n.id = s.namespace
JOIN effect e ON e.namespace = s.namespace AND substr(e.key, 1, 16) = substr(s.key, 1, 16)
WHERE s.whole = 1 AND e.state = 1;

-- What a grant was for, where it was an extraction.
CREATE VIEW extraction_grant AS
SELECT id, at, namespace, key, note ->> 'ontologyId' AS ontology_id, note AS about FROM journal
WHERE event = 0 AND note LIKE '{%' AND json_valid(note) AND note ->> 'kind' = 'extraction.v1';

CREATE VIEW execution_handles AS
SELECT 'sha256:' || lower(hex(e.key)) AS idempotency_key,
       CASE e.state WHEN 0 THEN 'running' WHEN 1 THEN 'completed' ELSE 'failed' END AS status,
       CAST(e.outcome AS TEXT) AS result,
       CASE WHEN e.reason IS NOT NULL THEN json_object('error', e.reason) END AS error,
       strftime('%Y-%m-%dT%H:%M:%fZ', g.at / 1000.0, 'unixepoch') AS started_at,
       CASE WHEN e.state <> 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', e.updated / 1000.0, 'unixepoch') END
           AS completed_at, n.name AS namespace
FROM effect e
JOIN namespace n ON n.id = e.namespace
JOIN extraction_grant g ON g.id = e.fence;

CREATE VIEW extraction_audit_log AS
SELECT 'j' || g.id AS id, 'sha256:' || lower(hex(g.key)) AS idempotency_key, g.ontology_id,
       'extraction_started' AS event_type, g.about AS metadata,
       strftime('%Y-%m-%dT%H:%M:%fZ', g.at / 1000.0, 'unixepoch') AS created_at, n.name AS namespace
FROM extraction_grant g JOIN namespace n ON n.id = g.namespace
UNION ALL
SELECT 'j' || j.id, 'sha256:' || lower(hex(j.key)), g.ontology_id,
       CASE j.state WHEN 1 THEN 'extraction_completed' ELSE 'extraction_failed' END,
       CASE j.state WHEN 1 THEN ifnull(j.note, '{}') ELSE json_object('error', j.note) END,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.at / 1000.0, 'unixepoch'), n.name
FROM journal j JOIN extraction_grant g ON g.id = j.prev JOIN namespace n ON n.id = j.namespace
WHERE j.event <> 0
UNION ALL
SELECT 'h' || h.id, 'sha256:' || lower(hex(h.key)), h.ontology,
       CASE h.what WHEN 0 THEN 'cache_hit' WHEN 1 THEN 'cache_miss' ELSE 'concurrent_deduplicated' END,
       json_set(h.about, '$.times', h.times),
       strftime('%Y-%m-%dT%H:%M:%fZ', h.at / 1000.0, 'unixepoch'), n.name
FROM heard h JOIN namespace n ON n.id = h.namespace;

CREATE VIEW ontologies AS
SELECT o.id, o.version, o.content, o.metadata, substr(o.version, -64, 16) AS content_hash,
       strftime('%Y-%m-%dT%H:%M:%fZ', o.updated / 1000.0, 'unixepoch') AS updated_at,
       n.name AS namespace
FROM ontology o JOIN namespace n ON n.id = o.namespace;
