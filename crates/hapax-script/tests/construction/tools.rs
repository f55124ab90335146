//! Which tools are used.

use expect_test::expect;

use crate::{change, check};

/// Proves I-11.
#[test]
fn a_new_tool_is_a_difference() {
    let before = r#"await mail.send({ to: "x" });"#;
    let after = r#"await mail.send({ to: "x" });
await http.post({ url: "y" });
await http.get({ url: "z" });"#;
    check(before, after, expect!["line 3: the tool http was not used before"]);
}

/// Proves I-11.
#[test]
fn a_new_operation_is_a_difference() {
    let before = r#"await mail.send({ to: "x" });"#;
    let after = r#"await mail.delete({ id: "x" });"#;
    check(before, after, expect!["line 1: mail.delete was not used before"]);
}

/// Proves I-11.
#[test]
fn an_operation_in_brackets_is_the_same() {
    let before = r#"await mail.send({ to: "x" });"#;
    let after = r#"await mail["send"]({ to: "x" });"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn a_local_name_hides_a_tool() {
    let before = "for (const mail of await http.get({})) await withItem(mail.id, mail.send, async () => {});";
    let after = "for (const mail of await http.get({})) await withItem(mail.id, mail.subject, async () => {});";
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn an_unknown_global_is_a_difference() {
    let before = r#"await mail.send({ to: "x" });"#;
    let after = r#"await mail.send({ to: "x" });
await fetch("https://example.org");"#;
    check(
        before,
        after,
        expect![
            "line 2: the global `fetch` was not used before, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_call_that_moves_into_another_item_is_a_difference() {
    let before = r#"await withItem("a", "A", async () => { await kv.set({ key: "k" }); });
await withItem("b", "B", async () => { await mail.send({ to: "x" }); });"#;
    change(
        before,
        &[
            (r#"await kv.set({ key: "k" });"#, ""),
            (r#"{ to: "x" });"#, r#"{ to: "x" }); await kv.set({ key: "k" });"#),
        ],
        expect!["line 2: kv.set moved into another item, so it would happen again"],
    );
}

/// Proves I-11.
#[test]
fn a_call_that_moves_into_a_function_stays_what_it_is() {
    let before = r#"await withItem("a", "A", async () => { await kv.set({ key: "k" }); });
await withItem("b", "B", async () => { await mail.send({ to: "x" }); });"#;
    change(
        before,
        &[
            (r#"async () => { await kv.set({ key: "k" }); }"#, "async () => { await save(); }"),
            (
                r#"await withItem("b""#,
                r#"async function save() { await kv.set({ key: "k" }); }
await withItem("b""#,
            ),
        ],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn an_import_is_a_difference() {
    let before = r#"await mail.send({ to: "x" });"#;
    let after = r#"import { extra } from "tools";
await mail.send({ to: "x" });"#;
    check(
        before,
        after,
        expect![
            "line 1: the imports are others than before, so what it does to ids or tools does not show"
        ],
    );
}
