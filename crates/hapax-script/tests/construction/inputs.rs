//! Where ids come from: loops, callbacks, parameters and tools.

use expect_test::expect;

use crate::{ORDERS, change, check};

/// Proves I-11.
#[test]
fn a_list_that_is_mapped_is_another_input() {
    change(
        ORDERS,
        &[("of orders)", "of orders.map((order) => ({ ...order, id: order.number })))")],
        expect![[r#"
        line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `order of orders`; now: ``${prefix}-${slug(order.id)}``, where `order of orders.map((order) => ({ ...order, id: order.number }))`
        line 13: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `order of orders`; now: `subkey: `invoice-${order.id}``, where `order of orders.map((order) => ({ ...order, id: order.number }))`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_list_that_is_mapped_beforehand_is_another_input() {
    change(
        ORDERS,
        &[
            ("of orders)", "of list)"),
            (
                "for (const",
                r#"const list = orders.map((order) => ({ ...order, id: order.number }));
for (const"#,
            ),
        ],
        expect![[r#"
    line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `{ orders } = await http.get({ url: "https://shop/orders" })`; now: ``${prefix}-${slug(order.id)}``, where `list = orders.map((order) => ({ ...order, id: order.number }))`
    line 14: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `{ orders } = await http.get({ url: "https://shop/orders" })`; now: `subkey: `invoice-${order.id}``, where `list = orders.map((order) => ({ ...order, id: order.number }))`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_filter_that_writes_is_no_filter() {
    change(
        ORDERS,
        &[("of orders)", "of orders.filter((order) => (order.id = order.number)))")],
        expect![[r#"
        line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `orders.filter((order) => (order.id = order.number))`
        line 13: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `orders.filter((order) => (order.id = order.number))`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_named_filter_that_writes_is_no_filter() {
    change(
        ORDERS,
        &[
            ("of orders)", "of orders.filter(check))"),
            (
                "for (const",
                r#"function check(entry) { entry.id = "x"; return true; }
for (const"#,
            ),
        ],
        expect![[r#"
    line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `function check(entry) { entry.id = "x"; return true; }`
    line 14: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `function check(entry) { entry.id = "x"; return true; }`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_filter_of_its_own_is_no_filter() {
    let before = r#"const { rows } = await http.get({});
for (const row of rows) await withItem(row.id, "t", async () => {});"#;
    let after = r#"const { rows } = await http.get({});
const list = { filter: () => [{ id: "x" }] };
for (const row of list.filter(rows)) await withItem(row.id, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 3: the item id is built differently, so done items would be done again; before: `row.id`, where `row of rows`; now: `row.id`, where `{ rows } = await http.get({})`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_filter_counts_where_positions_are_used() {
    let before = r#"const rows = await http.get({});
rows.forEach(async (row, index) => { await withItem(`row-${index}`, "t", async () => {}); });"#;
    let after = r#"const rows = await http.get({});
rows.filter((row) => row.due).forEach(async (row, index) => { await withItem(`row-${index}`, "t", async () => {}); });"#;
    check(
        before,
        after,
        expect![
            "line 2: the item id is built differently, so done items would be done again; before: ``row-${index}``, where `index from rows.forEach`; now: ``row-${index}``, where `index from rows.filter((row) => row.due).forEach`"
        ],
    );
}

/// Proves I-11.
#[test]
fn the_answer_of_another_tool_is_another_input() {
    change(
        ORDERS,
        &[(
            r#"await http.get({ url: "https://shop/orders" })"#,
            r#"await kv.get({ key: "orders" })"#,
        )],
        expect![[r#"
        line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `{ orders } = await http.get({ url: "https://shop/orders" })`; now: ``${prefix}-${slug(order.id)}``, where `{ orders } = await kv.get({ key: "orders" })`
        line 13: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `{ orders } = await http.get({ url: "https://shop/orders" })`; now: `subkey: `invoice-${order.id}``, where `{ orders } = await kv.get({ key: "orders" })`
        line 2: kv.get was not used before"#]],
    );
}

/// Proves I-11.
#[test]
fn another_path_into_an_answer_is_another_input() {
    change(
        ORDERS,
        &[("{ orders }", "{ archive: orders }")],
        expect![[r#"
        line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `{ orders } = await http.get({ url: "https://shop/orders" })`; now: ``${prefix}-${slug(order.id)}``, where `{ archive: orders } = await http.get({ url: "https://shop/orders" })`
        line 13: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `{ orders } = await http.get({ url: "https://shop/orders" })`; now: `subkey: `invoice-${order.id}``, where `{ archive: orders } = await http.get({ url: "https://shop/orders" })`"#]],
    );
}

/// Proves I-11.
#[test]
fn keys_instead_of_elements_are_another_input() {
    change(
        ORDERS,
        &[("order of orders", "order in orders")],
        expect![[r#"
        line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `order of orders`; now: ``${prefix}-${slug(order.id)}``, where `order in orders`
        line 13: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `order of orders`; now: `subkey: `invoice-${order.id}``, where `order in orders`"#]],
    );
}

/// Proves I-11.
#[test]
fn another_argument_of_a_call_is_another_input() {
    let before = r#"async function run(row) { await withItem(row.id, "t", async () => {}); }
for (const row of await http.get({})) await run(row);"#;
    let after = r#"async function run(row) { await withItem(row.id, "t", async () => {}); }
for (const row of await http.get({})) await run(row.parent);"#;
    check(
        before,
        after,
        expect![
            "line 1: the item id is built differently, so done items would be done again; before: `row.id`, where `row = row`; now: `row.id`, where `row = row.parent`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_further_call_is_another_input() {
    let before = r#"async function run(row) { await withItem(row.id, "t", async () => {}); }
for (const row of await http.get({})) await run(row);"#;
    let after = r#"async function run(row) { await withItem(row.id, "t", async () => {}); }
for (const row of await http.get({})) { await run(row); await run(row.parent); }"#;
    check(
        before,
        after,
        expect![
            "line 1: the item id is built differently, so done items would be done again; before: `row.id`, where `nothing more`; now: `row.id`, where `row = row.parent`"
        ],
    );
}

/// Proves I-11.
#[test]
fn the_order_of_parameters_counts() {
    let before = r#"async function run(a, b) { await withItem(a, b, async () => {}); }
for (const row of await http.get({})) await run(row.id, row.name);"#;
    let after = r#"async function run(b, a) { await withItem(a, b, async () => {}); }
for (const row of await http.get({})) await run(row.id, row.name);"#;
    check(
        before,
        after,
        expect![
            "line 1: the item id is built differently, so done items would be done again; before: `a`, where `a = row.id`; now: `a`, where `a = row.name`"
        ],
    );
}

/// Proves I-11.
#[test]
fn the_arguments_of_a_callback_count() {
    let before = r#"const rows = await http.get({});
await Promise.all(rows.map((row) => withItem(row.id, "t", async () => {})));"#;
    let after = r#"const rows = await http.get({});
await Promise.all(rows.flatMap((row) => row.parts).map((row) => withItem(row.id, "t", async () => {})));"#;
    check(
        before,
        after,
        expect![
            "line 2: the item id is built differently, so done items would be done again; before: `row.id`, where `row from rows`; now: `row.id`, where `row from rows.flatMap((row) => row.parts)`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_named_callback_is_followed_to_its_list() {
    let before = r#"const run = (row) => withItem(row.id, "t", async () => {});
await Promise.all((await http.get({})).rows.map(run));"#;
    let after = r#"const run = (row) => withItem(row.id, "t", async () => {});
await Promise.all((await http.get({})).rows.map((row) => run({ id: row.number })));"#;
    check(
        before,
        after,
        expect![
            "line 1: the item id is built differently, so done items would be done again; before: `row.id`, where `row from (await http.get({})).rows`; now: `row.id`, where `row = { id: row.number }`"
        ],
    );
}

/// Proves I-11.
#[test]
fn an_iterator_of_its_own_is_followed() {
    let before = r#"function* rows(list) { for (const row of list) yield row; }
for (const row of rows(await http.get({}))) await withItem(row.id, "t", async () => {});"#;
    let after = r#"function* rows(list) { for (const row of list) yield row.part; }
for (const row of rows(await http.get({}))) await withItem(row.id, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 2: the item id is built differently, so done items would be done again; before: `row.id`, where `function* rows(list) { for (const row of list) yield row; }`; now: `row.id`, where `function* rows(list) { for (const row of list) yield row.part; }`"
        ],
    );
}

/// Proves I-11.
#[test]
fn an_item_in_an_item_takes_its_id_from_the_handler() {
    let before = r#"await withItem("a", "t", async (ctx) => { await withItem(ctx.item.id + "-b", "t", async () => {}); });"#;
    let after = r#"await withItem("a", "t", async ({ item }) => { await withItem(item.title + "-b", "t", async () => {}); });"#;
    check(
        before,
        after,
        expect![[
            r#"line 1: the item id is built differently, so done items would be done again; before: `ctx.item.id + "-b"`; now: `item.title + "-b"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn the_answer_to_another_question_of_the_script_is_another_input() {
    let before = r#"const orders = await http.get({ url: "orders" });
const people = await http.get({ url: "people" });
for (const order of orders) await withItem(order.id, people.length, async () => {});"#;
    let after = r#"const orders = await http.get({ url: "orders" });
const people = await http.get({ url: "people" });
for (const order of people) await withItem(order.id, orders.length, async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 3: the item id is built differently, so done items would be done again; before: `order.id`, where `orders = await http.get({ url: "orders" })`; now: `order.id`, where `people = await http.get({ url: "people" })`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn waiting_for_elements_is_another_input() {
    change(
        ORDERS,
        &[("for (const order", "for await (const order")],
        expect![[r#"
        line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `order of orders`; now: ``${prefix}-${slug(order.id)}``, where `order await of orders`
        line 13: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `order of orders`; now: `subkey: `invoice-${order.id}``, where `order await of orders`"#]],
    );
}

/// Proves I-11.
#[test]
fn the_clock_in_an_id_is_a_difference() {
    change(
        ORDERS,
        &[("slug(order.id)", "slug(order.id)}-${Date.now()")],
        expect![
            "line 10: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``; now: ``${prefix}-${slug(order.id)}-${Date.now()}``"
        ],
    );
}

/// Proves I-11.
#[test]
fn counting_differently_is_another_input() {
    let before = r#"const rows = await http.get({});
for (let i = 0; i < rows.length; i++) await withItem(`row-${i}`, "t", async () => {});"#;
    let after = r#"const rows = await http.get({});
for (let i = 1; i <= rows.length; i++) await withItem(`row-${i}`, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 2: the item id is built differently, so done items would be done again; before: ``row-${i}``, where `i = 0`; now: ``row-${i}``, where `i = 1`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_step_of_two_is_another_input() {
    let before = r#"const rows = await http.get({});
for (let i = 0; i < rows.length; i++) await withItem(`row-${i}`, "t", async () => {});"#;
    let after = r#"const rows = await http.get({});
for (let i = 0; i < rows.length; i += 2) await withItem(`row-${i}`, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 2: the item id is built differently, so done items would be done again; before: ``row-${i}``, where `i++`; now: ``row-${i}``, where `i += 2`"
        ],
    );
}
