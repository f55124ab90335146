//! A statement, its parameters, and whether two of them are the same.

use hapax::document::print;
use hapax::json::Json;

use crate::tool::ToolError;

/// How many statements a change may have.
const MOST: usize = 100;

/// One statement. Its parameters are bound, and never become a part of its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) params: Vec<Json>,
}

impl Statement {
    /// `{ sql, params? }`
    pub(super) fn one(json: &Json) -> Result<Self, ToolError> {
        let sql = json.get("sql").and_then(Json::as_str).filter(|sql| !sql.trim().is_empty());
        let sql = sql.ok_or_else(|| ToolError::logic("`sql` is a text with one statement"))?;
        if sql.contains('\0') {
            return Err(ToolError::logic("no statement has a zero in it"));
        }
        let params = match json.get("params") {
            None | Some(Json::Null) => Vec::new(),
            Some(Json::Array(params)) => params.clone(),
            Some(_) => return Err(ToolError::logic("`params` is an array")),
        };
        Ok(Self { sql: sql.to_owned(), params })
    }

    /// `{ statements: [{ sql, params? }, …] }`
    pub(super) fn all(json: &Json) -> Result<Vec<Self>, ToolError> {
        let all = json.get("statements").and_then(Json::as_array).unwrap_or_default();
        if !(1..=MOST).contains(&all.len()) {
            return Err(ToolError::logic(format!("`statements` is an array of 1 to {MOST}")));
        }
        all.iter().map(Self::one).collect()
    }

    pub(super) fn json(&self) -> Json {
        let (sql, params) = (Json::text(&self.sql), Json::Array(self.params.clone()));
        Json::object([("sql", sql), ("params", params)])
    }

    /// A parameter by its number, from 1.
    pub(super) fn param(&self, number: usize) -> Result<&Json, ToolError> {
        let count = self.params.len();
        number.checked_sub(1).and_then(|nth| self.params.get(nth)).ok_or_else(|| {
            ToolError::logic(format!("parameter {number} of a statement that was given {count}"))
        })
    }

    /// Refuses what is given and not asked for.
    pub(super) fn takes(&self, count: usize) -> Result<(), ToolError> {
        match self.params.len() {
            given if given == count => Ok(()),
            given => Err(ToolError::logic(format!(
                "the statement has {count} parameters, and {given} were given"
            ))),
        }
    }
}

/// Whether two lists of statements differ in white space at most.
pub(super) fn same(one: &[Statement], other: &[Statement]) -> bool {
    let same = |(one, other): (&Statement, &Statement)| {
        let params = |statement: &Statement| print(&Json::Array(statement.params.clone()));
        let words = |statement: &Statement| squeezed(&statement.sql);
        params(one) == params(other)
            && (one.sql == other.sql || words(one).is_some_and(|sql| Some(sql) == words(other)))
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// The statement with single spaces, but for those in quotes. Nothing, where that would take more
/// than counting quotes: comments end with a line, and there are texts in other quotes.
fn squeezed(sql: &str) -> Option<String> {
    let dollar = |at: usize| !sql[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    let odd = sql.contains("--")
        || sql.contains("/*")
        || sql.contains(['\\', '`', '['])
        || sql.match_indices('$').any(|(at, _)| dollar(at));
    if odd {
        return None;
    }
    let (mut squeezed, mut quote) = (String::with_capacity(sql.len()), None);
    for c in sql.trim_ascii().chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c.is_ascii_whitespace() => {
                if !squeezed.ends_with(' ') {
                    squeezed.push(' ');
                }
                continue;
            }
            _ => {}
        }
        squeezed.push(c);
    }
    Some(squeezed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(sql: &str) -> Statement {
        Statement { sql: sql.into(), params: vec![] }
    }

    /// Proves I-6 for statements: only white space makes no difference, and only where it is none.
    #[test]
    fn statements_are_the_same_if_only_white_space_differs() {
        let is_same = |one: &str, other: &str| same(&[statement(one)], &[statement(other)]);
        assert!(is_same("SELECT  1\n", " SELECT\t1"));
        assert!(is_same("INSERT INTO t VALUES ($1,  'a b')", "INSERT INTO t\nVALUES ($1, 'a b')"));
        for (one, other) in [
            ("SELECT 'a b'", "SELECT 'a  b'"),
            ("SELECT 'it''s  it'", "SELECT 'it''s it'"),
            ("SELECT \"a  b\" FROM t", "SELECT \"a b\" FROM t"),
            ("SELECT 1 -- a\n + 1", "SELECT 1 -- a + 1"),
            ("SELECT $q$a  b$q$", "SELECT $q$a b$q$"),
            ("SELECT E'\\'a  b'", "SELECT E'\\'a b'"),
            ("SELECT [a  b]", "SELECT [a b]"),
            ("SELECT 1", "SELECT 2"),
        ] {
            assert!(!is_same(one, other), "{one} and {other}");
        }
        let with = |params: &str| {
            let Ok(Json::Array(params)) = Json::parse(params.as_bytes()) else {
                panic!("{params}")
            };
            [Statement { params, ..statement("SELECT ?1") }]
        };
        assert!(same(&with("[1, {\"a\": 1, \"b\": 2}]"), &with("[1.0, {\"b\": 2, \"a\": 1}]")));
        assert!(!same(&with("[1]"), &with("[\"1\"]")));
    }
}
