//! A key-value store for scripts, in the ledger's database.
//!
//!   kv.get({ key })            the value, or null
//!   kv.set({ key, value })     null
//!   kv.remove({ key })         { removed }

use std::sync::Arc;

use async_trait::async_trait;
use hapax::canonical::canonical;
use hapax::json::Json;
use hapax::{Claim, Namespace, Safety};
use hapax_items::{Call, Difference, Operation, Plan, Tool, ToolError};
use rusqlite::{OptionalExtension as _, Transaction};

use crate::database::{Database, Fault as _, Kind, Scope, TARGET};
use crate::likeness::{same, without_nulls};

/// How many bytes a key may have.
const LONGEST_KEY: usize = 512;

/// How many bytes a value may have, as canonical JSON.
const LARGEST_VALUE: usize = 64 * 1024;

const OPERATIONS: [Operation; 3] = [
    Operation { name: "get", mutates: false },
    Operation { name: "set", mutates: true },
    Operation { name: "remove", mutates: true },
];

/// Values by key. Each tool of this kind has a store of its own, which all items of all workflows
/// of a namespace share.
pub struct Kv {
    name: String,
    namespace: Namespace,
    database: Database,
}

/// The location of a value.
#[derive(Clone)]
struct Slot {
    namespace: String,
    store: String,
    key: String,
}

impl Kv {
    /// A store of this name.
    pub fn new(name: impl Into<String>, database: Database, namespace: Namespace) -> Self {
        Self { name: name.into(), namespace, database }
    }

    fn place(&self, of: &Json) -> Result<Slot, ToolError> {
        let key = of
            .get("key")
            .and_then(Json::as_str)
            .filter(|key| (1..=LONGEST_KEY).contains(&key.len()) && !key.contains('\0'));
        let Some(key) = key else {
            return Err(ToolError::logic(format!("`key` is a text of 1 to {LONGEST_KEY} bytes")));
        };
        let namespace = self.namespace.as_str().to_owned();
        Ok(Slot { namespace, store: self.name.clone(), key: key.to_owned() })
    }
}

impl From<Kv> for Arc<dyn Tool> {
    fn from(kv: Kv) -> Self {
        Arc::new(kv)
    }
}

#[async_trait]
impl Tool for Kv {
    fn within(&self, namespace: &Namespace) -> Option<Arc<dyn Tool>> {
        let (name, database) = (self.name.clone(), self.database.clone());
        Some(Arc::new(Self { name, namespace: namespace.clone(), database }))
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn operations(&self) -> &[Operation] {
        &OPERATIONS
    }

    fn plan(&self, operation: &str, arguments: &Json) -> Result<Plan, ToolError> {
        let key = self.place(arguments)?.key;
        let payload = match operation {
            "set" => {
                let value = arguments.get("value");
                let value = value.ok_or_else(|| ToolError::logic("`value` is missing"))?;
                text(value)?;
                Json::object([("value", value.clone())])
            }
            _ => Json::object([]),
        };
        let target = format!("{TARGET}/{}", self.namespace.as_str());
        Ok(Plan { target, identity: Json::object([("key", Json::text(&key))]), payload })
    }

    /// The notation of a value does not count. A member that is null instead of absent is a minor
    /// difference.
    fn compare_payload(&self, _: &str, recorded: &Json, requested: &Json) -> Difference {
        match (same(recorded, requested), same(&without_nulls(recorded), &without_nulls(requested)))
        {
            (true, _) => Difference::Equivalent,
            (false, true) => Difference::Minor,
            (false, false) => Difference::Significant,
        }
    }

    fn safety(&self, _: &str) -> Safety {
        Safety::Transactional
    }

    async fn mutate(&self, call: &Call, claim: &Claim) -> Result<Json, ToolError> {
        let place = self.place(&call.plan.identity)?;
        let value = call.plan.payload.get("value").map(text).transpose()?;
        match &self.database.0 {
            Kind::File(file) => {
                file.settle(claim, Scope::Ours, move |tx| place.change_in_file(tx, value)).await
            }
            #[cfg(feature = "postgres")]
            Kind::Server(server) => server.settle(claim, None, place.change_in_server(value)).await,
        }
    }

    async fn read(&self, _: &str, arguments: &Json) -> Result<Json, ToolError> {
        let place = self.place(arguments)?;
        match &self.database.0 {
            Kind::File(file) => file.read(Scope::Ours, move |tx| place.get_in_file(tx)).await,
            #[cfg(feature = "postgres")]
            Kind::Server(server) => server.read(None, place.get_in_server()).await,
        }
    }

    fn check_by_hand(&self, call: &Call) -> String {
        let key = call.plan.identity.get("key").and_then(Json::as_str).unwrap_or_default();
        format!("what {} has under {key:?}", self.name)
    }
}

impl Slot {
    fn change_in_file(
        self,
        tx: &Transaction<'_>,
        value: Option<String>,
    ) -> Result<Json, ToolError> {
        let Self { namespace, store, key } = self;
        let changed = match &value {
            Some(value) => tx.execute(
                "INSERT INTO kv (namespace, store, key, value) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET value = ?4",
                (namespace, store, key, value),
            ),
            None => tx.execute(
                "DELETE FROM kv WHERE namespace = ?1 AND store = ?2 AND key = ?3",
                (namespace, store, key),
            ),
        };
        let changed = changed.map_err(rusqlite::Error::tool_error)?;
        Ok(result(value.is_none(), changed > 0))
    }

