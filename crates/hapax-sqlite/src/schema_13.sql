-- One key, one row, by the database's own rule; version 13 of the schema. Before, keys of the newest effects were
-- known to processes only, and a process whose memory was out of date could add a second row of one key.

-- Effects by the first halves of their keys; the whole key is compared in the row. A key is in one of three tables.
-- An index in the order of keys costs a page of the log for each new effect, where there are more pages than
-- effects in a commit. So a new key goes into `key_tail`, which has few pages; from there into `key_middle`, and
-- from there into `key_index`, each time with many others, in their order.
ALTER TABLE filed RENAME TO key_index;
DELETE FROM key_index WHERE effect NOT IN (SELECT id FROM effect);
CREATE TABLE key_tail (
    namespace INTEGER NOT NULL,
    half      BLOB NOT NULL CHECK (length(half) = 16),
    effect    INTEGER NOT NULL,
    PRIMARY KEY (namespace, half)
) STRICT, WITHOUT ROWID;
CREATE TABLE key_middle (
    namespace INTEGER NOT NULL,
    half      BLOB NOT NULL CHECK (length(half) = 16),
    effect    INTEGER NOT NULL,
    PRIMARY KEY (namespace, half)
) STRICT, WITHOUT ROWID;
-- Where there are two rows of one key, the first that was settled, or else the first, is the one that is found;
-- `hapax doctor` shows the others.
INSERT OR IGNORE INTO key_tail (namespace, half, effect)
SELECT e.namespace, substr(e.key, 1, 16), e.id FROM effect e
WHERE e.id > (SELECT filed FROM self) AND NOT EXISTS (
    SELECT 1 FROM key_index k WHERE k.namespace = e.namespace AND k.half = substr(e.key, 1, 16))
ORDER BY e.state <> 1, e.id;

-- An effect has the number of its first entry, so numbers only grow. One whose key is there is not added again;
-- FAIL rather than ABORT, because a statement that may abort has to keep copies of every page it touches.
DROP TRIGGER effect_new;
CREATE TRIGGER effect_new BEFORE INSERT ON effect
WHEN NEW.id <> NEW.fence
    OR EXISTS (SELECT 1 FROM key_tail WHERE namespace = NEW.namespace AND half = substr(NEW.key, 1, 16))
    OR EXISTS (SELECT 1 FROM key_middle WHERE namespace = NEW.namespace AND half = substr(NEW.key, 1, 16))
    OR EXISTS (SELECT 1 FROM key_index WHERE namespace = NEW.namespace AND half = substr(NEW.key, 1, 16))
BEGIN
    SELECT CASE WHEN NEW.id <> NEW.fence
        THEN RAISE(FAIL, 'an effect has the number of its first entry') ELSE RAISE(IGNORE) END;
END;
CREATE TRIGGER effect_indexed AFTER INSERT ON effect
BEGIN
    INSERT INTO key_tail (namespace, half, effect) VALUES (NEW.namespace, substr(NEW.key, 1, 16), NEW.id);
END;
CREATE TRIGGER effect_gone AFTER DELETE ON effect
BEGIN
    DELETE FROM key_tail WHERE namespace = OLD.namespace AND half = substr(OLD.key, 1, 16) AND effect = OLD.id;
    DELETE FROM key_middle WHERE namespace = OLD.namespace AND half = substr(OLD.key, 1, 16) AND effect = OLD.id;
    DELETE FROM key_index WHERE namespace = OLD.namespace AND half = substr(OLD.key, 1, 16) AND effect = OLD.id;
END;

DROP VIEW extraction_results;
ALTER TABLE self DROP COLUMN filed;
CREATE VIEW extraction_results AS
WITH newest (namespace, effect) AS (
    SELECT namespace, effect FROM key_tail UNION ALL SELECT namespace, effect FROM key_middle
), placed (namespace, key, effect) AS (
    SELECT s.namespace, s.key, k.effect FROM shelf s
    JOIN key_index k ON k.namespace = s.namespace AND k.half = substr(s.key, 1, 16)
    UNION ALL
    SELECT s.namespace, s.key, k.effect FROM newest k CROSS JOIN effect e ON e.id = k.effect
    CROSS JOIN shelf s ON s.namespace = k.namespace AND s.key = e.key
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

-- When the newest gap between two beats of more than 32, 38, 45, 53, 64 … 217088 ms ended: 52 numbers of 8 bytes. A
-- lease is judged by the gaps that matter to its own term.
ALTER TABLE self DROP COLUMN pulse_since;
ALTER TABLE self ADD COLUMN pulse_gaps BLOB NOT NULL DEFAULT x'';
UPDATE self SET pulse_era = 0, pulse_gaps = zeroblob(416);
