//! The classes of a database's errors. Nothing was committed in any of them.

use hapax_items::{Class, ToolError};
use rusqlite::ErrorCode;

/// A database error that a tool can report to its caller.
pub(crate) trait Fault {
    /// The error of the tool, with its class and its message.
    fn tool_error(self) -> ToolError;
}

impl Fault for rusqlite::Error {
    fn tool_error(self) -> ToolError {
        match self {
            Self::SqliteFailure(error, message) => {
                let message = message.unwrap_or_else(|| error.to_string());
                ToolError { class: of_sqlite(error.code), message }
            }
            // Without the statement, which is in the script.
            Self::SqlInputError { error, msg, offset, .. } => ToolError {
                class: of_sqlite(error.code),
                message: format!("{msg}, at byte {offset}"),
            },
            other => ToolError::logic(other.to_string()),
        }
    }
}

fn of_sqlite(code: ErrorCode) -> Class {
    match code {
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::OperationInterrupted
        | ErrorCode::OperationAborted
        | ErrorCode::OutOfMemory
        | ErrorCode::SystemIoFailure
        | ErrorCode::DiskFull
        | ErrorCode::CannotOpen
        | ErrorCode::SchemaChanged => Class::Transient,
        ErrorCode::AuthorizationForStatementDenied
        | ErrorCode::PermissionDenied
        | ErrorCode::ReadOnly => Class::Permission,
        ErrorCode::ConstraintViolation
        | ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::InternalMalfunction => Class::Precondition,
        // Syntax, missing tables, values that do not fit.
        _ => Class::Logic,
    }
}

/// The ledger's own errors.
impl Fault for hapax::Error {
    fn tool_error(self) -> ToolError {
        let passes = match &self {
            Self::Store(error) => error.is_transient(),
            // Another holder takes over, and its outcome is the one that counts.
            Self::Fenced(_) | Self::LeaseLost => true,
            _ => false,
        };
        let class = if passes { Class::Transient } else { Class::Precondition };
        ToolError { class, message: format!("the ledger: {self}") }
    }
}

#[cfg(feature = "postgres")]
impl Fault for hapax::tokio_postgres::Error {
    fn tool_error(self) -> ToolError {
        match self.as_db_error() {
            Some(error) => {
                let code = error.code().code();
                // Without its detail, which shows rows that the readers of a failure must not see.
                ToolError {
                    class: of_postgres(code),
                    message: format!("{} ({code})", error.message()),
                }
            }
            None => {
                let source = std::error::Error::source(&self);
                let lost =
                    self.is_closed() || source.is_some_and(|source| source.is::<std::io::Error>());
                let class = if lost { Class::Transient } else { Class::Logic };
                let message = match source {
                    Some(source) => format!("{self}: {source}"),
                    None => self.to_string(),
                };
                ToolError { class, message }
            }
        }
    }
}

