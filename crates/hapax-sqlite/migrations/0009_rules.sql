-- Triggers: the rules that the database itself enforces.
--
-- FAIL rather than ABORT wherever many rows are written: for a statement that may abort, SQLite keeps
-- a copy of every page that the statement touches.

-- An effect has the number of its first journal entry. An effect whose key is in one of the three
-- tables of keys is not added again.
CREATE TRIGGER effect_new BEFORE INSERT ON effect
WHEN NEW.id <> NEW.fence
    OR EXISTS (SELECT 1 FROM key_tail WHERE namespace = NEW.namespace AND prefix = substr(NEW.key, 1, 16))
    OR EXISTS (SELECT 1 FROM key_middle WHERE namespace = NEW.namespace AND prefix = substr(NEW.key, 1, 16))
    OR EXISTS (SELECT 1 FROM key_index WHERE namespace = NEW.namespace AND prefix = substr(NEW.key, 1, 16))
BEGIN
    SELECT CASE WHEN NEW.id <> NEW.fence
        THEN RAISE(FAIL, 'an effect has the number of its first entry') ELSE RAISE(IGNORE) END;
END;

-- Rows of the tables of keys come and go with their effects.
CREATE TRIGGER effect_indexed AFTER INSERT ON effect
BEGIN
    INSERT INTO key_tail (namespace, prefix, effect) VALUES (NEW.namespace, substr(NEW.key, 1, 16), NEW.id);
END;
CREATE TRIGGER effect_gone AFTER DELETE ON effect
BEGIN
    DELETE FROM key_tail WHERE namespace = OLD.namespace AND prefix = substr(OLD.key, 1, 16) AND effect = OLD.id;
    DELETE FROM key_middle WHERE namespace = OLD.namespace AND prefix = substr(OLD.key, 1, 16) AND effect = OLD.id;
    DELETE FROM key_index WHERE namespace = OLD.namespace AND prefix = substr(OLD.key, 1, 16) AND effect = OLD.id;
END;

CREATE TRIGGER lease_dead_is_dead BEFORE UPDATE ON lease WHEN OLD.dead = 1 AND NEW.dead = 0
BEGIN SELECT RAISE(ABORT, 'a dead lease is never revived'); END;

CREATE TRIGGER epoch_grows BEFORE UPDATE ON epoch WHEN NEW.epoch <= OLD.epoch
BEGIN SELECT RAISE(ABORT, 'an epoch only grows'); END;

