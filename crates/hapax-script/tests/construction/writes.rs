//! How item ids change by writes before them, or beside them.

use expect_test::expect;

use crate::{ORDERS, change, check};

/// Proves I-11.
#[test]
fn a_property_written_before_is_another_id() {
    change(
        ORDERS,
        &[(
            "  await withItem(",
            r#"  order.id = order.number;
  await withItem("#,
        )],
        expect![[r#"
      line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `order.id = order.number;`
      line 14: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `order.id = order.number;`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_property_written_in_an_earlier_loop_is_another_id() {
    change(
        ORDERS,
        &[(
            "for (const order",
            r#"for (const entry of orders) entry.id = `x${entry.id}`;
for (const order"#,
        )],
        expect![[r#"
    line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `for (const entry of orders) entry.id = `x${entry.id}`;`
    line 14: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `for (const entry of orders) entry.id = `x${entry.id}`;`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_property_written_through_an_alias_is_another_id() {
    change(
        ORDERS,
        &[(
            "  await withItem(",
            r#"  const copy = order;
  const { parent } = { parent: copy };
  parent.id = "x";
  await withItem("#,
        )],
        expect![[r#"
      line 13: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `copy = order`
      line 16: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `copy = order`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_property_written_by_a_helper_is_another_id() {
    change(
        ORDERS,
        &[
            (
                "for (const order",
                r#"function fix(entry) { entry.id = entry.id ?? entry.number; return entry; }
for (const order"#,
            ),
            (
                "  await withItem(",
                r#"  fix(order);
  await withItem("#,
            ),
        ],
        expect![[r#"
      line 12: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `function fix(entry) { entry.id = entry.id ?? entry.number; return entry; }`
      line 15: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `function fix(entry) { entry.id = entry.id ?? entry.number; return entry; }`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_property_written_through_what_a_helper_returns_is_another_id() {
    change(
        ORDERS,
        &[(
            "for (const order",
            r#"const first = () => orders[0];
first().id = "x";
for (const order"#,
        )],
        expect![[r#"
    line 12: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `first = () => orders[0]`
    line 15: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `first = () => orders[0]`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_property_written_by_a_callback_is_another_id() {
    change(
        ORDERS,
        &[(
            "for (const order",
            r#"orders.forEach((entry) => { entry.id += "-b"; });
for (const order"#,
        )],
        expect![[r#"
    line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `orders.forEach((entry) => { entry.id += "-b"; });`
    line 14: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `orders.forEach((entry) => { entry.id += "-b"; });`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_property_written_by_a_reducer_is_another_id() {
    change(
        ORDERS,
        &[(
            "for (const order",
            r#"["x"].reduce((sum, id) => { sum[0].id = id; return sum; }, orders);
for (const order"#,
        )],
        expect![[r#"
    line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `["x"].reduce((sum, id) => { sum[0].id = id; return sum; }, orders);`
    line 14: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `["x"].reduce((sum, id) => { sum[0].id = id; return sum; }, orders);`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_property_written_by_a_pattern_is_another_id() {
    change(
        ORDERS,
        &[(
            "  await withItem(",
            r#"  [order.id] = ["x"];
  await withItem("#,
        )],
        expect![[r#"
      line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `[order.id] = ["x"];`
      line 14: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `[order.id] = ["x"];`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_property_written_by_object_assign_is_another_id() {
    change(
        ORDERS,
        &[(
            "  await withItem(",
            r#"  Object.assign(order, { id: "x" });
  await withItem("#,
        )],
        expect![[r#"
      line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `Object.assign(order, { id: "x" });`
      line 14: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `Object.assign(order, { id: "x" });`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_deleted_property_is_another_id() {
    change(
        ORDERS,
        &[(
            "  await withItem(",
            r#"  delete order.id;
  await withItem("#,
        )],
        expect![[r#"
      line 11: the item id is built differently, so done items would be done again; before: ``${prefix}-${slug(order.id)}``, where `nothing more`; now: ``${prefix}-${slug(order.id)}``, where `for (const order of orders) {`
      line 14: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``, where `nothing more`; now: `subkey: `invoice-${order.id}``, where `for (const order of orders) {`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_property_written_under_a_computed_name_is_another_id() {
    let before = r#"for (const row of await http.get({})) {
  const task = { id: row.id };
  await withItem(task.id, "t", async () => {});
}"#;
    let after = r#"for (const row of await http.get({})) {
  const task = { id: row.id };
  task[row.field] = "x";
  await withItem(task.id, "t", async () => {});
}"#;
    check(
        before,
        after,
        expect![
            "line 4: the item id is built differently, so done items would be done again; before: `task.id`, where `nothing more`; now: `task.id`, where `task = { id: row.id }`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_list_that_is_pushed_to_is_another_list() {
    let before = r#"const ids = [];
for (const row of await http.get({})) ids.push(row.id);
for (const id of ids) await withItem(id, "t", async () => {});"#;
    let after = r#"const ids = [];
for (const row of await http.get({})) ids.push(row.number);
for (const id of ids) await withItem(id, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 3: the item id is built differently, so done items would be done again; before: `id`, where `for (const row of await http.get({})) ids.push(row.id);`; now: `id`, where `for (const row of await http.get({})) ids.push(row.number);`"
        ],
    );
}

/// Proves I-11.
#[test]
fn an_early_exit_around_a_push_is_seen() {
    let before = r#"const parts = [];
for (const row of await http.get({})) parts.push(row.id);
await withItem(parts.join(), "t", async () => {});"#;
    let after = r#"const parts = [];
for (const row of await http.get({})) { if (row.odd) break; parts.push(row.id); }
await withItem(parts.join(), "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 3: the item id is built differently, so done items would be done again; before: `parts.join()`, where `for (const row of await http.get({})) parts.push(row.id);`; now: `parts.join()`, where `for (const row of await http.get({})) { if (row.odd) break; parts.push(row.id); }`"
        ],
    );
}

/// Proves I-11.
#[test]
fn an_element_written_before_a_join_is_another_id() {
    let before = r#"const parts = ["a", "b"];
await withItem(parts.join(), "t", async () => {});"#;
    let after = r#"const parts = ["a", "b"];
parts[0] = "c";
await withItem(parts.join(), "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 3: the item id is built differently, so done items would be done again; before: `parts.join()`, where `nothing more`; now: `parts.join()`, where `parts[0] = "c";`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_getter_is_another_id() {
    let before = r#"const task = { n: 1, id: "a" };
await withItem(task.id, "t", async () => {});"#;
    let after = r#"const task = { n: 1, get id() { return "a" + this.n++; } };
await withItem(task.id, "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the item id is built differently, so done items would be done again; before: `task.id`, where `task = { n: 1, id: "a" }`; now: `task.id`, where `task = { n: 1, get id() { return "a" + this.n++; } }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn values_that_a_getter_reads_are_part_of_the_id() {
    let before = r#"const task = { n: 1, get id() { return "a" + this.n; } };
task.n = 2;
await withItem(task.id, "t", async () => {});"#;
    let after = r#"const task = { n: 1, get id() { return "a" + this.n; } };
task.n = 3;
await withItem(task.id, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 3: the item id is built differently, so done items would be done again; before: `task.id`, where `task.n = 2;`; now: `task.id`, where `task.n = 3;`"
        ],
    );
}

/// Proves I-11.
#[test]
fn values_that_a_setter_writes_are_part_of_the_id() {
    let before = r#"const task = { id: "a", set name(value) { this.id = value; } };
await withItem(task.id, "t", async () => {});"#;
    let after = r#"const task = { id: "a", set name(value) { this.id = value; } };
task.name = "b";
await withItem(task.id, "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 3: the item id is built differently, so done items would be done again; before: `task.id`, where `nothing more`; now: `task.id`, where `task = { id: "a", set name(value) { this.id = value; } }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_to_string_of_its_own_is_another_id() {
    let before = r#"const task = { id: "a" };
await withItem(`${task}`, "t", async () => {});"#;
    let after = r#"const task = { id: "a", toString() { return this.id; } };
await withItem(`${task}`, "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the item id is built differently, so done items would be done again; before: ``${task}``, where `task = { id: "a" }`; now: ``${task}``, where `task = { id: "a", toString() { return this.id; } }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_class_field_is_part_of_the_id() {
    let before = r#"class Task { kind = "a"; constructor(row) { this.row = row; } id() { return this.kind + this.row.id; } }
for (const row of await http.get({})) await withItem(new Task(row).id(), "t", async () => {});"#;
    let after = r#"class Task { kind = "b"; constructor(row) { this.row = row; } id() { return this.kind + this.row.id; } }
for (const row of await http.get({})) await withItem(new Task(row).id(), "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the item id is built differently, so done items would be done again; before: `new Task(row).id()`, where `class Task { kind = "a"; constructor(row) { this.row = row; } id() { return this.kind + this.row.id; } }`; now: `new Task(row).id()`, where `class Task { kind = "b"; constructor(row) { this.row = row; } id() { return this.kind + this.row.id; } }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_field_of_the_object_around_is_part_of_the_id() {
    let before = r#"class Runner { kind = "a"; async run(row) { await withItem(this.kind + row.id, "t", async () => {}); } }
for (const row of await http.get({})) await new Runner().run(row);"#;
    let after = r#"class Runner { kind = "b"; async run(row) { await withItem(this.kind + row.id, "t", async () => {}); } }
for (const row of await http.get({})) await new Runner().run(row);"#;
    check(
        before,
        after,
        expect![[
            r#"line 1: the item id is built differently, so done items would be done again; before: `this.kind + row.id`, where `class #1 { kind = "a"; async run ( #0 ) { (await withItem ( ◆ , "t" , (async ( ) => { }) )); } }; for ( const #2 of (awa…`; now: `this.kind + row.id`, where `class #1 { kind = "b"; async run ( #0 ) { (await withItem ( ◆ , "t" , (async ( ) => { }) )); } }; for ( const #2 of (awa…`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn an_item_that_is_added_is_a_difference() {
    change(
        ORDERS,
        &[(
            "for (const order",
            r#"await withItem("summary", "Summary", async () => {});
for (const order"#,
        )],
        expect![[r#"line 9: an item was added; its id: `"summary"`"#]],
    );
}

/// Proves I-11.
#[test]
fn an_item_that_is_removed_is_a_difference() {
    let before = r#"await withItem("a", "A", async () => {});
await withItem("b", "B", async () => {});"#;
    let after = r#"await withItem("b", "B", async () => {});"#;
    check(
        before,
        after,
        expect![[r#"line 1 of the script before: an item was removed; its id: `"a"`"#]],
    );
}

/// Proves I-11.
#[test]
fn items_that_change_places_are_a_difference() {
    let before = r#"await withItem("a", "A", async () => {});
await withItem("b", "B", async () => {});"#;
    let after = r#"await withItem("b", "B", async () => {});
await withItem("a", "A", async () => {});"#;
    check(
        before,
        after,
        expect![[r#"
        line 1 of the script before: an item was removed; its id: `"a"`
        line 2: an item was added; its id: `"a"`"#]],
    );
}

/// Proves I-11.
#[test]
fn a_handler_that_counts_for_the_next_id_is_part_of_it() {
    let before = r#"let n = 0;
for (const row of await http.get({})) await withItem(`row-${n}`, "t", async (ctx) => { n++; });"#;
    let after = r#"let n = 0;
for (const row of await http.get({})) await withItem(`row-${n}`, "t", async (ctx) => { if (ctx.item.isDone) return; n++; });"#;
    check(
        before,
        after,
        expect![
            "line 2: the item id is built differently, so done items would be done again; before: ``row-${n}``, where `async (ctx) => { n++; }`; now: ``row-${n}``, where `async (ctx) => { if (ctx.item.isDone) return; n++; }`"
        ],
    );
}

/// Proves I-11.
#[test]
fn an_assignment_around_the_item_is_seen() {
    let before = r#"let last = "a";
last = String(await withItem(last, "t", async () => "x"));"#;
    let after = r#"let last = "a";
last = Number(await withItem(last, "t", async () => "x"));"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the item id is built differently, so done items would be done again; before: `last`, where `last = String(await withItem(last, "t", async () => "x"))`; now: `last`, where `last = Number(await withItem(last, "t", async () => "x"))`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_return_at_the_end_of_a_line_is_not_overlooked() {
    let before = r#"const id = (row) => { return row.id; };
for (const row of await http.get({})) await withItem(id(row), "t", async () => {});"#;
    let after = r#"const id = (row) => { return; (row.id); };
for (const row of await http.get({})) await withItem(id(row), "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 2: the item id is built differently, so done items would be done again; before: `id(row)`, where `id = (row) => { return row.id; }`; now: `id(row)`, where `id = (row) => { return; (row.id); }`"
        ],
    );
}

/// Proves I-11.
#[test]
fn precedence_is_not_lost_with_parentheses() {
    let before = r#"for (const row of await http.get({})) await withItem((row.a + row.b) * 2, "t", async () => {});"#;
    let after = r#"for (const row of await http.get({})) await withItem(row.a + row.b * 2, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 1: the item id is built differently, so done items would be done again; before: `(row.a + row.b) * 2`; now: `row.a + row.b * 2`"
        ],
    );
}
