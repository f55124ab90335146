//! Tests of the scanned files, the allows and the reports.

use std::fs;
use std::path::Path;

use hapax_lint::{
    ALLOWS_MAX, CONFIG_MAX_BYTES, Config, FILE_MAX_BYTES, Report, Rule, ScanError, Suppression,
    scan,
};
use serde_json::Value;
use tempfile::TempDir;

const KEY: &str = "fn f(b: &[u8]) {\n    let idempotency_key = Sha256::digest(b);\n}\n";

/// A tree of files, from their names and texts.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
    directory
}

fn scan_with(files: &[(&str, &str)], config: &str) -> Report {
    let tree = tree(files);
    scan(&[tree.path().to_path_buf()], &Config::parse(config).expect("a configuration"))
        .expect("a report")
}

/// Where a report has findings, as `rule path:line`.
fn places(report: &Report) -> Vec<String> {
    let found = report.findings.iter();
    found.map(|f| format!("{} {}:{}", f.rule, f.path, f.line)).collect()
}

fn refused(config: &str) -> String {
    Config::parse(config).expect_err("a fault").to_string()
}

#[test]
fn a_faulty_configuration_is_refused_with_its_line_and_what_to_write() {
    assert_eq!(
        refused("exclude = [\"a\"]\n[[allow]]\nrule = \"retries\"\npath = \"a\"\nreason = \"b\"\n"),
        "line 3: there is no rule \"retries\" to allow; write `key-derivation`, `dedupe-store` or `retry-loop`"
    );
    assert_eq!(
        refused("[[allow]]\nrule = \"retry-loop\"\npath = \"a\"\n"),
        "line 1: this allow has no reason; write `reason = \"why it is right here\"`"
    );
    assert_eq!(
        refused("[[allow]]\nrule = \"retry-loop\"\npath = \"a\"\nreason = \" \"\n"),
        "line 4: this allow has no reason; write `reason = \"why it is right here\"`"
    );
    assert_eq!(
        refused("\nexclude = [\"a[\"]\n"),
        "line 2: \"a[\" is not a glob, unclosed character class; missing ']'; write one such as \"src/legacy/**\""
    );
    assert!(refused("\nexcludes = []\n").starts_with("line 2: unknown field `excludes`, expected"));
    assert!(refused("exclude = 7\n").starts_with("line 1: invalid type: integer"));
    assert!(refused("a = \n\n").starts_with("line 1: "));
    let allow = "[[allow]]\nrule = \"allow-without-reason\"\npath = \"a\"\nreason = \"b\"\n";
    assert!(refused(allow).starts_with("line 2: there is no rule"));
}

#[test]
fn a_configuration_has_limits() {
    let long = "#".repeat(CONFIG_MAX_BYTES + 1);
    assert!(refused(&long).starts_with("65537 bytes of configuration"));
    let many =
        "[[allow]]\nrule = \"retry-loop\"\npath = \"a\"\nreason = \"b\"\n".repeat(ALLOWS_MAX + 1);
    assert!(refused(&many).starts_with("257 entries of `allow`, at most 256"));
}

/// Proves C-8: an allow has a reason, and is reported when nothing needs it any more.
#[test]
fn an_allowed_finding_is_listed_with_its_reason() {
    let config = r#"
        [[allow]]
        rule = "key-derivation"
        path = "src/legacy/**"
        reason = "goes in May"

        [[allow]]
        rule = "retry-loop"
        path = "src/legacy/**"
        reason = "never there"
    "#;
    let report = scan_with(&[("src/legacy/a/b.rs", KEY), ("src/c.rs", KEY)], config);
    assert_eq!(places(&report), ["key-derivation src/c.rs:2"]);
    let allowed = &report.allowed[0];
    assert_eq!((&*allowed.finding.path, &*allowed.reason), ("src/legacy/a/b.rs", "goes in May"));
    assert_eq!(allowed.by, Suppression::Config);
    let unused = &report.unused_allows[0];
    assert_eq!((unused.rule, &*unused.path, unused.line), (Rule::RetryLoop, "src/legacy/**", 7));
}

