//! `hapax key`: fields in, keys out.

use super::LedgerDir;

fn vectors(name: &str) -> serde_json::Value {
    let path = std::path::Path::new("../hapax-core/vectors").join(name);
    serde_json::from_slice(&std::fs::read(path).expect("vectors")).expect("JSON")
}

/// Proves C-1 on the command line.
#[test]
fn control_vectors_come_out_one_a_line() {
    let dir = LedgerDir::new();
    let file = vectors("control_key.json");
    let vectors = file["vectors"].as_array().unwrap();
    let input: String = vectors.iter().map(|vector| format!("{vector}\n")).collect();
    let expected: String = vectors
        .iter()
        .map(|vector| format!("sha256:{}\n", vector["expected_key_hex"].as_str().unwrap()))
        .collect();
    dir.hapax_reading(&input, &["key", "control.v1"]).exits(0).prints(&expected);
}

/// Proves X-1 on the command line.
#[test]
fn extraction_vectors_come_with_their_components() {
    let dir = LedgerDir::new();
    for vector in vectors("extraction_key.json")["vectors"].as_array().unwrap() {
        let input = serde_json::to_string_pretty(&vector["input"]).unwrap();
        let document =
            dir.hapax_reading(&input, &["key", "extraction.v1", "--json"]).exits(0).json();
        let (parts, expected) = (&document["components"], &vector["expected"]);
        assert_eq!(parts["short"], expected["key"]);
        for name in ["digest", "normalizedText", "textHash", "extractionParamsHash"] {
            assert_eq!(parts[name], expected[name], "{vector}");
        }
    }
}

/// Proves P-2 and K-2: a missing, malformed or ambiguous field is refused, with its place.
#[test]
fn bad_fields_are_refused_with_their_place() {
    let dir = LedgerDir::new();
    let refused = |derivation, input: &str| {
        dir.hapax_reading(input, &["key", derivation]).exits(64).prints("")
    };
    refused("control.v1", "{\"computation_name\":\"a\",\"epoch\":1,\"epoch\":2}")
        .says("duplicate name \"epoch\" at line 1 column 35");
    refused("control.v1", "{\"computation_name\":\"a\",\"epoch\":-1,\"request_bytes_hex\":\"\"}")
        .says("`epoch` must be a whole number");
    refused("control.v1", "{\"computation_name\":\"a\",\"epoch\":1}")
        .says("`request_bytes_hex` is missing");
    refused("control.v1", "{\"computation_name\":\" \",\"epoch\":1,\"request_bytes_hex\":\"\"}")
        .says("`computation_name` is missing or blank");
    refused("http.v1", "[1]").says("expected an object");
    refused("http.v1", "").says("expected a value");
    refused("mine.v1", "{\"a\":1}").says("must be text");
    refused("mine", "{\"a\":\"1\"}").says("name.vN");
    let inexact = "{\"text\":\"x\",\"ontologyId\":\"o\",\"ontologyVersion\":\"1\",\"extractionParams\":{\"seed\":9007199254740993}}";
    refused("extraction.v1", inexact).says("no exact double");
}

#[test]
fn derivations_of_your_own_take_text_fields() {
    let dir = LedgerDir::new();
    let one = dir
        .hapax_reading(
            "{\"a\":\"1\",\"b\":\"2\"}\n\n{\"b\":\"2\",\"a\":\"1\"}\n",
            &["key", "mine.v1"],
        )
        .exits(0);
    let lines: Vec<_> = one.out.lines().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0], lines[1]);
}
