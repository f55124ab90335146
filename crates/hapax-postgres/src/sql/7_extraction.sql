-- Extraction, version 7 of the schema: results that may be forgotten, and what they are made from.

CREATE TABLE hapax.ontology (
    namespace int NOT NULL,
    id        text NOT NULL CHECK (id <> ''),
    version   text NOT NULL,
    content   text NOT NULL,
    metadata  text NOT NULL,
    updated   bigint NOT NULL,
    PRIMARY KEY (namespace, id)
);

-- What a result is found by. The result itself is the outcome of the effect of this key.
CREATE TABLE hapax.shelf (
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
CREATE INDEX shelf_ontology ON hapax.shelf (namespace, ontology);
CREATE INDEX shelf_used ON hapax.shelf (namespace, used);
CREATE INDEX shelf_text ON hapax.shelf (namespace, text_hash) WHERE whole;

-- What became of requests that no effect tells of, counted and written in bulk.
CREATE TABLE hapax.heard (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace int NOT NULL,
    -- 0 hit, 1 miss, 2 shared
    what      smallint NOT NULL CHECK (what BETWEEN 0 AND 2),
    times     bigint NOT NULL,
    at        bigint NOT NULL,
    key       hapax.bytes32 NOT NULL,
    ontology  text NOT NULL,
    about     text NOT NULL
);
CREATE INDEX heard_at ON hapax.heard (at);

-- The outcome of an extraction. What is larger than 64 KiB lies compressed elsewhere, and is not
-- shown; nor is what this database has no JSON for.
CREATE FUNCTION hapax.extracted(outcome bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(outcome, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN RETURN NULL;
END $$;

-- Under the names and with the columns that extraction knows.
CREATE VIEW hapax.extraction_results AS
SELECT 'sha256:' || encode(s.key, 'hex') AS idempotency_key, s.ontology AS ontology_id,
       s.version AS ontology_version, s.text_hash, s.params_hash AS extraction_params_hash,
       o.outcome -> 'entities' AS entities, o.outcome -> 'relations' AS relations,
       o.outcome -> 'metadata' AS metadata,
       to_timestamp(s.created / 1000.0) AS created_at, to_timestamp(e.expires / 1000.0) AS expires_at,
       to_timestamp(s.used / 1000.0) AS accessed_at, n.name AS namespace
FROM hapax.shelf s
JOIN hapax.namespace n ON n.id = s.namespace
JOIN hapax.effect e ON e.namespace = s.namespace AND e.key = s.key AND e.state = 1
CROSS JOIN LATERAL (SELECT hapax.extracted(e.outcome) AS outcome) o
WHERE s.whole;

-- What a note says of an extraction; nothing, if it says anything else.
CREATE FUNCTION hapax.about_extraction(note text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN note LIKE '{%' AND note::jsonb ->> 'kind' = 'extraction.v1' THEN note::jsonb END;
EXCEPTION WHEN OTHERS THEN RETURN NULL;
END $$;

-- What a grant was for, where it was an extraction.
CREATE VIEW hapax.extraction_grant AS
SELECT j.id, j.at, j.namespace, j.key, a.about ->> 'ontologyId' AS ontology_id, a.about
FROM hapax.journal j CROSS JOIN LATERAL (SELECT hapax.about_extraction(j.note) AS about) a
WHERE j.event = 0 AND a.about IS NOT NULL;

CREATE VIEW hapax.execution_handles AS
SELECT 'sha256:' || encode(e.key, 'hex') AS idempotency_key,
       CASE e.state WHEN 0 THEN 'running' WHEN 1 THEN 'completed' ELSE 'failed' END AS status,
       hapax.extracted(e.outcome) AS result,
       CASE WHEN e.reason IS NOT NULL THEN jsonb_build_object('error', e.reason) END AS error,
       to_timestamp(g.at / 1000.0) AS started_at,
       CASE WHEN e.state <> 0 THEN to_timestamp(e.updated / 1000.0) END AS completed_at,
       n.name AS namespace
FROM hapax.effect e
JOIN hapax.namespace n ON n.id = e.namespace
JOIN hapax.extraction_grant g ON g.id = e.fence;

CREATE VIEW hapax.extraction_audit_log AS
SELECT 'j' || g.id AS id, 'sha256:' || encode(g.key, 'hex') AS idempotency_key, g.ontology_id,
       'extraction_started' AS event_type, g.about AS metadata,
       to_timestamp(g.at / 1000.0) AS created_at, n.name AS namespace
FROM hapax.extraction_grant g JOIN hapax.namespace n ON n.id = g.namespace
UNION ALL
SELECT 'j' || j.id, 'sha256:' || encode(j.key, 'hex'), g.ontology_id,
       CASE j.state WHEN 1 THEN 'extraction_completed' ELSE 'extraction_failed' END,
       CASE j.state WHEN 1 THEN coalesce(hapax.about_extraction(j.note), '{}')
                    ELSE jsonb_build_object('error', j.note) END,
       to_timestamp(j.at / 1000.0), n.name
FROM hapax.journal j JOIN hapax.extraction_grant g ON g.id = j.prev
JOIN hapax.namespace n ON n.id = j.namespace
WHERE j.event <> 0
UNION ALL
SELECT 'h' || h.id, 'sha256:' || encode(h.key, 'hex'), h.ontology,
       CASE h.what WHEN 0 THEN 'cache_hit' WHEN 1 THEN 'cache_miss' ELSE 'concurrent_deduplicated' END,
       h.about::jsonb || jsonb_build_object('times', h.times), to_timestamp(h.at / 1000.0), n.name
FROM hapax.heard h JOIN hapax.namespace n ON n.id = h.namespace;

CREATE VIEW hapax.ontologies AS
SELECT o.id, o.version, hapax.extracted(convert_to(o.content, 'UTF8')) AS content,
       hapax.extracted(convert_to(o.metadata, 'UTF8')) AS metadata,
       substr(o.version, greatest(length(o.version) - 63, 1), 16) AS content_hash,
       to_timestamp(o.updated / 1000.0) AS updated_at, n.name AS namespace
FROM hapax.ontology o JOIN hapax.namespace n ON n.id = o.namespace;
