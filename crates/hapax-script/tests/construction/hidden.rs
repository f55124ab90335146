//! Code that would change ids, subkeys or tools without showing in them.

use expect_test::expect;

use crate::check;

/// Proves I-11.
#[test]
fn an_alias_of_with_item_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const item = withItem;
await item("x", "t", async () => {});
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: `withItem` is not simply called with an id, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn with_item_handed_to_a_function_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const open = (item) => item("x", "t", async () => {});
await open(withItem);
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 2: `withItem` is not simply called with an id, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn with_item_of_its_own_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"async function withItem(id, title, handler) { await handler({ item: {} }); }
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![[r#"
        line 2 of the script before: an item was removed; its id: `row.id`
        line 1: `withItem` is declared by the script itself, so what it does to ids or tools does not show
        line 3: `withItem` is declared by the script itself, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn with_item_that_is_reassigned_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"withItem = async () => {};
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: `withItem` is not simply called with an id, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn with_item_by_call_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"await withItem.call(null, "x", "t", async () => {});
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: `withItem` is not simply called with an id, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn with_item_with_a_spread_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"await withItem(...["x", "t", async () => {}]);
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![[r#"
        line 1: an item was added; its id: `...["x", "t", async () => {}]`
        line 1: `withItem` is not simply called with an id, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn an_alias_of_a_tool_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const post = mail;
await post.send({ to: "x", subkey: "b" });
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: the tool `mail` is not simply called, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn an_alias_of_an_operation_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const { send } = mail;
await send({ to: "x", subkey: "b" });
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: the tool `mail` is not simply called, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_tool_in_an_object_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const all = { mail };
await all.mail.send({ to: "x", subkey: "b" });
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: the tool `mail` is not simply called, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_tool_handed_to_a_function_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const use = (tool) => tool.send({ to: "x" });
await use(mail);
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 2: the tool `mail` is not simply called, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn an_operation_by_a_computed_name_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"await mail[rows[0].operation]({ to: "x" });
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![[r#"
        line 1: the tool `mail` is not simply called, so what it does to ids or tools does not show
        line 1: a method is called by a computed name, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn an_operation_that_is_replaced_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"mail.send = async () => {};
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![[r#"
        line 1: the tool `mail` is not simply called, so what it does to ids or tools does not show
        line 1: `mail.send` is written to, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn a_tool_reached_through_the_global_object_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"await globalThis["ma" + "il"].send({ to: "x" });
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: `globalThis` can reach or make anything, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn code_from_text_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"eval("1");
new Function("return 1")();
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![[r#"
        line 1: `eval` can reach or make anything, so what it does to ids or tools does not show
        line 2: `Function` can reach or make anything, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn code_from_a_constructor_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"(() => {}).constructor("return 1")();
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: `constructor` is a back door, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_constructor_by_a_computed_name_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const name = "construct" + "or";
(() => {})[name]("return 1")();
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 2: a method is called by a computed name, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_changed_prototype_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"Array.prototype.filter = function () { return [{ id: "x" }]; };
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![[r#"
        line 1: `Array` is passed around, so what it does to ids or tools does not show
        line 1: `prototype` is a back door, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn a_prototype_through_a_back_door_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"({}).__proto__.id = "x";
Object.getPrototypeOf([]).map = () => [];
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![[r#"
        line 1: `__proto__` is a back door, so what it does to ids or tools does not show
        line 2: `getPrototypeOf` is a back door, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn a_changed_global_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"JSON.stringify = () => "x";
String = (value) => "x";
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![[r#"
        line 1: `JSON` is passed around, so what it does to ids or tools does not show
        line 1: `JSON.stringify` is written to, so what it does to ids or tools does not show
        line 2: the global `String` is written to, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn a_global_passed_around_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const poison = (object) => { object.stringify = () => "x"; };
poison(JSON);
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect!["line 2: `JSON` is passed around, so what it does to ids or tools does not show"],
    );
}

/// Proves I-11.
#[test]
fn a_proxy_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const trap = new Proxy({}, { get: () => "x" });
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: `Proxy` can reach or make anything, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_defined_property_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"Object.defineProperty(rows[0], "id", { value: "x" });
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![[r#"
        line 3: the item id is built differently, so done items would be done again; before: `row.id`, where `nothing more`; now: `row.id`, where `Object.defineProperty(rows[0], "id", { value: "x" });`
        line 1: `defineProperty` is a back door, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn code_loaded_while_it_runs_is_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"const extra = await import("extra");
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: code is loaded while it runs, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn arguments_are_hidden() {
    let before = r#"const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    let after = r#"function first() { return arguments[0]; }
const rows = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => { await mail.send({ to: row.email, subkey: "a" }); });"#;
    check(
        before,
        after,
        expect![
            "line 1: `arguments` can reach or make anything, so what it does to ids or tools does not show"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_script_with_a_hidden_call_cannot_be_compared_with() {
    let before = r#"const item = withItem;
await item("a", "t", async () => {});"#;
    let after = r#"await withItem("a", "t", async () => {});"#;
    check(
        before,
        after,
        expect![[r#"
        line 1: an item was added; its id: `"a"`
        line 1: in the script before, `withItem` is not simply called with an id, so what it does to ids or tools does not show"#]],
    );
}
