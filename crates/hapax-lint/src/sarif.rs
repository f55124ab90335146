//! SARIF 2.1.0, as code scanning services read it.

use serde_json::{Value, json};

use crate::report::{Finding, Report, Suppression};
use crate::rule::Rule;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The report as one run.
pub(crate) fn log(report: &Report) -> Value {
    let found = report.findings.iter().map(result);
    let allowed = report.allowed.iter().map(|allowed| {
        let kind = match allowed.by {
            Suppression::Config => "external",
            Suppression::Inline => "inSource",
        };
        let mut result = result(&allowed.finding);
        result["suppressions"] = json!([{ "kind": kind, "justification": allowed.reason }]);
        result
    });
    let notes = report.unparsed.iter().map(|unparsed| {
        let text = format!("read by pattern only: {}", unparsed.problem);
        let mut note = json!({ "level": "note", "message": { "text": text } });
        note["locations"] = json!([location(&unparsed.path, unparsed.line, 1)]);
        note
    });
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "hapax-lint",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": Rule::ALL.map(rule),
            } },
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": true,
                "toolExecutionNotifications": notes.collect::<Vec<_>>(),
            }],
            "results": found.chain(allowed).collect::<Vec<_>>(),
        }],
    })
}

fn rule(rule: Rule) -> Value {
    json!({
        "id": rule.as_str(),
        "shortDescription": { "text": rule.title() },
        "help": { "text": format!("Instead, {}.", rule.instead()) },
        "defaultConfiguration": { "level": "error" },
    })
}

fn result(finding: &Finding) -> Value {
    let index = Rule::ALL.iter().position(|rule| *rule == finding.rule);
    json!({
        "ruleId": finding.rule.as_str(),
        "ruleIndex": index,
        "level": "error",
        "message": { "text": format!("{}. Instead, {}.", finding.why, finding.instead) },
        "locations": [location(&finding.path, finding.line, finding.column)],
    })
}

fn location(path: &str, line: usize, column: usize) -> Value {
    json!({ "physicalLocation": {
        "artifactLocation": { "uri": uri(path) },
        "region": { "startLine": line, "startColumn": column },
    } })
}

/// A relative path as a URI reference (RFC 3986).
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let encode = |byte: u8| match byte {
        byte if plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}
