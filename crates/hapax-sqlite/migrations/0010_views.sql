-- Views for people with an SQL prompt, and for other programs. Some have the names and columns that
-- docs/spec.md gives them.

CREATE VIEW effects AS
SELECT 'sha256:' || lower(hex(e.key)) AS key, n.name AS namespace, e.label,
       CASE e.state WHEN 0 THEN 'running' WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed'
           WHEN 3 THEN 'partial' WHEN 4 THEN 'unknown' WHEN 5 THEN 'indeterminate'
           ELSE 'skipped' END AS state,
       'att_' || lower(hex(e.attempt)) AS attempt, e.fence, e.generation, e.attempts, e.reason,
       datetime(e.created / 1000, 'unixepoch') AS created,
       datetime(e.updated / 1000, 'unixepoch') AS updated
FROM effect e JOIN namespace n ON n.id = e.namespace;

CREATE VIEW outbox AS
SELECT lower(printf('%s-%s-%s-%s-%s', substr(hex(e.outbox_id), 1, 8), substr(hex(e.outbox_id), 9, 4),
           substr(hex(e.outbox_id), 13, 4), substr(hex(e.outbox_id), 17, 4),
           substr(hex(e.outbox_id), 21))) AS outbox_id,
       n.name AS namespace, e.pipeline_id, e.event_name, e.dataset_id, e.version,
       'sha256:' || lower(hex(e.idempotency_key)) AS idempotency_key, e.payload,
       CASE WHEN EXISTS (SELECT 1 FROM delivery d WHERE d.seq = e.seq AND d.due IS NULL) THEN 'failed'
            WHEN EXISTS (SELECT 1 FROM delivery d WHERE d.seq = e.seq) THEN 'pending'
            ELSE 'dispatched' END AS status,
       max(ifnull((SELECT max(d.tried) FROM delivery d WHERE d.seq = e.seq), 0),
           ifnull((SELECT max(d.tried) FROM dispatched d WHERE d.seq = e.seq), 0)) AS attempt,
       (SELECT d.error FROM delivery d WHERE d.seq = e.seq AND d.error IS NOT NULL
        ORDER BY d.updated DESC LIMIT 1) AS last_error,
       strftime('%Y-%m-%dT%H:%M:%SZ', e.created_at / 1000, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%SZ', max(e.created_at,
           ifnull((SELECT max(d.updated) FROM delivery d WHERE d.seq = e.seq), 0),
           ifnull((SELECT max(d.at) FROM dispatched d WHERE d.seq = e.seq), 0)) / 1000,
           'unixepoch') AS updated_at
FROM outbox_record e JOIN namespace n ON n.id = e.namespace;

-- The log of operations, and of no other effects. The number of a grant is its fence, so its note is
-- found there.
CREATE VIEW idempotency_log AS
SELECT 'sha256:' || lower(hex(e.key)) AS idem_key, a.about ->> 'pipeline_id' AS pipeline_id,
       a.about ->> 'task_id' AS task_id, a.about ->> 'dataset_id' AS dataset_id,
       a.about ->> 'operation_type' AS operation_type,
       CASE e.state WHEN 1 THEN 'success' WHEN 2 THEN 'failure' WHEN 6 THEN 'failure'
           ELSE 'partial' END AS status,
       CASE e.state WHEN 1 THEN 'sha256:' || lower(hex(s.digest)) END AS result_hash,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.created / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.updated / 1000.0, 'unixepoch') AS updated_at,
       a.about ->> 'checksum_in' AS raw_checksum, a.about ->> 'params_hash' AS params_hash,
       CAST(e.entry AS TEXT) AS wal_pointer
FROM effect e
JOIN (
    SELECT id, note AS about FROM journal
    WHERE event = 0 AND note LIKE '{%' AND json_valid(note) AND note ->> 'kind' = 'pipeline.v1'
) a ON a.id = e.fence
LEFT JOIN journal s ON s.id = e.entry
WHERE e.state <> 0 AND a.about ->> 'pipeline_id' IS NOT NULL AND a.about ->> 'task_id' IS NOT NULL
    AND a.about ->> 'dataset_id' IS NOT NULL AND a.about ->> 'operation_type' IS NOT NULL;

-- Results larger than 64 KiB lie compressed elsewhere, and are not shown.
CREATE VIEW extraction_results AS
WITH newest (namespace, effect) AS (
    SELECT namespace, effect FROM key_tail UNION ALL SELECT namespace, effect FROM key_middle
), placed (namespace, key, effect) AS (
    SELECT s.namespace, s.key, k.effect FROM result_index s
    JOIN key_index k ON k.namespace = s.namespace AND k.prefix = substr(s.key, 1, 16)
    UNION ALL
    SELECT s.namespace, s.key, k.effect FROM newest k CROSS JOIN effect e ON e.id = k.effect
    CROSS JOIN result_index s ON s.namespace = k.namespace AND s.key = e.key
)
SELECT 'sha256:' || lower(hex(s.key)) AS idempotency_key, s.ontology AS ontology_id,
       s.version AS ontology_version, s.text_hash, s.params_hash AS extraction_params_hash,
       CAST(e.outcome AS TEXT) -> 'entities' AS entities,
       CAST(e.outcome AS TEXT) -> 'relations' AS relations,
       CAST(e.outcome AS TEXT) -> 'metadata' AS metadata,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.created / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.expires / 1000.0, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.used / 1000.0, 'unixepoch') AS accessed_at, n.name AS namespace
FROM placed p
JOIN result_index s ON s.namespace = p.namespace AND s.key = p.key
JOIN effect e ON e.id = p.effect
JOIN namespace n ON n.id = s.namespace
WHERE s.whole = 1 AND e.state = 1;

-- The grants of extractions, with their notes.
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
       CASE h.kind WHEN 0 THEN 'cache_hit' WHEN 1 THEN 'cache_miss' ELSE 'concurrent_deduplicated' END,
       json_set(h.about, '$.times', h.times),
       strftime('%Y-%m-%dT%H:%M:%fZ', h.at / 1000.0, 'unixepoch'), n.name
FROM cache_access h JOIN namespace n ON n.id = h.namespace;

CREATE VIEW ontologies AS
SELECT o.id, o.version, o.content, o.metadata, substr(o.version, -64, 16) AS content_hash,
       strftime('%Y-%m-%dT%H:%M:%fZ', o.updated / 1000.0, 'unixepoch') AS updated_at,
       n.name AS namespace
FROM ontology o JOIN namespace n ON n.id = o.namespace;
