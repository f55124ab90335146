-- Items: effects that are parts of other effects, and the values that scripts keep.

-- The effect that an effect is a part of, its kind, and its document.
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

-- Values that scripts keep, written in the transaction that settles the mutation.
CREATE TABLE hapax.kv (
    namespace text NOT NULL,
    store     text NOT NULL,
    key       text NOT NULL,
    value     text NOT NULL,
    PRIMARY KEY (namespace, store, key)
);
