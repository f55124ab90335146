-- The statement of hapax.quick, for sessions that are ours: calling the function costs as much as a
-- commit. The session gets the planner settings of the function once, when it begins.
WITH done AS (
    UPDATE hapax.effect e
    SET state = 1, updated = $1, entry = hapax.next_entry(), lease = NULL,
        watch = NULL, at_ms = NULL, outcome = s.outcome, expires = s.expires
    FROM unnest($2, $3, $4, $5, $6, $7) AS s (namespace, key, entry, outcome, digest, expires)
    WHERE e.namespace = s.namespace AND e.key = s.key AND e.entry = s.entry AND e.state = 0
    RETURNING e.entry, s.entry AS prev, e.namespace, e.key, e.generation, e.attempt, s.digest
), made AS (
    INSERT INTO hapax.effect AS e
        (namespace, state, safety, entry, fence, created, updated, generation, attempts,
         key, fingerprint, attempt, lease, watch, at_ms, settling_ms, ttl_ms, label)
    SELECT n.namespace, 0, n.safety, n.entry, n.entry, $1, $1, 1, 1, n.key,
        n.fingerprint, n.attempt, n.lease, CASE WHEN n.safety <> 0 THEN n.lease END,
        n.deadline, n.settling, n.ttl, n.label
    FROM (
        SELECT hapax.next_entry() AS entry, c.*
        FROM unnest($8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
            AS c (namespace, key, fingerprint, safety, settling, attempt, label, ttl, lease, deadline)
        WHERE (SELECT e.entry FROM hapax.effect e
               WHERE e.namespace = c.namespace AND e.key = c.key) IS NULL
            AND EXISTS (SELECT 1 FROM hapax.lease l WHERE l.id = c.lease AND NOT l.dead)
    ) n
    ON CONFLICT DO NOTHING
    RETURNING e.entry, e.namespace, e.key, e.attempt, e.fingerprint
)
INSERT INTO hapax.journal (id, prev, at, namespace, generation, event, state, key, attempt, digest)
SELECT d.entry, d.prev, $1, d.namespace, d.generation, 1, 1, d.key, d.attempt, d.digest FROM done d
UNION ALL
SELECT m.entry, NULL, $1, m.namespace, 1, 0, 0, m.key, m.attempt, m.fingerprint FROM made m
RETURNING namespace, key::bytea, id
