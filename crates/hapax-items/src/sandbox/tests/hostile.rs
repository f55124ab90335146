//! Scripts that try to go on after a stop, and the calls that still reach the host.

use super::{assert_transcript, stopped_at};

const ONE: &str = r#"kv.set {"n":1}"#;
const TWO: &str = r#"kv.set {"n":2}"#;

/// Proves I-7, I-14.
#[test]
fn a_stopped_call_cannot_be_caught() {
    stopped_at(
        2,
        "await withItem('a', '', async () => {
           try { await kv.set({ n: 1 }); } catch { await kv.set({ n: 2 }); }
           console.log('on');
         });",
        &["begin a ", ONE, "stopped"],
    );
}

#[test]
fn finally_does_not_run_after_a_stop() {
    stopped_at(
        1,
        "try { await kv.set({ n: 1 }); } finally { kv.set({ n: 2 }); console.log('f'); }",
        &[ONE, "stopped"],
    );
}

#[test]
fn chains_of_reactions_do_not_run_after_a_stop() {
    stopped_at(
        1,
        "const more = () => kv.set({ n: 2 });
         kv.set({ n: 1 }).catch(more).then(more, more).finally(more);
         Promise.resolve().then(more);",
        &[ONE, "stopped"],
    );
}

#[test]
fn all_settled_any_and_race_do_not_settle_after_a_stop() {
    for which in ["allSettled", "all", "any", "race"] {
        let script = format!(
            "await Promise.{which}([kv.set({{ n: 1 }}), kv.set({{ n: 2 }})]).catch(() => {{}});
             await kv.set({{ n: 3 }});"
        );
        stopped_at(1, &script, &[ONE, "stopped"]);
        stopped_at(2, &script, &[ONE, TWO, "stopped"]);
    }
}

#[test]
fn concurrent_calls_end_where_the_host_stops() {
    stopped_at(
        2,
        "kv.set({ n: 1 }); kv.set({ n: 2 }); console.log('after'); kv.set({ n: 3 });",
        &[ONE, TWO, "stopped"],
    );
}

#[test]
fn generators_are_not_resumed_after_a_stop() {
    stopped_at(
        3,
        "async function* source() {
           try { yield 1; await kv.set({ n: 1 }); yield 2; } finally { await kv.set({ n: 2 }); }
         }
         await withItem('a', '', async () => {
           for await (const n of source()) console.log(n);
         });",
        &["begin a ", "log 1", ONE, "stopped"],
    );
    stopped_at(
        1,
        "const it = { [Symbol.iterator]() { return this; }, next: () => ({ value: 1 }),
           return() { kv.set({ n: 2 }); return {}; } };
         for (const n of it) { await kv.set({ n }); break; }",
        &[ONE, "stopped"],
    );
}

#[test]
fn disposal_does_not_happen_after_a_stop() {
    stopped_at(
        1,
        "const stack = new AsyncDisposableStack();
         stack.defer(() => kv.set({ n: 2 }));
         try { await kv.set({ n: 1 }); } finally { await stack.disposeAsync(); }",
        &[ONE, "stopped"],
    );
}

