-- Events that cost less, version 11 of the schema.

-- What looks random cannot be compressed, so nobody tries; the rest is in less time, where the server knows how.
ALTER TABLE hapax.tile ALTER COLUMN hashes SET STORAGE EXTERNAL;
ALTER TABLE hapax.flight ALTER COLUMN tracks SET STORAGE EXTERNAL;
DO $$
BEGIN
    ALTER TABLE hapax.flight ALTER COLUMN seqs SET COMPRESSION lz4, ALTER COLUMN tried SET COMPRESSION lz4;
    ALTER TABLE hapax.dispatched ALTER COLUMN seqs SET COMPRESSION lz4, ALTER COLUMN tried SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;

-- Records an event of an effect that you have claimed and not settled yet, in your transaction:
-- it is delivered after you have committed, to every sink that it is routed to, and never if you
-- roll back. Each event of an effect has its own `ordinal`. Returns the id that receivers see.
--
-- The same event emitted again is the same record. An attempt that was overtaken raises HX207,
-- and your writes go with it.
--
-- To begin a query costs more than most of what is asked here. So conditions with a query in them stand
-- by themselves, where they are seldom come to, and routes are read as deliveries are written.
CREATE OR REPLACE FUNCTION hapax.emit(
    key text,
    attempt text,
    event_name text,
    dataset_id text,
    payload json,
    ordinal int DEFAULT 0,
    pipeline_id text DEFAULT NULL,
    version text DEFAULT NULL,
    -- What it waits in line with; the dataset, unless given. Nothing, if `ordered` is false.
    order_key text DEFAULT NULL,
    ordered boolean DEFAULT true,
    -- What was published, if the event tells of a publication.
    artifact_version text DEFAULT NULL,
    checksum text DEFAULT NULL,
    uri text DEFAULT NULL,
    namespace text DEFAULT 'default',
    -- `traceparent`, for receivers.
    trace text DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    now bigint := hapax.now_ms();
    this_key bytea := hapax.bytes_of(key, 'sha256:', 32);
    this_attempt bytea := hapax.bytes_of(attempt, 'att_', 16);
    how smallint := CASE WHEN NOT ordered THEN 2 WHEN order_key IS NULL THEN 0 ELSE 1 END;
    id uuid;
    place bigint;
    lane bigint;
    routed boolean := false;
    known hapax.outbox_record;
    published hapax.artifact;
    e record;
BEGIN
    IF coalesce(trim(event_name), '') = '' OR coalesce(trim(dataset_id), '') = '' OR payload IS NULL THEN
        RAISE EXCEPTION 'an event has a name, a dataset and a payload' USING ERRCODE = 'HX106';
    END IF;
    IF greatest(octet_length(event_name), octet_length(dataset_id), octet_length(pipeline_id),
                octet_length(version), octet_length(order_key), octet_length(artifact_version),
                octet_length(checksum), octet_length(uri)) > 512
        OR octet_length(payload::text) > 1048576 OR ordinal NOT BETWEEN 0 AND 9999 THEN
        RAISE EXCEPTION 'a field has at most 512 bytes, a payload 1048576, an ordinal is below 10000'
            USING ERRCODE = 'HX106';
    END IF;
    -- Only what is needed: a whole row is costly to take apart.
    SELECT r.namespace, r.attempt, r.state, r.created, r.generation, r.domain INTO e FROM hapax.effect r
    WHERE r.namespace = (SELECT n.id FROM hapax.namespace n WHERE n.name = namespace) AND r.key = this_key
    FOR UPDATE;
    id := hapax.outbox_id(namespace, this_key, e.created, e.generation, ordinal);
    IF e.attempt IS DISTINCT FROM this_attempt OR e.state NOT IN (0, 4, 5) THEN
        IF e.attempt IS DISTINCT FROM this_attempt OR e.state <> 1
            OR NOT EXISTS (SELECT 1 FROM hapax.outbox_record r WHERE r.outbox_id = id) THEN
            RAISE EXCEPTION 'fenced: this attempt was overtaken or has settled; the record is: %',
                coalesce(hapax.state_name(e.state) || ', by att_' || encode(e.attempt, 'hex'), 'no record')
                USING ERRCODE = 'HX207', HINT = 'Emit between the claim and the settle.';
        END IF;
    END IF;
    IF e.state <> 1 AND e.domain IS NOT NULL THEN
        PERFORM hapax.check_epoch(r) FROM hapax.effect r WHERE r.namespace = e.namespace AND r.key = this_key;
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM hapax.durably();
    END IF;
    lane := hapax.track_of(namespace, how, coalesce(order_key, dataset_id), id);
    INSERT INTO hapax.outbox_record (created_at, track, namespace, ordinal, ordering, outbox_id, idempotency_key,
        event_name, dataset_id, pipeline_id, version, order_key, payload, artifact_version, checksum, uri, trace)
    VALUES (now, lane, e.namespace, ordinal, how, id, this_key, event_name, dataset_id, pipeline_id, version,
        order_key, payload, artifact_version, checksum, uri, left(trace, 55))
    ON CONFLICT ON CONSTRAINT outbox_record_outbox_id_key DO NOTHING
    RETURNING seq INTO place;
    IF place IS NOT NULL THEN
        INSERT INTO hapax.delivery (seq, outbox_id, xid, track, due, updated, namespace, sink)
        SELECT place, id, pg_current_xact_id()::text::bigint, lane, now, now, e.namespace, r.sink
        FROM hapax.route r
        WHERE r.sink IS NOT NULL AND event_name LIKE r.event_like AND dataset_id LIKE r.dataset_like
        ON CONFLICT DO NOTHING;
        routed := FOUND;
    END IF;
    IF NOT routed THEN
        -- It was recorded before, or goes nowhere: is that what was declared?
        IF NOT EXISTS (SELECT 1 FROM hapax.route r
                       WHERE event_name LIKE r.event_like AND dataset_id LIKE r.dataset_like) THEN
            RAISE EXCEPTION 'no route takes the event % of dataset %', event_name, dataset_id
                USING ERRCODE = 'HX111', HINT = 'Declare one: hapax outbox configure.';
        END IF;
    END IF;
    IF place IS NULL THEN
        SELECT r.* INTO known FROM hapax.outbox_record r WHERE r.outbox_id = id;
        IF (known.event_name, known.dataset_id, known.payload::jsonb) <> (event_name, dataset_id, payload::jsonb)
            OR (known.pipeline_id, known.version, known.order_key, known.ordering, known.artifact_version,
                known.checksum, known.uri)
            IS DISTINCT FROM (pipeline_id, version, order_key, how, artifact_version, checksum, uri) THEN
            RAISE EXCEPTION 'the event % was recorded with another content', id
                USING ERRCODE = 'HX112', HINT = 'Give each event of an effect its own ordinal.';
        END IF;
        RETURN id;
    END IF;
    IF artifact_version IS NOT NULL THEN
        SELECT a.* INTO published FROM hapax.artifact a
        WHERE a.namespace = e.namespace AND a.dataset_id = dataset_id AND a.version = artifact_version;
        IF published.record IS NULL THEN
            INSERT INTO hapax.artifact VALUES (e.namespace, dataset_id, artifact_version, checksum, uri, place);
        ELSIF (published.checksum, published.uri) <> (checksum, uri) THEN
            RAISE EXCEPTION 'version % of dataset % is published as something else', artifact_version, dataset_id
                USING ERRCODE = 'HX113';
        END IF;
    END IF;
    RETURN id;
END $$;
