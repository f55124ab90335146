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
