-- Drawers, version 10 of the schema: parts are filed by when they were granted, 2,048 effects to a
-- drawer, and in it by their whole. Many who add to many wholes at once write the pages of one
-- drawer, and not one page for each whole.

-- The drawers that parts of a whole are in, from the first to the last.
ALTER TABLE whole ADD COLUMN first INTEGER NOT NULL DEFAULT 0;
ALTER TABLE whole ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
UPDATE whole SET (first, last) =
    (SELECT min(effect) >> 11, max(effect) >> 11 FROM part WHERE part.whole = number);
DROP INDEX part_whole;
CREATE INDEX part_drawer ON part (effect >> 11, whole);
