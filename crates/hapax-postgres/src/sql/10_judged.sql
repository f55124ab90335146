-- Guards, version 10 of the schema: what was told by SQL, without the library that knows the guards, is
-- judged before it leaves.
ALTER TABLE hapax.outbox_record ADD COLUMN judged boolean NOT NULL DEFAULT true;
ALTER TABLE hapax.outbox_record ALTER COLUMN judged SET DEFAULT false;