#[cfg(feature = "postgres")]
fn of_postgres(code: &str) -> Class {
    match code {
        "42501" => Class::Permission,
        code => match code.get(..2).unwrap_or_default() {
            // Connections, states of the transaction, conflicts, resources, objects in use,
            // operators, the system.
            "08" | "25" | "40" | "53" | "55" | "57" | "58" => Class::Transient,
            "28" => Class::Permission,
            // Constraints, WITH CHECK OPTION, errors that functions raise.
            "23" | "44" | "P0" => Class::Precondition,
            "0A" | "21" | "22" | "26" | "2F" | "34" | "3D" | "3F" | "42" | "54" => Class::Logic,
            _ => Class::Precondition,
        },
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use rusqlite::Connection;

    use super::*;

    /// Proves I-10 for SQLite: each error has the class that decides how it is handled.
    #[test]
    fn each_error_of_sqlite_has_a_class() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY CHECK (n < 9)) STRICT").unwrap();
        let mut table = String::new();
        for sql in [
            "SELEC 1",
            "SELECT * FROM nowhere",
            "SELECT missing FROM t",
            "CREATE TABLE t (n)",
            "INSERT INTO t VALUES (9)",
            "INSERT INTO t VALUES ('x')",
            "INSERT INTO t VALUES (1), (1)",
            "SELECT 1; SELECT 2",
            "INSERT INTO t VALUES (?1)",
        ] {
            let error = db.execute(sql, []).unwrap_err().tool_error();
            table += &format!("{sql:<29} {error}\n");
        }
        for code in [5, 6, 3, 7, 8, 9, 10, 11, 13, 14, 17, 18, 19, 23, 25, 26] {
            let error = rusqlite::ffi::Error::new(code);
            let fault = rusqlite::Error::SqliteFailure(error, None).tool_error();
            table += &format!("{:<29} {}\n", format!("{code} {:?}", error.code), fault.class);
        }
        expect![[r#"
            SELEC 1                       logic: near "SELEC": syntax error, at byte 0
            SELECT * FROM nowhere         logic: no such table: nowhere
            SELECT missing FROM t         logic: no such column: missing, at byte 7
            CREATE TABLE t (n)            logic: table t already exists, at byte 13
            INSERT INTO t VALUES (9)      precondition: CHECK constraint failed: n < 9
            INSERT INTO t VALUES ('x')    logic: datatype mismatch
            INSERT INTO t VALUES (1), (1) precondition: UNIQUE constraint failed: t.n
            SELECT 1; SELECT 2            logic: Multiple statements provided
            INSERT INTO t VALUES (?1)     logic: Wrong number of parameters passed to query. Got 0, needed 1
            5 DatabaseBusy                transient
            6 DatabaseLocked              transient
            3 PermissionDenied            permission
            7 OutOfMemory                 transient
            8 ReadOnly                    permission
            9 OperationInterrupted        transient
            10 SystemIoFailure            transient
            11 DatabaseCorrupt            precondition
            13 DiskFull                   transient
            14 CannotOpen                 transient
            17 SchemaChanged              transient
            18 TooBig                     logic
            19 ConstraintViolation        precondition
            23 AuthorizationForStatementDenied permission
            25 ParameterOutOfRange        logic
            26 NotADatabase               precondition
        "#]].assert_eq(&table);
    }

    /// Proves I-10 for the ledger's own errors.
    #[test]
    fn errors_of_the_ledger_are_transient_or_preconditions() {
        let shown = |error: hapax::Error| error.tool_error().to_string();
        expect!["transient: the ledger: the lease or the deadline was about to lapse, and the work was cancelled"]
            .assert_eq(&shown(hapax::Error::LeaseLost));
        expect!["precondition: the ledger: not supported here: that"]
            .assert_eq(&shown(hapax::Error::Unsupported("that")));
    }

    /// Proves I-10 for PostgreSQL.
    #[cfg(feature = "postgres")]
    #[test]
    fn each_sqlstate_has_a_class() {
        let mut table = String::new();
        for (code, what) in [
            ("08006", "the connection is gone"),
            ("57P01", "the server is being stopped"),
            ("57014", "a statement took too long"),
            ("40001", "serialization failure"),
            ("40P01", "deadlock"),
            ("55P03", "a lock is not available"),
            ("53300", "too many connections"),
            ("25006", "a standby, or a query that writes"),
            ("58030", "an I/O error"),
            ("42601", "a syntax error"),
            ("42P01", "a missing table"),
            ("42703", "a missing column"),
            ("22P02", "a text that is no number"),
            ("22012", "a division by zero"),
            ("0A000", "not supported"),
            ("3F000", "a missing schema"),
            ("23505", "a key that is there"),
            ("23503", "a reference to nothing"),
            ("44000", "outside of a view"),
            ("P0001", "raised by a function"),
            ("42501", "not allowed"),
            ("28P01", "a wrong password"),
            ("XX000", "an internal error"),
            ("HX106", "one of the ledger's own"),
        ] {
            table += &format!("{code} {what:<34} {}\n", of_postgres(code));
        }
        expect![[r#"
            08006 the connection is gone             transient
            57P01 the server is being stopped        transient
            57014 a statement took too long          transient
            40001 serialization failure              transient
            40P01 deadlock                           transient
            55P03 a lock is not available            transient
            53300 too many connections               transient
            25006 a standby, or a query that writes  transient
            58030 an I/O error                       transient
            42601 a syntax error                     logic
            42P01 a missing table                    logic
            42703 a missing column                   logic
            22P02 a text that is no number           logic
            22012 a division by zero                 logic
            0A000 not supported                      logic
            3F000 a missing schema                   logic
            23505 a key that is there                precondition
            23503 a reference to nothing             precondition
            44000 outside of a view                  precondition
            P0001 raised by a function               precondition
            42501 not allowed                        permission
            28P01 a wrong password                   permission
            XX000 an internal error                  precondition
            HX106 one of the ledger's own            precondition
        "#]]
        .assert_eq(&table);
    }
}
