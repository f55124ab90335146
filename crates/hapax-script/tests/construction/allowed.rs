//! Changes that a repair may make.

use expect_test::expect;

use crate::{ORDERS, change, check};

/// Proves I-11.
#[test]
fn a_script_may_take_its_own_place() {
    change(ORDERS, &[("orders", "orders")], expect![[""]]);
}

/// Proves I-11.
#[test]
fn a_check_whether_the_item_is_done_may_be_added() {
    let before = r#"
for (const order of await http.get({})) {
  await withItem(order.id, order.title, async (ctx) => {
    await mail.send({ to: order.email });
  });
}"#;
    let after = r#"
for (const order of await http.get({})) {
  await withItem(order.id, order.title, async (ctx) => {
    if (ctx.item.isDone) return;
    await mail.send({ to: order.email });
  });
}"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn texts_and_payload_fields_may_change() {
    change(
        ORDERS,
        &[
            (r#""Thank you""#, r#"`Thank you, ${order.name ?? "friend"}`"#),
            (r#"value: "told""#, r#"value: "sent", ttl: 60"#),
        ],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn arguments_of_a_tool_may_change() {
    change(ORDERS, &[("https://shop/orders", "https://shop/v2/orders?limit=50")], expect![[""]]);
}

/// Proves I-11.
#[test]
fn local_names_may_change() {
    change(
        ORDERS,
        &[
            ("orders }", "orders: list }"),
            ("of orders", "of list"),
            ("order.", "purchase."),
            ("const order", "const purchase"),
            ("slug", "tidy"),
            ("text)", "value)"),
            ("text.", "value."),
            ("prefix", "kind"),
            ("ctx", "context"),
        ],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn layout_quotes_parentheses_commas_and_semicolons_may_change() {
    change(
        ORDERS,
        &[
            (r#""order";"#, "('order') // the kind"),
            (
                "text.trim().toLowerCase()",
                r#"(text
    .trim())
    .toLowerCase()"#,
            ),
            ("(ctx) =>", "ctx =>"),
            (r#"subkey: "thanks" }"#, "'subkey': 'thanks', }"),
            ("order.title, async", r#"order["title"], /* handler */ async"#),
        ],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn null_checks_around_an_item_may_be_added() {
    change(
        ORDERS,
        &[(
            "  await withItem(",
            r#"  if (!order?.email) continue;
  if (order.title != null) await withItem("#,
        )],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn a_try_inside_the_handler_may_be_added() {
    change(
        ORDERS,
        &[(
            r#"await kv.set({ key: order.id, value: "told" });"#,
            r#"try { JSON.parse(order.note); } catch (error) { console.log(error.message); }
    await kv.set({ key: order.id, value: "told" });"#,
        )],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn helpers_that_have_nothing_to_do_with_ids_may_be_added() {
    change(
        ORDERS,
        &[
            (
                "for (const order",
                r#"function greeting(order) {
  return `Dear ${order.name}`;
}
for (const order"#,
            ),
            (r#""Thank you""#, "greeting(order)"),
        ],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn a_filter_before_the_loop_may_be_added() {
    change(ORDERS, &[("of orders)", "of orders.filter((order) => order.paid))")], expect![[""]]);
}

/// Proves I-11.
#[test]
fn a_filter_before_the_loop_may_change() {
    let before = r#"
const all = await http.get({});
const due = all.rows.filter((row) => row.due);
for (const row of due) await withItem(row.id, "t", async () => {});"#;
    let after = r#"
const all = await http.get({});
const due = (all?.rows ?? []).filter((row) => row.due && row.email !== "").slice(0, 100);
for (const row of due) await withItem(row.id, "t", async () => {});"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn a_list_that_may_be_missing_may_be_replaced_by_an_empty_one() {
    change(ORDERS, &[("of orders)", "of Array.isArray(orders) ? orders : [])")], expect![[""]]);
}

/// Proves I-11.
#[test]
fn other_properties_may_be_taken_out_of_the_same_object() {
    let before = r#"
for (const { id } of await http.get({})) await withItem(id, "t", async () => {});"#;
    let after = r#"
for (const { id, name: title = "none" } of await http.get({})) await withItem(id, title, async () => {});"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn other_properties_of_an_object_that_holds_the_id_may_change() {
    let before = r#"
for (const row of await http.get({})) {
  const task = { id: `task-${row.id}`, text: "one" };
  task.title = "a";
  await withItem(task.id, task.title, async () => {});
}"#;
    let after = r#"
for (const row of await http.get({})) {
  const task = { id: `task-${row.id}`, text: `two ${row.text}`, urgent: true };
  task.title = "b";
  task.lines = [];
  task.lines.push(task.text);
  await withItem(task.id, task.title, async () => {});
}"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn functions_may_move() {
    change(
        ORDERS,
        &[
            (
                r#"function slug(text) {
  return text.trim().toLowerCase();
}
"#,
                "",
            ),
            (
                "of orders) {",
                r#"of orders) {
"#,
            ),
            (
                r#"    await kv.set({ key: order.id, value: "told" });
  });
}"#,
                r#"    await kv.set({ key: order.id, value: "told" });
  });
}
function slug(text) {
  return text.trim().toLowerCase();
}"#,
            ),
        ],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn unused_names_that_shadow_nothing_may_be_added() {
    change(
        ORDERS,
        &[(
            "const prefix",
            r#"const unused = { prefix: "x", id: 1 };
const prefix"#,
        )],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn a_value_handed_to_a_helper_that_only_reads_is_unchanged() {
    let before = r#"
async function main() {
  const rows = await http.get({});
  for (const row of rows) await handle(row);
}
async function handle(row) {
  await withItem(row.id, row.title, async () => {});
}
await main();"#;
    let after = r#"
async function main() {
  const rows = await http.get({ page: 1 });
  console.log(summary(rows));
  for (const row of rows) {
    if (row.skip) continue;
    await handle(row);
  }
}
function summary(list) {
  return list.map((entry) => entry.title).join(", ");
}
async function handle(row) {
  const text = summary([row]);
  await withItem(row.id, row.title, async () => { await http.get({ key: text }); });
}
await main();"#;
    check(before, after, expect![[""]]);
}
