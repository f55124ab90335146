-- Claims and settles with locks and notes in one statement, and events that cost less, version 9 of the
-- schema.

-- The next three were functions of SQL, or asked a regular expression: SQL that cannot be written into
-- the statement that calls it is parsed and planned anew at each call.

-- The bytes that a text such as `sha256:…` stands for.
CREATE OR REPLACE FUNCTION hapax.bytes_of(text text, prefix text, size int) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    digits text := substr(text, length(prefix) + 1);
BEGIN
    IF NOT starts_with(text, prefix) OR length(digits) <> 2 * size
        OR ltrim(digits, '0123456789abcdef') <> '' THEN
        RAISE EXCEPTION '% is not %<% hex digits>', coalesce(quote_literal(left(text, 80)), 'NULL'),
            prefix, 2 * size USING ERRCODE = 'HX106';
    END IF;
    RETURN decode(digits, 'hex');
END $$;

-- Writes the entry of a change that leads to this row. What a caller has to say of a grant or a
-- success is a setting of its transaction.
CREATE OR REPLACE FUNCTION hapax.note(e hapax.effect, number bigint, prev_number bigint, kind int)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hapax.journal (id, prev, at, namespace, generation, event, state, key, attempt,
                               digest, note)
    VALUES (number, prev_number, e.updated, e.namespace, e.generation, kind, e.state, e.key, e.attempt,
            CASE e.state WHEN 0 THEN e.fingerprint
                         WHEN 1 THEN coalesce(e.digest, sha256(e.outcome)) END,
            CASE WHEN e.state <= 1 THEN nullif(current_setting('hapax.about', true), '')
                 ELSE e.reason END);
END $$;

-- The track of a record: what the records of one ordering key share.
CREATE OR REPLACE FUNCTION hapax.track_of(namespace text, ordering int, key text, outbox_id uuid)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN ('x' || encode(substring(sha256(
        convert_to('hapax.order.v1:', 'UTF8')
        || int8send(octet_length(namespace)) || convert_to(namespace, 'UTF8')
        || CASE WHEN ordering = 2
            THEN int8send(0) || int8send(16) || uuid_send(outbox_id)
            ELSE int8send(octet_length(key)) || convert_to(key, 'UTF8') END
    ), 1, 8), 'hex'))::bit(64)::bigint;
END $$;

