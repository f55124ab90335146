-- The successes of running effects and the claims of new keys, a whole batch in one round trip and
-- one commit. hapax.quick runs the same text for sessions that are not ours: calling the function
-- costs as much as a commit. A session of ours gets the planner settings of the function once, when
-- it begins.
WITH done AS (
    {succeed} unnest($2, $3, $4, $5, $6, $7) AS s (namespace, key, entry, outcome, digest, expires)
    WHERE {unchanged}
    RETURNING e.entry, s.entry AS prev, e.namespace, e.key, e.generation, e.attempt, s.digest
), made AS (
    {insert} (
        SELECT hapax.next_entry() AS entry, c.*, NULL::bigint AS lock
        FROM unnest($8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
            AS c (namespace, key, fingerprint, safety, settling_ms, attempt, label, ttl_ms, lease, at_ms)
        WHERE {grantable}
    ) n
    ON CONFLICT DO NOTHING
    RETURNING e.entry, e.namespace, e.key, e.attempt, e.fingerprint
)
INSERT INTO hapax.journal (id, prev, at, namespace, generation, event, state, key, attempt, digest)
SELECT d.entry, d.prev, $1, d.namespace, d.generation, 1, 1, d.key, d.attempt, d.digest FROM done d
UNION ALL
SELECT m.entry, NULL, $1, m.namespace, 1, 0, 0, m.key, m.attempt, m.fingerprint FROM made m
RETURNING namespace, key::bytea, id
