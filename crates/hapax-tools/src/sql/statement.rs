//! A statement, its parameters, and whether two of them are the same.

use hapax::document::print;
use hapax::json::Json;
use hapax_items::{Difference, ToolError};

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

    /// Refuses any other number of parameters than the statement has.
    pub(super) fn takes(&self, count: usize) -> Result<(), ToolError> {
        match self.params.len() {
            given if given == count => Ok(()),
            given => Err(ToolError::logic(format!(
                "the statement has {count} parameters, and {given} were given"
            ))),
        }
    }
}

/// How much two lists of statements differ. White space does not count; comments, capitals and a
/// semicolon at the end are minor differences.
pub(super) fn compare(one: &[Statement], other: &[Statement]) -> Difference {
    match alike(one, other, squeezed) {
        true => Difference::Equivalent,
        false if alike(one, other, bare) => Difference::Minor,
        false => Difference::Significant,
    }
}

/// Whether two lists of statements are the same once their texts are written in one way.
fn alike(one: &[Statement], other: &[Statement], written: fn(&str) -> Option<String>) -> bool {
    let same = |(one, other): (&Statement, &Statement)| {
        let params = |statement: &Statement| print(&Json::Array(statement.params.clone()));
        let words = |statement: &Statement| written(&statement.sql);
        params(one) == params(other)
            && (one.sql == other.sql || words(one).is_some_and(|sql| Some(sql) == words(other)))
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// Whether there may be texts in quotes that only one kind of database knows.
fn has_other_quotes(sql: &str) -> bool {
    let dollar = |at: usize| !sql[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    sql.contains(['\\', '`', '[']) || sql.match_indices('$').any(|(at, _)| dollar(at))
}

/// The statement with single spaces outside of quotes. None if that would take more than counting
/// quotes: comments end with a line, and some texts have other quotes.
fn squeezed(sql: &str) -> Option<String> {
    if sql.contains("--") || sql.contains("/*") || has_other_quotes(sql) {
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

/// The statement in lower case outside of quotes, with a space for each comment and without a
/// semicolon at its end. None if databases would not agree on where comments and texts end.
fn bare(sql: &str) -> Option<String> {
    if has_other_quotes(sql) {
        return None;
    }
    let (mut bare, mut rest) = (String::with_capacity(sql.len()), sql);
    while let Some(c) = rest.chars().next() {
        let end = match c {
            // A doubled quote ends one text and begins the next, which comes to the same.
            '\'' | '"' => {
                let end = rest[1..].find(c)? + 2;
                bare.push_str(&rest[..end]);
                end
            }
            _ => match comment(rest)? {
                0 if !c.is_ascii_whitespace() => {
                    bare.push(c.to_ascii_lowercase());
                    c.len_utf8()
                }
                comment => {
                    if !bare.ends_with(' ') {
                        bare.push(' ');
                    }
                    comment.max(1)
                }
            },
        };
        rest = &rest[end..];
    }
    let bare = bare.trim_ascii();
    Some(bare.strip_suffix(';').unwrap_or(bare).trim_ascii().to_owned())
}

/// The length of the comment that a text begins with; 0 if it begins with none. None if databases
/// would not agree: comments in comments, and carriage returns in the line of a comment.
fn comment(text: &str) -> Option<usize> {
    if let Some(inside) = text.strip_prefix("/*") {
        let end = inside.find("*/")?;
        return (!inside[..=end].contains("/*")).then_some(end + 4);
    }
    if !text.starts_with("--") {
        return Some(0);
    }
    let line = text.split_once('\n').map_or(text, |(line, _)| line);
    (!line.trim_end_matches('\r').contains('\r')).then_some(line.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(sql: &str) -> Statement {
        Statement { sql: sql.into(), params: vec![] }
    }

    fn with(params: &str) -> [Statement; 1] {
        let Ok(Json::Array(params)) = Json::parse(params.as_bytes()) else { panic!("{params}") };
        [Statement { params, ..statement("SELECT ?1") }]
    }

    fn degree(one: &str, other: &str) -> Difference {
        compare(&[statement(one)], &[statement(other)])
    }

    /// Proves I-6 for statements: white space does not count, except where it has a meaning.
    #[test]
    fn statements_are_the_same_if_only_white_space_differs() {
        for (one, other) in [
            ("SELECT  1\n", " SELECT\t1"),
            ("INSERT INTO t VALUES ($1,  'a b')", "INSERT INTO t\nVALUES ($1, 'a b')"),
        ] {
            assert_eq!(degree(one, other), Difference::Equivalent, "{one} and {other}");
        }
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
            assert_eq!(degree(one, other), Difference::Significant, "{one} and {other}");
        }
        let degree =
            compare(&with(r#"[1, {"a": 1, "b": 2}]"#), &with(r#"[1.0, {"b": 2, "a": 1}]"#));
        assert_eq!(degree, Difference::Equivalent);
        assert_eq!(compare(&with("[1]"), &with("[\"1\"]")), Difference::Significant);
    }

    /// Proves I-6 for statements: comments, capitals and a last semicolon are minor differences,
    /// but only outside of quotes.
    #[test]
    fn statements_differ_a_little_in_comments_capitals_and_a_last_semicolon() {
        let one = "INSERT INTO t VALUES ('It''s -- A')";
        for other in [
            "insert into T values ('It''s -- A')",
            "INSERT INTO t VALUES ('It''s -- A');",
            "INSERT INTO t VALUES ('It''s -- A') ; -- the end",
            "-- it's \"one\r\nINSERT INTO t VALUES ('It''s -- A')",
            "INSERT/* it's \"one, or -- two */INTO t\nVALUES ('It''s -- A')/**/",
        ] {
            assert_eq!(degree(one, other), Difference::Minor, "{other}");
        }
        for other in [
            "INSERT INTO t VALUES ('it''s -- A')",
            "INSERT INTO t VALUES ('It''s -- B')",
            "INSERT INTO t VALUES ('It''s -- A');;",
            "INSERT INTO t VALUES ('It''s')",
            "INSERT INTO t -- VALUES ('It''s -- A')",
            "INSERT INTO t /* /* */ VALUES ('It''s -- A')",
            "INSERT INTO t /* /*/ VALUES ('It''s -- A')",
            "INSERT INTO t /*/ VALUES ('It''s -- A')",
            "INSERT INTO t -- a\rVALUES ('It''s -- A')\n VALUES ('It''s -- A')",
            "INSERT INTO t VALUES ('It''s -- A') -- `",
            "INSERT INTO t VALUES ('It''s -- A') -- [",
            "INSERT INTO t VALUES ('It''s -- A') -- \\",
            "INSERT INTO t VALUES ('It''s -- A') -- $a",
            "INSERT INTO t VALUES ('It''s -- A",
        ] {
            assert_eq!(degree(one, other), Difference::Significant, "{other}");
        }
        assert_eq!(degree("SELECT \"a\"", "SELECT \"A\""), Difference::Significant);
        assert_eq!(degree("SELECT 'a' /* b */", "SELECT 'a' || b"), Difference::Significant);
        assert_eq!(degree("SELECT 1 - 1", "SELECT 1 -- 1"), Difference::Significant);
        let both = [statement("SELECT  1"), statement("SELECT 2;")];
        let other = [statement("SELECT 1"), statement("select 2")];
        assert_eq!(compare(&both, &other), Difference::Minor);
        assert_eq!(compare(&both, &other[..1]), Difference::Significant);
        let capitals = [Statement { sql: "select ?1".into(), ..with("[2]")[0].clone() }];
        assert_eq!(compare(&with("[2]"), &capitals), Difference::Minor);
        assert_eq!(compare(&with("[1]"), &capitals), Difference::Significant);
    }
}