-- The same as hapax.quick, for batches in which something has a lock, or something to say in the
-- journal. A claim takes hold only with its lock; a settle lets go of it. Locks are taken before
-- effects, in their order, as everywhere. `hints` are the bits of a lock that its advisory lock is
-- made of: who has that is at the same lock right now, so a claim is put off rather than made to wait.
CREATE FUNCTION hapax.quick_with_locks(
    now bigint, hints bigint,
    s_namespace int[], s_key bytea[], s_entry bigint[], s_outcome bytea[], s_digest bytea[],
    s_expires bigint[], s_lock bigint[], s_note text[],
    c_namespace int[], c_key bytea[], c_fingerprint bytea[], c_safety smallint[],
    c_settling bigint[], c_attempt bytea[], c_label text[], c_ttl bigint[], c_lease bytea[],
    c_deadline bigint[], c_lock bigint[], c_note text[]
) RETURNS TABLE (namespace int, key bytea, entry bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '50ms'
AS $$
#variable_conflict use_column
DECLARE
    held int;
    granted int;
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM hapax.durably();
    END IF;
    IF cardinality(s_key) > 0 THEN
        PERFORM 1
        FROM unnest(s_namespace, s_lock) AS s (namespace, lock)
        JOIN hapax.lock l ON l.namespace = s.namespace AND l.lock = s.lock
        WHERE pg_try_advisory_xact_lock(s.lock & hints) IS NOT NULL
        ORDER BY l.namespace, l.lock FOR UPDATE OF l;
        RETURN QUERY
        WITH done AS (
            UPDATE hapax.effect e
            SET state = 1, updated = now, entry = hapax.next_entry(), lease = NULL,
                watch = NULL, at_ms = NULL, outcome = s.outcome, expires = s.expires
            FROM unnest(s_namespace, s_key, s_entry, s_outcome, s_digest, s_expires, s_note)
                AS s (namespace, key, entry, outcome, digest, expires, note)
            WHERE e.namespace = s.namespace AND e.key = s.key AND e.entry = s.entry AND e.state = 0
            RETURNING e.entry, s.entry AS prev, e.namespace, e.key, e.generation, e.attempt, e.lock,
                s.digest, s.note
        ), noted AS (
            INSERT INTO hapax.journal
                (id, prev, at, namespace, generation, event, state, key, attempt, digest, note)
            SELECT d.entry, d.prev, now, d.namespace, d.generation, 1, 1, d.key, d.attempt, d.digest,
                d.note
            FROM done d
        ), freed AS (
            DELETE FROM hapax.lock l USING done d
            WHERE l.namespace = d.namespace AND l.lock = d.lock AND l.holder = d.key
                AND l.attempt = d.attempt
        )
        SELECT d.namespace, d.key::bytea, d.entry FROM done d;
    END IF;
    IF cardinality(c_key) > 0 THEN
        INSERT INTO hapax.lock (namespace, lock, holder, attempt)
        SELECT c.namespace, c.lock, c.key, c.attempt
        FROM unnest(c_namespace, c_key, c_attempt, c_lease, c_lock)
            AS c (namespace, key, attempt, lease, lock)
        WHERE c.lock IS NOT NULL
            AND (SELECT e.entry FROM hapax.effect e
                 WHERE e.namespace = c.namespace AND e.key = c.key) IS NULL
            AND EXISTS (SELECT 1 FROM hapax.lease l WHERE l.id = c.lease AND NOT l.dead)
            AND pg_try_advisory_xact_lock(c.lock & hints)
        ORDER BY c.namespace, c.lock, c.key
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS held = ROW_COUNT;
        RETURN QUERY
        WITH n AS MATERIALIZED (
            SELECT hapax.next_entry() AS entry, c.*
            FROM unnest(c_namespace, c_key, c_fingerprint, c_safety, c_settling, c_attempt,
                        c_label, c_ttl, c_lease, c_deadline, c_lock, c_note)
                AS c (namespace, key, fingerprint, safety, settling, attempt, label, ttl,
                      lease, deadline, lock, note)
            WHERE (c.lock IS NULL OR EXISTS (
                    SELECT 1 FROM hapax.lock l
                    WHERE l.namespace = c.namespace AND l.lock = c.lock AND l.holder = c.key
                        AND l.attempt = c.attempt))
                AND (SELECT e.entry FROM hapax.effect e
                     WHERE e.namespace = c.namespace AND e.key = c.key) IS NULL
                AND EXISTS (SELECT 1 FROM hapax.lease l WHERE l.id = c.lease AND NOT l.dead)
        ), made AS (
            INSERT INTO hapax.effect AS e
                (namespace, state, safety, entry, fence, created, updated, generation, attempts,
                 key, fingerprint, attempt, lease, watch, at_ms, settling_ms, ttl_ms, label, lock)
            SELECT n.namespace, 0, n.safety, n.entry, n.entry, now, now, 1, 1, n.key,
                n.fingerprint, n.attempt, n.lease, CASE WHEN n.safety <> 0 THEN n.lease END,
                n.deadline, n.settling, n.ttl, n.label, n.lock
            FROM n
            ON CONFLICT DO NOTHING
            RETURNING e.entry, e.namespace, e.key
        ), noted AS (
            INSERT INTO hapax.journal
                (id, at, namespace, generation, event, state, key, attempt, digest, note)
            SELECT n.entry, now, n.namespace, 1, 0, 0, n.key, n.attempt, n.fingerprint, n.note
            FROM n
            -- Not a join, which would compare each with each.
            WHERE (n.entry IN (SELECT m.entry FROM made m)) IS TRUE
        )
        SELECT m.namespace, m.key::bytea, m.entry FROM made m;
        GET DIAGNOSTICS granted = ROW_COUNT;
        IF held > 0 AND granted < cardinality(c_key) THEN
            -- Somebody else's claim of the same key may have come between the two.
            DELETE FROM hapax.lock l
            USING unnest(c_namespace, c_key, c_lock, c_attempt) AS c (namespace, key, lock, attempt)
            WHERE l.namespace = c.namespace AND l.lock = c.lock AND l.holder = c.key
                AND l.attempt = c.attempt
                AND NOT EXISTS (SELECT 1 FROM hapax.effect e WHERE e.namespace = c.namespace
                                AND e.key = c.key AND e.attempt = c.attempt);
        END IF;
    END IF;
END $$;

-- A lock is never taken from an attempt that keeps it. Judged when the transaction is over, for whoever
-- takes a lock over writes it before it lets the attempt that had it expire. Whoever comes with a claim
-- of its own in a caller's transaction, and finds the lock free only because somebody else's claim is
-- not committed yet, is told to try again.
CREATE FUNCTION hapax.lock_is_one() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM hapax.effect e WHERE e.namespace = OLD.namespace AND e.key = OLD.holder
               AND e.attempt = OLD.attempt AND e.state NOT IN (1, 2, 6)) THEN
        RAISE EXCEPTION 'the lock was taken by somebody else meanwhile'
            USING ERRCODE = 'serialization_failure', HINT = 'Roll back and claim again.';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER is_one AFTER UPDATE ON hapax.lock DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION hapax.lock_is_one();

