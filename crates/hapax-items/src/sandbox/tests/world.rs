//! The objects that a script finds.

use super::{Recorder, assert_transcript, limits, transcript_of};

#[test]
fn the_global_object_has_these_names_and_no_others() {
    let script = "console.log(Object.getOwnPropertyNames(globalThis).sort().join(' '));";
    let transcript = transcript_of(script, &limits(), Recorder::default());
    let expected = "log AggregateError Array ArrayBuffer AsyncDisposableStack BigInt BigInt64Array \
        BigUint64Array Boolean DataView Date DisposableStack Error EvalError Float16Array \
        Float32Array Float64Array Infinity Int16Array Int32Array Int8Array InternalError Iterator \
        JSON Map Math NaN Number Object Promise Proxy RangeError ReferenceError Reflect RegExp Set \
        String SuppressedError Symbol SyntaxError TypeError URIError Uint16Array Uint32Array \
        Uint8Array Uint8ClampedArray WeakMap WeakSet console decodeURI decodeURIComponent \
        encodeURI encodeURIComponent escape globalThis isFinite isNaN kv mail noop parseFloat \
        parseInt undefined unescape withItem";
    assert_eq!(transcript[0], expected);
}

#[test]
fn the_clock_stands_at_the_start_outside_and_at_the_hosts_time_inside() {
    assert_transcript(
        "const show = () => console.log(Date.now(), new Date().getTime(), +new (class extends Date {})(),
           Date() === new Date().toString(), new Date(5).getTime(), new Date(2020, 1).getFullYear(),
           new Date().constructor === Date, new Date() instanceof Date, Date.name, Date.length);
         show(); await withItem('a', '', show); show();",
        &[
            "log 1700000000000 1700000000000 1700000000000 true 5 2020 true true Date 7",
            "begin a ",
            "log 1000 1000 1000 true 5 2020 true true Date 7",
            "end null",
            "log 1700000000000 1700000000000 1700000000000 true 5 2020 true true Date 7",
            "completed",
        ],
    );
}

#[test]
fn randomness_is_the_same_in_each_run_and_starts_anew_in_each_item() {
    let script = "const r = () => Math.random();
        console.log('o1', r()); await withItem('a', '', () => console.log('i', r(), r()));
        console.log('o2', r()); await withItem('a', '', () => console.log('i', r(), r()));";
    let transcript = transcript_of(script, &limits(), Recorder::default());
    assert_eq!(transcript, transcript_of(script, &limits(), Recorder::default()));
    let inside: Vec<_> = transcript.iter().filter(|line| line.starts_with("log i")).collect();
    assert_eq!(inside[0], inside[1]);
    let outside: Vec<_> = transcript.iter().filter_map(|line| line.strip_prefix("log o")).collect();
    assert_ne!(outside[0][1..], outside[1][1..]);
    let numbers = inside[0].split(' ').skip(2).map(|text| text.parse::<f64>().unwrap());
    assert!(numbers.into_iter().all(|number| (0.0..1.0).contains(&number)));
}

#[test]
fn there_is_no_code_from_text() {
    let script = "const found = [];
        const attempt = (name, f) => { try { f(); found.push(name); } catch {} };
        attempt('eval', () => eval('1'));
        attempt('indirect eval', () => (0, globalThis.eval)('1'));
        attempt('Function', () => new Function('return 1')());
        const kinds = [() => {}, async () => {}, function* () {}, async function* () {},
          class {}, (0, kv.set), withItem, console.log, Date, Math.random, Array.fromAsync,
          [].flat, class extends Promise {}.constructor, Object.getPrototypeOf(async () => {})];
        for (const kind of kinds) {
          for (let c = kind, n = 0; c && n < 5; c = Object.getPrototypeOf(c), n++) {
            const made = (() => { try { return c.constructor('return 666'); } catch {} })();
            if (typeof made === 'function') found.push('constructor of ' + c);
          }
        }
        console.log('found', found.length, ...found);";
    assert_transcript(script, &["log found 0", "completed"]);
}

#[test]
fn there_are_no_other_modules() {
    let transcript =
        transcript_of("import fs from 'fs'; console.log(fs);", &limits(), Recorder::default());
    assert!(transcript.len() == 1 && transcript[0].starts_with("unreadable "), "{transcript:?}");
    assert_transcript(
        "for (const name of ['fs', 'std', 'os', 'qjs:os', './x.js']) {
           try { await import(name); console.log('imported', name); } catch {}
         }",
        &["completed"],
    );
}

