-- For programs in any language: claims, settles and leases by SQL, in the caller's own
-- transaction. Keys, attempts and leases are written as hapax prints them. What goes wrong is
-- raised with a SQLSTATE of class HX, whose digits are those of the error's page.
--
-- These are the rules of hapax-core once more, for callers that cannot link it. A property test
-- compares the two.

CREATE FUNCTION hapax.bytes_of(text text, prefix text, size int) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF text !~ ('^' || prefix || '[0-9a-f]{' || 2 * size || '}$') THEN
        RAISE EXCEPTION '% is not %<% hex digits>', coalesce(quote_literal(left(text, 80)), 'NULL'),
            prefix, 2 * size USING ERRCODE = 'HX106';
    END IF;
    RETURN decode(substr(text, length(prefix) + 1), 'hex');
END $$;

CREATE FUNCTION hapax.namespace_id(name text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    found int;
BEGIN
    SELECT n.id INTO found FROM hapax.namespace n WHERE n.name = namespace_id.name;
    IF found IS NULL THEN
        INSERT INTO hapax.namespace (name) VALUES (namespace_id.name) ON CONFLICT DO NOTHING;
        SELECT n.id INTO STRICT found FROM hapax.namespace n WHERE n.name = namespace_id.name;
    END IF;
    RETURN found;
END $$;

-- Since when the pulse has been steady, as far as that can be said without beating it: the
-- caller's transaction may stay open, and would hold the row.
CREATE FUNCTION hapax.steady_since(now bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN s.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
            AND now - s.pulse_last <= coalesce((SELECT min(term_ms) FROM hapax.lease WHERE NOT dead), 0) / 2
        THEN s.pulse_since ELSE now END
    FROM hapax.self s
$$;

-- Opens a lease, or renews it. Returns until when it is held. Call it in a transaction of its
-- own, every third of its term.
CREATE FUNCTION hapax.renew(lease text, term_ms bigint DEFAULT 15000, holder text DEFAULT 'sql')
RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    now bigint := hapax.now_ms();
    this bytea := hapax.bytes_of(lease, 'lease_', 16);
    line text := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    shortest bigint;
    ends bigint;
BEGIN
    IF term_ms < 30 OR length(holder) > 256 THEN
        RAISE EXCEPTION 'a lease lasts 30 ms or more, and its holder has at most 256 bytes'
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
    SELECT min(l.term_ms) INTO shortest FROM hapax.lease l WHERE NOT l.dead;
    UPDATE hapax.self s SET
        pulse_since = CASE WHEN s.timeline = line AND now - s.pulse_last <= shortest / 2
                           THEN s.pulse_since ELSE now END,
        pulse_last = CASE WHEN s.timeline = line THEN greatest(s.pulse_last, now) ELSE now END,
        timeline = line;
    RETURN to_timestamp(ends / 1000.0);
END $$;

-- Writes the entry of a change that leads to this row.
CREATE FUNCTION hapax.note(e hapax.effect, number bigint, prev_number bigint, kind int)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO hapax.journal (id, prev, at, namespace, generation, event, state, key, attempt,
                               digest, note)
    VALUES (number, prev_number, e.updated, e.namespace, e.generation, kind, e.state, e.key, e.attempt,
            CASE e.state WHEN 0 THEN e.fingerprint
                         WHEN 1 THEN coalesce(e.digest, sha256(e.outcome)) END,
            e.reason)
$$;

-- Writes a change of a row that is there and locked: its entry, the row, and the lock it lets
-- go of. Returns the row.
CREATE FUNCTION hapax.move(e hapax.effect, number bigint, kind int) RETURNS hapax.effect
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hapax.note(e, number, e.entry, kind);
    e.entry := number;
    UPDATE hapax.effect r SET
        state = e.state, safety = e.safety, entry = e.entry, fence = e.fence, created = e.created,
        updated = e.updated, generation = e.generation, attempts = e.attempts,
        fingerprint = e.fingerprint, attempt = e.attempt, lease = e.lease, watch = e.watch,
        at_ms = e.at_ms, settling_ms = e.settling_ms, ttl_ms = e.ttl_ms, expires = e.expires,
        lock = e.lock, label = e.label, tries = e.tries, stuck = e.stuck, cause = e.cause,
        reason = e.reason, outcome = e.outcome, body = e.body, digest = e.digest, size = e.size
    WHERE r.namespace = e.namespace AND r.key = e.key;
    IF e.lock IS NOT NULL AND e.state IN (1, 2, 6) THEN
        DELETE FROM hapax.lock l
        WHERE l.namespace = e.namespace AND l.lock = e.lock AND l.attempt = e.attempt;
    END IF;
    RETURN e;
END $$;

-- The effect of this key under its row's lock. If its holder can no longer be counted on, it
-- expires first, by its safety class.
CREATE FUNCTION hapax.load(namespace int, key bytea, now bigint) RETURNS hapax.effect
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
    since := hapax.steady_since(now);
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

-- Asks for permission. `granted`: do it, and name `attempt` when you settle. `replayed`: it was
-- done, and `outcome` is what came of it. `in_flight`, `locked`: someone is at it. `conflict`:
-- the key is known with another fingerprint. `blocked`: the outcome is not known; `refused`.
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
    OUT verdict text, OUT attempt_id text, OUT fence bigint, OUT nth int, OUT outcome bytea,
    OUT reason text,
    -- The digest and size of an outcome that was too large to keep; the fingerprint in conflict;
    -- the state that blocks; the key that holds the lock.
    OUT digest bytea, OUT size bigint, OUT recorded bytea, OUT state text, OUT holder text
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
    PERFORM hapax.durably();
    attempt_id := 'att_' || encode(this_attempt, 'hex');
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
                reason := 'a person let it go: ' || e.reason;
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
-- attempt that was overtaken raises HX207, and your writes go with it. Of an outcome that is too
-- large to keep, give digest and size instead.
CREATE FUNCTION hapax.settle(
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
