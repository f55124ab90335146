-- One success of an effect that should still be running: all that hapax.quick does for it.
WITH done AS (
    UPDATE hapax.effect e
    SET state = 1, updated = $1, entry = hapax.next_entry(), lease = NULL,
        watch = NULL, at_ms = NULL, outcome = $5, expires = $7
    WHERE e.namespace = $2 AND e.key = $3 AND e.entry = $4 AND e.state = 0
    RETURNING e.entry, e.generation, e.attempt
)
INSERT INTO hapax.journal (id, prev, at, namespace, generation, event, state, key, attempt, digest)
SELECT d.entry, $4, $1, $2, d.generation, 1, 1, $3, d.attempt, $6 FROM done d
RETURNING namespace, key::bytea, id
