//! The limits of a script, and how a run ends beyond them.

use std::time::{Duration, Instant};

use super::{Limits, Recorder, assert_transcript, limits, transcript_of};

#[track_caller]
fn assert_transcript_within(limits: &Limits, script: &str, expected: &[&str]) {
    assert_eq!(transcript_of(script, limits, Recorder::default()), expected, "\n{script}");
}

/// Proves I-14.
#[test]
fn endless_loops_end_wherever_they_are() {
    assert_transcript("for (;;) {}", &["limit Time"]);
    assert_transcript(
        "await withItem('a', '', () => { for (;;) {} });",
        &["begin a ", "limit in item Time"],
    );
    assert_transcript("await kv.set({ toJSON() { for (;;) {} } });", &["limit Time"]);
    assert_transcript("await kv.set({ get a() { for (;;) {} } });", &["limit Time"]);
    assert_transcript(
        "await withItem('a', '', () => ({ toJSON() { for (;;) {} } }));",
        &["begin a ", "limit in item Time"],
    );
    assert_transcript("console.log({ get a() { for (;;) {} } });", &["limit Time"]);
    assert_transcript(
        "await withItem('a', '', () => ({ get then() { for (;;) {} } }));",
        &["begin a ", "limit in item Time"],
    );
    assert_transcript("new Promise(() => { for (;;) {} }).catch(() => {});", &["limit Time"]);
    assert_transcript("await { then() { for (;;) {} } };", &["limit Time"]);
    assert_transcript("(function* () { for (;;) yield; })().forEach(() => {});", &["limit Time"]);
    assert_transcript(
        "const a = []; a[Symbol.iterator] = function* () { for (;;) yield 1; }; for (const _ of a);",
        &["limit Time"],
    );
    assert_transcript("throw { get a() { for (;;) {} } };", &["limit Time"]);
}

/// Proves I-14.
#[test]
fn an_endless_loop_cannot_be_caught() {
    assert_transcript(
        "await withItem('a', '', async () => {
           try { for (;;) {} } catch { kv.set({ n: 1 }); } finally { kv.set({ n: 2 }); console.log('f'); }
         });",
        &["begin a ", "limit in item Time"],
    );
    assert_transcript(
        "new Promise(() => { for (;;) {} }).finally(() => kv.set({ n: 1 })); kv.set({ n: 2 });",
        &["limit Time"],
    );
    assert_transcript(
        "async function* g() { try { for (;;) {} } finally { kv.set({ n: 1 }); } }
         g().next().catch(() => kv.set({ n: 2 })); new Map({ [Symbol.iterator]: () => ({
           next() { for (;;) {} }, return() { kv.set({ n: 3 }); return {}; } }) });",
        &["limit Time"],
    );
}

/// Proves I-14.
#[test]
fn a_loop_of_jobs_ends() {
    assert_transcript(
        "const f = () => { Promise.resolve().then(f); }; f(); await new Promise(() => {});",
        &["limit Time"],
    );
    assert_transcript(
        "withItem('a', '', async () => { for (;;) await null; });",
        &["begin a ", "limit in item Time"],
    );
    // Each promise waits for the next one, so that the run ends by either limit.
    let script = "const f = () => Promise.resolve().then(f); f(); await new Promise(() => {});";
    assert_transcript_within(
        &Limits { memory_bytes: 8 << 20, ..Limits::default() },
        script,
        &["limit Memory"],
    );
    let quick = Limits { cpu: Duration::from_millis(20), memory_bytes: 1 << 30, ..limits() };
    assert_transcript_within(&quick, script, &["limit Time"]);
}

/// Proves I-14.
#[test]
fn an_expression_that_backtracks_for_ever_ends() {
    assert_transcript("/^(a+)+$/.test('a'.repeat(40) + 'b');", &["limit Time"]);
    assert_transcript(
        "try { 'x'.repeat(40).replace(/(x+x+)+y/g, ''); } catch { kv.set(); }",
        &["limit Time"],
    );
}

/// Proves I-14.
#[test]
fn loops_within_the_engine_end() {
    for script in [
        "[].reverse.call({ length: 2 ** 53 - 1 });",
        "[].join.call({ length: 2 ** 53 - 1 }, '');",
        "new Array(2 ** 32 - 1).join('');",
        "[].concat({ length: 2 ** 53 - 1, [Symbol.isConcatSpreadable]: true });",
        "'a'.repeat(2e6).indexOf('a'.repeat(1e6) + 'b');",
        "'a'.repeat(2e6).split({ toString: () => 'a'.repeat(1e6) + 'b' });",
    ] {
        assert_transcript(
            &format!("try {{ {script} }} catch (e) {{ console.log(e.name); }}"),
            &["log RangeError", "completed"],
        );
    }
    assert_transcript("[].indexOf.call({ length: 2 ** 53 - 1 }, 1);", &["limit Time"]);
    assert_transcript("[].forEach.call({ length: 2 ** 53 - 1 }, () => {});", &["limit Time"]);
    assert_transcript("const a = []; a.length = 2 ** 32 - 1; [a, a, a].flat();", &["limit Time"]);
    let before = Instant::now();
    assert_transcript(
        "const a = 'x'.repeat(1e5).split(''); for (;;) a.slice().sort();",
        &["limit Time"],
    );
    assert_transcript(
        "const a = JSON.stringify('x'.repeat(1e6)); for (;;) JSON.parse(a);",
        &["limit Time"],
    );
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
}