    fn get_in_file(self, tx: &Transaction<'_>) -> Result<Json, ToolError> {
        let value: Option<String> = tx
            .query_row(
                "SELECT value FROM kv WHERE namespace = ?1 AND store = ?2 AND key = ?3",
                (self.namespace, self.store, self.key),
                |row| row.get(0),
            )
            .optional()
            .map_err(rusqlite::Error::tool_error)?;
        parsed(value)
    }
}

#[cfg(feature = "postgres")]
mod in_server {
    use futures_util::FutureExt as _;
    use hapax::tokio_postgres::Error as PgError;
    use hapax::tokio_postgres::types::{ToSql, Type};

    use super::{Slot, parsed, result};
    use crate::database::{Fault as _, Work};

    impl Slot {
        fn params(&self) -> [(&(dyn ToSql + Sync), Type); 3] {
            let Self { namespace, store, key } = self;
            [(namespace, Type::TEXT), (store, Type::TEXT), (key, Type::TEXT)]
        }

        pub(super) fn change_in_server(self, value: Option<String>) -> Work {
            const SET: &str =
                "INSERT INTO hapax.kv (namespace, store, key, value) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (namespace, store, key) DO UPDATE SET value = $4";
            const REMOVE: &str =
                "DELETE FROM hapax.kv WHERE namespace = $1 AND store = $2 AND key = $3";
            Box::new(move |tx| {
                async move {
                    let mut params = self.params().to_vec();
                    let value =
                        value.as_ref().map(|value| (value as &(dyn ToSql + Sync), Type::TEXT));
                    params.extend(value);
                    let sql = if params.len() > 3 { SET } else { REMOVE };
                    let changed =
                        tx.execute_typed(sql, &params).await.map_err(PgError::tool_error)?;
                    Ok(result(sql == REMOVE, changed > 0))
                }
                .boxed()
            })
        }

        pub(super) fn get_in_server(self) -> Work {
            const GET: &str =
                "SELECT value FROM hapax.kv WHERE namespace = $1 AND store = $2 AND key = $3";
            Box::new(move |tx| {
                async move {
                    let row = tx.query_typed_opt(GET, &self.params()).await;
                    let row = row.map_err(PgError::tool_error)?;
                    parsed(row.map(|row| row.try_get(0)).transpose().map_err(PgError::tool_error)?)
                }
                .boxed()
            })
        }
    }
}

/// The text of a value, if it is not too large.
fn text(value: &Json) -> Result<String, ToolError> {
    let text = canonical(value).map_err(|error| ToolError::logic(format!("`value`: {error}")))?;
    match text.len() <= LARGEST_VALUE {
        true => Ok(text),
        false => {
            let bytes = text.len();
            Err(ToolError::logic(format!("`value` has {bytes} bytes, and {LARGEST_VALUE} fit")))
        }
    }
}

/// The result of a change, for the script.
fn result(removes: bool, changed: bool) -> Json {
    match removes {
        true => Json::object([("removed", Json::Bool(changed))]),
        false => Json::Null,
    }
}

fn parsed(value: Option<String>) -> Result<Json, ToolError> {
    let Some(value) = value else { return Ok(Json::Null) };
    Json::parse(value.as_bytes())
        .map_err(|error| ToolError::precondition(format!("what is kept cannot be read: {error}")))
}
