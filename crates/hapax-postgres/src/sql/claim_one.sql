-- One claim of a key that should be new: all that quick.sql does for it.
WITH made AS (
    {insert} (
        SELECT hapax.next_entry() AS entry, c.*
        FROM (
            SELECT $2::int AS namespace, $3::bytea AS key, $4::bytea AS fingerprint,
                $5::smallint AS safety, $6::bigint AS settling_ms, $7::bytea AS attempt,
                $8::text AS label, $9::bigint AS ttl_ms, $10::bytea AS lease, $11::bigint AS at_ms,
                NULL::bigint AS lock
        ) c
        WHERE {grantable}
        OFFSET 0
    ) n
    ON CONFLICT DO NOTHING
    RETURNING e.entry
)
INSERT INTO hapax.journal (id, at, namespace, generation, event, state, key, attempt, digest)
SELECT m.entry, $1, $2, 1, 0, 0, $3, $7, $4 FROM made m
RETURNING namespace, key::bytea, id
