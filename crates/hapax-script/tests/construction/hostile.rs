//! Malicious scripts.

use expect_test::{Expect, expect};

use crate::{Construction, ORDERS, TOOLS};

#[track_caller]
fn refused(script: &str, expected: Expect) {
    match Construction::of(script, &TOOLS) {
        Ok(_) => panic!("not refused"),
        Err(error) => expected.assert_eq(&error.to_string()),
    }
}

/// Proves I-11.
#[test]
fn malformed_javascript_is_refused_with_its_position() {
    refused("const a = 1;\nconst = ;", expect![[r#"line 2, column 1: no JavaScript: "const =""#]]);
    refused(
        "await withItem(\"a\", \"t\", async () => {",
        expect![[
            r#"line 1, column 1: no JavaScript: "await withItem(\"a\", \"t\", async () => {""#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_script_that_is_too_long_is_refused() {
    refused(
        &" ".repeat(300 * 1024),
        expect!["line 1, column 1: the script is longer than 262144 bytes"],
    );
}

/// Proves I-11.
#[test]
fn nesting_that_is_too_deep_is_refused() {
    for (open, close) in [("(", ")"), ("[", "]"), ("{", "}"), ("a(", ")"), ("`${", "}`"), ("!", "")]
    {
        let deep = format!("{}a{}", open.repeat(20_000), close.repeat(20_000));
        assert!(Construction::of(&deep, &TOOLS).is_err(), "{open}");
    }
    refused(
        &format!("x = {}1{}", "(".repeat(500), ")".repeat(500)),
        expect!["line 1, column 302: nested deeper than 300 levels"],
    );
}

/// Proves I-11.
#[test]
fn syntax_that_engines_read_differently_is_refused() {
    refused(
        "const id = () => { return\n(1); };",
        expect!["line 1, column 1: the line ends after return"],
    );
    refused(
        "const a = 1 // one\u{2028}withItem(a)",
        expect!["line 1, column 19: a line ends in an unusual way"],
    );
    refused(
        "const a = 1 // one\rwithItem(a)",
        expect!["line 1, column 19: a line ends in an unusual way"],
    );
    refused(
        "const a = 1;\n<!-- b\n",
        expect!["line 2, column 1: in a module, <!-- opens no comment"],
    );
    refused("m\\u0061il.send({})", expect!["line 1, column 1: a name is written with escapes"]);
}

/// Proves I-11.
#[test]
fn long_chains_are_followed_or_refused_but_never_fatal() {
    let chains = [
        (0..4000).map(|i| format!("const a{} = a{i};\n", i + 1)).collect::<String>(),
        (0..4000).map(|i| format!("const a{} = () => a{i}();\n", i + 1)).collect(),
        (0..3000)
            .map(|i| format!("function a{}(x) {{ return a{i}(x.y, a{i}); }}\n", i + 1))
            .collect(),
        (0..4000).map(|i| format!("a{} = a{i}.map((x) => a{i}.push(x));\n", i + 1)).collect(),
        (0..30).map(|i| format!("const a{} = {{ ...a{i}, ...a{i}, ...a{i} }};\n", i + 1)).collect(),
    ];
    for chain in chains {
        let script = format!(
            "let a0 = {{}};\n{chain}await withItem(a30, \"t\", async () => mail.send(a30));"
        );
        let _ = Construction::of(&script, &TOOLS);
    }
}

/// Proves I-11.
#[test]
fn truncated_scripts_are_read_or_refused_but_never_fatal() {
    for end in (0..ORDERS.len()).filter(|end| ORDERS.is_char_boundary(*end)) {
        let _ = Construction::of(&ORDERS[..end], &TOOLS);
        let _ = Construction::of(&ORDERS[end..], &TOOLS);
    }
}

/// Proves I-11.
#[test]
fn shuffled_scripts_are_read_or_refused_but_never_fatal() {
    let words = [
        "withItem(",
        "mail",
        ".send(",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "=>",
        "...",
        "subkey",
        ":",
        ",",
        ";",
        "a",
        "b",
        "\"x\"",
        "`",
        "${",
        "for",
        "of",
        "const",
        "let",
        "var",
        "=",
        "+=",
        "++",
        "function",
        "class",
        "this",
        "await",
        "async",
        "return",
        "if",
        "else",
        "?.",
        "??",
        "new",
        "yield",
        "get",
        "set",
        "static",
        "import",
        "export",
        "default",
        "\n",
        "/",
        "*",
        "#p",
        "switch",
        "case",
        "try",
        "catch",
        "delete",
        "in",
        "é",
        "\u{0}",
        "0",
        "<",
        ">",
    ];
    let before = Construction::of(ORDERS, &TOOLS).unwrap();
    let mut seed = 7u64;
    let mut next = |bound: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % bound
    };
    let mut read = 0;
    for _ in 0..6_000 {
        let length = 1 + next(14);
        let script = (0..length).map(|_| words[next(words.len())]).collect::<Vec<_>>().join(" ");
        if let Ok(after) = Construction::of(&script, &TOOLS) {
            read += 1;
            let _ = (after.differences(&before), before.differences(&after));
        }
    }
    assert!(read > 100, "only {read} were JavaScript");
}

/// Proves I-11.
#[test]
fn a_script_with_parts_cut_out_differs_from_itself_or_keeps_its_names() {
    // Every range of lines that can go without breaking the script.
    let lines: Vec<_> = ORDERS.lines().collect();
    let before = Construction::of(ORDERS, &TOOLS).unwrap();
    let mut kept = Vec::new();
    for from in 0..lines.len() {
        for to in from + 1..=lines.len() {
            let cut = [&lines[..from], &lines[to..]].concat().join("\n");
            let Ok(after) = Construction::of(&cut, &TOOLS) else { continue };
            if after.differences(&before).is_empty() {
                kept.push(lines[from..to].join("\n"));
            }
        }
    }
    kept.sort();
    kept.dedup();
    expect![[r#"

        ---
            await kv.set({ key: order.id, value: "told" });
        ---
            if (ctx.item.isDone) return;"#]]
    .assert_eq(&kept.join("\n---\n"));
}
