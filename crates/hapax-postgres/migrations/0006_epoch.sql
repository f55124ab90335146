-- Epochs of domains, which effects may be bound to.

CREATE TABLE hapax.epoch (
    namespace int NOT NULL,
    domain    text NOT NULL CHECK (domain ~ '^[a-z][a-z0-9_-]{0,63}$'),
    epoch     bigint NOT NULL CHECK (epoch >= 0),
    PRIMARY KEY (namespace, domain)
);
