-- What the journal says of grants and successes, and pipelines, version 6 of the schema.

-- Writes the entry of a change that leads to this row. What a caller has to say of a grant or a
-- success is a setting of its transaction.
CREATE OR REPLACE FUNCTION hapax.note(e hapax.effect, number bigint, prev_number bigint, kind int)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO hapax.journal (id, prev, at, namespace, generation, event, state, key, attempt,
                               digest, note)
    VALUES (number, prev_number, e.updated, e.namespace, e.generation, kind, e.state, e.key, e.attempt,
            CASE e.state WHEN 0 THEN e.fingerprint
                         WHEN 1 THEN coalesce(e.digest, sha256(e.outcome)) END,
            CASE WHEN e.state <= 1 THEN nullif(current_setting('hapax.about', true), '')
                 ELSE e.reason END)
$$;

-- What a note says of a pipeline's operation; nothing, if it says anything else.
CREATE FUNCTION hapax.about(note text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN note LIKE '{%' AND note::jsonb ->> 'kind' = 'pipeline.v1' THEN note::jsonb END;
EXCEPTION WHEN invalid_text_representation THEN RETURN NULL;
END $$;

-- The number of a grant is its fence, so what was said of it is found there; not any more once
-- its part of the journal is archived.
CREATE OR REPLACE VIEW hapax.idempotency_log AS
SELECT 'sha256:' || encode(e.key, 'hex') AS idem_key, a.about ->> 'pipeline_id' AS pipeline_id,
       a.about ->> 'task_id' AS task_id, a.about ->> 'dataset_id' AS dataset_id,
       a.about ->> 'operation_type' AS operation_type,
       CASE WHEN e.state = 1 THEN 'success' WHEN e.state IN (2, 6) THEN 'failure' ELSE 'partial' END
           AS status,
       CASE WHEN e.state = 1 THEN 'sha256:' || encode(coalesce(e.digest, sha256(e.outcome)), 'hex') END
           AS result_hash,
       to_timestamp(e.created / 1000.0) AS created_at, to_timestamp(e.updated / 1000.0) AS updated_at,
       coalesce(a.about ->> 'checksum_in', 'sha256:' || encode(e.fingerprint, 'hex')) AS raw_checksum,
       a.about ->> 'params_hash' AS params_hash,
       e.entry::text AS wal_pointer
FROM hapax.effect e
LEFT JOIN hapax.journal j ON j.id = e.fence AND j.event = 0
CROSS JOIN LATERAL (SELECT hapax.about(j.note) AS about) a
WHERE e.state <> 0;
