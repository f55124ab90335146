-- Deliveries by their rows, version 12 of the schema.

-- Writes down that sinks have what they were sent. A delivery is looked for in the row where it was
-- read, without an index, and counts only if it is still there: a row that was changed or cleaned up
-- since is another one. How many were found; the rest is for `hapax.land`. The arrays are of one
-- length; `state` is 0 delivered, 1 delivered before.
CREATE FUNCTION hapax.land_rows(
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
    ), told AS (
        INSERT INTO hapax.dispatched (sink, at, span, seqs, tried, duplicates)
        SELECT d.sink, now, int8range(min(d.seq), max(d.seq), '[]'), array_agg(d.seq),
            array_agg(d.tried), coalesce(array_agg(d.seq) FILTER (WHERE d.state = 1), '{}')
        FROM done d GROUP BY d.sink
        RETURNING cardinality(seqs) AS count
    )
    SELECT coalesce(sum(t.count), 0) INTO found FROM told t;
    PERFORM set_config('hapax.landing', 'off', true);
    RETURN found;
END $$;
