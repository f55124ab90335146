-- Writes effects over the versions that were read. A row that has another version by now is left
-- alone, and then the statement counts fewer rows than were sent.
WITH w AS (
    SELECT * FROM unnest(
        $1::int[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bytea[], $6::smallint[],
        $7::smallint[], $8::bigint[], $9::bytea[], $10::bigint[], $11::int[], $12::int[],
        $13::bigint[], $14::bigint[], $15::bigint[], $16::text[], $17::bigint[], $18::bigint[],
        $19::bytea[], $20::bytea[], $21::bigint[], $22::int[], $23::smallint[], $24::smallint[],
        $25::text[], $26::bytea[], $27::bigint[], $28::bytea[], $29::bigint[],
        $30::text[], $31::bigint[], $32::text[]
    ) AS w (
        namespace, key, over, entry, fingerprint, state, safety, settling_ms, attempt, fence,
        generation, attempts, created, updated, lock, label, ttl_ms, expires, lease, watch,
        at_ms, tries, stuck, cause, reason, outcome, body, digest, size,
        domain, epoch, voidable
    )
)
INSERT INTO hapax.effect AS e (
    namespace, key, entry, fingerprint, state, safety, settling_ms, attempt, fence, generation,
    attempts, created, updated, lock, label, ttl_ms, expires, lease, watch, at_ms, tries, stuck,
    cause, reason, outcome, body, digest, size, domain, epoch, voidable
)
SELECT
    w.namespace, w.key, w.entry, w.fingerprint, w.state, w.safety, w.settling_ms, w.attempt,
    w.fence, w.generation, w.attempts, w.created, w.updated, w.lock, w.label, w.ttl_ms,
    w.expires, w.lease, w.watch, w.at_ms, w.tries, w.stuck, w.cause, w.reason, w.outcome,
    w.body, w.digest, w.size, w.domain, w.epoch, w.voidable
FROM w
ON CONFLICT (namespace, key) DO UPDATE SET
    entry = excluded.entry, fingerprint = excluded.fingerprint, state = excluded.state,
    safety = excluded.safety, settling_ms = excluded.settling_ms, attempt = excluded.attempt,
    fence = excluded.fence, generation = excluded.generation, attempts = excluded.attempts,
    created = excluded.created, updated = excluded.updated, lock = excluded.lock,
    label = excluded.label, ttl_ms = excluded.ttl_ms, expires = excluded.expires,
    lease = excluded.lease, watch = excluded.watch, at_ms = excluded.at_ms,
    tries = excluded.tries, stuck = excluded.stuck, cause = excluded.cause,
    reason = excluded.reason, outcome = excluded.outcome, body = excluded.body,
    digest = excluded.digest, size = excluded.size, domain = excluded.domain,
    epoch = excluded.epoch, voidable = excluded.voidable
WHERE e.entry = (SELECT w.over FROM w WHERE w.namespace = e.namespace AND w.key = e.key)
