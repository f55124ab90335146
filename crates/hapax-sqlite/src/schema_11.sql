-- Entries that number themselves, version 11 of the schema. A statement that is told the number of its
-- row may fail when it is halfway, so it has to keep copies of every page it touches; one that is not
-- told takes the next number, which is the only one that is allowed.

-- The table is as it was; from now on its numbers are positive.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'INTEGER PRIMARY KEY,', 'INTEGER PRIMARY KEY CHECK (id > 0),')
WHERE type = 'table' AND name = 'journal';
PRAGMA writable_schema = RESET;

-- Before an insert, the number of a row that was not told one is -1.
DROP TRIGGER journal_grows;
CREATE TRIGGER journal_grows BEFORE INSERT ON journal
WHEN NEW.id <> -1 AND NEW.id <> (SELECT ifnull(max(id), 0) + 1 FROM journal)
BEGIN SELECT RAISE(FAIL, 'the journal only grows by the next number'); END;
