-- Epochs, and the traces of events, version 5 of the schema.

CREATE TABLE epoch (
    namespace INTEGER NOT NULL,
    domain    TEXT NOT NULL,
    epoch     INTEGER NOT NULL CHECK (epoch >= 0),
    PRIMARY KEY (namespace, domain)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER epoch_grows BEFORE UPDATE ON epoch WHEN NEW.epoch <= OLD.epoch
BEGIN SELECT RAISE(ABORT, 'an epoch only grows'); END;

-- What an effect is bound to, if anything.
ALTER TABLE effect ADD COLUMN domain TEXT;
ALTER TABLE effect ADD COLUMN epoch INTEGER;
-- The domain again, where the end of the epoch has a meaning: in states 0, 4 and 5.
-- Both constraints are here, because the table is read once for each column that has one.
ALTER TABLE effect ADD COLUMN voidable TEXT
    CHECK ((epoch IS NULL) = (domain IS NULL))
    CHECK (voidable IS CASE WHEN state = 0 OR state = 4 OR state = 5 THEN domain END);
CREATE INDEX effect_voidable ON effect (voidable) WHERE voidable IS NOT NULL;

-- The trace that an event belongs to, as `traceparent` has it.
ALTER TABLE outbox_record ADD COLUMN trace TEXT;