/// Proves C-8: an allow in a comment needs a reason too.
#[test]
fn an_allow_in_a_comment_covers_its_line_or_the_next_that_has_code() {
    let above = KEY.replacen("    let", "    // hapax-lint: allow(key-derivation) the peer's own\n    // formula, see its manual.\n    let", 1);
    let beside =
        KEY.replacen(';', "; // hapax-lint: allow(dedupe-store, key-derivation): why not", 1);
    let bare = KEY.replacen(';', "; // hapax-lint: allow(key-derivation)", 1);
    let unknown = KEY.replacen(';', "; // hapax-lint: allow(keys) because", 1);
    let python = "# hapax-lint: allow(key-derivation) theirs\nidempotency_key = md5(b)\n";
    let text = "fn f() { let a = \"// hapax-lint: allow(retry-loop)\"; }\n/// hapax-lint: allow()\nfn g() {}\n";
    let report = scan_with(
        &[
            ("a.rs", &above),
            ("b.rs", &beside),
            ("c.rs", &bare),
            ("d.rs", &unknown),
            ("e.py", python),
            ("f.rs", text),
        ],
        "",
    );
    assert_eq!(
        places(&report),
        [
            "key-derivation c.rs:2",
            "allow-without-reason c.rs:2",
            "key-derivation d.rs:2",
            "allow-without-reason d.rs:2"
        ]
    );
    let reasons: Vec<_> = report.allowed.iter().map(|a| (&*a.finding.path, &*a.reason)).collect();
    assert_eq!(reasons, [("a.rs", "the peer's own"), ("b.rs", "why not"), ("e.py", "theirs")]);
    let unused = &report.unused_allows[0];
    assert_eq!((unused.rule, &*unused.path, unused.line), (Rule::DedupeStore, "b.rs", 2));
    assert_eq!(unused.by, Suppression::Inline);
}

#[test]
fn foreign_excluded_and_test_files_are_not_read() {
    let python = "idempotency_key = md5(b)\n";
    let files = [
        (".git/a.rs", KEY),
        (".hidden/a.rs", KEY),
        ("target/a.rs", KEY),
        ("x/node_modules/a.js", KEY),
        ("vendor/a.rs", KEY),
        ("x/__pycache__/a.py", python),
        ("gen/deep/a.rs", KEY),
        ("one.rs", KEY),
        ("tests/a.rs", KEY),
        ("benches/a.rs", KEY),
        ("src/test_a.py", python),
        ("src/README.md", python),
        (
            "src/b.rs",
            "#[cfg(test)]\nmod tests {\n    fn f() { let dedupe_key = Sha256::digest(b); }\n}\n",
        ),
    ];
    let exclude = "exclude = [\"gen\", \"*.rs\"]\n";
    let report = scan_with(&files, exclude);
    assert_eq!((places(&report), report.files), (vec![], 1));
    let report = scan_with(&files, &format!("{exclude}include_tests = true\n"));
    let found = ["benches/a.rs:2", "src/b.rs:3", "src/test_a.py:1", "tests/a.rs:2"];
    assert_eq!(places(&report), found.map(|place| format!("key-derivation {place}")));
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let elsewhere = tree(&[("a.rs", KEY)]);
    let here = tree(&[("b.rs", "fn f() {}")]);
    std::os::unix::fs::symlink(elsewhere.path(), here.path().join("linked")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("a.rs"), here.path().join("a.rs")).unwrap();
    let report = scan(&[here.path().to_path_buf()], &Config::default()).unwrap();
    assert_eq!((report.files, report.is_clean()), (1, true));
}

#[test]
fn a_root_that_is_not_there_is_an_error_and_one_given_twice_is_read_once() {
    let gone = Path::new("no/such/tree").to_path_buf();
    let error = scan(&[gone], &Config::default()).unwrap_err();
    assert!(matches!(error, ScanError::NoRoot(_)));
    assert_eq!(error.to_string(), "no/such/tree does not exist; name a file or a directory");

    let tree = tree(&[("a.rs", KEY)]);
    let roots = [tree.path().join("a.rs"), tree.path().to_path_buf()];
    let report = scan(&roots, &Config::default()).unwrap();
    assert_eq!(places(&report), ["key-derivation a.rs:2"]);
}

#[test]
fn files_that_are_too_large_or_not_text_are_skipped_and_listed() {
    let large = " ".repeat(FILE_MAX_BYTES as usize + 1);
    let report = scan_with(&[("a.rs", &large), ("b.py", "x\0y"), ("c.rs", KEY)], "");
    assert_eq!((&*report.skipped.large[0], &*report.skipped.binary[0]), ("a.rs", "b.py"));
    assert_eq!(report.files, 1);
}

#[test]
fn rust_that_does_not_parse_is_read_by_pattern() {
    let report = scan_with(&[("a.rs", &KEY.replace("fn f", "fn fn f"))], "");
    assert_eq!(places(&report), ["key-derivation a.rs:2"]);
    assert_eq!((&*report.unparsed[0].path, report.unparsed[0].line), ("a.rs", 1));
}

#[test]
fn hostile_nesting_ends_in_a_report() {
    let deep = |open: &str, close: &str| {
        format!("fn f() {{ let x = {}1{}; }}", open.repeat(150_000), close.repeat(150_000))
    };
    let files = [
        ("brackets.rs", deep("(", ")")),
        ("minus.rs", deep("-", "")),
        ("chain.rs", deep("", ".a()")),
        ("else.rs", format!("fn f() {{ if a {{}} {} }}", "else if a {}".repeat(150_000))),
        ("block.py", "for x in y:\n".repeat(20_000)),
    ];
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let report = scan_with(&files, "");
    assert_eq!((report.files, report.unparsed.len()), (5, 4));
}

