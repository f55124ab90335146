//! SQL in the ledger's database, on tables that are not the ledger's.
//!
//!   sql.query({ sql, params? })                          an array of rows
//!   sql.execute({ id, statements: [{ sql, params? }] })  { changes }
//!
//! All statements of an `execute` and its outcome are committed together, or none of them.

mod in_file;
#[cfg(feature = "postgres")]
mod in_server;
mod statement;

use std::sync::Arc;

use async_trait::async_trait;
use hapax::document::print;
use hapax::json::Json;
use hapax::{Claim, Safety};
use hapax_items::{Call, Difference, Error, Operation, Plan, Tool, ToolError};

use crate::database::{Database, Kind, Scope, TARGET};
use statement::Statement;

const OPERATIONS: [Operation; 2] =
    [Operation { name: "query", mutates: false }, Operation { name: "execute", mutates: true }];

/// How many bytes the `id` of a change may have.
const LONGEST_ID: usize = 512;

/// SQL in the ledger's database. Each change happens once.
pub struct Sql {
    name: String,
    database: Database,
    #[cfg(feature = "postgres")]
    role: Option<String>,
    limits: Limits,
}

/// The limits of one query or change.
#[derive(Debug, Clone, Copy)]
struct Limits {
    rows: usize,
    bytes: usize,
}

impl Sql {
    /// A tool of this name. On a PostgreSQL server, scripts run as the given role. That role is no
    /// superuser and no member of the ledger's role, has no rights on the schema `hapax`, and
    /// cannot execute `set_config`.
    pub fn new(
        name: impl Into<String>,
        database: Database,
        role: Option<String>,
    ) -> Result<Self, Error> {
        let name = name.into();
        match (&database.0, &role) {
            (Kind::File(_), Some(_)) => {
                return Err(Error::Invalid(format!("{name}: there are no roles in a file")));
            }
            #[cfg(feature = "postgres")]
            (Kind::Server(_), None) => {
                return Err(Error::Invalid(format!("{name} needs a role that scripts are")));
            }
            _ => {}
        }
        let limits = Limits { rows: 1_000, bytes: 1024 * 1024 };
        Ok(Self {
            name,
            database,
            #[cfg(feature = "postgres")]
            role,
            limits,
        })
    }

    /// At most so many rows a query, and so many bytes a query or a change.
    #[must_use]
    pub fn at_most(self, rows: usize, bytes: usize) -> Self {
        Self { limits: Limits { rows, bytes }, ..self }
    }
}

impl From<Sql> for Arc<dyn Tool> {
    fn from(sql: Sql) -> Self {
        Arc::new(sql)
    }
}

#[async_trait]
impl Tool for Sql {
    fn name(&self) -> &str {
        &self.name
    }

    fn operations(&self) -> &[Operation] {
        &OPERATIONS
    }

    fn plan(&self, _: &str, arguments: &Json) -> Result<Plan, ToolError> {
        let id = arguments.get("id").and_then(Json::as_str);
        let id =
            id.filter(|id| !id.trim().is_empty() && id.len() <= LONGEST_ID).ok_or_else(|| {
                ToolError::logic(format!(
                    "`id` is a text of 1 to {LONGEST_ID} bytes that says which change it is"
                ))
            })?;
        let statements = Statement::all(arguments)?;
        let payload = Json::object([(
            "statements",
            Json::Array(statements.iter().map(Statement::json).collect()),
        )]);
        let (bytes, limit) = (print(&payload).len(), self.limits.bytes);
        if bytes > limit {
            return Err(ToolError::logic(format!("{bytes} bytes of statements, and {limit} fit")));
        }
        let identity = Json::object([("id", Json::text(id))]);
        Ok(Plan { target: TARGET.into(), identity, payload })
    }

    fn compare_payload(&self, _: &str, recorded: &Json, requested: &Json) -> Difference {
        match (Statement::all(recorded), Statement::all(requested)) {
            (Ok(recorded), Ok(requested)) => statement::compare(&recorded, &requested),
            _ => Difference::Significant,
        }
    }

    fn safety(&self, _: &str) -> Safety {
        Safety::Transactional
    }

    async fn mutate(&self, call: &Call, claim: &Claim) -> Result<Json, ToolError> {
        let statements = Statement::all(&call.plan.payload)?;
        match &self.database.0 {
            Kind::File(file) => {
                file.settle(claim, Scope::Writing, move |tx| in_file::execute(tx, &statements))
                    .await
            }
            #[cfg(feature = "postgres")]
            Kind::Server(server) => {
                in_server::check(&statements, Scope::Writing)?;
                let work = in_server::execute(statements);
                server.settle(claim, self.role.as_deref(), work).await
            }
        }
    }

    async fn read(&self, _: &str, arguments: &Json) -> Result<Json, ToolError> {
        let (statement, limits) = (Statement::one(arguments)?, self.limits);
        match &self.database.0 {
            Kind::File(file) => {
                file.read(Scope::Reading, move |tx| in_file::query(tx, &statement, limits)).await
            }
            #[cfg(feature = "postgres")]
            Kind::Server(server) => {
                in_server::check(std::slice::from_ref(&statement), Scope::Reading)?;
                server.read(self.role.as_deref(), in_server::query(statement, limits)).await
            }
        }
    }
}

/// The rows of an answer, up to a limit. More rows are an error: a script that takes some rows for
/// all of them leaves the rest undone.
struct Rows {
    limits: Limits,
    rows: Vec<Json>,
    bytes: usize,
}

impl Rows {
    fn new(limits: Limits) -> Self {
        Self { limits, rows: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, row: Vec<(String, Json)>) -> Result<(), ToolError> {
        let row = Json::Object(row);
        self.bytes += print(&row).len();
        let Limits { rows, bytes } = self.limits;
        if self.rows.len() >= rows || self.bytes > bytes {
            return Err(ToolError::logic(format!(
                "more than {rows} rows or {bytes} bytes: ask for less at once, by LIMIT"
            )));
        }
        self.rows.push(row);
        Ok(())
    }

    fn json(self) -> Json {
        Json::Array(self.rows)
    }
}

/// Refuses columns with the same name.
fn unique(names: &[String]) -> Result<(), ToolError> {
    for (nth, name) in names.iter().enumerate() {
        if names[..nth].contains(name) {
            return Err(ToolError::logic(format!(
                "two columns are called {name:?}: name them apart, by AS"
            )));
        }
    }
    Ok(())
}

/// A number, or its text where a script's number would be another one.
fn exact(text: &str) -> Json {
    match Json::parse(text.as_bytes()) {
        Ok(Json::Number(number)) if hapax::canonical::is_exact(&number) => Json::Number(number),
        _ => Json::text(text),
    }
}
