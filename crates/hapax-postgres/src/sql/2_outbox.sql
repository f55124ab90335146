-- The outbox, version 2 of the schema.

-- Where events go, and what is known of each place.
CREATE TABLE hapax.sink (
    id           smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (name ~ '^[a-z][a-z0-9_-]{0,63}$'),
    declared     boolean NOT NULL DEFAULT true,
    paused       boolean NOT NULL DEFAULT false,
    changed      bigint NOT NULL DEFAULT 0,
    remembers_ms bigint
);

-- Which events go where; several rows where a route has several sinks, one without a sink where
-- it has none. Patterns as they were declared, and as LIKE reads them.
CREATE TABLE hapax.route (
    id           int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    nth          int NOT NULL,
    event        text NOT NULL,
    dataset      text NOT NULL,
    sink         smallint REFERENCES hapax.sink (id),
    event_like   text NOT NULL GENERATED ALWAYS AS
        (replace(replace(replace(replace(event, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')) STORED,
    dataset_like text NOT NULL GENERATED ALWAYS AS
        (replace(replace(replace(replace(dataset, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')) STORED
);

-- What payloads must not have in them: one row. Judged by whoever has hapax-core, which
-- `hapax.emit` by itself does not.
CREATE TABLE hapax.guard (
    id       int PRIMARY KEY CHECK (id = 1),
    personal boolean NOT NULL DEFAULT true,
    secrets  boolean NOT NULL DEFAULT true
);
INSERT INTO hapax.guard (id) VALUES (1);

-- Events as they were recorded. `seq` is their order. A change data capture tool reads this
-- table; Debezium's outbox router needs only to be told the names of its columns.
CREATE SEQUENCE hapax.outbox_seq CACHE 1;
CREATE TABLE hapax.outbox_record (
    seq              bigint PRIMARY KEY DEFAULT nextval('hapax.outbox_seq'),
    created_at       bigint NOT NULL,
    track            bigint NOT NULL,
    namespace        int NOT NULL,
    ordinal          int NOT NULL,
    -- 0 in the order of its dataset, 1 of another key, 2 of none
    ordering         smallint NOT NULL,
    outbox_id        uuid NOT NULL UNIQUE,
    idempotency_key  hapax.bytes32 NOT NULL,
    event_name       text NOT NULL,
    dataset_id       text NOT NULL,
    pipeline_id      text,
    version          text,
    order_key        text,
    payload          json NOT NULL,
    -- What it says was published.
    artifact_version text,
    checksum         text,
    uri              text,
    -- One constraint: each is read anew for every statement.
    CHECK (ordering BETWEEN 0 AND 2 AND (ordering = 1) = (order_key IS NOT NULL)
        AND event_name <> '' AND dataset_id <> ''
        AND num_nulls(artifact_version, checksum, uri) IN (0, 3))
);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.outbox_record FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('an outbox record cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.outbox_record FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the outbox cannot be truncated');

-- Published versions, each with the event that tells of it.
CREATE TABLE hapax.artifact (
    namespace  int NOT NULL,
    dataset_id text NOT NULL,
    version    text NOT NULL,
    checksum   text NOT NULL CHECK (checksum <> ''),
    uri        text NOT NULL CHECK (uri <> ''),
    record     bigint NOT NULL REFERENCES hapax.outbox_record (seq),
    PRIMARY KEY (namespace, dataset_id, version)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.artifact FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('a published version cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.artifact FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('artifacts cannot be truncated');

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

-- The working set: what a sink does not have yet. Only its state changes.
CREATE TABLE hapax.delivery (
    seq       bigint NOT NULL,
    -- The transaction that recorded the event: commits finish out of order, and whoever reads
    -- goes back to the oldest one that may have been open.
    xid       bigint NOT NULL,
    track     bigint NOT NULL,
    -- When to try next; NULL once it has failed.
    due       bigint,
    updated   bigint NOT NULL,
    namespace int NOT NULL,
    tried     int NOT NULL DEFAULT 0,
    sink      smallint NOT NULL,
    -- Whether those behind it wait until it is redriven.
    parks     boolean NOT NULL DEFAULT false CHECK (NOT parks OR due IS NULL),
    error     text,
    PRIMARY KEY (track, seq, sink)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX delivery_line ON hapax.delivery (sink, namespace, xid, seq) WHERE due IS NOT NULL;
CREATE INDEX delivery_failed ON hapax.delivery (sink, seq) WHERE due IS NULL;

-- What each sink has: one row for many records, so that history costs next to nothing.
CREATE TABLE hapax.dispatched (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sink       smallint NOT NULL,
    at         bigint NOT NULL,
    -- From the first to the last of them.
    span       int8range NOT NULL,
    seqs       bigint[] NOT NULL,
    -- How often each was tried, and which of them the sink had before.
    tried      int[] NOT NULL CHECK (cardinality(tried) = cardinality(seqs)),
    duplicates bigint[] NOT NULL DEFAULT '{}'
);
CREATE INDEX dispatched_span ON hapax.dispatched USING gist (span);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.dispatched FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('what was delivered cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.dispatched FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('what was delivered cannot be truncated');

-- A delivery ends when its sink has it: only those who say so in the same transaction may
-- delete one. Once a statement, for there are many.
CREATE FUNCTION hapax.delivery_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('hapax.landing', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'a delivery ends when its sink has it' USING ERRCODE = 'HX105';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ends BEFORE DELETE ON hapax.delivery FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.delivery_ends();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.delivery FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('deliveries cannot be truncated');
CREATE TRIGGER state_only BEFORE UPDATE ON hapax.delivery FOR EACH ROW
    WHEN (NEW.seq <> OLD.seq OR NEW.sink <> OLD.sink OR NEW.track <> OLD.track
        OR NEW.namespace <> OLD.namespace OR NEW.xid <> OLD.xid)
    EXECUTE FUNCTION hapax.refuse('only the state of a delivery changes');

-- Who looks after which buckets, and what it is trying.
CREATE TABLE hapax.dispatcher (
    lease   hapax.bytes16 PRIMARY KEY,
    buckets bytea NOT NULL CHECK (length(buckets) = 128)
);
CREATE TABLE hapax.flight (
    lease hapax.bytes16 NOT NULL,
    id    bigint NOT NULL,
    sink  smallint NOT NULL,
    seqs  bigint[] NOT NULL,
    tracks bigint[] NOT NULL,
    tried int[] NOT NULL,
    PRIMARY KEY (lease, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Writes what became of tries. Deliveries are found in the order in which they were read, where
-- neighbours lie side by side. The arrays are of one length; `state` is 0 delivered, 1 delivered
-- before, 2 to be tried again at `due`, 3 failed, 4 failed and parked.
CREATE FUNCTION hapax.land(
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
    DELETE FROM hapax.flight f WHERE f.lease = land.lease AND f.id = ANY (over);
END $$;

-- The track of a record: what the records of one ordering key share.
CREATE FUNCTION hapax.track_of(namespace text, ordering int, key text, outbox_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' || encode(substring(sha256(
        convert_to('hapax.order.v1:', 'UTF8')
        || int8send(octet_length(namespace)) || convert_to(namespace, 'UTF8')
        || CASE WHEN ordering = 2
            THEN int8send(0) || int8send(16) || uuid_send(outbox_id)
            ELSE int8send(octet_length(key)) || convert_to(key, 'UTF8') END
    ), 1, 8), 'hex'))::bit(64)::bigint
$$;

-- The id of an effect's event: a UUIDv7 that is the same each time it is emitted.
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

-- For people with an SQL prompt.
CREATE VIEW hapax.outbox AS
SELECT e.outbox_id, n.name AS namespace, e.pipeline_id, e.event_name, e.dataset_id, e.version,
    'sha256:' || encode(e.idempotency_key, 'hex') AS idempotency_key, e.payload,
    CASE WHEN open.failed THEN 'failed' WHEN open.failed IS NOT NULL THEN 'pending'
         ELSE 'dispatched' END AS status,
    greatest(open.tried, done.tried, 0) AS attempt,
    open.error AS last_error,
    to_timestamp(e.created_at / 1000.0) AS created_at,
    to_timestamp(greatest(e.created_at, open.updated, done.at) / 1000.0) AS updated_at
FROM hapax.outbox_record e
JOIN hapax.namespace n ON n.id = e.namespace
LEFT JOIN LATERAL (
    SELECT bool_or(d.due IS NULL) AS failed, max(d.tried) AS tried, max(d.updated) AS updated,
        (array_agg(d.error ORDER BY d.updated DESC) FILTER (WHERE d.error IS NOT NULL))[1] AS error
    FROM hapax.delivery d WHERE d.track = e.track AND d.seq = e.seq
) open ON true
LEFT JOIN LATERAL (
    SELECT max(d.at) AS at, max(d.tried[array_position(d.seqs, e.seq)]) AS tried
    FROM hapax.dispatched d WHERE d.span @> e.seq AND e.seq = ANY (d.seqs)
) done ON true;
