-- Tokens: the clients that servers let in.

CREATE TABLE token (
    id        BLOB PRIMARY KEY CHECK (length(id) = 8),
    -- The SHA-256 of the secret. The secret itself is not stored.
    digest    BLOB NOT NULL CHECK (length(digest) = 32),
    -- 0 viewer, 1 operator, 2 steward
    role      INTEGER NOT NULL CHECK (role BETWEEN 0 AND 2),
    -- NULL: every namespace.
    namespace TEXT,
    holder    TEXT NOT NULL,
    created   INTEGER NOT NULL,
    expires   INTEGER
) STRICT, WITHOUT ROWID;
