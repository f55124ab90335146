-- Epochs, version 5 of the schema: what effects may be bound to, and the functions that know.

CREATE TABLE hapax.epoch (
    namespace int NOT NULL,
    domain    text NOT NULL CHECK (domain ~ '^[a-z][a-z0-9_-]{0,63}$'),
    epoch     bigint NOT NULL CHECK (epoch >= 0),
    PRIMARY KEY (namespace, domain)
);
CREATE TRIGGER grows BEFORE UPDATE ON hapax.epoch FOR EACH ROW
    WHEN (NEW.epoch <= OLD.epoch)
    EXECUTE FUNCTION hapax.refuse('an epoch only grows');

ALTER TABLE hapax.effect
    -- What it is bound to, if anything.
    ADD COLUMN domain text,
    ADD COLUMN epoch bigint,
    -- The domain again, where the end of the epoch has a meaning: in states 0, 4 and 5. A column
    -- of its own, so that the common change of state touches no index.
    ADD COLUMN voidable text,
    ADD CHECK ((domain IS NULL) = (epoch IS NULL));
CREATE INDEX effect_voidable ON hapax.effect (voidable) WHERE voidable IS NOT NULL;

-- What transitions of a domain are ordered by. Rows alone would not do: whoever shares a row's
-- lock passes by somebody who waits to have it alone, for ever if there are many.
CREATE FUNCTION hapax.epoch_lock(space int, of text) RETURNS int LANGUAGE sql IMMUTABLE
    RETURN hashtext(space::text || '/' || of);

-- The epoch a domain is in, held there until the end of the transaction: a transition waits for
-- whoever was told, and whoever asks waits for a transition.
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

DROP FUNCTION IF EXISTS hapax.look(int[], bytea[]);

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