-- The journal only grows, and only by the next number: no update, no delete, and no replacing insert,
-- which would delete without firing a delete trigger. An insert that gives a number may fail halfway,
-- so SQLite would keep copies of the pages that it touches. hapax gives none, and gets the next number;
-- before an insert, the number of such a row is -1.
CREATE TRIGGER journal_grows BEFORE INSERT ON journal
WHEN NEW.id <> -1 AND NEW.id <> (SELECT ifnull(max(id), 0) + 1 FROM journal)
BEGIN SELECT RAISE(FAIL, 'the journal only grows by the next number'); END;
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
BEGIN SELECT RAISE(FAIL, 'the journal cannot be updated'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal
BEGIN SELECT RAISE(FAIL, 'the journal cannot be deleted from'); END;

CREATE TRIGGER tile_grows BEFORE UPDATE ON tile
WHEN substr(NEW.hashes, 1, length(OLD.hashes)) <> OLD.hashes
    OR NEW.level <> OLD.level OR NEW.place <> OLD.place
BEGIN SELECT RAISE(ABORT, 'a tile only grows'); END;
CREATE TRIGGER tile_no_delete BEFORE DELETE ON tile
BEGIN SELECT RAISE(ABORT, 'a tile cannot be deleted'); END;
CREATE TRIGGER tile_no_replace BEFORE INSERT ON tile
WHEN EXISTS (SELECT 1 FROM tile WHERE level = NEW.level AND place = NEW.place
             AND substr(NEW.hashes, 1, length(hashes)) <> hashes)
BEGIN SELECT RAISE(ABORT, 'a tile only grows'); END;

CREATE TRIGGER head_grows BEFORE INSERT ON head
WHEN NEW.size <= (SELECT ifnull(max(size), 0) FROM head)
BEGIN SELECT RAISE(ABORT, 'heads only grow'); END;
CREATE TRIGGER head_no_update BEFORE UPDATE ON head
BEGIN SELECT RAISE(ABORT, 'a head cannot be updated'); END;
CREATE TRIGGER head_no_delete BEFORE DELETE ON head
BEGIN SELECT RAISE(ABORT, 'a head cannot be deleted'); END;

CREATE TRIGGER outbox_record_grows BEFORE INSERT ON outbox_record
WHEN EXISTS (SELECT 1 FROM outbox_record WHERE seq = NEW.seq OR outbox_id = NEW.outbox_id)
BEGIN SELECT RAISE(FAIL, 'an outbox record is written once'); END;
CREATE TRIGGER outbox_record_no_update BEFORE UPDATE ON outbox_record
BEGIN SELECT RAISE(FAIL, 'an outbox record cannot be changed'); END;
CREATE TRIGGER outbox_record_no_delete BEFORE DELETE ON outbox_record
BEGIN SELECT RAISE(FAIL, 'an outbox record cannot be deleted'); END;

CREATE TRIGGER artifact_once BEFORE INSERT ON artifact
WHEN EXISTS (SELECT 1 FROM artifact WHERE namespace = NEW.namespace
             AND dataset_id = NEW.dataset_id AND version = NEW.version)
BEGIN SELECT RAISE(FAIL, 'a version is published once'); END;
CREATE TRIGGER artifact_no_update BEFORE UPDATE ON artifact
BEGIN SELECT RAISE(FAIL, 'a published version cannot be changed'); END;
CREATE TRIGGER artifact_no_delete BEFORE DELETE ON artifact
BEGIN SELECT RAISE(FAIL, 'a published version cannot be deleted'); END;

-- Not left to the foreign key, because a connection can switch foreign keys off.
CREATE TRIGGER artifact_told BEFORE INSERT ON artifact
WHEN NOT EXISTS (SELECT 1 FROM outbox_record WHERE seq = NEW.record AND namespace = NEW.namespace
                 AND dataset_id = NEW.dataset_id)
BEGIN SELECT RAISE(FAIL, 'an artifact is published with an outbox record of its dataset'); END;

CREATE TRIGGER delivery_no_delete BEFORE DELETE ON delivery
WHEN NOT EXISTS (SELECT 1 FROM dispatched WHERE seq = OLD.seq AND sink = OLD.sink)
BEGIN SELECT RAISE(FAIL, 'a delivery ends when its sink has it'); END;
CREATE TRIGGER delivery_state_only BEFORE UPDATE ON delivery
WHEN NEW.sink <> OLD.sink OR NEW.seq <> OLD.seq OR NEW.namespace <> OLD.namespace
    OR NEW.ordering_hash <> OLD.ordering_hash
BEGIN SELECT RAISE(FAIL, 'only the state of a delivery changes'); END;
CREATE TRIGGER delivery_no_replace BEFORE INSERT ON delivery
WHEN EXISTS (SELECT 1 FROM delivery WHERE sink = NEW.sink AND namespace = NEW.namespace
             AND seq = NEW.seq)
BEGIN SELECT RAISE(FAIL, 'a delivery is made once'); END;

CREATE TRIGGER dispatched_no_update BEFORE UPDATE ON dispatched
BEGIN SELECT RAISE(FAIL, 'what was delivered cannot be changed'); END;
CREATE TRIGGER dispatched_no_delete BEFORE DELETE ON dispatched
BEGIN SELECT RAISE(FAIL, 'what was delivered cannot be deleted'); END;
