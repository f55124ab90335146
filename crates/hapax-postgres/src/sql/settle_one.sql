-- One success of an effect that should still be running: all that quick.sql does for it.
WITH done AS (
    {succeed} (
        SELECT $2::int AS namespace, $3::bytea AS key, $4::bigint AS entry, $5::bytea AS outcome,
            $7::bigint AS expires
    ) s
    WHERE {unchanged}
    RETURNING e.entry, e.generation, e.attempt
)
INSERT INTO hapax.journal (id, prev, at, namespace, generation, event, state, key, attempt, digest)
SELECT d.entry, $4, $1, $2, d.generation, 1, 1, $3, d.attempt, $6 FROM done d
RETURNING namespace, key::bytea, id