/// Proves I-14.
#[test]
fn the_time_of_the_host_is_not_the_scripts() {
    let pause = Duration::from_millis(30);
    let limits = Limits { cpu: Duration::from_millis(100), ..Limits::default() };
    let host = Recorder { pause, ..Recorder::default() };
    let script = "await withItem('a', '', async () => {
        for (let i = 0; i < 10; i++) { await noop.do(); for (let j = 0; j < 2e4; j++); }
    });";
    let transcript = transcript_of(script, &limits, host);
    assert_eq!(transcript.last().map(String::as_str), Some("completed"));
    let host = Recorder { pause, ..Recorder::default() };
    let transcript = transcript_of("await noop.do(); await noop.do(); for (;;) {}", &limits, host);
    assert_eq!(transcript, ["noop.do {}", "noop.do {}", "limit Time"]);
}

/// Proves I-14.
#[test]
fn memory_that_is_not_there_is_not_given() {
    let limits = Limits { memory_bytes: 16 << 20, ..Limits::default() };
    let expected = &["begin a ", "limit in item Memory"];
    for bomb in [
        "const a = []; for (;;) a.push({});",
        "const a = []; for (;;) a.push([1, 2, 3]);",
        "let s = 'x'; for (;;) s += s;",
        "'x'.repeat(2 ** 29);",
        "const a = []; for (;;) a.push(new ArrayBuffer(1 << 20));",
        "new ArrayBuffer(1 << 30);",
        "new Uint8Array(1 << 28);",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, 'k' + i);",
        "let o = null; for (;;) o = { o };",
        "const a = []; for (;;) a.push(() => a);",
    ] {
        for handler in ["async () =>", "() =>"] {
            let script = format!("await withItem('a', '', {handler} {{ {bomb} }});");
            assert_transcript_within(&limits, &script, expected);
        }
    }
}

/// Proves I-14.
#[test]
fn a_script_may_catch_that_memory_is_short() {
    assert_transcript(
        "try { 'x'.repeat(2 ** 29); } catch (e) { console.log(e.message); } await kv.set();",
        &["log out of memory", "kv.set {}", "completed"],
    );
}

/// Proves I-14.
#[test]
fn no_amount_of_memory_is_so_short_that_the_host_falls() {
    let scripts = [
        "const keep = []; const f = async (n) => { try { for (;;) keep.push(new Array(n)); } catch {}
           return await n; };
         for (let n = 1; n < 200; n++) { try { await f(n); } catch {} try { await kv.set({ n }); } catch {} }",
        "const keep = []; await withItem('a', '', async () => { try { for (;;) keep.push({ keep }); } catch {}
           for (;;) { try { await Promise.all([1, 2].map(async (n) => { keep.push(n); throw n; })); } catch {} } });",
        "async function* g() { const keep = []; try { for (;;) { keep.push('x' + keep.length); yield 1; } }
           catch { yield 2; } } for await (const n of g()) { if (n === 2) for (;;) await n; }",
        "const keep = []; try { for (;;) keep.push(Promise.reject(keep)); } catch {} for (;;) keep.length = 0;",
    ];
    for bytes in (200..1_200).step_by(7) {
        let limits = Limits {
            cpu: Duration::from_millis(15),
            memory_bytes: bytes << 10,
            ..Limits::default()
        };
        for script in scripts {
            let transcript = transcript_of(script, &limits, Recorder::default());
            assert!(!transcript.is_empty());
        }
    }
}

/// Proves I-14.
#[test]
fn recursion_without_end_reaches_the_limit_of_the_stack() {
    assert_transcript("const f = () => f() + 1; f();", &["limit Stack"]);
    assert_transcript(
        "await withItem('a', '', () => { const f = () => [1].map(f); f(); });",
        &["begin a ", "limit in item Stack"],
    );
    assert_transcript("const f = async () => { await f(); }; await f();", &["limit Stack"]);
    assert_transcript(
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; await kv.set(a);",
        &["limit Stack"],
    );
    assert_transcript("JSON.parse('['.repeat(1e5));", &["limit Stack"]);
    assert_transcript("const p = new Proxy({}, { get: (t, k) => p[k] }); p.x;", &["limit Stack"]);
}

