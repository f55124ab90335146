//! Tokens.

use hapax_core::name::Namespace;
use hapax_core::time::Timestamp;
use hapax_core::token::{Role, Token, TokenId};
use hapax_store::StoreError;
use rusqlite::{Connection, params};

use crate::outbox::{rows, run};

pub(crate) fn all(db: &Connection) -> Result<Vec<Token>, StoreError> {
    let sql = "SELECT id, digest, role, namespace, holder, created, expires FROM token
               ORDER BY created, id";
    let rows = rows(db, sql, [], |row| {
        let namespace: Option<String> = row.get(3)?;
        let token = |role, namespace| {
            Ok(Token {
                id: TokenId::from_bytes(row.get(0)?),
                digest: row.get(1)?,
                role,
                namespace,
                holder: row.get(4)?,
                created: Timestamp(row.get(5)?),
                expires: row.get::<_, Option<i64>>(6)?.map(Timestamp),
            })
        };
        let role = Role::ALL.get(row.get::<_, u8>(2)? as usize).copied();
        let namespace = namespace.map(|name| Namespace::new(&name)).transpose();
        match (role, namespace) {
            (Some(role), Ok(namespace)) => token(role, namespace).map(Some),
            _ => Ok(None),
        }
    })?;
    let all: Option<Vec<_>> = rows.into_iter().collect();
    all.ok_or_else(|| StoreError::Corrupt("a token of no role or namespace".into()))
}

pub(crate) fn put(db: &Connection, token: &Token) -> Result<(), StoreError> {
    run(
        db,
        "INSERT OR IGNORE INTO token (id, digest, role, namespace, holder, created, expires)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            token.id.as_bytes(),
            token.digest,
            token.role as u8,
            token.namespace.as_ref().map(Namespace::as_str),
            token.holder,
            token.created.0,
            token.expires.map(|expires| expires.0),
        ],
    )?;
    Ok(())
}

pub(crate) fn drop(db: &Connection, id: TokenId) -> Result<bool, StoreError> {
    Ok(run(db, "DELETE FROM token WHERE id = ?1", [id.as_bytes()])? > 0)
}
