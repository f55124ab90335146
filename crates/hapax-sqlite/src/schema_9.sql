-- Wholes, version 9 of the schema: parts of what is under way lie together, so that many who add
-- to many wholes at once write few pages.

-- What effects are parts of, once for each kind of part, in the order in which they were first seen.
CREATE TABLE whole (
    number INTEGER PRIMARY KEY,
    name   BLOB NOT NULL CHECK (length(name) = 32),
    kind   TEXT NOT NULL CHECK (length(kind) > 0)
) STRICT;
CREATE INDEX whole_name ON whole (substr(name, 1, 16), kind);
INSERT INTO whole (name, kind) SELECT whole, kind FROM part GROUP BY whole, kind ORDER BY min(effect);

ALTER TABLE part RENAME TO part_before;
CREATE TABLE part (
    effect INTEGER PRIMARY KEY,
    whole  INTEGER NOT NULL,
    kept   BLOB NOT NULL
) STRICT;
INSERT INTO part (effect, whole, kept)
SELECT before.effect, whole.number, before.kept FROM part_before AS before
JOIN whole ON substr(whole.name, 1, 16) = substr(before.whole, 1, 16)
    AND whole.kind = before.kind AND whole.name = before.whole;
DROP TABLE part_before;
CREATE INDEX part_whole ON part (whole);
