-- The outbox by months, version 9 of the schema: what was told long ago can leave, as old months of
-- the journal can. What became of it (`dispatched`) stays: one row tells of many.

-- Who may do what stays as it was.
CREATE TEMPORARY TABLE rights ON COMMIT DROP AS
SELECT c.relname, a.privilege_type, r.rolname
FROM pg_class c, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
WHERE c.oid IN ('hapax.outbox_record'::regclass, 'hapax.outbox'::regclass);
DROP VIEW hapax.outbox;

-- The first id of a millisecond. Ids begin with the time at which their effect was first claimed, so
-- that those of a month are a range, and one is unique among all months.
CREATE FUNCTION hapax.first_id(ms bigint) RETURNS uuid LANGUAGE sql IMMUTABLE
    RETURN (lpad(to_hex(ms), 12, '0') || repeat('0', 20))::uuid;

-- The record of an artifact is looked for when it is published, and cannot be deleted.
ALTER TABLE hapax.artifact DROP CONSTRAINT artifact_record_fkey;
ALTER TABLE hapax.outbox_record RENAME TO outbox_record_before;
ALTER TABLE hapax.outbox_record_before DROP CONSTRAINT outbox_record_pkey;
ALTER TABLE hapax.outbox_record_before DROP CONSTRAINT outbox_record_check;
ALTER TABLE hapax.outbox_record_before
    RENAME CONSTRAINT outbox_record_outbox_id_key TO outbox_record_before_outbox_id_key;
DROP TRIGGER append_only ON hapax.outbox_record_before;
CREATE TABLE hapax.outbox_record (
    LIKE hapax.outbox_record_before INCLUDING DEFAULTS,
    CONSTRAINT outbox_record_outbox_id_key UNIQUE (outbox_id)
) PARTITION BY RANGE (outbox_id);
CREATE INDEX outbox_record_seq ON hapax.outbox_record (seq);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON hapax.outbox_record FOR EACH ROW
    EXECUTE FUNCTION hapax.refuse('an outbox record cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.outbox_record FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the outbox cannot be truncated');

-- What is there already stays together, up to the end of its newest month.
DO $$
DECLARE
    newest bigint;
    until bigint;
BEGIN
    SELECT ('x' || left(replace(r.outbox_id::text, '-', ''), 12))::bit(48)::bigint INTO newest
    FROM hapax.outbox_record_before r ORDER BY r.outbox_id DESC LIMIT 1;
    IF newest IS NULL THEN
        DROP TABLE hapax.outbox_record_before;
    ELSE
        until := extract(epoch FROM interval '1 month' + date_trunc('month',
            to_timestamp(greatest(newest, hapax.now_ms()) / 1000.0), 'UTC')) * 1000;
        EXECUTE format('ALTER TABLE hapax.outbox_record ATTACH PARTITION hapax.outbox_record_before
                        FOR VALUES FROM (MINVALUE) TO (%L)', hapax.first_id(until));
    END IF;
END $$;

-- A delivery names its record, so that it is looked for in one month.
ALTER TABLE hapax.delivery ADD COLUMN outbox_id uuid;
UPDATE hapax.delivery d SET outbox_id = e.outbox_id FROM hapax.outbox_record e WHERE e.seq = d.seq;
ALTER TABLE hapax.delivery ALTER COLUMN outbox_id SET NOT NULL;
DROP TRIGGER state_only ON hapax.delivery;
CREATE TRIGGER state_only BEFORE UPDATE ON hapax.delivery FOR EACH ROW
    WHEN (NEW.seq <> OLD.seq OR NEW.sink <> OLD.sink OR NEW.track <> OLD.track
        OR NEW.namespace <> OLD.namespace OR NEW.xid <> OLD.xid OR NEW.outbox_id <> OLD.outbox_id)
    EXECUTE FUNCTION hapax.refuse('only the state of a delivery changes');
-- Nodes that were started before this version do not say it.
CREATE FUNCTION hapax.delivery_names() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT e.outbox_id INTO NEW.outbox_id FROM hapax.outbox_record e WHERE e.seq = NEW.seq;
    RETURN NEW;
END $$;
CREATE TRIGGER names BEFORE INSERT ON hapax.delivery FOR EACH ROW WHEN (NEW.outbox_id IS NULL)
    EXECUTE FUNCTION hapax.delivery_names();

-- What no month was made for in time, or what tells of an effect whose month has left.
CREATE TABLE hapax.outbox_record_default PARTITION OF hapax.outbox_record DEFAULT;
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.outbox_record_default FOR EACH STATEMENT
    EXECUTE FUNCTION hapax.refuse('the outbox cannot be truncated');

-- Makes the partitions of this month and those to come, where they are missing. Passes over a month
-- quietly when somebody is in the way, or when something of it lies in another partition already; it
-- will be asked again.
CREATE OR REPLACE FUNCTION hapax.make_partitions(ahead int DEFAULT 2) RETURNS int
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

DO $$
DECLARE
    it record;
BEGIN
    FOR it IN SELECT * FROM rights LOOP
        EXECUTE format('GRANT %s ON hapax.%I TO %I', it.privilege_type, it.relname, it.rolname);
    END LOOP;
END $$;

