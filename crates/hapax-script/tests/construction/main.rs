//! Changes that a repair may make and changes that it may not, pair by pair.

use expect_test::Expect;
use hapax_script::Construction;

mod allowed;
mod hidden;
mod hostile;
mod ids;
mod inputs;
mod subkeys;
mod surroundings;
mod tools;
mod writes;

const TOOLS: [&str; 3] = ["http", "kv", "mail"];

/// The script that most pairs start from.
const ORDERS: &str = r#"
const { orders } = await http.get({ url: "https://shop/orders" });
const prefix = "order";

function slug(text) {
  return text.trim().toLowerCase();
}

for (const order of orders) {
  await withItem(`${prefix}-${slug(order.id)}`, order.title, async (ctx) => {
    if (ctx.item.isDone) return;
    await mail.send({ to: order.email, text: "Thank you", subkey: "thanks" });
    await mail.send({ to: order.email, text: "Please pay", subkey: `invoice-${order.id}` });
    await kv.set({ key: order.id, value: "told" });
  });
}
"#;

/// The differences, one per line; nothing if `after` may replace `before`.
#[track_caller]
fn check(before: &str, after: &str, expected: Expect) {
    let read = |script| match Construction::of(script, &TOOLS) {
        Ok(construction) => construction,
        Err(error) => panic!("{error} in:\n{script}"),
    };
    let (before, after) = (read(before), read(after));
    let lines: Vec<_> = after.differences(&before).iter().map(ToString::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

/// [`check`] of a script in which each first text gives way to the second.
#[track_caller]
fn change(before: &str, changes: &[(&str, &str)], expected: Expect) {
    let mut after = before.to_owned();
    for (from, to) in changes {
        assert!(after.contains(from), "{from} is not in:\n{after}");
        after = after.replace(from, to);
    }
    check(before, &after, expected);
}
