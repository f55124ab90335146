//! Scripts in the sandbox: the calls that reach the host, and how the run ends.

mod hostile;
mod limits;
mod world;

use std::time::Duration;

use super::{Host, ItemStart, Limits, RunEnd, Stop, Tools, check, run};

fn tools() -> Tools {
    let tools = [("kv", &["get", "set"][..]), ("mail", &["send"]), ("noop", &["do"])];
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Tools(tools.map(|(tool, operations)| (tool.to_owned(), owned(operations))).into())
}

/// The time outside of items.
const STARTED_MS: i64 = 1_700_000_000_000;

/// Records the calls that reach it, and can stop the run at the nth call.
#[derive(Default)]
struct Recorder {
    transcript: Vec<String>,
    stop_at: Option<usize>,
    done: &'static [&'static str],
    answer: Option<String>,
    pause: Duration,
}

impl Recorder {
    fn record(&mut self, line: String) -> Result<(), Stop> {
        self.transcript.push(line);
        std::thread::sleep(self.pause);
        if self.stop_at == Some(self.transcript.len()) { Err(Stop) } else { Ok(()) }
    }
}

impl Host for Recorder {
    fn begin(&mut self, id: &str, title: &str) -> Result<ItemStart, Stop> {
        self.record(format!("begin {id} {title}"))?;
        Ok(ItemStart { is_done: self.done.contains(&id), attempt: 2, now_ms: 1_000, seed: 7 })
    }

    fn end(&mut self, result: &str) -> Result<(), Stop> {
        self.record(format!("end {result}"))
    }

    fn call(&mut self, tool: &str, operation: &str, arguments: &str) -> Result<String, Stop> {
        self.record(format!("{tool}.{operation} {arguments}"))?;
        Ok(self.answer.clone().unwrap_or_else(|| arguments.to_owned()))
    }

    fn log(&mut self, line: &str) {
        self.transcript.push(format!("log {line}"));
    }
}

/// Quick limits, so that endless loops do not take long.
fn limits() -> Limits {
    Limits { cpu: Duration::from_millis(300), ..Limits::default() }
}

/// The calls of a script, and its end as the last line.
fn transcript_of(script: &str, limits: &Limits, mut host: Recorder) -> Vec<String> {
    let ended = run(script, "test.js", tools(), STARTED_MS, limits, &mut host);
    let place = |in_item: bool| if in_item { " in item" } else { "" };
    host.transcript.push(match ended {
        RunEnd::Completed => "completed".to_owned(),
        RunEnd::Stopped => "stopped".to_owned(),
        RunEnd::Threw { message, in_item, .. } => format!("threw{} {message}", place(in_item)),
        RunEnd::Limit { which, in_item } => format!("limit{} {which:?}", place(in_item)),
        RunEnd::Stuck { nested } => format!("stuck{}", if nested { " nested" } else { "" }),
        RunEnd::Unreadable(what) => format!("unreadable {what}"),
    });
    host.transcript
}

#[track_caller]
fn assert_transcript(script: &str, expected: &[&str]) {
    assert_eq!(transcript_of(script, &limits(), Recorder::default()), expected, "\n{script}");
}

/// The host stops at the nth call.
#[track_caller]
fn stopped_at(nth: usize, script: &str, expected: &[&str]) {
    let host = Recorder { stop_at: Some(nth), ..Recorder::default() };
    assert_eq!(transcript_of(script, &limits(), host), expected, "\n{script}");
}

#[test]
fn an_item_begins_calls_and_ends_with_what_its_handler_returns() {
    assert_transcript(
        "const r = await withItem('a', 'A', async (ctx) => {
           const got = await kv.set({ key: ctx.item.id });
           return { got, attempt: ctx.item.attempt, isDone: ctx.item.isDone };
         });
         console.log(r, r.got.key);",
        &[
            "begin a A",
            r#"kv.set {"key":"a"}"#,
            r#"end {"got":{"key":"a"},"attempt":2,"isDone":false}"#,
            r#"log {"got":{"key":"a"},"attempt":2,"isDone":false} a"#,
            "completed",
        ],
    );
}

