-- Functions and triggers: the rules that the database itself enforces, and the functions that callers
-- and nodes use.

-- A trigger function that refuses, with the text that its trigger gives.
CREATE FUNCTION hapax.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'HX105';
END $$;

CREATE TRIGGER dead_is_dead BEFORE UPDATE ON hapax.lease FOR EACH ROW
    WHEN (OLD.dead AND NOT NEW.dead)
    EXECUTE FUNCTION hapax.refuse('a dead lease is never revived');
CREATE TRIGGER grows BEFORE UPDATE ON hapax.epoch FOR EACH ROW
    WHEN (NEW.epoch <= OLD.epoch)
    EXECUTE FUNCTION hapax.refuse('an epoch only grows');

-- History is never changed. A partition needs a statement trigger of its own against TRUNCATE.
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.journal FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('the journal cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.journal FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the journal cannot be truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.journal_default FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the journal cannot be truncated');
CREATE TRIGGER grows BEFORE UPDATE ON hapax.tile FOR EACH ROW
    WHEN (substring(NEW.hashes, 1, length(OLD.hashes)) <> OLD.hashes
        OR NEW.level <> OLD.level OR NEW.place <> OLD.place
        OR NEW.entries[:cardinality(OLD.entries)] <> OLD.entries)
    EXECUTE FUNCTION hapax.refuse('a tile only grows');
CREATE TRIGGER no_delete BEFORE DELETE ON hapax.tile FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('a tile cannot be deleted');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.tile FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('tiles cannot be truncated');
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.head FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('a head cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.head FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('heads cannot be truncated');
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.archive FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('the archive cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.archive FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the archive cannot be truncated');
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.outbox_record FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('an outbox record cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.outbox_record FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the outbox cannot be truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.outbox_record_default FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the outbox cannot be truncated');
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.artifact FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('a published version cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.artifact FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('artifacts cannot be truncated');
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.dispatched FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('what was delivered cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.dispatched FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('what was delivered cannot be truncated');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.delivery FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('deliveries cannot be truncated');
CREATE TRIGGER state_only BEFORE UPDATE ON hapax.delivery FOR EACH ROW
    WHEN (NEW.seq <> OLD.seq OR NEW.sink <> OLD.sink OR NEW.ordering_hash <> OLD.ordering_hash
        OR NEW.namespace <> OLD.namespace OR NEW.xid <> OLD.xid OR NEW.outbox_id <> OLD.outbox_id)
    EXECUTE FUNCTION hapax.refuse('only the state of a delivery changes');

-- An effect has the columns of its state, and no column of another state. A trigger, because
-- PostgreSQL loads the CHECK constraints of a table again for every statement, which cost a fifth of a
-- claim and settle.
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

-- A lock is never taken from an attempt that keeps it. Checked when the transaction ends: a takeover
-- writes the lock before it expires the attempt that held it. A caller's transaction that found the lock
-- free, because the other claim was not committed yet, gets an error and has to claim again.
CREATE FUNCTION hapax.lock_is_one() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM hapax.effect e WHERE e.namespace = OLD.namespace AND e.key = OLD.holder
               AND e.attempt = OLD.attempt AND e.state NOT IN (1, 2, 6)) THEN
        RAISE EXCEPTION 'another attempt took the lock meanwhile'
            USING ERRCODE = 'serialization_failure', HINT = 'Roll back and claim again.';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER is_one AFTER UPDATE ON hapax.lock DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION hapax.lock_is_one();

-- The columns of an outbox record agree with each other. A trigger for the reason that `effect` has one.
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

-- An event is committed together with the success of its effect. `hapax.emit` records an event before the
-- settle, so this is checked when the transaction ends. `hapax.emit` has locked the effect until then, so no
-- other transaction can have settled it. The engine writes records that the guards have passed (`judged`)
-- in the transaction of their settle; nothing is queued for them.
CREATE FUNCTION hapax.record_is_settled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM hapax.effect e WHERE e.namespace = NEW.namespace
                   AND e.key = NEW.idempotency_key AND e.state = 1) THEN
        RAISE EXCEPTION 'not committed: the transaction recorded the event % and did not settle sha256:%',
            NEW.event_name, encode(NEW.idempotency_key, 'hex')
            USING ERRCODE = 'HX209', HINT = 'Call hapax.settle before you commit.';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER is_settled AFTER INSERT ON hapax.outbox_record DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NOT NEW.judged) EXECUTE FUNCTION hapax.record_is_settled();

