-- Items, version 8 of the schema: effects that belong together, and what scripts remember.

-- What an effect is a part of, and what is kept of it beside its outcome.
CREATE TABLE hapax.part (
    namespace int NOT NULL,
    place     bigint GENERATED ALWAYS AS IDENTITY,
    key       hapax.bytes32 NOT NULL,
    whole     hapax.bytes32 NOT NULL,
    kind      text NOT NULL CHECK (kind <> ''),
    kept      bytea NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX part_whole ON hapax.part (namespace, whole, kind, place);
CREATE INDEX part_kind ON hapax.part (namespace, kind, place);

-- What scripts remember, written in the transaction that settles the mutation.
CREATE TABLE hapax.kv (
    namespace text NOT NULL,
    store     text NOT NULL,
    key       text NOT NULL,
    value     text NOT NULL,
    PRIMARY KEY (namespace, store, key)
);