#[test]
fn a_handler_runs_also_for_an_item_that_is_done() {
    let host = Recorder { done: &["a"], ..Recorder::default() };
    let script = "await withItem('a', 'A', async (ctx) => {
        if (ctx.item.isDone) await mail.send({ late: true });
    });";
    let transcript = transcript_of(script, &limits(), host);
    assert_eq!(transcript, ["begin a A", r#"mail.send {"late":true}"#, "end null", "completed"]);
}

#[test]
fn handlers_that_return_nothing_or_no_promise_are_fine() {
    assert_transcript(
        "console.log(await withItem('a', '', () => {}), await withItem('b', '', () => [1]));",
        &["begin a ", "end null", "begin b ", "end [1]", "log null [1]", "completed"],
    );
}

#[test]
fn concurrent_items_run_one_after_the_other_in_the_order_of_the_calls() {
    assert_transcript(
        "const one = (id) => withItem(id, '', async () => { await noop.do({ id }); return id; });
         console.log(await Promise.all(['a', 'b', 'c'].map(one)));",
        &[
            "begin a ",
            r#"noop.do {"id":"a"}"#,
            r#"end "a""#,
            "begin b ",
            r#"noop.do {"id":"b"}"#,
            r#"end "b""#,
            "begin c ",
            r#"noop.do {"id":"c"}"#,
            r#"end "c""#,
            r#"log ["a","b","c"]"#,
            "completed",
        ],
    );
}

#[test]
fn code_after_an_item_runs_before_the_next_item_begins() {
    assert_transcript(
        "withItem('a', '', () => {}).then(() => kv.set({ after: 'a' }));
         withItem('b', '', () => {});",
        &["begin a ", "end null", r#"kv.set {"after":"a"}"#, "begin b ", "end null", "completed"],
    );
}

#[test]
fn items_that_no_code_awaits_run() {
    assert_transcript(
        "withItem('a', '', () => {}); withItem('b', '', () => {}); console.log('end of script');",
        &["log end of script", "begin a ", "end null", "begin b ", "end null", "completed"],
    );
}

#[test]
fn promises_a_handler_leaves_pending_run_inside_its_item() {
    assert_transcript(
        "await withItem('a', '', () => {
           (async () => { await noop.do({ n: 1 }); await noop.do({ n: 2 }); })();
         });
         await noop.do({ n: 3 });",
        &[
            "begin a ",
            r#"noop.do {"n":1}"#,
            r#"noop.do {"n":2}"#,
            "end null",
            r#"noop.do {"n":3}"#,
            "completed",
        ],
    );
}

#[test]
fn a_to_json_of_a_result_that_calls_tools_does_so_inside_the_item() {
    assert_transcript(
        "await withItem('a', '', () => ({ toJSON() {
           kv.set({ n: 1 }).then(() => kv.set({ n: 2 }));
           return 5;
         } }));",
        &["begin a ", r#"kv.set {"n":1}"#, r#"kv.set {"n":2}"#, "end 5", "completed"],
    );
}

#[test]
fn an_item_within_an_item_is_stuck() {
    assert_transcript(
        "await withItem('a', '', async () => { await withItem('b', '', () => {}); });",
        &["begin a ", "stuck nested"],
    );
}

#[test]
fn an_item_that_is_asked_for_within_another_and_not_waited_for_comes_next() {
    assert_transcript(
        "await withItem('a', '', () => { withItem('b', '', () => {}); });",
        &["begin a ", "end null", "begin b ", "end null", "completed"],
    );
}

#[test]
fn waiting_for_what_never_comes_is_stuck() {
    assert_transcript("await new Promise(() => {});", &["stuck"]);
    assert_transcript(
        "await withItem('a', '', () => new Promise(() => {}));",
        &["begin a ", "stuck"],
    );
    assert_transcript(
        "withItem('a', '', () => {}); await new Promise(() => {});",
        &["begin a ", "end null", "stuck"],
    );
}

#[test]
fn an_error_thrown_by_a_handler_ends_the_run() {
    let expected = &["begin a ", "threw in item Error: no"];
    assert_transcript("await withItem('a', '', () => { throw new Error('no'); });", expected);
    assert_transcript("await withItem('a', '', async () => { throw new Error('no'); });", expected);
    assert_transcript("await withItem('a', '', () => Promise.reject(new Error('no')));", expected);
    assert_transcript(
        "await withItem('a', '', async () => { await null; await null; throw new Error('no'); });",
        expected,
    );
    assert_transcript(
        "await withItem('a', '', () => ({ then(_, reject) { reject(new Error('no')); } }));",
        expected,
    );
}

