-- Views for people with an SQL prompt, and for other programs. Some have the names and columns that
-- docs/spec.md gives them.

CREATE VIEW hapax.effects AS
SELECT 'sha256:' || encode(e.key, 'hex') AS key, n.name AS namespace, e.label,
       hapax.state_name(e.state) AS state,
       'att_' || encode(e.attempt, 'hex') AS attempt, e.fence, e.generation, e.attempts, e.reason,
       to_timestamp(e.created / 1000.0) AS created, to_timestamp(e.updated / 1000.0) AS updated
FROM hapax.effect e JOIN hapax.namespace n ON n.id = e.namespace;

CREATE VIEW hapax.outbox AS
SELECT e.outbox_id, n.name AS namespace, e.pipeline_id, e.event_name, e.dataset_id, e.version,
    'sha256:' || encode(e.idempotency_key, 'hex') AS idempotency_key, e.payload,
    CASE WHEN open.failed THEN 'failed' WHEN open.failed IS NOT NULL THEN 'pending'
         ELSE 'dispatched' END AS status,
    greatest(open.tried, done.tried, 0) AS attempt,
    open.error AS last_error,
    to_timestamp(e.created_at / 1000.0) AS created_at,
    to_timestamp(greatest(e.created_at, open.updated, done.at) / 1000.0) AS updated_at
FROM hapax.outbox_record e
JOIN hapax.namespace n ON n.id = e.namespace
LEFT JOIN LATERAL (
    SELECT bool_or(d.due IS NULL) AS failed, max(d.tried) AS tried, max(d.updated) AS updated,
        (array_agg(d.error ORDER BY d.updated DESC) FILTER (WHERE d.error IS NOT NULL))[1] AS error
    FROM hapax.delivery d WHERE d.ordering_hash = e.ordering_hash AND d.seq = e.seq
) open ON true
LEFT JOIN LATERAL (
    SELECT max(d.at) AS at, max(d.tried[array_position(d.seqs, e.seq)]) AS tried
    FROM hapax.dispatched d WHERE d.span @> e.seq AND e.seq = ANY (d.seqs)
) done ON true;

-- The log of operations, and of no other effects. The number of a grant is its fence, so its note is found
-- there, until its part of the journal is archived.
CREATE VIEW hapax.idempotency_log AS
SELECT 'sha256:' || encode(e.key, 'hex') AS idem_key, a.about ->> 'pipeline_id' AS pipeline_id,
       a.about ->> 'task_id' AS task_id, a.about ->> 'dataset_id' AS dataset_id,
       a.about ->> 'operation_type' AS operation_type,
       CASE WHEN e.state = 1 THEN 'success' WHEN e.state IN (2, 6) THEN 'failure' ELSE 'partial' END
           AS status,
       CASE WHEN e.state = 1 THEN 'sha256:' || encode(coalesce(e.digest, sha256(e.outcome)), 'hex') END
           AS result_hash,
       to_timestamp(e.created / 1000.0) AS created_at, to_timestamp(e.updated / 1000.0) AS updated_at,
       a.about ->> 'checksum_in' AS raw_checksum, a.about ->> 'params_hash' AS params_hash,
       e.entry::text AS wal_pointer
FROM hapax.effect e
JOIN hapax.journal j ON j.id = e.fence AND j.event = 0
CROSS JOIN LATERAL (SELECT hapax.about(j.note) AS about) a
WHERE e.state <> 0 AND a.about ->> 'pipeline_id' IS NOT NULL AND a.about ->> 'task_id' IS NOT NULL
    AND a.about ->> 'dataset_id' IS NOT NULL AND a.about ->> 'operation_type' IS NOT NULL;

CREATE VIEW hapax.extraction_results AS
SELECT 'sha256:' || encode(s.key, 'hex') AS idempotency_key, s.ontology AS ontology_id,
       s.version AS ontology_version, s.text_hash, s.params_hash AS extraction_params_hash,
       o.outcome -> 'entities' AS entities, o.outcome -> 'relations' AS relations,
       o.outcome -> 'metadata' AS metadata,
       to_timestamp(s.created / 1000.0) AS created_at, to_timestamp(e.expires / 1000.0) AS expires_at,
       to_timestamp(s.used / 1000.0) AS accessed_at, n.name AS namespace
FROM hapax.result_index s
JOIN hapax.namespace n ON n.id = s.namespace
JOIN hapax.effect e ON e.namespace = s.namespace AND e.key = s.key AND e.state = 1
CROSS JOIN LATERAL (SELECT hapax.extracted(e.outcome) AS outcome) o
WHERE s.whole;

-- The grants of extractions, with their notes.
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
       CASE h.kind WHEN 0 THEN 'cache_hit' WHEN 1 THEN 'cache_miss' ELSE 'concurrent_deduplicated' END,
       h.about::jsonb || jsonb_build_object('times', h.times), to_timestamp(h.at / 1000.0), n.name
FROM hapax.cache_access h JOIN hapax.namespace n ON n.id = h.namespace;

CREATE VIEW hapax.ontologies AS
SELECT o.id, o.version, hapax.extracted(convert_to(o.content, 'UTF8')) AS content,
       hapax.extracted(convert_to(o.metadata, 'UTF8')) AS metadata,
       substr(o.version, greatest(length(o.version) - 63, 1), 16) AS content_hash,
       to_timestamp(o.updated / 1000.0) AS updated_at, n.name AS namespace
FROM hapax.ontology o JOIN hapax.namespace n ON n.id = o.namespace;
