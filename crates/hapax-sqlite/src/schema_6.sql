-- Pipelines, version 6 of the schema.

-- The log under the name and with the columns that pipelines know. The number of a grant is its
-- fence, so what the journal says of it is found there.
CREATE VIEW idempotency_log AS
SELECT 'sha256:' || lower(hex(e.key)) AS idem_key, a.about ->> 'pipeline_id' AS pipeline_id,
       a.about ->> 'task_id' AS task_id, a.about ->> 'dataset_id' AS dataset_id,
       a.about ->> 'operation_type' AS operation_type,
       CASE e.state WHEN 1 THEN 'success' WHEN 2 THEN 'failure' WHEN 6 THEN 'failure'
           ELSE 'partial' END AS status,
       CASE e.state WHEN 1 THEN 'sha256:' || lower(hex(s.digest)) END AS result_hash,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.created / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.updated / 1000.0, 'unixepoch') AS updated_at,
       ifnull(a.about ->> 'checksum_in', 'sha256:' || lower(hex(e.fingerprint))) AS raw_checksum,
       a.about ->> 'params_hash' AS params_hash,
       CAST(e.entry AS TEXT) AS wal_pointer
FROM effect e
LEFT JOIN (
    SELECT id, note AS about FROM journal
    WHERE event = 0 AND note LIKE '{%' AND json_valid(note) AND note ->> 'kind' = 'pipeline.v1'
) a ON a.id = e.fence
LEFT JOIN journal s ON s.id = e.entry
WHERE e.state <> 0;