#[test]
fn an_error_thrown_by_a_script_ends_the_run_with_its_position() {
    let mut host = Recorder::default();
    let script = "console.log('first');\nfunction deep() { throw new RangeError('far'); }\ndeep();";
    let ended = run(script, "test.js", tools(), 0, &limits(), &mut host);
    let RunEnd::Threw { message, stack, in_item: false } = ended else { panic!("{ended:?}") };
    assert_eq!(message, "RangeError: far");
    assert!(stack.contains("at deep (test.js:2:"), "{stack}");
    assert_eq!(host.transcript, ["log first"]);
    assert_transcript("throw { code: 3 };", &[r#"threw {"code":3}"#]);
    assert_transcript("throw undefined;", &["threw undefined"]);
}

#[test]
fn an_uncaught_rejection_ends_the_run() {
    assert_transcript(
        "await withItem('a', '', () => { (async () => { await noop.do(); throw new Error('lost'); })(); });",
        &["begin a ", "noop.do {}", "threw in item Error: lost"],
    );
    assert_transcript(
        "const late = Promise.reject(new Error('x')); await null; late.catch(() => {});
         await Promise.allSettled([Promise.reject(1)]);",
        &["completed"],
    );
}

#[test]
fn calls_before_a_throw_are_made_and_calls_after_it_are_not() {
    assert_transcript(
        "await withItem('a', '', () => { kv.set({ n: 1 }); throw new Error('x'); kv.set({ n: 2 }); });",
        &["begin a ", r#"kv.set {"n":1}"#, "threw in item Error: x"],
    );
}

#[test]
fn a_call_outside_of_items_is_passed_on() {
    assert_transcript("await kv.set({ n: 1 });", &[r#"kv.set {"n":1}"#, "completed"]);
}

#[test]
fn arguments_pass_through_as_json() {
    assert_transcript(
        "await kv.set(); await kv.set(undefined); await kv.set(null); await kv.set('x');
         await kv.set({ subkey: 'forged', n: 1.5, no: undefined, \u{e9}: '\\u0000\\ud800' });",
        &[
            "kv.set {}",
            "kv.set {}",
            "kv.set null",
            r#"kv.set "x""#,
            "kv.set {\"subkey\":\"forged\",\"n\":1.5,\"\u{e9}\":\"\\u0000\\ud800\"}",
            "completed",
        ],
    );
}

#[test]
fn arguments_that_are_no_json_are_a_type_error() {
    assert_transcript(
        "await kv.set(() => {});",
        &["threw TypeError: a function is not a JSON value"],
    );
    assert_transcript(
        "await kv.set({ f() {} });",
        &["threw TypeError: a function is not a JSON value"],
    );
    assert_transcript(
        "await kv.set({ s: [Symbol()] });",
        &["threw TypeError: a symbol is not a JSON value"],
    );
    assert_transcript(
        "await kv.set(Symbol('s'));",
        &["threw TypeError: a symbol is not a JSON value"],
    );
    assert_transcript("await kv.set({ toJSON() {} });", &["threw TypeError: not a JSON value"]);
    let cycle = "const a = {}; a.a = a; await kv.set(a);";
    assert_transcript(cycle, &["threw TypeError: circular reference"]);
    let transcript = transcript_of("await kv.set({ n: 1n });", &limits(), Recorder::default());
    assert!(transcript[0].starts_with("threw TypeError: "), "{transcript:?}");
    assert_transcript(
        "await withItem('a', '', () => () => {});",
        &["begin a ", "threw in item TypeError: a function is not a JSON value"],
    );
}

#[test]
fn an_argument_error_is_a_rejection_that_a_script_can_catch() {
    assert_transcript(
        "const p = kv.set(() => {}); await p.catch((e) => console.log(e)); await kv.set();",
        &["log TypeError: a function is not a JSON value", "kv.set {}", "completed"],
    );
}

#[test]
fn an_answer_that_is_not_json_is_named_as_such() {
    let host = Recorder { answer: Some("{oops".to_owned()), ..Recorder::default() };
    let transcript = transcript_of("await kv.get();", &limits(), host);
    assert_eq!(transcript, ["kv.get {}", "threw kv.get answered with something else than JSON"]);
}

#[test]
fn a_script_is_checked_without_being_run() {
    assert_eq!(check("await withItem('a', 'b', () => { /x(y)/u.test(''); }); for (;;) {}"), Ok(()));
    let wrong = check("const a = 1;\nconst b = ;\n").unwrap_err();
    assert!(
        wrong.starts_with("SyntaxError: ") && wrong.ends_with("(line 2, column 11)"),
        "{wrong}"
    );
    assert!(check("/(/").unwrap_err().starts_with("SyntaxError: "));
    assert!(check("a\0b").unwrap_err().contains("byte 1"));
    let import = "ReferenceError: could not load module 'fs'";
    assert_eq!(check("import x from 'fs';").unwrap_err(), import);
    assert!(check("export const a = 1;").is_ok());
    let transcript = transcript_of("let let = 1;", &limits(), Recorder::default());
    assert!(transcript[0].starts_with("unreadable SyntaxError: "), "{transcript:?}");
}

#[test]
fn a_panic_of_the_host_passes_through() {
    struct Panics;
    impl Host for Panics {
        fn begin(&mut self, _: &str, _: &str) -> Result<ItemStart, Stop> {
            panic!("in begin")
        }
        fn end(&mut self, _: &str) -> Result<(), Stop> {
            Ok(())
        }
        fn call(&mut self, _: &str, _: &str, _: &str) -> Result<String, Stop> {
            panic!("in call")
        }
        fn log(&mut self, _: &str) {}
    }
    // With requests, items and a rejection pending: the engine must not be freed while they are
    // held.
    let scripts = [
        "Promise.reject(1); withItem('z', '', () => {}); kv.set(); kv.set();",
        "withItem('a', '', () => {}); withItem('b', '', () => {});",
    ];
    for script in scripts {
        let ran =
            std::panic::catch_unwind(|| run(script, "test.js", tools(), 0, &limits(), &mut Panics));
        assert!(ran.is_err(), "{ran:?}");
    }
}
