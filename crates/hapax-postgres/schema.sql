-- The schema `hapax` of a new database: tables, indexes and triggers, functions without their bodies,
-- views without their queries, and no partitions of months. Generated from migrations/ by
-- tests/schema.rs: UPDATE_EXPECT=1 cargo test -p hapax-postgres --test schema

CREATE DOMAIN hapax.bytes16 AS bytea CHECK ((length(VALUE) = 16));
CREATE DOMAIN hapax.bytes32 AS bytea CHECK ((length(VALUE) = 32));
CREATE DOMAIN hapax.event AS smallint CHECK (((VALUE >= 0) AND (VALUE <= 7)));
CREATE DOMAIN hapax.safety AS smallint CHECK (((VALUE >= 0) AND (VALUE <= 3)));
CREATE DOMAIN hapax.state AS smallint CHECK (((VALUE >= 0) AND (VALUE <= 6)));

CREATE SEQUENCE hapax.entry AS bigint CACHE 1;
CREATE SEQUENCE hapax.outbox_seq AS bigint CACHE 1;

CREATE TABLE hapax.archive (
    partition text NOT NULL,
    leaves int8multirange NOT NULL,
    digest hapax.bytes32 NOT NULL,
    at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT archive_pkey PRIMARY KEY (partition)
);
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON hapax.archive FOR EACH ROW EXECUTE FUNCTION hapax.refuse('the archive cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.archive FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('the archive cannot be truncated');

CREATE TABLE hapax.artifact (
    namespace integer NOT NULL,
    dataset_id text NOT NULL,
    version text NOT NULL,
    checksum text NOT NULL,
    uri text NOT NULL,
    record bigint NOT NULL,
    CONSTRAINT artifact_checksum_check CHECK ((checksum <> ''::text)),
    CONSTRAINT artifact_pkey PRIMARY KEY (namespace, dataset_id, version),
    CONSTRAINT artifact_uri_check CHECK ((uri <> ''::text))
);
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON hapax.artifact FOR EACH ROW EXECUTE FUNCTION hapax.refuse('a published version cannot be changed');
CREATE TRIGGER is_told BEFORE INSERT ON hapax.artifact FOR EACH ROW EXECUTE FUNCTION hapax.artifact_is_told();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.artifact FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('artifacts cannot be truncated');

CREATE TABLE hapax.body (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    digest hapax.bytes32 NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT body_digest_key UNIQUE (digest),
    CONSTRAINT body_pkey PRIMARY KEY (id)
);

CREATE TABLE hapax.cache_access (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    namespace integer NOT NULL,
    kind smallint NOT NULL,
    times bigint NOT NULL,
    at bigint NOT NULL,
    key hapax.bytes32 NOT NULL,
    ontology text NOT NULL,
    about text NOT NULL,
    CONSTRAINT cache_access_kind_check CHECK (((kind >= 0) AND (kind <= 2))),
    CONSTRAINT cache_access_pkey PRIMARY KEY (id)
);
CREATE INDEX cache_access_at ON hapax.cache_access USING btree (at);

CREATE TABLE hapax.dataset (
    name text NOT NULL,
    declaration text NOT NULL,
    CONSTRAINT dataset_pkey PRIMARY KEY (name)
);

CREATE TABLE hapax.delivery (
    seq bigint NOT NULL,
    xid bigint NOT NULL,
    ordering_hash bigint NOT NULL,
    due bigint,
    updated bigint NOT NULL,
    namespace integer NOT NULL,
    tried integer NOT NULL DEFAULT 0,
    sink smallint NOT NULL,
    parks boolean NOT NULL DEFAULT false,
    error text,
    outbox_id uuid NOT NULL,
    CONSTRAINT delivery_check CHECK (((NOT parks) OR (due IS NULL))),
    CONSTRAINT delivery_pkey PRIMARY KEY (ordering_hash, seq, sink)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=20000, autovacuum_vacuum_cost_delay=0);
CREATE INDEX delivery_failed ON hapax.delivery USING btree (sink, seq) WHERE (due IS NULL);
CREATE INDEX delivery_queue ON hapax.delivery USING btree (sink, namespace, xid, seq) WHERE (due IS NOT NULL);
CREATE TRIGGER ends BEFORE DELETE ON hapax.delivery FOR EACH STATEMENT EXECUTE FUNCTION hapax.delivery_ends();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.delivery FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('deliveries cannot be truncated');
CREATE TRIGGER state_only BEFORE UPDATE ON hapax.delivery FOR EACH ROW WHEN (((new.seq <> old.seq) OR (new.sink <> old.sink) OR (new.ordering_hash <> old.ordering_hash) OR (new.namespace <> old.namespace) OR (new.xid <> old.xid) OR (new.outbox_id <> old.outbox_id))) EXECUTE FUNCTION hapax.refuse('only the state of a delivery changes');

CREATE TABLE hapax.dispatched (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    sink smallint NOT NULL,
    at bigint NOT NULL,
    span int8range NOT NULL,
    seqs bigint[] NOT NULL,
    tried integer[] NOT NULL,
    duplicates bigint[] NOT NULL DEFAULT '{}'::bigint[],
    CONSTRAINT dispatched_check CHECK ((cardinality(tried) = cardinality(seqs))),
    CONSTRAINT dispatched_pkey PRIMARY KEY (id)
);
CREATE INDEX dispatched_span ON hapax.dispatched USING gist (span);
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON hapax.dispatched FOR EACH ROW EXECUTE FUNCTION hapax.refuse('what was delivered cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.dispatched FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('what was delivered cannot be truncated');

CREATE TABLE hapax.dispatcher (
    lease hapax.bytes16 NOT NULL,
    buckets bytea NOT NULL,
    CONSTRAINT dispatcher_buckets_check CHECK ((length(buckets) = 128)),
    CONSTRAINT dispatcher_pkey PRIMARY KEY (lease)
);

CREATE TABLE hapax.effect (
    namespace integer NOT NULL,
    state hapax.state NOT NULL,
    safety hapax.safety NOT NULL,
    entry bigint NOT NULL,
    fence bigint NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    generation integer NOT NULL,
    attempts integer NOT NULL,
    key hapax.bytes32 NOT NULL,
    fingerprint hapax.bytes32 NOT NULL,
    attempt hapax.bytes16 NOT NULL,
    lease hapax.bytes16,
    watch bytea,
    at_ms bigint,
    settling_ms bigint,
    ttl_ms bigint,
    expires bigint,
    lock bigint,
    label text,
    tries integer,
    stuck smallint,
    cause smallint,
    reason text,
    outcome bytea,
    body bigint,
    digest bytea,
    size bigint,
    domain text,
    epoch bigint,
    voidable text,
    CONSTRAINT effect_body_fkey FOREIGN KEY (body) REFERENCES hapax.body(id),
    CONSTRAINT effect_pkey PRIMARY KEY (namespace, key)
) WITH (fillfactor=60, autovacuum_vacuum_scale_factor=0.05);
CREATE INDEX effect_at ON hapax.effect USING btree (at_ms) WHERE (at_ms IS NOT NULL);
CREATE INDEX effect_body ON hapax.effect USING btree (body) WHERE (body IS NOT NULL);
CREATE INDEX effect_expires ON hapax.effect USING btree (expires) WHERE (expires IS NOT NULL);
CREATE INDEX effect_stuck ON hapax.effect USING btree (stuck) WHERE (stuck IS NOT NULL);
CREATE INDEX effect_voidable ON hapax.effect USING btree (voidable) WHERE (voidable IS NOT NULL);
CREATE INDEX effect_watch ON hapax.effect USING btree (watch) WHERE (watch IS NOT NULL);
CREATE TRIGGER is_whole BEFORE INSERT OR UPDATE ON hapax.effect FOR EACH ROW EXECUTE FUNCTION hapax.effect_is_whole();

CREATE TABLE hapax.epoch (
    namespace integer NOT NULL,
    domain text NOT NULL,
    epoch bigint NOT NULL,
    CONSTRAINT epoch_domain_check CHECK ((domain ~ '^[a-z][a-z0-9_-]{0,63}$'::text)),
    CONSTRAINT epoch_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT epoch_pkey PRIMARY KEY (namespace, domain)
);
CREATE TRIGGER grows BEFORE UPDATE ON hapax.epoch FOR EACH ROW WHEN ((new.epoch <= old.epoch)) EXECUTE FUNCTION hapax.refuse('an epoch only grows');

CREATE TABLE hapax.guard (
    id integer NOT NULL,
    personal boolean NOT NULL DEFAULT true,
    secrets boolean NOT NULL DEFAULT true,
    registered boolean NOT NULL DEFAULT false,
    CONSTRAINT guard_id_check CHECK ((id = 1)),
    CONSTRAINT guard_pkey PRIMARY KEY (id)
);

CREATE TABLE hapax.head (
    size bigint NOT NULL,
    note text NOT NULL,
    CONSTRAINT head_pkey PRIMARY KEY (size)
);
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON hapax.head FOR EACH ROW EXECUTE FUNCTION hapax.refuse('a head cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.head FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('heads cannot be truncated');

CREATE TABLE hapax.journal (
    id bigint NOT NULL,
    prev bigint,
    at bigint NOT NULL,
    namespace integer NOT NULL,
    generation integer NOT NULL,
    event hapax.event NOT NULL,
    state hapax.state NOT NULL,
    key hapax.bytes32 NOT NULL,
    attempt hapax.bytes16 NOT NULL,
    digest bytea,
    actor text,
    note text,
    CONSTRAINT journal_pkey PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON hapax.journal FOR EACH ROW EXECUTE FUNCTION hapax.refuse('the journal cannot be changed');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.journal FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('the journal cannot be truncated');

CREATE TABLE hapax.journal_default PARTITION OF hapax.journal DEFAULT;
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.journal_default FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('the journal cannot be truncated');

CREATE TABLE hapax.kv (
    namespace text NOT NULL,
    store text NOT NULL,
    key text NOT NULL,
    value text NOT NULL,
    CONSTRAINT kv_pkey PRIMARY KEY (namespace, store, key)
);

CREATE TABLE hapax.lease (
    id hapax.bytes16 NOT NULL,
    term_ms bigint NOT NULL,
    until_ms bigint NOT NULL,
    dead boolean NOT NULL,
    holder text NOT NULL,
    seen bigint NOT NULL,
    CONSTRAINT lease_pkey PRIMARY KEY (id),
    CONSTRAINT lease_term_ms_check CHECK ((term_ms > 0))
);
CREATE TRIGGER dead_is_dead BEFORE UPDATE ON hapax.lease FOR EACH ROW WHEN ((old.dead AND (NOT new.dead))) EXECUTE FUNCTION hapax.refuse('a dead lease is never revived');

CREATE TABLE hapax.lock (
    namespace integer NOT NULL,
    lock bigint NOT NULL,
    holder hapax.bytes32 NOT NULL,
    attempt hapax.bytes16 NOT NULL,
    CONSTRAINT lock_pkey PRIMARY KEY (namespace, lock)
);
CREATE CONSTRAINT TRIGGER is_one AFTER UPDATE ON hapax.lock DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hapax.lock_is_one();

CREATE TABLE hapax.migration (
    version integer NOT NULL,
    name text NOT NULL,
    at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT migration_pkey PRIMARY KEY (version)
);

CREATE TABLE hapax.namespace (
    id integer NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    CONSTRAINT namespace_name_check CHECK ((name ~ '^[a-z][a-z0-9._-]{0,63}$'::text)),
    CONSTRAINT namespace_name_key UNIQUE (name),
    CONSTRAINT namespace_pkey PRIMARY KEY (id)
);

CREATE TABLE hapax.ontology (
    namespace integer NOT NULL,
    id text NOT NULL,
    version text NOT NULL,
    content text NOT NULL,
    metadata text NOT NULL,
    updated bigint NOT NULL,
    CONSTRAINT ontology_id_check CHECK ((id <> ''::text)),
    CONSTRAINT ontology_pkey PRIMARY KEY (namespace, id)
);

CREATE TABLE hapax.outbox_record (
    seq bigint NOT NULL DEFAULT nextval('hapax.outbox_seq'::regclass),
    created_at bigint NOT NULL,
    ordering_hash bigint NOT NULL,
    namespace integer NOT NULL,
    ordinal integer NOT NULL,
    ordering smallint NOT NULL,
    outbox_id uuid NOT NULL,
    idempotency_key hapax.bytes32 NOT NULL,
    event_name text NOT NULL,
    dataset_id text NOT NULL,
    pipeline_id text,
    version text,
    order_key text,
    payload json NOT NULL,
    artifact_version text,
    checksum text,
    uri text,
    trace text,
    judged boolean NOT NULL DEFAULT false,
    CONSTRAINT outbox_record_outbox_id_key UNIQUE (outbox_id)
) PARTITION BY RANGE (outbox_id);
CREATE INDEX outbox_record_seq ON ONLY hapax.outbox_record USING btree (seq);
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON hapax.outbox_record FOR EACH ROW EXECUTE FUNCTION hapax.refuse('an outbox record cannot be changed');
CREATE CONSTRAINT TRIGGER is_settled AFTER INSERT ON hapax.outbox_record DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ((NOT new.judged)) EXECUTE FUNCTION hapax.record_is_settled();
CREATE TRIGGER is_whole BEFORE INSERT ON hapax.outbox_record FOR EACH ROW EXECUTE FUNCTION hapax.record_is_whole();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.outbox_record FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('the outbox cannot be truncated');

CREATE TABLE hapax.outbox_record_default PARTITION OF hapax.outbox_record DEFAULT;
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.outbox_record_default FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('the outbox cannot be truncated');

CREATE TABLE hapax.part (
    namespace integer NOT NULL,
    place bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    key hapax.bytes32 NOT NULL,
    whole hapax.bytes32 NOT NULL,
    kind text NOT NULL,
    kept bytea NOT NULL,
    CONSTRAINT part_kind_check CHECK ((kind <> ''::text)),
    CONSTRAINT part_pkey PRIMARY KEY (namespace, key)
);
CREATE INDEX part_kind ON hapax.part USING btree (namespace, kind, place);
CREATE INDEX part_whole ON hapax.part USING btree (namespace, whole, kind, place);

CREATE TABLE hapax.result_index (
    namespace integer NOT NULL,
    bytes bigint NOT NULL,
    created bigint NOT NULL,
    used bigint NOT NULL,
    whole boolean NOT NULL,
    key hapax.bytes32 NOT NULL,
    ontology text NOT NULL,
    version text NOT NULL,
    text_hash text NOT NULL,
    params_hash text NOT NULL,
    CONSTRAINT result_index_pkey PRIMARY KEY (namespace, key)
);
CREATE INDEX result_index_ontology ON hapax.result_index USING btree (namespace, ontology);
CREATE INDEX result_index_text ON hapax.result_index USING btree (namespace, text_hash) WHERE whole;
CREATE INDEX result_index_used ON hapax.result_index USING btree (namespace, used);

CREATE TABLE hapax.route (
    id integer NOT NULL GENERATED ALWAYS AS IDENTITY,
    nth integer NOT NULL,
    event text NOT NULL,
    dataset text NOT NULL,
    sink smallint,
    event_like text NOT NULL GENERATED ALWAYS AS (replace(replace(replace(replace(event, '\'::text, '\\'::text), '%'::text, '\%'::text), '_'::text, '\_'::text), '*'::text, '%'::text)) STORED,
    dataset_like text NOT NULL GENERATED ALWAYS AS (replace(replace(replace(replace(dataset, '\'::text, '\\'::text), '%'::text, '\%'::text), '_'::text, '\_'::text), '*'::text, '%'::text)) STORED,
    CONSTRAINT route_pkey PRIMARY KEY (id),
    CONSTRAINT route_sink_fkey FOREIGN KEY (sink) REFERENCES hapax.sink(id)
);

CREATE TABLE hapax.sealing (
    id integer NOT NULL,
    sealed bigint NOT NULL DEFAULT 0,
    gaps int8multirange NOT NULL DEFAULT '{}'::int8multirange,
    mark_xid bigint,
    mark_entry bigint,
    CONSTRAINT sealing_id_check CHECK ((id = 1)),
    CONSTRAINT sealing_pkey PRIMARY KEY (id)
);

CREATE TABLE hapax.self (
    id integer NOT NULL,
    ledger uuid NOT NULL DEFAULT gen_random_uuid(),
    public_key text,
    notice bigint NOT NULL DEFAULT 0,
    swept bigint NOT NULL DEFAULT 0,
    pulse_last bigint NOT NULL DEFAULT 0,
    timeline text NOT NULL DEFAULT ''::text,
    pulse_gaps bigint[] NOT NULL DEFAULT array_fill((0)::bigint, ARRAY[52]),
    CONSTRAINT self_id_check CHECK ((id = 1)),
    CONSTRAINT self_pkey PRIMARY KEY (id)
);

CREATE TABLE hapax.send_batch (
    lease hapax.bytes16 NOT NULL,
    id bigint NOT NULL,
    sink smallint NOT NULL,
    seqs bigint[] NOT NULL,
    ordering_hashes bigint[] STORAGE EXTERNAL NOT NULL,
    tried integer[] NOT NULL,
    CONSTRAINT send_batch_pkey PRIMARY KEY (lease, id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

CREATE TABLE hapax.sink (
    id smallint NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    declared boolean NOT NULL DEFAULT true,
    paused boolean NOT NULL DEFAULT false,
    changed bigint NOT NULL DEFAULT 0,
    remembers_ms bigint,
    CONSTRAINT sink_name_check CHECK ((name ~ '^[a-z][a-z0-9_-]{0,63}$'::text)),
    CONSTRAINT sink_name_key UNIQUE (name),
    CONSTRAINT sink_pkey PRIMARY KEY (id)
);

CREATE TABLE hapax.step (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    namespace integer NOT NULL,
    key hapax.bytes32 NOT NULL,
    attempt hapax.bytes16 NOT NULL,
    name text NOT NULL,
    payload bytea NOT NULL,
    CONSTRAINT step_pkey PRIMARY KEY (id)
);
CREATE INDEX step_attempt ON hapax.step USING btree (attempt);

CREATE TABLE hapax.tile (
    level integer NOT NULL,
    place bigint NOT NULL,
    hashes bytea STORAGE EXTERNAL NOT NULL,
    entries bigint[],
    "least" bigint,
    "greatest" bigint,
    CONSTRAINT tile_check CHECK (((level = 0) = (entries IS NOT NULL))),
    CONSTRAINT tile_check1 CHECK (((level > 0) OR ((cardinality(entries) * 32) = length(hashes)))),
    CONSTRAINT tile_hashes_check CHECK ((((length(hashes) >= 32) AND (length(hashes) <= 8192)) AND ((length(hashes) % 32) = 0))),
    CONSTRAINT tile_pkey PRIMARY KEY (level, place)
);
CREATE TRIGGER grows BEFORE UPDATE ON hapax.tile FOR EACH ROW WHEN ((("substring"(new.hashes, 1, length(old.hashes)) <> old.hashes) OR (new.level <> old.level) OR (new.place <> old.place) OR (new.entries[:cardinality(old.entries)] <> old.entries))) EXECUTE FUNCTION hapax.refuse('a tile only grows');
CREATE TRIGGER no_delete BEFORE DELETE ON hapax.tile FOR EACH ROW EXECUTE FUNCTION hapax.refuse('a tile cannot be deleted');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON hapax.tile FOR EACH STATEMENT EXECUTE FUNCTION hapax.refuse('tiles cannot be truncated');

CREATE TABLE hapax.token (
    id bytea NOT NULL,
    digest bytea NOT NULL,
    role smallint NOT NULL,
    namespace text,
    holder text NOT NULL,
    created bigint NOT NULL,
    expires bigint,
    CONSTRAINT token_digest_check CHECK ((length(digest) = 32)),
    CONSTRAINT token_id_check CHECK ((length(id) = 8)),
    CONSTRAINT token_pkey PRIMARY KEY (id),
    CONSTRAINT token_role_check CHECK (((role >= 0) AND (role <= 2)))
);

CREATE FUNCTION hapax.about(note text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE;
CREATE FUNCTION hapax.about_extraction(note text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE;
CREATE FUNCTION hapax.artifact_is_told() RETURNS trigger LANGUAGE plpgsql;
CREATE FUNCTION hapax.bytes_of(text text, prefix text, size integer) RETURNS bytea LANGUAGE plpgsql IMMUTABLE;
CREATE FUNCTION hapax.check_epoch(e hapax.effect) RETURNS void LANGUAGE plpgsql;
CREATE FUNCTION hapax.claim(key text, fingerprint bytea, lease text DEFAULT NULL::text, safety text DEFAULT 'opaque'::text, settling_ms bigint DEFAULT NULL::bigint, lock bigint DEFAULT NULL::bigint, label text DEFAULT NULL::text, ttl_ms bigint DEFAULT NULL::bigint, deadline_ms bigint DEFAULT NULL::bigint, attempt text DEFAULT NULL::text, namespace text DEFAULT 'default'::text, domain text DEFAULT NULL::text, epoch bigint DEFAULT NULL::bigint, OUT verdict text, OUT attempt_id text, OUT fence bigint, OUT nth integer, OUT outcome bytea, OUT reason text, OUT digest bytea, OUT size bigint, OUT recorded bytea, OUT state text, OUT holder text, OUT bound_epoch bigint, OUT current_epoch bigint) RETURNS record LANGUAGE plpgsql;
CREATE FUNCTION hapax.delivery_ends() RETURNS trigger LANGUAGE plpgsql;
CREATE FUNCTION hapax.durably() RETURNS void LANGUAGE plpgsql;
CREATE FUNCTION hapax.effect_is_whole() RETURNS trigger LANGUAGE plpgsql;
CREATE FUNCTION hapax.emit(key text, attempt text, event_name text, dataset_id text, payload json, ordinal integer DEFAULT 0, pipeline_id text DEFAULT NULL::text, version text DEFAULT NULL::text, order_key text DEFAULT NULL::text, ordered boolean DEFAULT true, artifact_version text DEFAULT NULL::text, checksum text DEFAULT NULL::text, uri text DEFAULT NULL::text, namespace text DEFAULT 'default'::text, trace text DEFAULT NULL::text) RETURNS uuid LANGUAGE plpgsql;
CREATE FUNCTION hapax.epoch_lock(space integer, of text) RETURNS integer LANGUAGE sql IMMUTABLE;
CREATE FUNCTION hapax.epoch_now(space integer, of text) RETURNS bigint LANGUAGE plpgsql;
CREATE FUNCTION hapax.extracted(outcome bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE;
CREATE FUNCTION hapax.first_id(ms bigint) RETURNS uuid LANGUAGE sql IMMUTABLE;
CREATE FUNCTION hapax.gap_length(term_ms bigint) RETURNS bigint LANGUAGE sql IMMUTABLE;
CREATE FUNCTION hapax.gap_ms(nth bigint) RETURNS bigint LANGUAGE sql IMMUTABLE;
CREATE FUNCTION hapax.load(namespace integer, key bytea, now bigint) RETURNS hapax.effect LANGUAGE plpgsql;
CREATE FUNCTION hapax.lock_is_one() RETURNS trigger LANGUAGE plpgsql;
CREATE FUNCTION hapax.look(namespaces integer[], keys bytea[]) RETURNS TABLE(namespace integer, key bytea, entry bigint, fingerprint bytea, state smallint, safety smallint, settling_ms bigint, attempt bytea, fence bigint, generation integer, attempts integer, created bigint, updated bigint, lock bigint, label text, ttl_ms bigint, lease bytea, at_ms bigint, tries integer, cause smallint, reason text, outcome bytea, digest bytea, size bigint, domain text, epoch bigint) LANGUAGE plpgsql STABLE SET enable_seqscan=off SET enable_hashjoin=off SET enable_mergejoin=off SET plan_cache_mode=force_generic_plan SET jit=off;
CREATE FUNCTION hapax.make_partitions(ahead integer DEFAULT 2) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp;
CREATE FUNCTION hapax.move(e hapax.effect, number bigint, kind integer) RETURNS hapax.effect LANGUAGE plpgsql;
CREATE FUNCTION hapax.namespace_id(name text) RETURNS integer LANGUAGE plpgsql;
CREATE FUNCTION hapax.newest(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE;
CREATE FUNCTION hapax.next_entry() RETURNS bigint LANGUAGE sql;
CREATE FUNCTION hapax.note(e hapax.effect, number bigint, prev_number bigint, kind integer) RETURNS void LANGUAGE plpgsql;
CREATE FUNCTION hapax.now_ms() RETURNS bigint LANGUAGE sql;
CREATE FUNCTION hapax.ordering_hash(namespace text, ordering integer, key text, outbox_id uuid) RETURNS bigint LANGUAGE plpgsql IMMUTABLE;
CREATE FUNCTION hapax.outbox_id(namespace text, key bytea, created bigint, generation integer, ordinal integer) RETURNS uuid LANGUAGE plpgsql IMMUTABLE;
CREATE FUNCTION hapax.put_delivered(now bigint, l_place tid[], l_sink smallint[], l_seq bigint[], l_tried integer[], l_state smallint[]) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan=off SET enable_hashjoin=off SET enable_mergejoin=off SET plan_cache_mode=force_generic_plan SET jit=off;
CREATE FUNCTION hapax.put_results(lease bytea, now bigint, over bigint[], l_sink smallint[], l_namespace integer[], l_xid bigint[], l_seq bigint[], l_tried integer[], l_state smallint[], l_due bigint[], l_error text[]) RETURNS void LANGUAGE plpgsql SET enable_seqscan=off SET enable_hashjoin=off SET enable_mergejoin=off SET plan_cache_mode=force_generic_plan SET jit=off;
CREATE FUNCTION hapax.quick(now bigint, s_namespace integer[], s_key bytea[], s_entry bigint[], s_outcome bytea[], s_digest bytea[], s_expires bigint[], c_namespace integer[], c_key bytea[], c_fingerprint bytea[], c_safety smallint[], c_settling bigint[], c_attempt bytea[], c_label text[], c_ttl bigint[], c_lease bytea[], c_deadline bigint[]) RETURNS TABLE(namespace integer, key bytea, entry bigint) LANGUAGE plpgsql SET enable_seqscan=off SET enable_hashjoin=off SET enable_mergejoin=off SET plan_cache_mode=force_generic_plan SET jit=off SET lock_timeout=50ms;
CREATE FUNCTION hapax.quick_with_locks(now bigint, hints bigint, s_namespace integer[], s_key bytea[], s_entry bigint[], s_outcome bytea[], s_digest bytea[], s_expires bigint[], s_lock bigint[], s_note text[], c_namespace integer[], c_key bytea[], c_fingerprint bytea[], c_safety smallint[], c_settling bigint[], c_attempt bytea[], c_label text[], c_ttl bigint[], c_lease bytea[], c_deadline bigint[], c_lock bigint[], c_note text[]) RETURNS TABLE(namespace integer, key bytea, entry bigint) LANGUAGE plpgsql SET enable_seqscan=off SET enable_hashjoin=off SET enable_mergejoin=off SET plan_cache_mode=force_generic_plan SET jit=off SET lock_timeout=50ms;
CREATE FUNCTION hapax.record_is_settled() RETURNS trigger LANGUAGE plpgsql;
CREATE FUNCTION hapax.record_is_whole() RETURNS trigger LANGUAGE plpgsql;
CREATE FUNCTION hapax.refuse() RETURNS trigger LANGUAGE plpgsql;
CREATE FUNCTION hapax.renew(lease text, term_ms bigint DEFAULT 15000, holder text DEFAULT 'sql'::text) RETURNS timestamp with time zone LANGUAGE plpgsql;
CREATE FUNCTION hapax.settle(key text, attempt text, fence bigint, outcome bytea, namespace text DEFAULT 'default'::text, digest bytea DEFAULT NULL::bytea, size bigint DEFAULT NULL::bigint) RETURNS void LANGUAGE plpgsql;
CREATE FUNCTION hapax.state_name(code integer) RETURNS text LANGUAGE sql IMMUTABLE;
CREATE FUNCTION hapax.steady_since(now bigint, term_ms bigint) RETURNS bigint LANGUAGE sql STABLE;

CREATE VIEW hapax.effects (
    key text,
    namespace text,
    label text,
    state text,
    attempt text,
    fence bigint,
    generation integer,
    attempts integer,
    reason text,
    created timestamp with time zone,
    updated timestamp with time zone
);

CREATE VIEW hapax.execution_handles (
    idempotency_key text,
    status text,
    result jsonb,
    error jsonb,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    namespace text
);

CREATE VIEW hapax.extraction_audit_log (
    id text,
    idempotency_key text,
    ontology_id text,
    event_type text,
    metadata jsonb,
    created_at timestamp with time zone,
    namespace text
);

CREATE VIEW hapax.extraction_grant (
    id bigint,
    at bigint,
    namespace integer,
    key hapax.bytes32,
    ontology_id text,
    about jsonb
);

CREATE VIEW hapax.extraction_results (
    idempotency_key text,
    ontology_id text,
    ontology_version text,
    text_hash text,
    extraction_params_hash text,
    entities jsonb,
    relations jsonb,
    metadata jsonb,
    created_at timestamp with time zone,
    expires_at timestamp with time zone,
    accessed_at timestamp with time zone,
    namespace text
);

CREATE VIEW hapax.idempotency_log (
    idem_key text,
    pipeline_id text,
    task_id text,
    dataset_id text,
    operation_type text,
    status text,
    result_hash text,
    created_at timestamp with time zone,
    updated_at timestamp with time zone,
    raw_checksum text,
    params_hash text,
    wal_pointer text
);

CREATE VIEW hapax.ontologies (
    id text,
    version text,
    content jsonb,
    metadata jsonb,
    content_hash text,
    updated_at timestamp with time zone,
    namespace text
);

CREATE VIEW hapax.outbox (
    outbox_id uuid,
    namespace text,
    pipeline_id text,
    event_name text,
    dataset_id text,
    version text,
    idempotency_key text,
    payload json,
    status text,
    attempt integer,
    last_error text,
    created_at timestamp with time zone,
    updated_at timestamp with time zone
);
