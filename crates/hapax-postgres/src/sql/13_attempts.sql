-- Leases that are judged each by its own term, reports that name a fence, and commits that are durable
-- whatever the configuration says; version 13 of the schema.

-- When the newest gap between two beats of more than 32, 38, 45, 53, 64 … 217088 ms ended. A lease is judged by the
-- gaps that matter to its own term, so that a short one does not slow the expiry of the others.
ALTER TABLE hapax.self ADD COLUMN pulse_gaps bigint[] NOT NULL DEFAULT array_fill(0::bigint, ARRAY[52]);
UPDATE hapax.self SET pulse_gaps = array_fill(pulse_since, ARRAY[52]);
ALTER TABLE hapax.self DROP COLUMN pulse_since;

-- Of two lists of instants the newer ones, place by place.
CREATE FUNCTION hapax.newest(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(greatest(p.a, p.b) ORDER BY p.place)
    FROM unnest(a, b) WITH ORDINALITY AS p (a, b, place)
$$;

-- The nth length of gaps that are told apart, from 0: four to each doubling.
CREATE FUNCTION hapax.gap_ms(nth bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (ARRAY[32, 38, 45, 53])[nth % 4 + 1]::bigint << (nth / 4)::int
$$;

-- The longest gap that does not matter to a lease of this term, as its place in `pulse_gaps`, from 0: a little less
-- than half the term.
CREATE FUNCTION hapax.gap_length(term_ms bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(max(nth), 0) FROM generate_series(0::bigint, 51) nth WHERE hapax.gap_ms(nth) <= term_ms / 2
$$;

-- Since when the pulse has been steady for a lease of this term, as far as that can be said without beating
-- it: the caller's transaction may stay open, and would hold the row.
DROP FUNCTION hapax.steady_since(bigint);
CREATE FUNCTION hapax.steady_since(now bigint, term_ms bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN s.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
            AND now - s.pulse_last <= hapax.gap_ms(hapax.gap_length(term_ms))
        THEN s.pulse_gaps[hapax.gap_length(term_ms) + 1] ELSE now END
    FROM hapax.self s
$$;

-- Opens a lease, or renews it. Returns until when it is held. Call it in a transaction of its
-- own, every third of its term; stop working when seven eighths of the term have passed since you called it.
CREATE OR REPLACE FUNCTION hapax.renew(lease text, term_ms bigint DEFAULT 15000, holder text DEFAULT 'sql')
RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    now bigint := hapax.now_ms();
    this bytea := hapax.bytes_of(lease, 'lease_', 16);
    line text := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    ends bigint;
BEGIN
    IF term_ms < 100 OR length(holder) > 256 THEN
        RAISE EXCEPTION 'a lease lasts 100 ms or more, and its holder has at most 256 bytes'
            USING ERRCODE = 'HX106';
    END IF;
    -- A holder without a memory of its own has nothing to be told of: it has seen everything.
    INSERT INTO hapax.lease AS l (id, term_ms, until_ms, dead, holder, seen)
    VALUES (this, renew.term_ms, now + renew.term_ms, false, renew.holder, 9223372036854775807)
    ON CONFLICT (id) DO UPDATE SET until_ms = now + l.term_ms WHERE NOT l.dead
    RETURNING l.until_ms INTO ends;
    IF ends IS NULL THEN
        RAISE EXCEPTION 'the lease % is over', lease
            USING ERRCODE = 'HX110', HINT = 'Open another and claim again.';
    END IF;
    -- A beat that lies far ahead is of a clock that was wrong and has been set right.
    UPDATE hapax.self s SET
        pulse_gaps = CASE WHEN s.timeline = line AND s.pulse_last <= now + 60000
            THEN (SELECT array_agg(CASE WHEN now - s.pulse_last > hapax.gap_ms(place - 1)
                      THEN greatest(gap, now) ELSE gap END ORDER BY place)
                  FROM unnest(s.pulse_gaps) WITH ORDINALITY AS g (gap, place))
            ELSE array_fill(now, ARRAY[52]) END,
        pulse_last = CASE WHEN s.timeline = line AND s.pulse_last <= now + 60000
            THEN greatest(s.pulse_last, now) ELSE now END,
        timeline = line;
    RETURN to_timestamp(ends / 1000.0);
END $$;

-- The effect of this key under its row's lock. If its holder can no longer be counted on, it
-- expires first, by its safety class.
CREATE OR REPLACE FUNCTION hapax.load(namespace int, key bytea, now bigint) RETURNS hapax.effect
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    e hapax.effect;
    l hapax.lease;
    since bigint;
    lapsed boolean;
BEGIN
    SELECT * INTO e FROM hapax.effect r WHERE r.namespace = namespace AND r.key = key FOR UPDATE;
    IF e.state IS DISTINCT FROM 0 THEN
        RETURN e;
    END IF;
    SELECT * INTO l FROM hapax.lease r WHERE r.id = e.lease;
    IF l.id IS NOT NULL AND NOT l.dead AND l.until_ms <= now THEN
        SELECT * INTO l FROM hapax.lease r WHERE r.id = e.lease FOR UPDATE;
    END IF;
    since := hapax.steady_since(now, l.term_ms);
    lapsed := l.id IS NULL OR l.dead OR (l.until_ms <= now AND now - since >= l.term_ms);
    IF NOT lapsed AND (e.at_ms IS NULL OR e.at_ms > now OR now - since < l.term_ms) THEN
        RETURN e;
    END IF;
    IF lapsed AND NOT l.dead THEN
        UPDATE hapax.lease r SET dead = true WHERE r.id = l.id;
    END IF;
    e.updated := now;
    e.lease := NULL;
    e.watch := NULL;
    e.at_ms := NULL;
    e.reason := 'its lease or deadline lapsed';
    CASE e.safety
        WHEN 0 THEN
            e.state := 2; e.cause := 1;
            e.expires := now + e.ttl_ms;
        WHEN 3 THEN
            e.state := 5; e.stuck := 5;
        ELSE
            e.state := 4; e.stuck := 4; e.at_ms := now; e.tries := 0;
    END CASE;
    RETURN hapax.move(e, hapax.next_entry(), 2);
END $$;

-- What is about to be committed reaches the disk, and a synchronous standby where there is one, whatever the
-- session is used to and whatever a reload of the configuration says before the commit.
CREATE OR REPLACE FUNCTION hapax.durably() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true);
END $$;

-- Asks for permission. `granted`: do it, and name `attempt_id` and `fence` when you settle. `replayed`: it
-- was done, and `outcome` is what came of it. `in_flight`, `locked`: another attempt is at work.
-- `undecided`: another transaction claims the key and has not ended; ask again. `conflict`: the key is
-- known with another fingerprint. `blocked`: the outcome is not known; `refused`. `outdated`: it is bound
-- to another epoch of its domain than the current one.
--
-- Without a lease the permission ends with the transaction: settle before you commit. With one, stop
-- working when seven eighths of its term have passed since you asked for the last renewal.
--
-- `settling_ms` goes with `reconcilable`: how long a late arrival is possible at the target. A minute
-- unless given; 0 where the target itself refuses late arrivals.
CREATE OR REPLACE FUNCTION hapax.claim(
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
        WHEN 'reconcilable' THEN CASE WHEN settling_ms = 0 THEN 2 ELSE 1 END END;
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
        IF e.state = 2 AND e.cause = 6 THEN
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
                IF e.attempt = this_attempt AND e.lease = this_lease THEN
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
    r.settling_ms := CASE WHEN class = 1 THEN coalesce(settling_ms, 60000) END;
    r.fence := hapax.next_entry();
    r.entry := e.entry;
    r.created := now;
    r.updated := now;
    r.generation := 1;
    r.attempts := 1;
    IF NOT is_new AND e.state = 2 AND e.cause = 6 THEN
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
            verdict := 'undecided';
            reason := 'another transaction claimed it at the same moment; ask again';
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

DROP FUNCTION hapax.settle(text, text, bytea, text, bytea, bigint);

-- Records that an attempt succeeded, in your transaction: your writes and the outcome are committed together
-- or not at all. Name the fence that the attempt was granted with. If it was recorded before, HX116 is raised
-- and your writes are undone: a transaction that is run again after a lost reply writes nothing twice. An
-- attempt that was overtaken raises HX207, one whose epoch is over HX211, and your writes go with it. Of an
-- outcome that is too large to keep, give digest and size instead.
CREATE FUNCTION hapax.settle(
    key text, attempt text, fence bigint, outcome bytea, namespace text DEFAULT 'default',
    digest bytea DEFAULT NULL, size bigint DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
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
    IF e.attempt = this_attempt AND e.fence = fence AND e.state = 1
        AND coalesce(e.digest, sha256(e.outcome)) = this_digest THEN
        RAISE EXCEPTION 'already recorded: % was settled before; roll back', attempt
            USING ERRCODE = 'HX116', HINT = 'What this transaction has written is there already.';
    END IF;
    IF (e.attempt, e.fence) IS DISTINCT FROM (this_attempt, fence) OR e.state NOT IN (0, 4, 5) THEN
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
END $$;

-- Records an event of an effect that you have claimed and not settled yet, in your transaction:
-- it is delivered after you have committed, to every sink that it is routed to, and never if you
-- roll back. Each event of an effect has its own `ordinal`. Returns the id that receivers see.
--
-- The same event emitted again before the settle is the same record. An attempt that was overtaken
-- raises HX207, one that was settled before HX116, and your writes go with it.
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
        IF e.attempt = this_attempt AND e.state = 1
            AND EXISTS (SELECT 1 FROM hapax.outbox_record r WHERE r.outbox_id = id) THEN
            RAISE EXCEPTION 'already recorded: % was settled before; roll back', attempt
                USING ERRCODE = 'HX116', HINT = 'What this transaction has written is there already.';
        ELSE
            RAISE EXCEPTION 'fenced: this attempt was overtaken or has settled; the record is: %',
                coalesce(hapax.state_name(e.state) || ', by att_' || encode(e.attempt, 'hex'), 'no record')
                USING ERRCODE = 'HX207', HINT = 'Emit between the claim and the settle.';
        END IF;
    END IF;
    IF e.domain IS NOT NULL THEN
        PERFORM hapax.check_epoch(r) FROM hapax.effect r WHERE r.namespace = e.namespace AND r.key = this_key;
    END IF;
    PERFORM hapax.durably();
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
