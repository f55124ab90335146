//! Tokens.

use hapax_core::name::Namespace;
use hapax_core::time::Timestamp;
use hapax_core::token::{Role, Token, TokenId};
use hapax_store::{StoreError, TokenTxn, TokenView};
use rusqlite::types::Type;
use rusqlite::{Connection, params};

use crate::error::decoded;
use crate::query::{rows, run};
use crate::txn::SqliteTxn;

impl TokenView for SqliteTxn<'_> {
    fn tokens(&mut self) -> Result<Vec<Token>, StoreError> {
        all(self.db)
    }
}

impl TokenTxn for SqliteTxn<'_> {
    fn put_token(&mut self, token: &Token) -> Result<(), StoreError> {
        put(self.db, token)
    }

    fn drop_token(&mut self, id: TokenId) -> Result<bool, StoreError> {
        remove(self.db, id)
    }
}

fn all(db: &Connection) -> Result<Vec<Token>, StoreError> {
    let sql = "SELECT id, digest, role, namespace, holder, created, expires FROM token
               ORDER BY created, id";
    rows(db, sql, [], |row| {
        let namespace = row.get::<_, Option<String>>(3)?.map(|name| Namespace::new(&name));
        Ok(Token {
            id: TokenId::from_bytes(row.get(0)?),
            digest: row.get(1)?,
            role: decoded(row, 2, "role", Role::from_code)?,
            namespace: namespace.transpose().map_err(|error| {
                rusqlite::Error::FromSqlConversionFailure(3, Type::Text, Box::new(error))
            })?,
            holder: row.get(4)?,
            created: Timestamp(row.get(5)?),
            expires: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        })
    })
}

fn put(db: &Connection, token: &Token) -> Result<(), StoreError> {
    run(
        db,
        "INSERT OR IGNORE INTO token (id, digest, role, namespace, holder, created, expires)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            token.id.as_bytes(),
            token.digest,
            token.role.code(),
            token.namespace.as_ref().map(Namespace::as_str),
            token.holder,
            token.created.0,
            token.expires.map(|expires| expires.0),
        ],
    )?;
    Ok(())
}

fn remove(db: &Connection, id: TokenId) -> Result<bool, StoreError> {
    Ok(run(db, "DELETE FROM token WHERE id = ?1", [id.as_bytes()])? > 0)
}