-- What only one state knows is there in that state and in no other. Triggers rather than constraints
-- of tables, which are read anew for every statement: that cost a fifth of a claim and settle.
ALTER TABLE hapax.effect DROP CONSTRAINT effect_check, DROP CONSTRAINT effect_check1,
    DROP CONSTRAINT effect_check2, DROP CONSTRAINT effect_check3;
CREATE FUNCTION hapax.effect_is_whole() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.safety = 1) = (NEW.settling_ms IS NOT NULL)
        AND NEW.state = (CASE WHEN NEW.lease IS NOT NULL THEN 0
            WHEN NEW.outcome IS NOT NULL OR NEW.digest IS NOT NULL THEN 1
            WHEN NEW.cause IS NOT NULL THEN 2 WHEN NEW.tries IS NOT NULL THEN 4
            ELSE coalesce(NEW.stuck, 6) END)
        AND (NEW.state > 1) = (NEW.reason IS NOT NULL)
        AND (NEW.domain IS NULL) = (NEW.epoch IS NULL) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'an effect has what its state knows, and nothing that only another does'
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER is_whole BEFORE INSERT OR UPDATE ON hapax.effect FOR EACH ROW
    EXECUTE FUNCTION hapax.effect_is_whole();

CREATE FUNCTION hapax.record_is_whole() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.ordering BETWEEN 0 AND 2 AND (NEW.ordering = 1) = (NEW.order_key IS NOT NULL)
        AND NEW.event_name <> '' AND NEW.dataset_id <> ''
        AND num_nulls(NEW.artifact_version, NEW.checksum, NEW.uri) IN (0, 3) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'an outbox record has a name and a dataset, an order key if it is ordered by one, and all or nothing of an artifact'
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER is_whole BEFORE INSERT ON hapax.outbox_record FOR EACH ROW
    EXECUTE FUNCTION hapax.record_is_whole();

-- Records an event of an effect that you have claimed and not settled yet, in your transaction:
-- it is delivered after you have committed, to every sink that it is routed to, and never if you
-- roll back. Each event of an effect has its own `ordinal`. Returns the id that receivers see.
--
-- The same event emitted again is the same record. An attempt that was overtaken raises HX207,
-- and your writes go with it.
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
    places smallint[];
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
    IF e.attempt IS DISTINCT FROM this_attempt OR e.state NOT IN (0, 4, 5)
        AND NOT (e.state = 1 AND EXISTS (SELECT 1 FROM hapax.outbox_record r WHERE r.outbox_id = id)) THEN
        RAISE EXCEPTION 'fenced: this attempt was overtaken or has settled; the record is: %',
            coalesce(hapax.state_name(e.state) || ', by att_' || encode(e.attempt, 'hex'), 'no record')
            USING ERRCODE = 'HX207', HINT = 'Emit between the claim and the settle.';
    END IF;
    IF e.state <> 1 AND e.domain IS NOT NULL THEN
        PERFORM hapax.check_epoch(r) FROM hapax.effect r WHERE r.namespace = e.namespace AND r.key = this_key;
    END IF;
    SELECT array_agg(DISTINCT r.sink) INTO places FROM hapax.route r
    WHERE event_name LIKE r.event_like AND dataset_id LIKE r.dataset_like;
    IF places IS NULL THEN
        RAISE EXCEPTION 'no route takes the event % of dataset %', event_name, dataset_id
            USING ERRCODE = 'HX111', HINT = 'Declare one: hapax outbox configure.';
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
    INSERT INTO hapax.delivery (seq, outbox_id, xid, track, due, updated, namespace, sink)
    SELECT place, id, pg_current_xact_id()::text::bigint, lane, now, now, e.namespace, s.sink
    FROM unnest(places) AS s (sink) WHERE s.sink IS NOT NULL;
    RETURN id;
END $$;