/// Proves I-14.
#[test]
fn a_handler_may_catch_that_the_stack_is_short_and_go_on() {
    assert_transcript(
        "await withItem('a', '', async () => {
           const f = () => f() + 1; try { f(); } catch (e) { await kv.set({ e: e.name }); }
         });",
        &["begin a ", r#"kv.set {"e":"RangeError"}"#, "end null", "completed"],
    );
}

/// Proves I-14.
#[test]
fn tools_that_are_called_at_the_end_of_the_stack_keep_the_host_safe() {
    let script = "const f = () => { kv.get(); f(); };
        try { f(); } catch (e) { console.log(e.name); } throw 'enough';";
    let transcript = transcript_of(script, &limits(), Recorder::default());
    let (calls, end) = transcript.split_at(transcript.len() - 2);
    assert_eq!(end, ["log RangeError", "threw enough"]);
    assert!(calls.len() > 100 && calls.iter().all(|call| call == "kv.get {}"));
}

/// Proves I-14.
#[test]
fn more_calls_than_allowed_end_the_run_uncaught() {
    let limits = Limits { calls: 3, ..limits() };
    assert_transcript_within(
        &limits,
        "for (;;) { try { await noop.do(); } catch {} }",
        &["noop.do {}", "noop.do {}", "noop.do {}", "limit Calls"],
    );
    assert_transcript_within(
        &limits,
        "for (;;) { try { console.log('x'); } catch {} }",
        &["log x", "log x", "log x", "limit Calls"],
    );
    assert_transcript_within(
        &limits,
        "for (;;) { try { withItem('a', '', () => {}); } catch {} }",
        &["limit Calls"],
    );
    assert_transcript_within(
        &limits,
        "try { for (;;) noop.do(); } catch {} finally { console.log('f'); }",
        &["noop.do {}", "noop.do {}", "noop.do {}", "limit Calls"],
    );
}

/// Proves I-14.
#[test]
fn messages_that_are_too_large_end_the_run_uncaught() {
    let limits = Limits { message_bytes: 100, ..limits() };
    let all = |script: &str| format!("try {{ {script} }} catch {{}} finally {{ noop.do(); }}");
    assert_transcript_within(&limits, &all("await kv.set('x'.repeat(99));"), &["limit Message"]);
    assert_transcript_within(&limits, &all("console.log('x'.repeat(101));"), &["limit Message"]);
    assert_transcript_within(
        &limits,
        "await withItem('a', '', () => 'x'.repeat(99));",
        &["begin a ", "limit in item Message"],
    );
    let host = Recorder { answer: Some(format!("\"{}\"", "x".repeat(599))), ..Recorder::default() };
    let transcript = transcript_of(&all("await kv.get(); "), &limits, host);
    assert_eq!(transcript, ["kv.get {}", "limit Message"]);
    assert_transcript_within(
        &limits,
        "await kv.set('x'.repeat(98)); console.log('y'.repeat(100));",
        &[
            &format!("kv.set \"{}\"", "x".repeat(98)),
            &format!("log {}", "y".repeat(100)),
            "completed",
        ],
    );
}

/// Proves I-14.
#[test]
fn requests_that_wait_for_the_host_count_as_memory() {
    let limits = Limits { memory_bytes: 4 << 20, ..limits() };
    let script = "const big = 'x'.repeat(1e6 - 2); for (let i = 0; i < 10; i++) kv.set(big);";
    let transcript = transcript_of(
        script,
        &limits,
        Recorder { answer: Some("0".to_owned()), ..Recorder::default() },
    );
    assert_eq!((transcript.len(), transcript[4].as_str()), (5, "limit Memory"));
    let script = "const big = 'x'.repeat(1e6 - 2); for (let i = 0; i < 10; i++) await kv.set(big);";
    let transcript = transcript_of(
        script,
        &limits,
        Recorder { answer: Some("0".to_owned()), ..Recorder::default() },
    );
    assert_eq!((transcript.len(), transcript[10].as_str()), (11, "completed"));
}

/// Proves I-14.
#[test]
fn a_world_without_room_is_a_limit_and_no_crash() {
    for bytes in [1, 1_000, 10_000, 100_000, 150_000, 200_000] {
        let limits = Limits { memory_bytes: bytes, ..limits() };
        assert_transcript_within(&limits, "1;", &["limit Memory"]);
    }
}

/// Proves I-14.
#[test]
fn a_script_without_any_time_does_not_begin() {
    let limits = Limits { cpu: Duration::ZERO, ..limits() };
    assert_transcript_within(&limits, "console.log('x'); for (;;) {}", &["limit Time"]);
}
