//! Any words or input: an exit code of the contract, never a panic.

use proptest::prelude::*;

use crate::{LedgerDir, Ran};

/// The codes of the contract, and those of a program that ran or could not be started.
const CODES: [i32; 11] = [0, 1, 2, 64, 65, 69, 70, 73, 75, 78, 127];

fn sane(ran: &Ran) -> Result<(), TestCaseError> {
    prop_assert!(ran.code.is_some_and(|code| CODES.contains(&code)), "{ran:?}");
    prop_assert!(!ran.err.contains("panicked"), "{ran:?}");
    prop_assert!(ran.code == Some(0) || !ran.err.is_empty() || !ran.out.is_empty(), "{ran:?}");
    Ok(())
}

fn words() -> impl Strategy<Value = Vec<String>> {
    let known = prop::sample::select(vec![
        "run",
        "key",
        "effects",
        "list",
        "show",
        "resolve",
        "reset",
        "journal",
        "verify",
        "prove",
        "export",
        "doctor",
        "migrate",
        "--json",
        "--db",
        "--key",
        "-k",
        "--",
        "true",
        "--wait",
        "1s",
        "--lock",
        "--safety",
        "opaque",
        "--ttl",
        "--help",
        "control.v1",
        "pipeline.v1",
        "--limit",
        "0",
        "18446744073709551616",
        "sha256:00",
        "att_",
        "--namespace",
        "a/b",
        "",
        "--proof",
        "/dev/null",
        "/nonexistent/file",
        "--reconcile",
        "--public-key",
        "é",
        "\u{7f}",
    ]);
    let word = prop_oneof![4 => known.prop_map(str::to_owned), 1 => "[^\0]{0,12}"];
    prop::collection::vec(word, 0..7).prop_map(|mut words| {
        // The only program that is ever run.
        if let Some(program) = words.iter().position(|word| word == "--") {
            words.truncate(program + 1);
            words.push("true".into());
        }
        words
    })
}

fn fields() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        "[a-z\"\\\\{}:,é]{0,8}".prop_map(|text| serde_json::json!(text).to_string()),
        Just("{\"a\":[1,2.5,{}]}".to_owned()),
        "[\\[\\]{}\",:0-9a-z ]{0,12}",
    ];
    let name = prop::sample::select(vec![
        "computation_name",
        "epoch",
        "request_bytes_hex",
        "pipeline",
        "task",
        "dataset",
        "a",
    ]);
    let member = (name, value).prop_map(|(name, value)| format!("\"{name}\":{value}"));
    prop_oneof![
        4 => prop::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(","))),
        1 => ".{0,60}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_arguments_make_it_panic(words in words()) {
        let dir = LedgerDir::new();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        sane(&dir.hapax(&words))?;
    }

    #[test]
    fn no_fields_make_it_panic(
        derivation in prop::sample::select(vec![
            "control.v1", "pipeline.v1", "pipeline.kfm-v10", "extraction.v1", "mutation.v1",
            "http.v1", "mine.v1",
        ]),
        input in prop::collection::vec(fields(), 1..4),
    ) {
        let dir = LedgerDir::new();
        sane(&dir.hapax_reading(&input.join("\n"), &["key", derivation]))?;
    }
}
