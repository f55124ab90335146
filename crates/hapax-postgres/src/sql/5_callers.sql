-- For programs in any language, version 5: the functions of 1_callers.sql and 2_outbox.sql that
-- epochs concern.

-- Refuses an attempt whose epoch is over. No lock is needed: a transition writes to every effect
-- that may still be settled, so whoever has such a row comes before it or after it.
CREATE FUNCTION hapax.check_epoch(e hapax.effect) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    current bigint;
BEGIN
    IF e.domain IS NULL THEN
        RETURN;
    END IF;
    SELECT c.epoch INTO current FROM hapax.epoch c
    WHERE c.namespace = e.namespace AND c.domain = e.domain;
    IF coalesce(current, 0) <> e.epoch THEN
        RAISE EXCEPTION 'it is bound to epoch % of %, which is in epoch %', e.epoch, e.domain, current
            USING ERRCODE = 'HX211', HINT = 'Stop; what you did was not recorded.';
    END IF;
END $$;

-- Writes a change of a row that is there and locked: its entry, the row, and the lock it lets
-- go of. Returns the row.
CREATE OR REPLACE FUNCTION hapax.move(e hapax.effect, number bigint, kind int) RETURNS hapax.effect
LANGUAGE plpgsql AS $$
BEGIN
    e.voidable := CASE WHEN e.state IN (0, 4, 5) THEN e.domain END;
    PERFORM hapax.note(e, number, e.entry, kind);
    e.entry := number;
    UPDATE hapax.effect r SET
        state = e.state, safety = e.safety, entry = e.entry, fence = e.fence, created = e.created,
        updated = e.updated, generation = e.generation, attempts = e.attempts,
        fingerprint = e.fingerprint, attempt = e.attempt, lease = e.lease, watch = e.watch,
        at_ms = e.at_ms, settling_ms = e.settling_ms, ttl_ms = e.ttl_ms, expires = e.expires,
        lock = e.lock, label = e.label, tries = e.tries, stuck = e.stuck, cause = e.cause,
        reason = e.reason, outcome = e.outcome, body = e.body, digest = e.digest, size = e.size,
        domain = e.domain, epoch = e.epoch, voidable = e.voidable
    WHERE r.namespace = e.namespace AND r.key = e.key;
    IF e.lock IS NOT NULL AND e.state IN (1, 2, 6) THEN
        DELETE FROM hapax.lock l
        WHERE l.namespace = e.namespace AND l.lock = e.lock AND l.attempt = e.attempt;
    END IF;
    RETURN e;
END $$;

DROP FUNCTION IF EXISTS hapax.claim(text, bytea, text, text, bigint, bigint, text, bigint, bigint, text, text);

