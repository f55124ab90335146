-- Tokens: the clients that servers let in.

CREATE TABLE hapax.token (
    id        bytea PRIMARY KEY CHECK (length(id) = 8),
    -- The SHA-256 of the secret. The secret itself is not stored.
    digest    bytea NOT NULL CHECK (length(digest) = 32),
    -- 0 viewer, 1 operator, 2 steward
    role      smallint NOT NULL CHECK (role BETWEEN 0 AND 2),
    -- NULL: every namespace.
    namespace text,
    holder    text NOT NULL,
    created   bigint NOT NULL,
    expires   bigint
);