#[test]
fn a_stop_at_begin_or_end_is_final() {
    let script = "await withItem('a', '', () => kv.set({ n: 1 })).catch(() => {});
        await kv.set({ n: 2 });";
    stopped_at(1, script, &["begin a ", "stopped"]);
    stopped_at(3, script, &["begin a ", ONE, r#"end {"n":1}"#, "stopped"]);
}

#[test]
fn an_error_thrown_by_a_handler_cannot_be_caught_outside() {
    assert_transcript(
        "const fail = () => { throw new Error('x'); };
         try { await withItem('a', '', fail); } catch {} finally { await kv.set({ n: 1 }); }
         await Promise.allSettled([withItem('b', '', fail)]);",
        &["begin a ", "threw in item Error: x"],
    );
}

#[test]
fn a_rejection_that_the_handler_shares_cannot_be_caught_first() {
    assert_transcript(
        "let fail; const shared = new Promise((_, reject) => { fail = reject; });
         shared.catch(() => kv.set({ n: 1 }));
         withItem('a', '', () => { Promise.resolve().then(() => fail(new Error('x'))); return shared; })
           .catch(() => kv.set({ n: 2 }));",
        &["begin a ", "threw in item Error: x"],
    );
}

#[test]
fn items_within_items_without_end_are_stuck_at_the_first() {
    assert_transcript(
        "const down = (n) => withItem('i' + n, '', () => down(n + 1)); await down(0);",
        &["begin i0 ", "stuck nested"],
    );
    assert_transcript(
        "let n = 0;
         await withItem('a', '', async () => {
           await Promise.race([withItem('b', '', () => {}), kv.set({ n: 1 })]);
         });",
        &["begin a ", ONE, "end null", "begin b ", "end null", "completed"],
    );
}

#[test]
fn a_with_item_that_is_called_wrongly_cannot_be_caught() {
    let id = "threw TypeError: withItem: the id must be a string of 1 to 512 bytes";
    let title = "threw TypeError: withItem: the title must be a string of at most 512 bytes";
    let handler = "threw TypeError: withItem: the handler must be a function";
    for (call, expected) in [
        ("withItem()", id),
        ("withItem('', '', () => {})", id),
        ("withItem('x'.repeat(513), '', () => {})", id),
        ("withItem('\u{e9}'.repeat(257), '', () => {})", id),
        ("withItem('x'.repeat(3e6), '', () => {})", id),
        ("withItem({ toString() { kv.set({ n: 1 }); return 'a'; } }, '', () => {})", id),
        ("withItem(new String('a'), '', () => {})", id),
        ("withItem('\\ud800', '', () => {})", id),
        ("withItem('a', 'x'.repeat(513), () => {})", title),
        ("withItem('a', undefined, () => {})", title),
        ("withItem('a', 'A')", handler),
        ("withItem('a', 'A', { call() {} })", handler),
        ("withItem('a', 'A', Promise.resolve())", handler),
    ] {
        let script = format!(
            "try {{ await {call}; }} catch {{}} finally {{ kv.set({{ n: 2 }}); }}
             await kv.set({{ n: 3 }});"
        );
        assert_transcript(&script, &[expected]);
    }
    assert_transcript(
        "new Promise(() => { withItem(1); }).catch(() => {}); console.log('x'); kv.set({ n: 1 });",
        &[id],
    );
    assert_transcript(
        "await withItem('a', '', async () => { try { await withItem(); } catch {} });",
        &[
            "begin a ",
            "threw in item TypeError: withItem: the id must be a string of 1 to 512 bytes",
        ],
    );
}

#[test]
fn polluted_prototypes_change_nothing_for_the_host() {
    assert_transcript(
        "Promise.prototype.then = function () { throw new Error('then'); };
         Promise.prototype.catch = Promise.prototype.finally = undefined;
         Promise.resolve = Promise.all = () => { throw 1; };
         for (const [on, name] of [[Promise, Symbol.species], [Promise.prototype, 'constructor']]) {
           try { Object.defineProperty(on, name, { get() { throw 2; } }); } catch { console.log('no'); }
         }
         Array.prototype.push = Array.prototype.map = () => { throw 3; };
         Object.freeze = Object.defineProperty = Reflect.apply = () => { throw 4; };
         const functions = Object.getPrototypeOf(() => {});
         functions.call = functions.apply = functions.bind = () => { throw 5; };
         for (const name of ['id', 'title', 'isDone', 'attempt', 'item', 'value', 'get', 'then2']) {
           Object.prototype.__defineSetter__(name, () => { throw 6; });
         }
         Array.prototype[Symbol.iterator] = function* () { yield 'forged'; };
         globalThis.Promise = class {}; globalThis.Object = null; globalThis.Reflect = null;
         globalThis.TypeError = globalThis.Error = null;
         const r = await withItem('a', 'A', async ({ item }) => {
           await kv.set({ ['n']: 1 }); console.log(item, Date.now()); return [1, 2].flat().concat([3]);
         });
         console.log(r);",
        &[
            "log no",
            "log no",
            "begin a A",
            ONE,
            r#"log {"id":"a","title":"A","isDone":false,"attempt":2} 1000"#,
            "end [1,2,3]",
            "log [1,2,3]",
            "completed",
        ],
    );
}

#[test]
fn a_json_of_the_scripts_own_is_not_asked() {
    assert_transcript(
        "JSON.stringify = () => '\"forged\"'; JSON.parse = () => 'forged'; globalThis.JSON = null;
         console.log(await withItem('a', '', async () => (await kv.set({ n: 1 })).n));",
        &["begin a ", ONE, "end 1", "log 1", "completed"],
    );
}

#[test]
fn a_to_json_on_all_objects_is_what_the_script_says_and_still_json() {
    assert_transcript(
        "Object.prototype.toJSON = function () { return 'all'; };
         await withItem('a', '', async (ctx) => { await kv.set({ n: 1 }); return ctx.item.id; });",
        &["begin a ", r#"kv.set "all""#, r#"end "a""#, "completed"],
    );
}

#[test]
fn a_then_on_all_objects_stays_within_the_script() {
    assert_transcript(
        "let n = 0;
         Object.prototype.then = function (resolve) { delete Object.prototype.then; kv.set({ n: 2 }); resolve('mine'); };
         console.log(await kv.set({ n: 1 }));",
        &[ONE, TWO, "log mine", "completed"],
    );
    stopped_at(
        2,
        "Object.defineProperty(Object.prototype, 'then', { get() { kv.set({ n: 2 }); } });
         await kv.set({ n: 1 }); await kv.set({ n: 3 });",
        &[ONE, TWO, "stopped"],
    );
}

#[test]
fn thenables_are_waited_for_and_cannot_settle_twice() {
    assert_transcript(
        "const odd = { then(resolve, reject) { resolve(1); resolve(2); reject(3); throw 4; } };
         console.log(await withItem('a', '', () => odd), await odd);",
        &["begin a ", "end 1", "log 1 1", "completed"],
    );
    assert_transcript(
        "await withItem('a', '', () => ({ get then() { kv.set({ n: 1 }); throw new Error('x'); } }));",
        &["begin a ", ONE, "threw in item Error: x"],
    );
    assert_transcript("await withItem('a', '', () => ({ then() {} }));", &["begin a ", "stuck"]);
}

#[test]
fn proxies_are_read_once_and_are_only_what_they_show() {
    assert_transcript(
        "let reads = 0;
         const p = new Proxy({ n: 0 }, { get(t, k) {
           if (k === 'toJSON') return undefined;
           return ++reads;
         } });
         await kv.set(p);
         const handler = new Proxy(async () => 5, { apply() { return 6; } });
         console.log(await withItem('a', '', handler), reads);",
        &[ONE, "begin a ", "end 6", "log 6 1", "completed"],
    );
    assert_transcript(
        "const { proxy, revoke } = Proxy.revocable({}, {}); revoke();
         await kv.set(proxy).catch((e) => console.log(e.name)); throw proxy;",
        &["log TypeError", "threw (an object)"],
    );
}

#[test]
fn getters_and_to_json_in_arguments_that_call_tools_come_first() {
    assert_transcript(
        "await kv.set({ get n() { kv.set({ n: 1 }); return 2; } });
         await kv.set({ toJSON() { kv.set({ n: 1 }); return { n: 2 }; } });",
        &[ONE, TWO, ONE, TWO, "completed"],
    );
    stopped_at(1, "await kv.set({ get n() { kv.set({ n: 1 }); return 2; } });", &[ONE, "stopped"]);
    assert_transcript(
        "await kv.set({ get n() { withItem(); } }).catch(() => {}); kv.set({ n: 1 });",
        &["threw TypeError: withItem: the id must be a string of 1 to 512 bytes"],
    );
}

#[test]
fn symbol_tricks_convert_nothing() {
    assert_transcript(
        "const odd = { [Symbol.toPrimitive]() { kv.set({ n: 9 }); return 'x'; }, [Symbol.toStringTag]: 'Promise',
           get [Symbol.species]() { return Object; }, constructor: Promise };
         await kv.set(odd).catch((e) => console.log(e.name));
         Object.defineProperty(Promise, Symbol.hasInstance, { value: () => true });
         console.log(await withItem('a', '', () => ({ [Symbol('s')]: 1, n: 1 })));",
        &["log TypeError", "begin a ", r#"end {"n":1}"#, r#"log {"n":1}"#, "completed"],
    );
}

#[test]
fn a_script_cannot_change_the_item_in_its_context() {
    assert_transcript(
        "await withItem('a', '', async (ctx) => {
           let refused = 0;
           for (const change of [() => { ctx.item.id = 'b'; }, () => { ctx.item = {}; },
             () => { ctx.more = 1; }, () => { delete ctx.item.isDone; },
             () => Object.defineProperty(ctx.item, 'isDone', { value: true }),
             () => Object.setPrototypeOf(ctx.item, null)]) {
             try { change(); } catch { refused++; }
           }
           return [refused, ctx.item.id, ctx.item.isDone];
         });",
        &["begin a ", r#"end [6,"a",false]"#, "completed"],
    );
}

#[test]
fn a_mutation_after_an_item_is_over_is_passed_on_as_outside_of_it() {
    assert_transcript(
        "let later; const gate = new Promise((go) => { later = go; });
         await withItem('a', '', () => { gate.then(() => kv.set({ n: 2 })); return kv.set({ n: 1 }); });
         later();",
        &["begin a ", ONE, r#"end {"n":1}"#, TWO, "completed"],
    );
}

#[test]
fn an_error_that_calls_tools_while_it_is_read_calls_none() {
    assert_transcript(
        "const e = new Error('x');
         Object.defineProperty(e, 'message', { get() { kv.set({ n: 1 }); console.log('m'); return 'read'; } });
         Error.prepareStackTrace = () => { kv.set({ n: 2 }); return 's'; };
         throw e;",
        &["threw Error: read"],
    );
    assert_transcript(
        "throw Object.defineProperty(new Error('x'), 'name', { get() { throw new Error('y'); } });",
        &["threw Error: x"],
    );
}

#[test]
fn a_tool_borrowed_for_another_object_is_the_same_tool() {
    assert_transcript(
        "const { set } = kv; await set({ n: 1 }); await set.call(null, { n: 2 });
         await Reflect.apply(mail.send, kv, [{ n: 3 }]); await [{ n: 1 }].map(set)[0];
         await new Proxy(kv, {}).set({ n: 2 });",
        &[ONE, TWO, r#"mail.send {"n":3}"#, ONE, TWO, "completed"],
    );
}

#[test]
fn a_class_that_subclasses_promise_gets_no_ahead() {
    stopped_at(
        1,
        "class Mine extends Promise { then(a, b) { return super.then(a, () => kv.set({ n: 2 })); } }
         await Mine.resolve(kv.set({ n: 1 })).catch(() => {});",
        &[ONE, "stopped"],
    );
}
