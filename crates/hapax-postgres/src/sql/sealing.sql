-- What is known about numbers below the newest leaf. Numbers are given before transactions
-- commit, so some below may appear later, and some never: these are the gaps. Once every
-- transaction that had begun when they were noted is over, a gap without an entry will stay one
-- and is forgotten; every transaction gets its own number before it takes one for an entry. That
-- they had begun is told by this transaction's own number, which is higher: a snapshot ends at the
-- newest transaction that is over, and some that began after it may be open.
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
    -- Gaps whose time is up, but for the entries that have appeared in them by now.
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
