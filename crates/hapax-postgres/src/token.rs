//! Tokens.

use hapax_core::name::Namespace;
use hapax_core::time::Timestamp;
use hapax_core::token::{Role, Token, TokenId};
use hapax_store::{StoreError, TokenTxn, TokenView};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::Link;
use crate::effect::bytes;
use crate::error::{PgFailure, decoded};
use crate::txn::PgTxn;

impl TokenView for PgTxn<'_> {
    fn tokens(&mut self) -> Result<Vec<Token>, StoreError> {
        self.keep_failure(all(self.link))
    }
}

impl TokenTxn for PgTxn<'_> {
    fn put_token(&mut self, token: &Token) -> Result<(), StoreError> {
        self.keep_failure(put(self.link, token))
    }

    fn drop_token(&mut self, id: TokenId) -> Result<bool, StoreError> {
        self.keep_failure(remove(self.link, id))
    }
}

fn all(link: &Link) -> Result<Vec<Token>, PgFailure> {
    let sql = "SELECT id, digest, role, namespace, holder, created, expires FROM hapax.token
               ORDER BY created, id";
    link.query(sql, &[])?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Token, PgFailure> {
    let namespace: Option<String> = row.try_get("namespace")?;
    let namespace = namespace.map(|name| Namespace::new(&name)).transpose();
    Ok(Token {
        id: TokenId::from_bytes(bytes(row, "id")?),
        digest: bytes(row, "digest")?,
        role: decoded(row.try_get("role")?, "role", Role::from_code)?,
        namespace: namespace.map_err(|error| StoreError::Corrupt(error.to_string()))?,
        holder: row.try_get("holder")?,
        created: Timestamp(row.try_get("created")?),
        expires: row.try_get::<_, Option<i64>>("expires")?.map(Timestamp),
    })
}

fn put(link: &Link, token: &Token) -> Result<(), PgFailure> {
    let (id, digest) = (&token.id.as_bytes()[..], &token.digest[..]);
    let namespace = token.namespace.as_ref().map(Namespace::as_str);
    let (role, expires) = (i16::from(token.role.code()), token.expires.map(|expires| expires.0));
    link.execute(
        "INSERT INTO hapax.token (id, digest, role, namespace, holder, created, expires)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING",
        &[
            (&id, Type::BYTEA),
            (&digest, Type::BYTEA),
            (&role, Type::INT2),
            (&namespace, Type::TEXT),
            (&token.holder, Type::TEXT),
            (&token.created.0, Type::INT8),
            (&expires, Type::INT8),
        ],
    )?;
    Ok(())
}

fn remove(link: &Link, id: TokenId) -> Result<bool, PgFailure> {
    let id = &id.as_bytes()[..];
    Ok(link.execute("DELETE FROM hapax.token WHERE id = $1", &[(&id, Type::BYTEA)])? > 0)
}