-- Asks for permission. `granted`: do it, and name `attempt` when you settle. `replayed`: it was
-- done, and `outcome` is what came of it. `in_flight`, `locked`: someone is at it. `conflict`:
-- the key is known with another fingerprint. `blocked`: the outcome is not known; `refused`.
-- `outdated`: it is bound to another epoch of its domain than the current one.
--
-- Without a lease the permission ends with the transaction: settle before you commit.
CREATE FUNCTION hapax.claim(
    key text,
    fingerprint bytea,
    lease text DEFAULT NULL,
    safety text DEFAULT 'opaque',
    settling_ms bigint DEFAULT NULL,
    lock bigint DEFAULT NULL,
    label text DEFAULT NULL,
    ttl_ms bigint DEFAULT NULL,
    deadline_ms bigint DEFAULT NULL,
    attempt text DEFAULT NULL,
    namespace text DEFAULT 'default',
    domain text DEFAULT NULL,
    epoch bigint DEFAULT NULL,
    OUT verdict text, OUT attempt_id text, OUT fence bigint, OUT nth int, OUT outcome bytea,
    OUT reason text,
    -- The digest and size of an outcome that was too large to keep; the fingerprint in conflict;
    -- the state that blocks; the key that holds the lock.
    OUT digest bytea, OUT size bigint, OUT recorded bytea, OUT state text, OUT holder text,
    -- The epoch it is bound to, and the one that counts.
    OUT bound_epoch bigint, OUT current_epoch bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    now bigint := hapax.now_ms();
    space int := hapax.namespace_id(namespace);
    this_key bytea := hapax.bytes_of(key, 'sha256:', 32);
    this_attempt bytea := CASE WHEN attempt IS NULL THEN decode(replace(gen_random_uuid()::text, '-', ''), 'hex')
                               ELSE hapax.bytes_of(attempt, 'att_', 16) END;
    this_lease bytea := CASE WHEN lease IS NULL THEN decode(repeat('00', 16), 'hex')
                             ELSE hapax.bytes_of(lease, 'lease_', 16) END;
    class int := CASE safety WHEN 'transactional' THEN 0 WHEN 'opaque' THEN 3
        WHEN 'reconcilable' THEN CASE WHEN settling_ms IS NULL THEN 2 ELSE 1 END END;
    held hapax.lock;
    h hapax.effect;
    e hapax.effect;
    r hapax.effect;
    is_new boolean;
BEGIN
    IF class IS NULL OR length(fingerprint) IS DISTINCT FROM 32 OR length(label) > 256 THEN
        RAISE EXCEPTION 'safety is transactional, reconcilable or opaque; a fingerprint has 32 bytes, a label at most 256'
            USING ERRCODE = 'HX106';
    END IF;
    IF lease IS NOT NULL AND NOT EXISTS (SELECT 1 FROM hapax.lease l WHERE l.id = this_lease AND NOT l.dead) THEN
        RAISE EXCEPTION 'the lease % is over', lease
            USING ERRCODE = 'HX110', HINT = 'Open another and claim again.';
    END IF;
    IF (domain IS NULL) <> (epoch IS NULL) OR domain !~ '^[a-z][a-z0-9_-]{0,63}$' THEN
        RAISE EXCEPTION 'a domain and its epoch are given together, and a domain is 1 to 64 of a-z, 0-9, -, _'
            USING ERRCODE = 'HX106';
    END IF;
    PERFORM hapax.durably();
    attempt_id := 'att_' || encode(this_attempt, 'hex');
    IF domain IS NOT NULL THEN
        current_epoch := hapax.epoch_now(space, domain);
        IF current_epoch <> epoch THEN
            verdict := 'outdated';
            bound_epoch := epoch;
            reason := format('it is bound to epoch %s of %s, which is in epoch %s', epoch, domain, current_epoch);
            RETURN;
        END IF;
    END IF;
    -- A hint for those who can put their claims off; the rows decide.
    PERFORM pg_try_advisory_xact_lock(lock);
    LOOP
        e := hapax.load(space, this_key, now);
        is_new := e.key IS NULL;
        EXIT WHEN is_new;
        IF e.attempt = this_attempt AND e.state = 2 THEN
            verdict := 'refused';
            reason := attempt_id || ' is over; ask with a new one';
            RETURN;
        END IF;
        IF (e.state = 2 AND e.cause = 6) OR e.expires <= now THEN
            EXIT;
        END IF;
        IF e.fingerprint <> fingerprint THEN
            verdict := 'conflict';
            recorded := e.fingerprint;
            reason := 'the key is recorded with another fingerprint';
            RETURN;
        END IF;
        IF (e.domain, e.epoch) IS DISTINCT FROM (domain, epoch) THEN
            verdict := CASE WHEN e.domain = domain THEN 'outdated' ELSE 'refused' END;
            bound_epoch := e.epoch;
            reason := CASE WHEN e.domain IS NULL THEN 'it is bound to no epoch; ask for it in none'
                ELSE format('it is bound to epoch %s of %s; ask for it there', e.epoch, e.domain) END;
            RETURN;
        END IF;
        CASE e.state
            WHEN 0 THEN
                IF e.attempt = this_attempt THEN
                    verdict := 'granted'; fence := e.fence; nth := e.attempts;
                ELSE
                    verdict := 'in_flight'; attempt_id := 'att_' || encode(e.attempt, 'hex');
                END IF;
                RETURN;
            WHEN 1 THEN
                verdict := 'replayed';
                outcome := coalesce(e.outcome, (SELECT b.data FROM hapax.body b WHERE b.id = e.body));
                digest := e.digest;
                size := e.size;
                RETURN;
            WHEN 2 THEN
                EXIT;
            WHEN 6 THEN
                verdict := 'refused';
                reason := 'an operator skipped it: ' || e.reason;
                RETURN;
            ELSE
                verdict := 'blocked';
                attempt_id := 'att_' || encode(e.attempt, 'hex');
                state := hapax.state_name(e.state);
                reason := e.reason;
                RETURN;
        END CASE;
    END LOOP;
    IF lock IS NOT NULL THEN
        SELECT * INTO held FROM hapax.lock l WHERE l.namespace = space AND l.lock = lock FOR UPDATE;
        IF held.holder IS NOT NULL AND held.holder <> this_key THEN
            h := hapax.load(space, held.holder, now);
            IF h.attempt = held.attempt AND h.state NOT IN (1, 2, 6) THEN
                holder := 'sha256:' || encode(held.holder, 'hex');
                verdict := CASE WHEN h.state = 0 THEN 'locked' ELSE 'blocked' END;
                attempt_id := 'att_' || encode(h.attempt, 'hex');
                state := hapax.state_name(h.state);
                reason := h.reason;
                RETURN;
            END IF;
        END IF;
    END IF;
    r.namespace := space;
    r.key := this_key;
    r.state := 0;
    r.safety := class;
    r.settling_ms := CASE WHEN class = 1 THEN settling_ms END;
    r.fence := hapax.next_entry();
    r.entry := e.entry;
    r.created := now;
    r.updated := now;
    r.generation := 1;
    r.attempts := 1;
    IF NOT is_new AND ((e.state = 2 AND e.cause = 6) OR e.expires <= now) THEN
        r.generation := e.generation + 1;
    ELSIF NOT is_new THEN
        r.generation := e.generation;
        r.attempts := e.attempts + 1;
        r.created := e.created;
    END IF;
    r.fingerprint := fingerprint;
    r.attempt := this_attempt;
    r.lease := this_lease;
    r.watch := CASE WHEN class <> 0 THEN this_lease END;
    r.at_ms := now + deadline_ms;
    r.ttl_ms := ttl_ms;
    r.lock := lock;
    r.label := label;
    r.domain := domain;
    r.epoch := epoch;
    r.voidable := domain;
    IF is_new THEN
        r.entry := r.fence;
        INSERT INTO hapax.effect SELECT r.* ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            verdict := 'in_flight';
            reason := 'somebody was quicker; ask again';
            RETURN;
        END IF;
        PERFORM hapax.note(r, r.fence, NULL, 0);
    ELSE
        PERFORM hapax.move(r, r.fence, 0);
    END IF;
    IF lock IS NOT NULL THEN
        INSERT INTO hapax.lock AS l (namespace, lock, holder, attempt)
        VALUES (space, lock, this_key, this_attempt)
        ON CONFLICT ON CONSTRAINT lock_pkey DO UPDATE SET holder = this_key, attempt = this_attempt;
    END IF;
    verdict := 'granted';
    fence := r.fence;
    nth := r.attempts;
END $$;

-- Records that an attempt succeeded, in your transaction: your writes and the outcome are
-- committed together or not at all. `recorded`, or `repeated` if it was recorded before. An
-- attempt that was overtaken raises HX207, one whose epoch is over HX211, and your writes go with
-- it. Of an outcome that is too
-- large to keep, give digest and size instead.
CREATE OR REPLACE FUNCTION hapax.settle(
    key text, attempt text, outcome bytea, namespace text DEFAULT 'default',
    digest bytea DEFAULT NULL, size bigint DEFAULT NULL
) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    now bigint := hapax.now_ms();
    this_key bytea := hapax.bytes_of(key, 'sha256:', 32);
    this_attempt bytea := hapax.bytes_of(attempt, 'att_', 16);
    this_digest bytea := CASE WHEN outcome IS NULL AND digest IS NOT NULL THEN digest
                              ELSE sha256(coalesce(outcome, '')) END;
    found bigint;
    e hapax.effect;
BEGIN
    SELECT r.* INTO e FROM hapax.effect r
    WHERE r.namespace = (SELECT n.id FROM hapax.namespace n WHERE n.name = namespace) AND r.key = this_key
    FOR UPDATE;
    IF e.attempt = this_attempt AND e.state = 1
        AND coalesce(e.digest, sha256(e.outcome)) = this_digest THEN
        RETURN 'repeated';
    END IF;
    IF e.attempt IS DISTINCT FROM this_attempt OR e.state NOT IN (0, 4, 5) THEN
        RAISE EXCEPTION 'fenced: this attempt was overtaken; the record is: %',
            coalesce(hapax.state_name(e.state) || ', by att_' || encode(e.attempt, 'hex'), 'no record')
            USING ERRCODE = 'HX207', HINT = 'Stop; what you did was not recorded.';
    END IF;
    PERFORM hapax.check_epoch(e);
    PERFORM hapax.durably();
    e.state := 1;
    e.updated := now;
    e.lease := NULL;
    e.watch := NULL;
    e.at_ms := NULL;
    e.tries := NULL;
    e.stuck := NULL;
    e.reason := NULL;
    e.expires := now + e.ttl_ms;
    IF outcome IS NULL AND digest IS NOT NULL THEN
        e.digest := digest;
        e.size := size;
    ELSIF length(outcome) > 65536 THEN
        e.digest := this_digest;
        e.size := length(outcome);
        INSERT INTO hapax.body AS b (digest, data) VALUES (this_digest, outcome)
        ON CONFLICT ON CONSTRAINT body_digest_key DO UPDATE SET digest = this_digest
        RETURNING id INTO found;
        e.body := found;
    ELSE
        e.outcome := coalesce(outcome, '');
    END IF;
    PERFORM hapax.move(e, hapax.next_entry(), 1);
    RETURN 'recorded';
END $$;

-- The trace that an event belongs to, as `traceparent` has it.
ALTER TABLE hapax.outbox_record ADD COLUMN trace text;

DROP FUNCTION IF EXISTS hapax.emit(text, text, text, text, json, int, text, text, text, boolean, text, text, text, text);

-- Records an event of an effect that you have claimed and not settled yet, in your transaction:
-- it is delivered after you have committed, to every sink that it is routed to, and never if you
-- roll back. Each event of an effect has its own `ordinal`. Returns the id that receivers see.
--
-- The same event emitted again is the same record. An attempt that was overtaken raises HX207,
-- and your writes go with it.
CREATE FUNCTION hapax.emit(
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
    space int;
    id uuid;
    place bigint;
    lane bigint;
    places smallint[];
    known hapax.outbox_record;
    published hapax.artifact;
    e hapax.effect;
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
    SELECT n.id INTO space FROM hapax.namespace n WHERE n.name = namespace;
    SELECT r.* INTO e FROM hapax.effect r WHERE r.namespace = space AND r.key = this_key FOR UPDATE;
    id := hapax.outbox_id(namespace, this_key, e.created, e.generation, ordinal);
    IF e.attempt IS DISTINCT FROM this_attempt OR e.state NOT IN (0, 4, 5)
        AND NOT (e.state = 1 AND EXISTS (SELECT 1 FROM hapax.outbox_record r WHERE r.outbox_id = id)) THEN
        RAISE EXCEPTION 'fenced: this attempt was overtaken or has settled; the record is: %',
            coalesce(hapax.state_name(e.state) || ', by att_' || encode(e.attempt, 'hex'), 'no record')
            USING ERRCODE = 'HX207', HINT = 'Emit between the claim and the settle.';
    END IF;
    IF e.state <> 1 THEN
        PERFORM hapax.check_epoch(e);
    END IF;
    SELECT array_agg(DISTINCT r.sink) INTO places FROM hapax.route r
    WHERE event_name LIKE r.event_like AND dataset_id LIKE r.dataset_like;
    IF places IS NULL THEN
        RAISE EXCEPTION 'no route takes the event % of dataset %', event_name, dataset_id
            USING ERRCODE = 'HX111', HINT = 'Declare one: hapax outbox configure.';
    END IF;
    PERFORM hapax.durably();
    lane := hapax.track_of(namespace, how, coalesce(order_key, dataset_id), id);
    INSERT INTO hapax.outbox_record (created_at, track, namespace, ordinal, ordering, outbox_id, idempotency_key,
        event_name, dataset_id, pipeline_id, version, order_key, payload, artifact_version, checksum, uri, trace)
    VALUES (now, lane, space, ordinal, how, id, this_key, event_name, dataset_id, pipeline_id, version,
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
        WHERE a.namespace = space AND a.dataset_id = dataset_id AND a.version = artifact_version;
        IF published.record IS NULL THEN
            INSERT INTO hapax.artifact VALUES (space, dataset_id, artifact_version, checksum, uri, place);
        ELSIF (published.checksum, published.uri) <> (checksum, uri) THEN
            RAISE EXCEPTION 'version % of dataset % is published as something else', artifact_version, dataset_id
                USING ERRCODE = 'HX113';
        END IF;
    END IF;
    INSERT INTO hapax.delivery (seq, xid, track, due, updated, namespace, sink)
    SELECT place, pg_current_xact_id()::text::bigint, lane, now, now, space, s.sink
    FROM unnest(places) AS s (sink) WHERE s.sink IS NOT NULL;
    RETURN id;
END $$;