-- An artifact is published together with the outbox record that announces it.
CREATE FUNCTION hapax.artifact_is_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM hapax.outbox_record e WHERE e.seq = NEW.record
                   AND e.namespace = NEW.namespace AND e.dataset_id = NEW.dataset_id
                   AND e.artifact_version = NEW.version) THEN
        RAISE EXCEPTION 'an artifact is published with an outbox record that tells of it'
            USING ERRCODE = 'HX105';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER is_told BEFORE INSERT ON hapax.artifact FOR EACH ROW
    EXECUTE FUNCTION hapax.artifact_is_told();

-- A delivery is deleted only in a transaction that records its acknowledgement and says so in
-- `hapax.landing`. Checked once per statement, because one statement deletes many.
CREATE FUNCTION hapax.delivery_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('hapax.landing', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'a delivery ends when its sink has it' USING ERRCODE = 'HX105';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ends BEFORE DELETE ON hapax.delivery FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.delivery_ends();

-- The clock of the store, in milliseconds.
CREATE FUNCTION hapax.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
    RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- The next number for a journal entry. The transaction takes its own number first. So once every
-- transaction up to some number is over, so is every entry below; src/sql/sealing.sql relies on it.
CREATE FUNCTION hapax.next_entry() RETURNS bigint LANGUAGE sql VOLATILE
    RETURN CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('hapax.entry') END;

-- Makes the commit of this transaction reach the disk, and a synchronous standby if there is one, whatever
-- the session's setting is and whatever a reload of the configuration changes before the commit.
CREATE FUNCTION hapax.durably() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true);
END $$;

-- The bytes that a text such as `sha256:…` stands for. PL/pgSQL, here and in `note` and `ordering_hash`:
-- PostgreSQL parses and plans an SQL function anew at each call, unless it can inline it.
CREATE FUNCTION hapax.bytes_of(text text, prefix text, size int) RETURNS bytea
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

-- The number of a namespace, which is created if it is missing.
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

-- The name of a state.
CREATE FUNCTION hapax.state_name(code int) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN (ARRAY['running', 'succeeded', 'failed', 'partial', 'unknown', 'indeterminate',
                  'skipped'])[code + 1];

