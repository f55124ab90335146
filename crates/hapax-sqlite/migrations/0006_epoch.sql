-- Epochs of domains, which effects may be bound to.

CREATE TABLE epoch (
    namespace INTEGER NOT NULL,
    domain    TEXT NOT NULL,
    epoch     INTEGER NOT NULL CHECK (epoch >= 0),
    PRIMARY KEY (namespace, domain)
) STRICT, WITHOUT ROWID;