#[test]
fn there_is_no_shared_memory_no_weak_reference_no_timer_and_no_print() {
    assert_transcript(
        "for (const name of ['Atomics', 'SharedArrayBuffer', 'WeakRef', 'FinalizationRegistry',
           'setTimeout', 'setInterval', 'print', 'performance', 'std', 'os', 'process', 'require',
           'queueMicrotask', 'navigator', 'scriptArgs', 'Function', 'eval']) {
           if (name in globalThis) console.log(name);
         }",
        &["completed"],
    );
}

#[test]
fn the_console_shows_strings_as_they_are_errors_by_name_and_the_rest_as_json() {
    assert_transcript(
        "console.log('a b', 1, null, undefined, true, 5n, Symbol('s'), [1, 'x'], { a: 1 });
         console.info(new TypeError('t')); console.warn('w'); console.error(new Error(''));
         const cycle = []; cycle[0] = cycle; console.log(cycle, '\\ud800');
         console.log({ get a() { throw 1; } }); console.log();",
        &[
            r#"log a b 1 null undefined true 5 symbol [1,"x"] {"a":1}"#,
            "log TypeError: t",
            "log w",
            "log Error",
            "log (an object) (not Unicode)",
            "log (an object)",
            "log ",
            "completed",
        ],
    );
}

#[test]
fn a_tool_has_its_operations_and_nothing_else() {
    assert_transcript(
        "console.log(Object.getOwnPropertyNames(kv), Object.getPrototypeOf(kv) === null,
           Object.isFrozen(kv), Object.isFrozen(kv.set), kv.set.name, Reflect.ownKeys(kv).length,
           typeof kv.constructor, 'prototype' in kv.set, Object.isFrozen(console),
           Object.isFrozen(withItem), kv.get() instanceof Promise);",
        &[
            "kv.get {}",
            r#"log ["get","set"] true true true set 2 undefined false true true true"#,
            "completed",
        ],
    );
}

#[test]
fn neither_a_tool_nor_with_item_can_be_replaced() {
    assert_transcript(
        "const refused = [];
         const attempt = (f) => { try { f(); } catch (e) { refused.push(e.name); } };
         attempt(() => { kv = {}; });
         attempt(() => { kv.set = () => {}; });
         attempt(() => { globalThis.kv = {}; });
         attempt(() => { delete globalThis.kv; });
         attempt(() => { Object.defineProperty(globalThis, 'withItem', { value: () => {} }); });
         attempt(() => { withItem = () => {}; });
         attempt(() => { console.log = () => {}; });
         attempt(() => { Object.setPrototypeOf(kv, { more() {} }); });
         attempt(() => new kv.set());
         console.log(refused.length);
         await withItem('a', '', () => kv.set({ n: 1 }));",
        &["log 9", "begin a ", r#"kv.set {"n":1}"#, r#"end {"n":1}"#, "completed"],
    );
}

#[test]
fn bounded_built_ins_behave_as_the_originals() {
    assert_transcript(
        "console.log([3, 1, 2].sort(), [10, 9, undefined, 1].sort(), ['b', 'a'].toSorted(),
           [3, 1, 2].sort((a, b) => b - a), [[1, [2, , 3]], 4].flat(), [[1, [2]]].flat(Infinity),
           [1, 2].flatMap((n) => [n, n]), [1].concat([2], 3, [[4]]), [1, 2, 3].slice(1), [1, 2].join('-'),
           [1, 2, 3].splice(1, 1), [1, 2].reverse(), [, 1].fill(0), [1, 2].with(0, 5));
         console.log('a-b-c'.split('-'), 'a-b'.split(/-/), 'abc'.split(''), 'abc'.split(), 'a,b,c'.split(',', 2),
           'aab'.replace('a', 'x'), 'aab'.replaceAll('a', (m) => m + m), 'aab'.replace(/a/g, '$&!'),
           'aXa'.indexOf('a', 1), 'aXa'.lastIndexOf('a'), 'abc'.includes('bc'), 'abc'.indexOf(undefined));
         console.log([].join.call('abc', '-'), JSON.stringify({ a: [1] }, null, 1).length, JSON.parse('[1]'),
           Array.prototype.slice.length, 'x'.split.name);
         try { 'a'.replaceAll(/a/, ''); } catch (e) { console.log(e.name); }",
        &[
            "log [1,2,3] [1,10,9,null] [\"a\",\"b\"] [3,2,1] [1,[2,null,3],4] [1,2] [1,1,2,2] \
             [1,2,3,[4]] [2,3] 1-2 [2] [2,1] [0,0] [5,2]",
            "log [\"a\",\"b\",\"c\"] [\"a\",\"b\"] [\"a\",\"b\",\"c\"] [\"abc\"] [\"a\",\"b\"] xab \
             aaaab a!a!b 2 2 true -1",
            "log a-b-c 18 [1] 2 split",
            "log TypeError",
            "completed",
        ],
    );
}