-- The greater of two instants at each place of two lists.
CREATE FUNCTION hapax.newest(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(greatest(p.a, p.b) ORDER BY p.place)
    FROM unnest(a, b) WITH ORDINALITY AS p (a, b, place)
$$;

-- The nth length of gap that `self.pulse_gaps` tells apart, counted from 0: four to each doubling.
CREATE FUNCTION hapax.gap_ms(nth bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (ARRAY[32, 38, 45, 53])[nth % 4 + 1]::bigint << (nth / 4)::int
$$;

-- The longest gap that does not matter to a lease of this term, as its place in `pulse_gaps`, counted
-- from 0. It is a little less than half the term.
CREATE FUNCTION hapax.gap_length(term_ms bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(max(nth), 0) FROM generate_series(0::bigint, 51) nth WHERE hapax.gap_ms(nth) <= term_ms / 2
$$;

-- Since when the pulse has been steady for a lease of this term. Reads the pulse without beating it: the
-- caller's transaction may stay open, and would hold the row.
CREATE FUNCTION hapax.steady_since(now bigint, term_ms bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN s.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
            AND now - s.pulse_last <= hapax.gap_ms(hapax.gap_length(term_ms))
        THEN s.pulse_gaps[hapax.gap_length(term_ms) + 1] ELSE now END
    FROM hapax.self s
$$;

-- Opens a lease or renews it, and returns until when it is held. Call it in a transaction of its own,
-- every third of the term. Stop working when seven eighths of the term have passed since the call.
CREATE FUNCTION hapax.renew(lease text, term_ms bigint DEFAULT 15000, holder text DEFAULT 'sql')
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
    -- A holder without a cache needs no notices: it counts as having seen all.
    INSERT INTO hapax.lease AS l (id, term_ms, until_ms, dead, holder, seen)
    VALUES (this, renew.term_ms, now + renew.term_ms, false, renew.holder, 9223372036854775807)
    ON CONFLICT (id) DO UPDATE SET until_ms = now + l.term_ms WHERE NOT l.dead
    RETURNING l.until_ms INTO ends;
    IF ends IS NULL THEN
        RAISE EXCEPTION 'the lease % is over', lease
            USING ERRCODE = 'HX110', HINT = 'Open another and claim again.';
    END IF;
    -- A beat that lies far ahead comes from a clock that was wrong and has been corrected.
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

-- The advisory lock that orders transitions of a domain against claims. A row lock alone would starve a
-- transition: new sharers of the row pass a transaction that waits to lock it exclusively.
CREATE FUNCTION hapax.epoch_lock(space int, of text) RETURNS int LANGUAGE sql IMMUTABLE
    RETURN hashtext(space::text || '/' || of);

-- The current epoch of a domain, held until the end of the transaction: a transition waits for the
-- transactions that read it here, and a new reader waits for a transition.
CREATE FUNCTION hapax.epoch_now(space int, of text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    current bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1751216248, hapax.epoch_lock(space, of));
    SELECT c.epoch INTO current FROM hapax.epoch c
    WHERE c.namespace = space AND c.domain = of FOR SHARE;
    IF current IS NULL THEN
        INSERT INTO hapax.epoch (namespace, domain, epoch)
        SELECT space, of, 0 WHERE (SELECT count(*) FROM hapax.epoch c WHERE c.namespace = space) < 10000
        ON CONFLICT DO NOTHING;
        SELECT c.epoch INTO current FROM hapax.epoch c
        WHERE c.namespace = space AND c.domain = of FOR SHARE;
        IF current IS NULL THEN
            RAISE EXCEPTION 'there are 10000 domains' USING ERRCODE = 'HX106';
        END IF;
    END IF;
    RETURN current;
END $$;

-- Refuses an attempt whose epoch is over. It needs no lock: a transition writes to every effect that may
-- still be settled, so the lock on the effect's row orders the two.
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

-- Writes the journal entry of a change that leads to this row. The note of a grant or a success is a
-- setting of its transaction, `hapax.about`.
CREATE FUNCTION hapax.note(e hapax.effect, number bigint, prev_number bigint, kind int)
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

-- Writes a change of a row that exists and is locked: its entry, the row, and the lock that it releases.
-- Returns the row.
CREATE FUNCTION hapax.move(e hapax.effect, number bigint, kind int) RETURNS hapax.effect
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

-- The effect of this key, under the lock of its row. If its lease or deadline has lapsed, it expires
-- first, by its safety class.
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

-- Asks for permission. The verdict says what to do:
--
--   granted     Do it, and name `attempt_id` and `fence` when you settle.
--   replayed    It was done, and `outcome` is what came of it.
--   in_flight   Another attempt is at work.
--   locked      Another effect holds the lock.
--   undecided   Another transaction claims the key and has not ended; ask again.
--   conflict    The key is recorded with another fingerprint.
--   blocked     The outcome is not known.
--   refused     Not to be done; `reason` says why.
--   outdated    It is bound to another epoch than the current one of its domain.
--
-- Without a lease the permission ends with the transaction: settle before you commit. With a lease, stop
-- working when seven eighths of its term have passed since you asked for the last renewal.
--
-- `settling_ms` goes with `reconcilable`: how long a late request may still arrive at the target. A minute
-- unless given; 0 if the target itself refuses late arrivals.
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
    -- The digest and size of an outcome that was too large to keep; the recorded fingerprint of a
    -- conflict; the state that blocks; the key that holds the lock.
    OUT digest bytea, OUT size bigint, OUT recorded bytea, OUT state text, OUT holder text,
    -- The epoch that it is bound to, and the current one.
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
    -- Shows a batch that another transaction claims this lock, so that it can postpone its own claim. The
    -- rows decide.
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

-- Records that an attempt succeeded, in your transaction: your writes and the outcome are committed
-- together or not at all. Name the fence that the attempt was granted with. If the outcome was recorded
-- before, HX116 is raised and your writes are undone: a transaction that is run again after a lost reply
-- writes nothing twice. An attempt that was overtaken raises HX207, one whose epoch is over HX211, and your
-- writes are undone. Of an outcome that is too large to keep, give digest and size instead.
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

-- Records an event of an effect that you have claimed and not settled yet, in your transaction: it is
-- delivered after you have committed, to every sink that it is routed to, and never if you roll back. Each
-- event of an effect has its own `ordinal`. Returns the id that receivers see. Settle in the same
-- transaction: the commit of an event without its outcome is refused with HX209.
--
-- The same event emitted again before the settle is the same record. An attempt that was overtaken raises
-- HX207, one that was settled before HX116, and your writes are undone.
--
-- Starting a query costs more than most checks here. So conditions that contain a query stand by
-- themselves, where they are rarely reached, and routes are read while deliveries are written.
CREATE FUNCTION hapax.emit(
    key text,
    attempt text,
    event_name text,
    dataset_id text,
    payload json,
    ordinal int DEFAULT 0,
    pipeline_id text DEFAULT NULL,
    version text DEFAULT NULL,
    -- The ordering key: the dataset, unless given. None if `ordered` is false.
    order_key text DEFAULT NULL,
    ordered boolean DEFAULT true,
    -- The published version, if the event announces a publication.
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
    -- Only the columns that are needed: taking a whole row apart is costly.
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
    lane := hapax.ordering_hash(namespace, how, coalesce(order_key, dataset_id), id);
    INSERT INTO hapax.outbox_record (created_at, ordering_hash, namespace, ordinal, ordering, outbox_id, idempotency_key,
        event_name, dataset_id, pipeline_id, version, order_key, payload, artifact_version, checksum, uri, trace)
    VALUES (now, lane, e.namespace, ordinal, how, id, this_key, event_name, dataset_id, pipeline_id, version,
        order_key, payload, artifact_version, checksum, uri, left(trace, 55))
    ON CONFLICT ON CONSTRAINT outbox_record_outbox_id_key DO NOTHING
    RETURNING seq INTO place;
    IF place IS NOT NULL THEN
        INSERT INTO hapax.delivery (seq, outbox_id, xid, ordering_hash, due, updated, namespace, sink)
        SELECT place, id, pg_current_xact_id()::text::bigint, lane, now, now, e.namespace, r.sink
        FROM hapax.route r
        WHERE r.sink IS NOT NULL AND event_name LIKE r.event_like AND dataset_id LIKE r.dataset_like
        ON CONFLICT DO NOTHING;
        routed := FOUND;
    END IF;
    IF NOT routed THEN
        -- It was recorded before, or no sink takes it: then a route must say so.
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

-- The ordering_hash of a record: a hash of its ordering key, which all records of that key share.
CREATE FUNCTION hapax.ordering_hash(namespace text, ordering int, key text, outbox_id uuid)
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

-- The id of an event of an effect: a UUIDv7 that is the same each time the event is emitted.
CREATE FUNCTION hapax.outbox_id(namespace text, key bytea, created bigint, generation int, ordinal int)
RETURNS uuid LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    d bytea := substring(sha256(convert_to('hapax.outbox.v1:', 'UTF8')
        || int8send(octet_length(namespace)) || convert_to(namespace, 'UTF8')
        || int8send(32) || key || int8send(generation) || int8send(ordinal)), 1, 10);
BEGIN
    d := set_byte(set_byte(d, 0, get_byte(d, 0) & 15 | 112), 2, get_byte(d, 2) & 63 | 128);
    RETURN encode(substring(int8send(created), 3) || d, 'hex')::uuid;
END $$;

-- The smallest id of a millisecond.
CREATE FUNCTION hapax.first_id(ms bigint) RETURNS uuid LANGUAGE sql IMMUTABLE
    RETURN (lpad(to_hex(ms), 12, '0') || repeat('0', 20))::uuid;

-- Makes the missing partitions of this month and the following months. Skips a month that another
-- transaction has locked, or of which another partition already has rows; maintenance calls it again.
CREATE FUNCTION hapax.make_partitions(ahead int DEFAULT 2) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    month timestamptz;
    whole text;
    part text;
    made int := 0;
    since bigint;
    until bigint;
BEGIN
    FOR n IN 0..ahead LOOP
        month := date_trunc('month', clock_timestamp(), 'UTC') + make_interval(months => n);
        since := extract(epoch FROM month) * 1000;
        until := extract(epoch FROM month + interval '1 month') * 1000;
        FOREACH whole IN ARRAY ARRAY['journal', 'outbox_record'] LOOP
            part := whole || '_' || to_char(month AT TIME ZONE 'UTC', 'YYYY_MM');
            CONTINUE WHEN to_regclass('hapax.' || part) IS NOT NULL;
            BEGIN
                IF whole = 'outbox_record' THEN
                    EXECUTE format('CREATE TABLE hapax.%I PARTITION OF hapax.%I FOR VALUES FROM (%L) TO (%L)',
                                   part, whole, hapax.first_id(since), hapax.first_id(until));
                ELSE
                    EXECUTE format('CREATE TABLE hapax.%I PARTITION OF hapax.%I FOR VALUES FROM (%s) TO (%s)',
                                   part, whole, since, until);
                END IF;
                EXECUTE format('CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.%I FOR EACH STATEMENT
                                EXECUTE FUNCTION hapax.refuse(%L)', part, 'history cannot be truncated');
                made := made + 1;
            EXCEPTION WHEN lock_not_available OR duplicate_table OR check_violation
                OR invalid_object_definition THEN
                NULL;
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;
SELECT hapax.make_partitions();

-- The effects of these keys that exist, with their outcomes.
CREATE FUNCTION hapax.look(namespaces int[], keys bytea[])
RETURNS TABLE (
    namespace int, key bytea, entry bigint, fingerprint bytea, state smallint, safety smallint,
    settling_ms bigint, attempt bytea, fence bigint, generation int, attempts int, created bigint,
    updated bigint, lock bigint, label text, ttl_ms bigint, lease bytea, at_ms bigint, tries int,
    cause smallint, reason text, outcome bytea, digest bytea, size bigint, domain text, epoch bigint
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.namespace, e.key::bytea, e.entry, e.fingerprint::bytea, e.state::smallint,
        e.safety::smallint, e.settling_ms, e.attempt::bytea, e.fence, e.generation, e.attempts,
        e.created, e.updated, e.lock, e.label, e.ttl_ms, e.lease::bytea, e.at_ms, e.tries, e.cause,
        e.reason, coalesce(e.outcome, b.data), e.digest, e.size, e.domain, e.epoch
    FROM unnest(namespaces, keys) AS u (namespace, key)
    JOIN hapax.effect e ON e.namespace = u.namespace AND e.key = u.key
    LEFT JOIN hapax.body b ON b.id = e.body;
END $$;

-- Claims of new keys and successes of running effects, a whole batch in one round trip and one commit.
-- Returns those that took effect. The caller looks at the others one by one: their rows were not as the
-- caller expected. The arrays come sorted by key, so that two calls cannot deadlock, and all settles go
-- before all claims. The names in braces here and in hapax.quick_with_locks stand for texts that
-- statements of hapax share with these functions.
--
-- The settings force plans that look up each key in the index. A session plans once, perhaps while the
-- table is empty, and the plan must also do when it is full.
CREATE FUNCTION hapax.quick(
    now bigint,
    s_namespace int[], s_key bytea[], s_entry bigint[], s_outcome bytea[], s_digest bytea[],
    s_expires bigint[],
    c_namespace int[], c_key bytea[], c_fingerprint bytea[], c_safety smallint[],
    c_settling bigint[], c_attempt bytea[], c_label text[], c_ttl bigint[], c_lease bytea[],
    c_deadline bigint[]
) RETURNS TABLE (namespace int, key bytea, entry bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '50ms'
AS $$
#variable_conflict use_column
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM hapax.durably();
    END IF;
    RETURN QUERY
{quick};
END $$;

-- The same as hapax.quick, for batches in which a command has a lock or a note. A claim takes effect only
-- with its lock; a settle releases it. Locks are taken before effects, in their order, as everywhere.
-- `hints` are the bits of a lock's key that its advisory lock is made of: if another transaction holds that
-- lock right now, the claim is postponed rather than made to wait.
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
            {succeed} unnest(s_namespace, s_key, s_entry, s_outcome, s_digest, s_expires, s_note)
                AS s (namespace, key, entry, outcome, digest, expires, note)
            WHERE {unchanged}
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
            AND {grantable}
            AND pg_try_advisory_xact_lock(c.lock & hints)
        ORDER BY c.namespace, c.lock, c.key
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS held = ROW_COUNT;
        RETURN QUERY
        WITH n AS MATERIALIZED (
            SELECT hapax.next_entry() AS entry, c.*
            FROM unnest(c_namespace, c_key, c_fingerprint, c_safety, c_settling, c_attempt,
                        c_label, c_ttl, c_lease, c_deadline, c_lock, c_note)
                AS c (namespace, key, fingerprint, safety, settling_ms, attempt, label, ttl_ms,
                      lease, at_ms, lock, note)
            WHERE (c.lock IS NULL OR EXISTS (
                    SELECT 1 FROM hapax.lock l
                    WHERE l.namespace = c.namespace AND l.lock = c.lock AND l.holder = c.key
                        AND l.attempt = c.attempt))
                AND {grantable}
        ), made AS (
            {insert} n
            ON CONFLICT DO NOTHING
            RETURNING e.entry, e.namespace, e.key
        ), noted AS (
            INSERT INTO hapax.journal
                (id, at, namespace, generation, event, state, key, attempt, digest, note)
            SELECT n.entry, now, n.namespace, 1, 0, 0, n.key, n.attempt, n.fingerprint, n.note
            FROM n
            -- Not a join, which would compare each row with each other.
            WHERE (n.entry IN (SELECT m.entry FROM made m)) IS TRUE
        )
        SELECT m.namespace, m.key::bytea, m.entry FROM made m;
        GET DIAGNOSTICS granted = ROW_COUNT;
        IF held > 0 AND granted < cardinality(c_key) THEN
            -- A claim of the same key by another transaction may have come between the two statements.
            DELETE FROM hapax.lock l
            USING unnest(c_namespace, c_key, c_lock, c_attempt) AS c (namespace, key, lock, attempt)
            WHERE l.namespace = c.namespace AND l.lock = c.lock AND l.holder = c.key
                AND l.attempt = c.attempt
                AND NOT EXISTS (SELECT 1 FROM hapax.effect e WHERE e.namespace = c.namespace
                                AND e.key = c.key AND e.attempt = c.attempt);
        END IF;
    END IF;
END $$;

-- Records delivery results. Deliveries are found in the order in which they were read, where neighbours lie
-- side by side. The arrays are of one length; `state` is 0 delivered, 1 delivered before, 2 to be tried
-- again at `due`, 3 failed, 4 failed and parked.
CREATE FUNCTION hapax.put_results(
    lease bytea, now bigint, over bigint[],
    l_sink smallint[], l_namespace int[], l_xid bigint[], l_seq bigint[], l_tried int[],
    l_state smallint[], l_due bigint[], l_error text[]
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
    PERFORM set_config('hapax.landing', 'on', true);
    WITH done AS (
        DELETE FROM hapax.delivery d
        USING unnest(l_sink, l_namespace, l_xid, l_seq, l_tried, l_state)
            AS l (sink, namespace, xid, seq, tried, state)
        WHERE l.state < 2 AND d.sink = l.sink AND d.namespace = l.namespace AND d.xid = l.xid
            AND d.seq = l.seq AND d.due IS NOT NULL
        RETURNING d.sink, d.seq, l.tried, l.state
    )
    INSERT INTO hapax.dispatched (sink, at, span, seqs, tried, duplicates)
    SELECT d.sink, now, int8range(min(d.seq), max(d.seq), '[]'), array_agg(d.seq),
        array_agg(d.tried), coalesce(array_agg(d.seq) FILTER (WHERE d.state = 1), '{}')
    FROM done d GROUP BY d.sink;
    PERFORM set_config('hapax.landing', 'off', true);
    IF 2 <= ANY (l_state) THEN
        UPDATE hapax.delivery d
        SET tried = l.tried, due = l.due, parks = l.state = 4, error = l.error, updated = now
        FROM unnest(l_sink, l_namespace, l_xid, l_seq, l_tried, l_state, l_due, l_error)
            AS l (sink, namespace, xid, seq, tried, state, due, error)
        WHERE l.state >= 2 AND d.sink = l.sink AND d.namespace = l.namespace AND d.xid = l.xid
            AND d.seq = l.seq AND d.due IS NOT NULL;
    END IF;
    DELETE FROM hapax.send_batch f WHERE f.lease = put_results.lease AND f.id = ANY (over);
END $$;

-- Records acknowledged deliveries by the rows in which they were read, without an index. A row that has
-- changed or was cleaned up since is another row, and is not counted. Returns how many were found;
-- `hapax.put_results` does the rest. The arrays are of one length; `state` is 0 delivered, 1 delivered before.
CREATE FUNCTION hapax.put_delivered(
    now bigint, l_place tid[], l_sink smallint[], l_seq bigint[], l_tried int[], l_state smallint[]
) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    found bigint;
BEGIN
    PERFORM set_config('hapax.landing', 'on', true);
    WITH done AS (
        DELETE FROM hapax.delivery d
        USING unnest(l_place, l_sink, l_seq, l_tried, l_state) AS l (place, sink, seq, tried, state)
        WHERE d.ctid = l.place AND d.sink = l.sink AND d.seq = l.seq AND d.due IS NOT NULL
        RETURNING d.sink, d.seq, l.tried, l.state
    ), recorded AS (
        INSERT INTO hapax.dispatched (sink, at, span, seqs, tried, duplicates)
        SELECT d.sink, now, int8range(min(d.seq), max(d.seq), '[]'), array_agg(d.seq),
            array_agg(d.tried), coalesce(array_agg(d.seq) FILTER (WHERE d.state = 1), '{}')
        FROM done d GROUP BY d.sink
        RETURNING cardinality(seqs) AS count
    )
    SELECT coalesce(sum(r.count), 0) INTO found FROM recorded r;
    PERFORM set_config('hapax.landing', 'off', true);
    RETURN found;
END $$;

-- The note of a pipeline's operation, as JSON; NULL for any other note.
CREATE FUNCTION hapax.about(note text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN note LIKE '{%' AND note::jsonb ->> 'kind' = 'pipeline.v1' THEN note::jsonb END;
EXCEPTION WHEN invalid_text_representation THEN RETURN NULL;
END $$;

-- The note of an extraction, as JSON; NULL for any other note.
CREATE FUNCTION hapax.about_extraction(note text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN note LIKE '{%' AND note::jsonb ->> 'kind' = 'extraction.v1' THEN note::jsonb END;
EXCEPTION WHEN OTHERS THEN RETURN NULL;
END $$;

-- The outcome of an extraction, as JSON. NULL if it is larger than 64 KiB, which lies compressed elsewhere,
-- or is JSON that this database cannot represent.
CREATE FUNCTION hapax.extracted(outcome bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(outcome, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN RETURN NULL;
END $$;
