-- One claim of a key that should be new: all that hapax.quick does for it.
WITH made AS (
    INSERT INTO hapax.effect AS e
        (namespace, state, safety, entry, fence, created, updated, generation, attempts,
         key, fingerprint, attempt, lease, watch, at_ms, settling_ms, ttl_ms, label)
    SELECT $2, 0, $5, n.entry, n.entry, $1, $1, 1, 1, $3, $4, $7, $10, CASE WHEN $5 <> 0 THEN $10 END,
        $11, $6, $9, $8
    FROM (
        SELECT hapax.next_entry() AS entry
        WHERE (SELECT e.entry FROM hapax.effect e WHERE e.namespace = $2 AND e.key = $3) IS NULL
            AND EXISTS (SELECT 1 FROM hapax.lease l WHERE l.id = $10 AND NOT l.dead)
        OFFSET 0
    ) n
    ON CONFLICT DO NOTHING
    RETURNING e.entry
)
INSERT INTO hapax.journal (id, at, namespace, generation, event, state, key, attempt, digest)
SELECT m.entry, $1, $2, 1, 0, 0, $3, $7, $4 FROM made m
RETURNING namespace, key::bytea, id
