//! The gate as a build runs it.

use std::process::Command;

use super::LedgerDir;

const ROOT: &str = "../..";

/// Proves C-8 and C-9: INV-IDP-NO-CUSTOM for hapax itself, which has nothing home-made in it but
/// the findings that its configuration allows.
#[test]
fn hapax_passes_its_own_gate() {
    let ran = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["lint", "crates", "xtask"])
        .current_dir(ROOT)
        .output()
        .expect("hapax runs");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(0), "{out}{err}");
    assert!(out.starts_with("0 findings in ") && !out.contains("unused allow"), "{out}");
}

/// Proves C-8: exit codes, formats, and findings that are allowed for a reason.
#[test]
fn a_finding_fails_the_build_until_it_is_allowed_with_a_reason() {
    let dir = LedgerDir::new();
    let source = "fn pay(body: &[u8]) {\n    let idempotency_key = Sha256::digest(body);\n}\n";
    std::fs::write(dir.path("pay.rs"), source).expect("written");
    let ran = dir.hapax(&["lint", "pay.rs"]).exits(73);
    assert!(ran.out.starts_with("pay.rs:2:9: key-derivation: "), "{}", ran.out);
    assert!(ran.out.ends_with("1 finding in 1 file, 0 allowed\n"), "{}", ran.out);
    let json = dir.hapax(&["lint", "pay.rs", "--json"]).exits(73);
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(json["findings"][0]["rule"], "key-derivation");
    let sarif = dir.hapax(&["lint", "pay.rs", "--format", "sarif"]).exits(73);
    let sarif: serde_json::Value = serde_json::from_str(&sarif.out).expect("SARIF");
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "key-derivation");

    let allow = "[[allow]]\nrule = \"key-derivation\"\npath = \"pay.rs\"\n";
    std::fs::write(dir.path("hapax-lint.toml"), allow).expect("written");
    let ran = dir.hapax(&["lint", "pay.rs"]).exits(64);
    assert!(ran.err.contains("hapax-lint.toml: line 1: this allow has no reason"), "{}", ran.err);
    let reason = format!("{allow}reason = \"kept until May\"\n");
    std::fs::write(dir.path("hapax-lint.toml"), reason).expect("written");
    let ran = dir.hapax(&["lint", "pay.rs"]).exits(0);
    assert_eq!(ran.out, "0 findings in 1 file, 1 allowed\n");
    assert!(dir.hapax(&["lint", "nothing"]).exits(64).err.contains("does not exist"));
    dir.hapax(&["lint"]).exits(64);
}