#[test]
fn text_output_has_the_place_the_finding_and_the_remedy() {
    let config = "[[allow]]\nrule = \"retry-loop\"\npath = \"x/**\"\nreason = \"old\"\n";
    let report = scan_with(&[("src/a.rs", KEY), ("b.py", "x\0y"), ("c.rs", "fn {")], config);
    assert_eq!(
        report.human(),
        "\
src/a.rs:2:9: key-derivation: `idempotency_key` is hashed by hand, with `Sha256::digest`
    let idempotency_key = Sha256::digest(b);
    instead: derive it with hapax: `Key::derive(\"name.v1\", fields)`, or `hapax key` elsewhere

note: hapax-lint.toml:1: nothing in x/** needs its allow of retry-loop; remove it
note: c.rs:1: not Rust that parses (cannot parse string into token stream); read by pattern
note: b.py: not read, not text
1 finding in 2 files, 0 allowed, 1 not read, 1 read by pattern only, 1 unused allow
"
    );
    assert_eq!(
        scan_with(&[("a.rs", "fn f() {}")], "").human(),
        "0 findings in 1 file, 0 allowed\n"
    );
}

#[test]
fn a_long_line_is_shortened_and_moves_no_cursor() {
    let long = format!(
        "fn f() {{ let idempotency_key = Sha256::digest(\"\u{1b}[2J{}\"); }}",
        "ü".repeat(300)
    );
    let excerpt = &scan_with(&[("a.rs", &long)], "").findings[0].excerpt;
    assert_eq!(excerpt.chars().count(), 160);
    assert!(excerpt.ends_with("ü…") && !excerpt.contains('\u{1b}'));
}

#[test]
fn json_output_is_complete() {
    let config = "[[allow]]\nrule = \"key-derivation\"\npath = \"b.rs\"\nreason = \"old\"\n";
    let report = scan_with(&[("a.rs", KEY), ("b.rs", KEY)], config);
    let json: Value = serde_json::from_str(&report.json()).unwrap();
    let finding = &json["findings"][0];
    assert_eq!(finding["rule"], "key-derivation");
    assert_eq!(
        (&finding["path"], &finding["line"], &finding["column"]),
        (&"a.rs".into(), &2.into(), &9.into())
    );
    assert_eq!(finding["excerpt"], "let idempotency_key = Sha256::digest(b);");
    assert!(finding["why"].is_string() && finding["instead"].is_string());
    let allowed = &json["allowed"][0];
    assert_eq!(
        (&allowed["path"], &allowed["reason"], &allowed["by"]),
        (&"b.rs".into(), &"old".into(), &"config".into())
    );
    assert_eq!((&json["files"], &json["skipped"]["large"]), (&2.into(), &Value::Array(vec![])));
}

/// Proves C-8: the report has what code scanning services require.
#[test]
fn sarif_has_what_the_standard_requires() {
    let config = "[[allow]]\nrule = \"key-derivation\"\npath = \"b.rs\"\nreason = \"old\"\n";
    let inline = KEY.replacen(';', "; // hapax-lint: allow(key-derivation) theirs", 1);
    let files = [("src/my file.rs", KEY), ("b.rs", KEY), ("c.rs", &inline), ("d.rs", "fn {")];
    let sarif: Value = serde_json::from_str(&scan_with(&files, config).sarif()).unwrap();
    assert!(sarif["$schema"].as_str().unwrap().ends_with("sarif-schema-2.1.0.json"));
    assert_eq!(sarif["version"], "2.1.0");
    let run = &sarif["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert_eq!((run["tool"]["driver"]["name"].as_str(), rules.len()), (Some("hapax-lint"), 4));
    for rule in rules {
        assert!(rule["id"].is_string());
        assert!(rule["shortDescription"]["text"].is_string() && rule["help"]["text"].is_string());
    }
    let results = run["results"].as_array().unwrap();
    for result in results {
        let rule = &rules[result["ruleIndex"].as_u64().unwrap() as usize];
        assert_eq!(result["ruleId"], rule["id"]);
        assert_eq!(result["level"], "error");
        assert!(result["message"]["text"].is_string());
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(
            (&place["region"]["startLine"], &place["region"]["startColumn"]),
            (&2.into(), &9.into())
        );
    }
    let uri =
        |nth: usize| &results[nth]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert_eq!(
        (uri(0), uri(1), uri(2)),
        (&"src/my%20file.rs".into(), &"b.rs".into(), &"c.rs".into())
    );
    assert!(results[0].get("suppressions").is_none());
    let suppressed = |nth: usize| &results[nth]["suppressions"][0];
    assert_eq!(
        (&suppressed(1)["kind"], &suppressed(1)["justification"]),
        (&"external".into(), &"old".into())
    );
    assert_eq!(
        (&suppressed(2)["kind"], &suppressed(2)["justification"]),
        (&"inSource".into(), &"theirs".into())
    );
    assert_eq!(run["invocations"][0]["toolExecutionNotifications"][0]["level"], "note");
}
