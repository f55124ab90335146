//! How subkeys change.

use expect_test::expect;

use crate::{ORDERS, change, check};

/// Proves I-11.
#[test]
fn another_subkey_is_a_difference() {
    change(
        ORDERS,
        &[(r#""thanks""#, r#""thank-you""#)],
        expect![[
            r#"line 12: the subkey of mail.send is another, so it would happen again; before: `subkey: "thanks"`; now: `subkey: "thank-you"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_subkey_that_disappears_is_a_difference() {
    change(
        ORDERS,
        &[(r#", subkey: "thanks""#, "")],
        expect![[
            r#"line 12: the subkey of mail.send is another, so it would happen again; before: `subkey: "thanks"`; now: none"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_subkey_that_appears_is_a_difference() {
    change(
        ORDERS,
        &[(r#"value: "told" }"#, r#"value: "told", subkey: "told" }"#)],
        expect![[
            r#"line 14: the subkey of kv.set is another, so it would happen again; before: none; now: `subkey: "told"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn another_input_of_a_subkey_is_a_difference() {
    change(
        ORDERS,
        &[("`invoice-${order.id}`", "`invoice-${order.number}`")],
        expect![
            "line 13: the subkey of mail.send is another, so it would happen again; before: `subkey: `invoice-${order.id}``; now: `subkey: `invoice-${order.number}``"
        ],
    );
}

/// Proves I-11.
#[test]
fn subkeys_that_change_places_are_a_difference() {
    change(
        ORDERS,
        &[
            (r#""thanks""#, r#""tmp""#),
            ("`invoice-${order.id}`", r#""thanks""#),
            (r#""tmp""#, "`invoice-${order.id}`"),
        ],
        expect![[
            r#"line 12: the subkey of mail.send is another, so it would happen again; before: `subkey: "thanks"`; now: none"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_subkey_from_a_constant_is_followed() {
    let before = r#"const key = "a";
await mail.send({ to: "x", subkey: key });"#;
    let after = r#"const key = "b";
await mail.send({ to: "x", subkey: key });"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the subkey of mail.send is another, so it would happen again; before: `subkey: key`, where `key = "a"`; now: `subkey: key`, where `key = "b"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_subkey_by_its_short_form_is_followed() {
    let before = r#"const subkey = "a";
await mail.send({ to: "x", subkey });"#;
    let after = r#"const subkey = "b";
await mail.send({ to: "x", subkey });"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the subkey of mail.send is another, so it would happen again; before: `subkey`, where `subkey = "a"`; now: `subkey`, where `subkey = "b"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_quoted_or_escaped_subkey_is_a_subkey() {
    let before = r#"await mail.send({ to: "x", subkey: "a" });"#;
    let after = r#"await mail.send({ to: "x", ["sub\u006bey"]: "b" });"#;
    check(
        before,
        after,
        expect![[
            r#"line 1: the subkey of mail.send is another, so it would happen again; before: `subkey: "a"`; now: `["sub\u006bey"]: "b"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_later_subkey_wins_and_is_seen() {
    let before = r#"await mail.send({ to: "x", subkey: "a" });"#;
    let after = r#"await mail.send({ to: "x", subkey: "a", subkey: "b" });"#;
    check(
        before,
        after,
        expect![[
            r#"line 1: the subkey of mail.send is another, so it would happen again; before: `subkey: "a"`; now: `subkey: "a", subkey: "b"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_property_of_a_computed_name_may_be_a_subkey() {
    let before = r#"const name = (await kv.get({})).name;
await mail.send({ to: "x", subkey: "a" });"#;
    let after = r#"const name = (await kv.get({})).name;
await mail.send({ to: "x", subkey: "a", [name]: "b" });"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the subkey of mail.send is another, so it would happen again; before: `subkey: "a"`; now: `subkey: "a", [name]: "b"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_spread_is_followed() {
    let before = r#"const base = { from: "me", subkey: "a" };
await mail.send({ to: "x", ...base });"#;
    let after = r#"const base = { from: "me", subkey: "b" };
await mail.send({ to: "x", ...base });"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the subkey of mail.send is another, so it would happen again; before: `...base`, where `base = { from: "me", subkey: "a" }`; now: `...base`, where `base = { from: "me", subkey: "b" }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_spread_after_the_subkey_is_not_one_before_it() {
    let before = r#"const base = { subkey: "a" };
await mail.send({ subkey: "b", ...base });"#;
    let after = r#"const base = { subkey: "a" };
await mail.send({ ...base, subkey: "b" });"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the subkey of mail.send is another, so it would happen again; before: `subkey: "b", ...base`; now: `...base, subkey: "b"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_variable_as_the_argument_is_followed() {
    let before = r#"const message = { to: "x", subkey: "a" };
await mail.send(message);"#;
    let after = r#"const message = { to: "x", subkey: "b" };
await mail.send(message);"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the subkey of mail.send is another, so it would happen again; before: `message`, where `message = { to: "x", subkey: "a" }`; now: `message`, where `message = { to: "x", subkey: "b" }`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn payloads_in_a_variable_may_change() {
    let before = r#"const message = { to: "x", text: "one", subkey: "a" };
message.text = "two";
await mail.send(message);"#;
    let after = r#"const message = { to: "y", text: "three", subkey: "a" };
message.text = "four";
message.cc = [];
message.cc.push("z");
await mail.send(message);"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn a_payload_may_move_into_a_variable() {
    let before = r#"await mail.send({ to: "x" });"#;
    let after = r#"const message = { to: "x" };
await mail.send(message);"#;
    check(before, after, expect![[""]]);
}

/// Proves I-11.
#[test]
fn a_subkey_that_is_written_later_is_seen() {
    let before = r#"const message = { to: "x", subkey: "a" };
await mail.send(message);"#;
    let after = r#"const message = { to: "x", subkey: "a" };
message.subkey = "b";
await mail.send(message);"#;
    check(
        before,
        after,
        expect![[
            r#"line 3: the subkey of mail.send is another, so it would happen again; before: `message`, where `nothing more`; now: `message`, where `message.subkey = "b";`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_subkey_that_is_written_through_a_helper_is_seen() {
    let before = r#"const message = { to: "x" };
function mark(what) { what.text = "b"; }
mark(message);
await mail.send(message);"#;
    let after = r#"const message = { to: "x" };
function mark(what) { what.subkey = "b"; }
mark(message);
await mail.send(message);"#;
    check(
        before,
        after,
        expect![
            "line 4: the subkey of mail.send is another, so it would happen again; before: none; now: `message`"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_subkey_from_a_parameter_is_followed_to_the_calls() {
    let before = r#"const send = (to, subkey) => mail.send({ to, subkey });
await send("x", "a");"#;
    let after = r#"const send = (to, subkey) => mail.send({ to, subkey });
await send("x", "b");"#;
    check(
        before,
        after,
        expect![[
            r#"line 1: the subkey of mail.send is another, so it would happen again; before: `subkey`, where `subkey = "a"`; now: `subkey`, where `subkey = "b"`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_subkey_from_a_function_is_followed() {
    let before = r#"const message = (to) => ({ to, subkey: `m-${to}` });
await mail.send(message("x"));"#;
    let after = r#"const message = (to) => ({ to, subkey: `n-${to}` });
await mail.send(message("x"));"#;
    check(
        before,
        after,
        expect![[
            r#"line 2: the subkey of mail.send is another, so it would happen again; before: `message("x")`, where `message = (to) => ({ to, subkey: `m-${to}` })`; now: `message("x")`, where `message = (to) => ({ to, subkey: `n-${to}` })`"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_further_call_is_no_difference() {
    change(
        ORDERS,
        &[(
            "    await kv.set",
            r#"    await mail.send({ to: order.owner, text: "Sold", subkey: "sold" });
    await kv.set"#,
        )],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn a_further_call_in_front_is_no_difference() {
    change(
        ORDERS,
        &[(
            r#"    await mail.send({ to: order.email, text: "Thank you""#,
            r#"    await mail.send({ to: order.owner, text: "Sold" });
    await mail.send({ to: order.email, text: "Thank you""#,
        )],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn a_further_call_that_takes_over_a_subkey_is_a_difference() {
    let before = r#"await mail.send({ to: "x" });"#;
    let after = r#"await mail.send({ to: "x", subkey: "a" });
await mail.send({ to: "y" });"#;
    check(
        before,
        after,
        expect![
            "line 2: calls of mail.send were added or removed and others changed; which of them kept its subkey is unknown"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_call_without_a_subkey_may_go() {
    change(
        ORDERS,
        &[(
            r#"    await kv.set({ key: order.id, value: "told" });
"#,
            "",
        )],
        expect![[""]],
    );
}

/// Proves I-11.
#[test]
fn a_call_with_a_subkey_may_not_go() {
    change(
        ORDERS,
        &[(
            r#"    await mail.send({ to: order.email, text: "Thank you", subkey: "thanks" });
"#,
            "",
        )],
        expect![[
            r#"line 12: the subkey of mail.send is another, so it would happen again; before: `subkey: "thanks"`; now: none"#
        ]],
    );
}

/// Proves I-11.
#[test]
fn a_call_that_goes_and_leaves_its_subkey_to_another_is_a_difference() {
    let before = r#"await mail.send({ to: "x" });
await mail.send({ to: "y", subkey: "a" });"#;
    let after = r#"await mail.send({ to: "x", subkey: "a" });"#;
    check(
        before,
        after,
        expect![
            "line 1: calls of mail.send were added or removed and others changed; which of them kept its subkey is unknown"
        ],
    );
}

/// Proves I-11.
#[test]
fn a_subkey_on_the_second_argument_is_seen() {
    let before = r#"await kv.set("k", { subkey: "a" });"#;
    let after = r#"await kv.set("k", { subkey: "b" });"#;
    check(
        before,
        after,
        expect![[
            r#"line 1: the subkey of kv.set is another, so it would happen again; before: `subkey: "a"`; now: `subkey: "b"`"#
        ]],
    );
}
