//! How item ids change, openly and in passing.

use expect_test::expect;

use crate::{ORDERS, change, check};

/// Proves I-11.
#[test]
fn another_property_is_another_id() {
    change(
        ORDERS,
        &[("slug(order.id)", "slug(order.number)")],
        expect![
            "line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``; now: ``${prefix}-${slug(order.number)}``"
        ],
    );
}

/// Proves I-11.
#[test]
fn another_text_in_a_template_is_another_id() {
    change(
        ORDERS,
        &[("`${prefix}-${slug", "`${prefix}/${slug")],
        expect![
            "line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``; now: ``${prefix}/${slug(order.id)}``"
        ],
    );
}

/// Proves I-11.
#[test]
fn another_constant_is_another_id() {
    change(
        ORDERS,
        &[(r#"prefix = "order""#, r#"prefix = "orders""#)],
        expect![[
            r#"line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `prefix = "order"`; now: ``${prefix}-${slug(order.id)}``, where `prefix = "orders"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn another_helper_body_is_another_id() {
    change(
        ORDERS,
        &[("text.trim().toLowerCase()", "text.trim()")],
        expect![
            "line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `function slug(text) { return text.trim().toLowerCase(); }`; now: ``${prefix}-${slug(order.id)}``, where `function slug(text) { return text.trim(); }`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_default_for_a_parameter_is_another_id() {
    change(
        ORDERS,
        &[("slug(text)", r#"slug(text = "none")"#)],
        expect![[
            r#"line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `function slug(text) { return text.trim().toLowerCase(); }`; now: ``${prefix}-${slug(order.id)}``, where `function slug(text = "none") { return text.trim().toLowerCase(); }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_changed_default_is_another_id() {
    let before = r#"const key = (id, kind = "a") => `${kind}-${id}`;
for (const row of await http.get({})) await withItem(key(row.id), "t", async () => {});"#;
    let after = r#"const key = (id, kind = "b") => `${kind}-${id}`;
for (const row of await http.get({})) await withItem(key(row.id), "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the item id is built differently, so done items would be done again; before: `key(row.id)`, where `key = (id, kind = "a") => `${kind}-${id}``; now: `key(row.id)`, where `key = (id, kind = "b") => `${kind}-${id}``"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_default_in_a_pattern_is_another_id() {
    let before =
        r#"for (const { id } of await http.get({})) await withItem(id, "t", async () => {});"#;
    let after = r#"for (const { id = "none" } of await http.get({})) await withItem(id, "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 1: the item id is built differently, so done items would be done again; before: `id`, where `{ id } of await http.get({})`; now: `id`, where `{ id = "none" } of await http.get({})`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn another_key_in_a_pattern_is_another_id() {
    let before =
        r#"for (const { id } of await http.get({})) await withItem(id, "t", async () => {});"#;
    let after = r#"for (const { number: id } of await http.get({})) await withItem(id, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 1: the item id is built differently, so done items would be done again; before: `id`, where `{ id } of await http.get({})`; now: `id`, where `{ number: id } of await http.get({})`"
        ],
    );
}

/// Proves I-11.
#[test]
fn another_place_in_an_array_pattern_is_another_id() {
    let before =
        "for (const [id, name] of await http.get({})) await withItem(id, name, async () => {});";
    let after =
        "for (const [name, id] of await http.get({})) await withItem(id, name, async () => {});";
    check(
        before,
        after,
        expect![
            "line 1: the item id is built differently, so done items would be done again; before: `id`, where `[id, name] of await http.get({})`; now: `id`, where `[name, id] of await http.get({})`"
        ],
    );
}

/// Proves I-11.
#[test]
fn another_key_in_what_is_left_over_is_another_id() {
    let before = r#"for (const { a, ...rest } of await http.get({})) await withItem(JSON.stringify(rest), "t", async () => {});"#;
    let after = r#"for (const { b, ...rest } of await http.get({})) await withItem(JSON.stringify(rest), "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 1: the item id is built differently, so done items would be done again; before: `JSON.stringify(rest)`, where `{ a, ...rest } of await http.get({})`; now: `JSON.stringify(rest)`, where `{ b, ...rest } of await http.get({})`"
        ],
    );
}

/// Proves I-11.
#[test]
fn optional_access_is_another_id() {
    change(
        ORDERS,
        &[("slug(order.id)", "slug(order?.id)")],
        expect![
            "line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``; now: ``${prefix}-${slug(order?.id)}``"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_fallback_is_another_id() {
    change(
        ORDERS,
        &[("slug(order.id)", r#"slug(order.id ?? "")"#)],
        expect![[
            r#"line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``; now: ``${prefix}-${slug(order.id ?? "")}``"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_shadowing_name_is_another_id() {
    change(
        ORDERS,
        &[(
            "  await withItem(",
            r#"  const prefix = order.kind;
  await withItem("#,
        )],
        expect![[
            r#"line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `prefix = "order"`; now: ``${prefix}-${slug(order.id)}``, where `prefix = order.kind`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_shadowing_loop_is_another_id() {
    change(
        ORDERS,
        &[("  await withItem(", r#"  for (const order of [{ id: "1" }]) await withItem("#)],
        expect![[r#"
        line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `order of orders`; now: ``${prefix}-${slug(order.id)}``, where `order of [{ id: "1" }]`
        line 13: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `order of orders`; now: `subkey: `invoice-${order.id}``, where `order of [{ id: "1" }]`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_shadowing_function_is_another_id() {
    change(
        ORDERS,
        &[(
            "  await withItem(",
            r#"  const slug = (text) => text;
  await withItem("#,
        )],
        expect![
            "line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `function slug(text) { return text.trim().toLowerCase(); }`; now: ``${prefix}-${slug(order.id)}``, where `slug = (text) => text`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_hoisted_var_is_another_id() {
    let before = r#"const kind = "a";
async function run(row) {
  await withItem(kind + row.id, "t", async () => {});
}
for (const row of await http.get({})) await run(row);"#;
    let after = r#"const kind = "a";
async function run(row) {
  await withItem(kind + row.id, "t", async () => {});
  if (row.odd) { var kind = "b"; }
}
for (const row of await http.get({})) await run(row);"#;
    check(
        before,
        after,
        expect![[
            r#"line 3: the item id is built differently, so done items would be done again; before: `kind + row.id`, where `kind = "a"`; now: `kind + row.id`, where `if (row.odd) { var kind = "b"; }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_var_of_a_parameter_s_name_is_that_parameter() {
    let before = r#"async function run(id) {
  var id;
  await withItem(id, "t", async () => {});
}
await run((await http.get({})).id);"#;
    let after = r#"async function run(id) {
  var id;
  await withItem(id, "t", async () => {});
}
await run((await http.get({})).number);"#;
    check(
        before,
        after,
        expect![
            "line 3: the item id is built differently, so done items would be done again; before: `id`, where `id = (await http.get({})).id`; now: `id`, where `id = (await http.get({})).number`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_name_that_is_no_longer_declared_is_another_id() {
    change(
        ORDERS,
        &[(r#"const prefix = "order";"#, "")],
        expect![[r#"
        line 10: the item id is built differently, so done items would be done again; before: ``${#0}-${#1 ( #2.id )}``; now: ``${prefix}-${#0 ( #1.id )}``
        line 10: the global `prefix` was not used before, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn a_reassignment_in_between_is_another_id() {
    change(
        ORDERS,
        &[
            ("const prefix", "let prefix"),
            (
                "for (const",
                r#"prefix = "x";
for (const"#,
            ),
        ],
        expect![[
            r#"line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `prefix = "x";`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_reassignment_that_moves_is_another_id() {
    let before = r#"let kind = "a";
kind = "b";
await withItem(kind, "t", async () => {});"#;
    let after = r#"let kind = "a";
await withItem(kind, "t", async () => {});
kind = "b";"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the item id is built differently, so done items would be done again; before: `kind`, where `kind = "b";`; now: `kind`, where `kind`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_call_that_moves_past_a_reassignment_is_another_id() {
    let before = r#"let kind = "a";
const run = () => withItem(kind, "t", async () => {});
kind = "b";
await run();"#;
    let after = r#"let kind = "a";
const run = () => withItem(kind, "t", async () => {});
await run();
kind = "b";"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the item id is built differently, so done items would be done again; before: `kind`, where `kind = "b";`; now: `kind`, where `await run();`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_condition_on_a_reassignment_is_another_id() {
    let before = r#"for (const row of await http.get({})) {
  let id = row.id;
  if (!id) id = "none";
  await withItem(id, "t", async () => {});
}"#;
    let after = r#"for (const row of await http.get({})) {
  let id = row.id;
  if (!id && row.odd) id = "none";
  await withItem(id, "t", async () => {});
}"#;
    check(
        before,
        after,
        expect![[
            r#"line 4: the item id is built differently, so done items would be done again; before: `id`, where `if (!id) id = "none";`; now: `id`, where `if (!id && row.odd) id = "none";`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_reassignment_by_a_function_is_another_id() {
    let before = r#"let kind = "a";
function next(value) { kind = value; }
next("b");
await withItem(kind, "t", async () => {});"#;
    let after = r#"let kind = "a";
function next(value) { kind = value; }
next("c");
await withItem(kind, "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 4: the item id is built differently, so done items would be done again; before: `kind`, where `next("b");`; now: `kind`, where `next("c");`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_further_call_of_a_function_that_reassigns_is_another_id() {
    let before = r#"let count = 0;
const next = () => ++count;
for (const row of await http.get({})) await withItem(`${row.id}-${next()}`, "t", async () => {});"#;
    let after = r#"let count = 0;
const next = () => ++count;
for (const row of await http.get({})) {
  console.log(next());
  await withItem(`${row.id}-${next()}`, "t", async () => {});
}"#;
    check(
        before,
        after,
        expect![
            "line 5: the item id is built differently, so done items would be done again; before: ``${row.id}-${next()}``, where `nothing more`; now: ``${row.id}-${next()}``, where `console.log(next());`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_counter_in_the_arguments_of_a_tool_is_seen() {
    let before = r#"let count = 0;
for (const row of await http.get({})) {
  await kv.get({ key: row.key });
  await withItem(`${count}`, "t", async () => {});
}"#;
    let after = r#"let count = 0;
for (const row of await http.get({})) {
  await kv.get({ key: row.key, n: count++ });
  await withItem(`${count}`, "t", async () => {});
}"#;
    check(
        before,
        after,
        expect![
            "line 4: the item id is built differently, so done items would be done again; before: ``${count}``, where `nothing more`; now: ``${count}``, where `row of await http.get({})`"
        ],
    );
}
