-- Keys that are filed by the hundred, version 12 of the schema. An index in the order of keys costs a page
-- of the log for each new effect, where there are more pages than effects in a commit.

-- Effects by the first halves of their keys; the whole key is compared in the row. What is fresh, which is
-- all that is newer than `self.filed`, need not be here yet.
CREATE TABLE filed (
    namespace INTEGER NOT NULL,
    half      BLOB NOT NULL CHECK (length(half) = 16),
    effect    INTEGER NOT NULL,
    PRIMARY KEY (namespace, half)
) STRICT, WITHOUT ROWID;
INSERT INTO filed (namespace, half, effect)
SELECT namespace, substr(key, 1, 16), id FROM effect ORDER BY namespace, substr(key, 1, 16);
ALTER TABLE self ADD COLUMN filed INTEGER NOT NULL DEFAULT 0;
UPDATE self SET filed = (SELECT ifnull(max(id), 0) FROM effect);
DROP INDEX effect_key;

-- An effect has the number of its first entry. So numbers only grow, and none is given twice: whoever has
-- read all up to a number need not read that again. A process of an earlier version, which does not know
-- where to look for keys, can settle here and claims nothing. An effect whose key is filed is not added
-- again; FAIL rather than ABORT for the reason that the journal has.
CREATE TRIGGER effect_new BEFORE INSERT ON effect
WHEN NEW.id <> NEW.fence OR EXISTS (
    SELECT 1 FROM filed f JOIN effect e ON e.id = f.effect
    WHERE f.namespace = NEW.namespace AND f.half = substr(NEW.key, 1, 16))
BEGIN
    SELECT CASE WHEN NEW.id <> NEW.fence
        THEN RAISE(FAIL, 'an effect has the number of its first entry') ELSE RAISE(IGNORE) END;
END;

DROP VIEW extraction_results;
CREATE VIEW extraction_results AS
WITH placed (namespace, key, effect) AS (
    SELECT s.namespace, s.key, f.effect FROM shelf s
    JOIN filed f ON f.namespace = s.namespace AND f.half = substr(s.key, 1, 16)
    WHERE f.effect <= (SELECT filed FROM self)
    UNION ALL
    SELECT e.namespace, e.key, e.id FROM effect e WHERE e.id > (SELECT filed FROM self)
)
SELECT 'sha256:' || lower(hex(s.key)) AS idempotency_key, s.ontology AS ontology_id,
       s.version AS ontology_version, s.text_hash, s.params_hash AS extraction_params_hash,
       CAST(e.outcome AS TEXT) -> 'entities' AS entities,
       CAST(e.outcome AS TEXT) -> 'relations' AS relations,
       CAST(e.outcome AS TEXT) -> 'metadata' AS metadata,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.created / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.expires / 1000.0, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.used / 1000.0, 'unixepoch') AS accessed_at, n.name AS namespace
FROM placed p
JOIN shelf s ON s.namespace = p.namespace AND s.key = p.key
JOIN effect e ON e.id = p.effect
JOIN namespace n ON n.id = s.namespace
WHERE s.whole = 1 AND e.state = 1;
