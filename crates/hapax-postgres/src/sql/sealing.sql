-- Updates the gaps: the numbers below the newest leaf that have no entry. A transaction takes
-- numbers before it commits, so an entry may still appear in a gap, or never. A gap stays empty, and
-- is forgotten, once every transaction is over that had begun when the gap was noted, because each
-- transaction gets its own number before it takes one for an entry. The bound is the number of this
-- transaction, not the end of its snapshot: a snapshot ends at the newest transaction that is over,
-- and transactions that began later may be open.
WITH leaf AS (
    SELECT max(id) AS newest, range_agg(int8range(id, id + 1)) AS ids
    FROM unnest($1::bigint[]) AS u (id)
), was AS (
    SELECT s.mark_xid, s.mark_entry, greatest(s.sealed, l.newest) AS sealed,
           s.gaps + int8multirange(int8range(s.sealed + 1, greatest(s.sealed, l.newest) + 1)) - l.ids
               AS gaps,
           pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
           pg_current_xact_id()::text::bigint AS this
    FROM hapax.sealing s, leaf l
), old AS (
    -- The gaps that cannot be filled any more, without the entries that have appeared in them.
    SELECT w.gaps * int8multirange(int8range(0, w.mark_entry + 1))
           - coalesce(range_agg(int8range(j.id, j.id + 1)) FILTER (WHERE j.id IS NOT NULL), '{}')
               AS gaps
    FROM was w
    LEFT JOIN LATERAL unnest(w.gaps * int8multirange(int8range(0, w.mark_entry + 1))) AS g (r)
        ON true
    LEFT JOIN hapax.journal j ON j.id >= lower(g.r) AND j.id < upper(g.r)
    WHERE w.xmin >= w.mark_xid
    GROUP BY w.gaps, w.mark_entry
)
UPDATE hapax.sealing s
SET sealed = w.sealed,
    gaps = w.gaps - coalesce((SELECT o.gaps FROM old o), '{}'),
    mark_xid = CASE WHEN w.mark_xid IS NULL OR w.xmin >= w.mark_xid THEN w.this ELSE w.mark_xid END,
    mark_entry = CASE WHEN w.mark_xid IS NULL OR w.xmin >= w.mark_xid THEN w.sealed
                      ELSE w.mark_entry END
FROM was w
