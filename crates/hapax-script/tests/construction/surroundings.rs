//! Code that decides how far a counter is, and with it an id.

use expect_test::expect;

use crate::check;

/// Proves I-11.
#[test]
fn an_exit_before_a_counter_is_part_of_the_id() {
    let before = r#"let n = 0;
for (const row of await http.get({})) {
  n++;
  await withItem(`row-${n}`, "t", async () => {});
}"#;
    let after = r#"let n = 0;
for (const row of await http.get({})) {
  if (!row.paid) continue;
  n++;
  await withItem(`row-${n}`, "t", async () => {});
}"#;
    check(
        before,
        after,
        expect![
            "line 5: the item id is built differently, so done items would be done again; before: ``row-${n}``, where `nothing more`; now: ``row-${n}``, where `if (!row.paid) continue;`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_condition_around_a_counter_is_part_of_the_id() {
    let before = r#"let n = 0;
for (const row of await http.get({})) {
  n++;
  await withItem(`row-${n}`, "t", async () => {});
}"#;
    let after = r#"let n = 0;
for (const row of await http.get({})) {
  if (row.paid) {
    n++;
    await withItem(`row-${n}`, "t", async () => {});
  }
}"#;
    check(
        before,
        after,
        expect![
            "line 5: the item id is built differently, so done items would be done again; before: ``row-${n}``, where `nothing more`; now: ``row-${n}``, where `if (row.paid) {`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_condition_around_the_item_alone_is_not() {
    let before = r#"let n = 0;
for (const row of await http.get({})) {
  n++;
  await withItem(`row-${n}`, "t", async () => {});
}"#;
    let after = r#"let n = 0;
for (const row of await http.get({})) {
  n++;
  if (row.paid) await withItem(`row-${n}`, "t", async () => {});
}"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn a_filter_before_a_counter_is_part_of_the_id() {
    let before = r#"let n = 0;
const rows = await http.get({});
for (const row of rows) {
  n++;
  await withItem(`row-${n}`, "t", async () => {});
}"#;
    let after = r#"let n = 0;
const rows = await http.get({});
for (const row of rows.filter((row) => row.paid)) {
  n++;
  await withItem(`row-${n}`, "t", async () => {});
}"#;
    check(
        before,
        after,
        expect![
            "line 5: the item id is built differently, so done items would be done again; before: ``row-${n}``, where `for (const row of rows) {`; now: ``row-${n}``, where `for (const row of rows.filter((row) => row.paid)) {`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_return_before_a_counter_in_a_function_is_part_of_the_id() {
    let before = r#"let n = 0;
async function run(row) {
  n += 1;
  await withItem(`row-${n}`, "t", async () => {});
}
for (const row of await http.get({})) {
  await run(row);
}"#;
    let after = r#"let n = 0;
async function run(row) {
  if (!row) return;
  n += 1;
  await withItem(`row-${n}`, "t", async () => {});
}
for (const row of await http.get({})) {
  await run(row);
}"#;
    check(
        before,
        after,
        expect![
            "line 5: the item id is built differently, so done items would be done again; before: ``row-${n}``, where `nothing more`; now: ``row-${n}``, where `if (!row) return;`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_condition_on_a_call_that_counts_is_part_of_the_id() {
    let before = r#"let n = 0;
async function run(row) {
  n += 1;
  await withItem(`row-${n}`, "t", async () => {});
}
for (const row of await http.get({})) {
  await run(row);
}"#;
    let after = r#"let n = 0;
async function run(row) {
  n += 1;
  await withItem(`row-${n}`, "t", async () => {});
}
for (const row of await http.get({})) {
  if (row.paid) await run(row);
}"#;
    check(
        before,
        after,
        expect![
            "line 4: the item id is built differently, so done items would be done again; before: ``row-${n}``, where `nothing more`; now: ``row-${n}``, where `if (row.paid) await run(row);`"
        ],
    );
}

/// Proves I-11.
#[test]
fn an_exit_before_a_counter_in_the_id_itself_is_part_of_the_id() {
    let before = r#"let n = 0;
for (const row of await http.get({})) {
  await withItem(`row-${n++}`, "t", async () => {});
}"#;
    let after = r#"let n = 0;
for (const row of await http.get({})) {
  if (!row.paid) continue;
  await withItem(`row-${n++}`, "t", async () => {});
}"#;
    check(
        before,
        after,
        expect![
            "line 4: the item id is built differently, so done items would be done again; before: ``row-${n++}``, where `nothing more`; now: ``row-${n++}``, where `if (!row.paid) continue;`"
        ],
    );
}

/// Proves I-11.
#[test]
fn an_exit_that_a_variable_does_not_survive_is_not() {
    let before = r#"for (const row of await http.get({})) {
  let id = row.id;
  if (!id) id = row.number;
  await withItem(id, "t", async () => {});
}"#;
    let after = r#"for (const row of await http.get({})) {
  let id = row.id;
  if (!row.email) continue;
  if (!id) id = row.number;
  await withItem(id, "t", async () => {});
}"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn a_try_around_a_counter_is_part_of_the_id() {
    let before = r#"let n = 0;
for (const row of await http.get({})) {
  n++;
  await withItem(`row-${n}`, "t", async () => {});
}"#;
    let after = r#"let n = 0;
for (const row of await http.get({})) {
  try {
    JSON.parse(row.text);
    n++;
    await withItem(`row-${n}`, "t", async () => {});
  } catch {}
}"#;
    check(
        before,
        after,
        expect![
            "line 6: the item id is built differently, so done items would be done again; before: ``row-${n}``, where `nothing more`; now: ``row-${n}``, where `try {`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_thrown_value_is_part_of_an_id_built_in_a_catch() {
    let before = r#"for (const row of await http.get({})) {
  try { throw row.id; } catch (id) { await withItem(id, "t", async () => {}); }
}"#;
    let after = r#"for (const row of await http.get({})) {
  try { throw row.number; } catch (id) { await withItem(id, "t", async () => {}); }
}"#;
    check(
        before,
        after,
        expect![
            "line 2: the item id is built differently, so done items would be done again; before: `id`, where `{ throw row.id; }`; now: `id`, where `{ throw row.number; }`"
        ],
    );
}

/// Proves I-11.
#[test]
fn values_that_handlers_collect_are_part_of_a_later_id() {
    let before = r#"const done = [];
for (const row of await http.get({})) {
  await withItem(row.id, "t", async (ctx) => { done.push(row); });
}
await withItem(`sum-${done.length}`, "t", async () => {});"#;
    let after = r#"const done = [];
for (const row of await http.get({})) {
  await withItem(row.id, "t", async (ctx) => { if (ctx.item.isDone) return; done.push(row); });
}
await withItem(`sum-${done.length}`, "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 5: the item id is built differently, so done items would be done again; before: ``sum-${done.length}``, where `… withItem(row.id, "t", async (ctx) => { done.push(row); }); }`; now: ``sum-${done.length}``, where `… withItem(row.id, "t", async (ctx) => { if (ctx.item.isDone) return; done.push(row); }); }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn an_object_whose_method_was_replaced_is_not_trusted() {
    let before = r#"const names = { prefix: "a", fix() {} };
names.fix = function () { this.prefix = "b"; };
await withItem(names.prefix, "t", async () => {});"#;
    let after = r#"const names = { prefix: "a", fix() {} };
names.fix = function () { this.prefix = "b"; };
names.fix();
await withItem(names.prefix, "t", async () => {});"#;
    check(
        before,
        after,
        expect![[
            r#"line 4: the item id is built differently, so done items would be done again; before: `names.prefix`, where `nothing more`; now: `names.prefix`, where `names = { prefix: "a", fix() {} }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_method_that_is_named_like_one_of_the_language_is_not_trusted() {
    let before = r#"const state = { n: 0, get() { return this.n++; } };
await withItem(`${state.n}`, "t", async () => {});"#;
    let after = r#"const state = { n: 0, get() { return this.n++; } };
state.get();
await withItem(`${state.n}`, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 3: the item id is built differently, so done items would be done again; before: ``${state.n}``, where `nothing more`; now: ``${state.n}``, where `state = { n: 0, get() { return this.n++; } }`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_method_by_a_computed_name_is_not_trusted() {
    let before = r#"for (const row of await http.get({})) {
  await withItem(row.id, "t", async () => {});
}"#;
    let after = r#"for (const row of await http.get({})) {
  const list = [row];
  row[list.length]("x");
  await withItem(row.id, "t", async () => {});
}"#;
    check(
        before,
        after,
        expect![[r#"
        line 4: the item id is built differently, so done items would be done again; before: `row.id`, where `nothing more`; now: `row.id`, where `list = [row]`
        line 3: a method is called by a computed name, so what it does to ids or tools does not show"#]],
    );
}

/// Proves I-11.
#[test]
fn handlers_may_change_where_a_function_chooses_the_id() {
    let before = r#"async function handle(row) {
  let id = row.id;
  if (!id) id = row.number;
  await withItem(id, "t", async (ctx) => { await mail.send({ to: row.email }); });
}
for (const row of await http.get({})) {
  await handle(row);
}"#;
    let after = r#"async function handle(row) {
  let id = row.id;
  if (!id) id = row.number;
  await withItem(id, "t", async (ctx) => {
    if (ctx.item.isDone) return;
    if (!row.email) throw new Error("no address");
    await mail.send({ to: row.email });
  });
}
for (const row of await http.get({})) {
  if (row) await handle(row);
}"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn handlers_may_change_where_a_function_counts() {
    let before = r#"let n = 0;
const run = async (row) => {
  n += 1;
  await withItem(`row-${n}`, "t", async (ctx) => { await mail.send({ to: row.email }); });
};
for (const row of await http.get({})) {
  await run(row);
}"#;
    let after = r#"let n = 0;
const run = async (row) => {
  n += 1;
  await withItem(`row-${n}`, "t", async (ctx) => {
    if (ctx.item.isDone) return;
    await mail.send({ to: row.email ?? "x" });
  });
};
for (const row of await http.get({})) {
  await run(row);
}"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn a_second_call_of_a_function_that_counts_is_part_of_the_id() {
    let before = r#"let n = 0;
const run = async (row) => {
  n += 1;
  await withItem(`row-${n}`, "t", async (ctx) => {});
};
for (const row of await http.get({})) {
  await run(row);
}"#;
    let after = r#"let n = 0;
const run = async (row) => {
  n += 1;
  await withItem(`row-${n}`, "t", async (ctx) => {});
};
for (const row of await http.get({})) {
  await run(row);
  await run(row);
}"#;
    check(
        before,
        after,
        expect![
            "line 4: the item id is built differently, so done items would be done again; before: ``row-${n}``, where `nothing more`; now: ``row-${n}``, where `await run(row);`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_getter_in_the_arguments_of_a_tool_is_counted() {
    let before = r#"let n = 0;
const ticket = { get next() { n += 1; return n; } };
await kv.get({ a: ticket.next });
await withItem(`row-${n}`, "t", async () => {});"#;
    let after = r#"let n = 0;
const ticket = { get next() { n += 1; return n; } };
await kv.get({ a: ticket.next, b: ticket.next });
await withItem(`row-${n}`, "t", async () => {});"#;
    check(
        before,
        after,
        expect![
            "line 4: the item id is built differently, so done items would be done again; before: ``row-${n}``, where `await kv.get({ a: ticket.next });`; now: ``row-${n}``, where `await kv.get({ a: ticket.next, b: ticket.next });`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_tag_gets_what_is_substituted() {
    let before = r#"for (const row of await http.get({})) {
  await withItem(row.id, "t", async () => {});
}"#;
    let after = r#"function tag(texts, row) { row.id = "x"; }
for (const row of await http.get({})) {
  tag`${row}`;
  await withItem(row.id, "t", async () => {});
}"#;
    check(
        before,
        after,
        expect![[
            r#"line 4: the item id is built differently, so done items would be done again; before: `row.id`, where `nothing more`; now: `row.id`, where `function tag(texts, row) { row.id = "x"; }`"#
        ]],
    );
}
