//! Rule `dedupe-store`: a collection that is asked for a key and is given the key, around an
//! effect. It is known by its use, whatever its name is.
//!
//!   processed = set()               the collection, which is reported
//!   if order.id in processed: …     a lookup
//!   charge(order)                   an effect in the same loop or function
//!   processed.add(order.id)         an insertion of the same key
//!
//! Python, JavaScript and TypeScript only. A walk over a graph, a cache of what was read or
//! computed, and a list without its duplicates have no effect there, and are not reported.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use regex::Regex;

use super::effect::{self, Effect};
use super::{Line, Lines, fixed, is_quoted};
use crate::rule::Rule;
use crate::scan::Hit;
use crate::source::Language;
use crate::words::has_any;

/// How far a local collection's use may be from where it is made, in lines.
const SCOPE: usize = 300;

/// How far up the head of a loop or function is looked for, and how much of it is read, in lines.
const ABOVE: usize = 60;
const BODY: usize = 80;

/// `processed = set()`, `const cache = new Map<..>()`, `self.seen = {}`.
static MADE: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^\s*(?:(?:export|const|let|var|private|public|protected|readonly|static)\s+)*",
        r"(?:(self|this|cls)\.)?#?([A-Za-z_$][\w$]*)[?!]?\s*(?::[^=;]{0,120})?=\s*",
        r"(?:new\s+(?:Map|Set|WeakMap|WeakSet|LRUCache|TTLCache)\b|(?:set|dict|list)(?:\[[^\]]*\])?\(",
        r"|(?:OrderedDict|defaultdict|TTLCache|LRUCache)\(|\{\s*\}|\[\s*\]|Object\.create\(null\))",
    ))
});

/// `if order.id in processed`, `if (key in executed)`.
static CONTAINS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"\b(?:if|elif)\b\s*\(?(.+?)\s+in\s+(?:(?:self|this|cls)\.)?#?([A-Za-z_$][\w$]*)")
});

/// `cache.get(`, `processed.has(`, `seen.includes(`.
static ASKS: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"([A-Za-z_$][\w$]*)\.(?:has|get|includes|indexOf|__contains__)\("));

/// `if (executed[`, `= cache[`, `return cache[`.
static INDEXES: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"(?:\bif\b\s*\(?\s*!?(?:not\s+)?|=\s*|\breturn\s+)(?:(?:self|this|cls)\.)?#?([A-Za-z_$][\w$]*)\[",
    )
});

/// `processed.add(`, `cache.set(`, `done.append(`.
static ADDS: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"([A-Za-z_$][\w$]*)\.(add|append|push|set)\("));

/// `cache[`, for what follows it.
static PUTS: LazyLock<Regex> = LazyLock::new(|| fixed(r"([A-Za-z_$][\w$]*)\["));

/// A value that says no more than that the key is there.
static MARKS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r#"^\s*(?:(?i:true|none|null|1\b)|["'`]|Date\.now|new Date|time\.|datetime\.)"#)
});

/// A line whose block belongs to the loop or function around it.
static BRANCH: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"^(?:\}\s*)?(?:if|elif|else|try|except|catch|finally|with|async\s+with|switch|case|match|do)\b",
    )
});

static NEGATES: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"\bnot\b|!|\bundefined\b|\bnull\b|\bNone\b|-\s*1\b|<\s*0"));

/// A walk over a graph.
static WALKS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)(?:\b|_)(?:children|neighbou?rs?|successors|predecessors|adjacen\w*|edges?|node|nodes",
        r"|descendants|ancestors|vertex|vertices|links)(?:\b|_)",
        r"|\bgraph[.\[]",
        r"|\b(?:stack|queue|frontier|worklist|to_visit|todo)\.(?:append|push|extend|unshift)\(",
    ))
});

/// Work that is shared while it runs.
static PROMISES: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"(?i)promise|deferred|\bfuture\b|\.then\(|create_task\("));

/// Words of collections that remember finished work.
const DONE: &str = "\
    processed handled delivered consumed executed completed done sent charged paid refunded \
    published notified dispatched fulfilled applied submitted posted shipped emailed execution \
    executions idempotency idempotence idempotent dedupe dedup deduplication";

/// Of these, the words that say it without the name of a thing.
const SURELY_DONE: &str =
    "executed execution executions idempotency idempotence idempotent dedupe dedup deduplication";

/// Words of collections that hold what was read, computed or set up.
const HELD: &str = "\
    memo memos memoized memoised visited explored token tokens session sessions connection \
    connections client clients auth credential credentials query queries search lookup lookups \
    translation translations embedding embeddings template templates schema schemas price prices \
    rate rates page pages header headers param params config configs option options";

/// Things that arrive or are ordered, more than once.
const ARRIVALS: &str = "\
    request requests message messages msg event events webhook webhooks command commands payment \
    payments delivery deliveries notification notifications order orders invoice invoices charge \
    charges transaction transactions txn transfer transfers refund refunds email emails job jobs \
    booking bookings subscription subscriptions";

/// Words that make a key of a name.
const IDS: &str = "id ids key keys uuid nonce reference ref idempotency";

/// Words of an idempotency key.
const KEYS: &str = "idempotency idempotence idempotencykey idem dedupe dedup dedupekey";

/// A collection, and where it is made.
#[derive(Clone, Copy)]
struct Collection {
    nth: usize,
    at: usize,
    indent: usize,
}

#[derive(Default)]
struct Collections<'a> {
    /// Those of a function or a class, by name, in order.
    local: HashMap<&'a str, Vec<Collection>>,
    /// Those of a module or an object.
    long: HashMap<&'a str, Collection>,
}

/// A key, and the collection that is asked for it or is given it.
struct Access<'a> {
    name: &'a str,
    key: &'a str,
    /// Whether a value that matters is put beside the key.
    has_value: bool,
}

pub(super) fn find(lines: &Lines<'_>, language: Language) -> Vec<Hit> {
    if !matches!(language, Language::Python | Language::Script) {
        return Vec::new();
    }
    let collections = Collections::of(lines);
    let (mut hits, mut reported) = (Vec::new(), BTreeSet::new());
    for (nth, line) in lines.iter() {
        for lookup in lookups(line.text) {
            let Some(made) = collections.get(lookup.name, lines, nth) else { continue };
            if !reported.contains(&made.nth) && remembers(lines, nth, &lookup) {
                reported.insert(made.nth);
                let why = format!("`{}` remembers what was done", lookup.name);
                let at = lines.lines[made.nth];
                hits.push(at.hit(Rule::DedupeStore, made.nth, made.at, why));
            }
        }
    }
    hits
}

impl<'a> Collections<'a> {
    fn of(lines: &Lines<'a>) -> Self {
        let mut all = Self::default();
        for (nth, line) in lines.iter() {
            let Some(made) = MADE.captures(line.text) else { continue };
            let Some(name) = made.get(2) else { continue };
            let collection = Collection { nth, at: name.start(), indent: line.indent };
            if line.indent == 0 || made.get(1).is_some() {
                all.long.entry(name.as_str()).or_insert(collection);
            } else {
                all.local.entry(name.as_str()).or_default().push(collection);
            }
        }
        all
    }

    /// The collection that a name means on a line.
    fn get(&self, name: &str, lines: &Lines<'_>, nth: usize) -> Option<Collection> {
        let local = self.local.get(name).and_then(|all| {
            let before = all.partition_point(|collection| collection.nth < nth);
            let nearest = *all.get(before.checked_sub(1)?)?;
            let near = nth - nearest.nth <= SCOPE;
            let between = &lines.lines[nearest.nth..=nth];
            let inside = |line: &Line<'_>| line.indent >= nearest.indent || line.code().is_empty();
            (near && between.iter().all(inside)).then_some(nearest)
        });
        local.or_else(|| self.long.get(name).copied())
    }
}

/// Whether the lookup, an effect and an insertion of the same key stand in one loop or function,
/// and their names say that the effect is to happen once.
fn remembers(lines: &Lines<'_>, nth: usize, lookup: &Access<'_>) -> bool {
    if has_any(lookup.name, HELD) {
        return false;
    }
    let region = region(lines, nth);
    let filled = region.iter().find_map(|(at, line)| {
        let same = |put: &Access<'_>| put.name == lookup.name && same_key(put.key, lookup.key);
        insertions(line.text).into_iter().find(same).map(|put| (*at, put.has_value))
    });
    let Some((filled, has_value)) = filled else { return false };
    if has_any(lookup.key, KEYS) && !lookup.key.contains(['"', '\'', '`']) {
        return true;
    }
    // A collection that is asked and filled on one line guards that line only.
    let guarded = region.iter().filter(|(at, _)| filled != nth || *at == nth);
    let effects = guarded.filter_map(|(_, line)| Some((effect::of(line.text)?, line.text)));
    let promised = || {
        let promises = region.iter().any(|(_, line)| PROMISES.is_match(line.text));
        promises.then_some((Effect::Likely, ""))
    };
    let found = effects.max_by_key(|(effect, _)| *effect);
    let Some((effect, call)) = found.or_else(promised) else { return false };
    let done = has_any(lookup.name, DONE);
    let walks = region.iter().any(|(_, line)| WALKS.is_match(line.text));
    let is_id = has_any(lookup.key, IDS) || has_any(lookup.key, ARRIVALS);
    match effect {
        Effect::Sure => {
            let named = done || has_any(lookup.name, "seen already");
            (done || !walks) && (named || is_id || !has_value)
        }
        Effect::Likely => {
            let arrives =
                [lookup.name, lookup.key, call].iter().any(|text| has_any(text, ARRIVALS));
            let surely = has_any(lookup.name, SURELY_DONE) && is_id;
            done && !walks && (arrives || surely)
        }
    }
}

/// The lines from a lookup to the end of the innermost loop or function around it, without the
/// block for a key that is there.
fn region<'a>(lines: &Lines<'a>, nth: usize) -> Vec<(usize, Line<'a>)> {
    let asks = lines.lines[nth];
    let (mut indent, mut head) = (asks.indent, None);
    for at in (nth.saturating_sub(ABOVE)..nth).rev() {
        let line = lines.lines[at];
        if line.code().is_empty() || line.indent >= indent {
            continue;
        }
        indent = line.indent;
        if !BRANCH.is_match(line.code()) {
            head = Some(at);
            break;
        }
    }
    let all = match head {
        Some(head) => lines.block(head, ABOVE + BODY),
        None => {
            let after = lines.iter().skip(nth).take(BODY);
            after.filter(|(_, line)| !line.code().is_empty()).collect()
        }
    };
    let there = match NEGATES.is_match(asks.text) {
        true => nth,
        false => lines.block(nth, BODY).last().map_or(nth, |(last, _)| *last),
    };
    // A lookup that assigns opens no block, and its block is empty.
    all.into_iter().filter(|(at, _)| *at == nth || *at > there).collect()
}

/// The lookups of a line.
fn lookups(text: &str) -> Vec<Access<'_>> {
    let mut found = Vec::new();
    for asks in CONTAINS.captures_iter(text) {
        if let (Some(key), Some(name)) = (asks.get(1), asks.get(2)) {
            let key = key.as_str().trim();
            let key = key.strip_suffix(" not").unwrap_or(key);
            let key = key.rsplit([' ', '(', '!']).next().unwrap_or(key);
            found.push(Access { name: name.as_str(), key, has_value: false });
        }
    }
    for asks in ASKS.captures_iter(text).chain(INDEXES.captures_iter(text)) {
        if let (Some(all), Some(name)) = (asks.get(0), asks.get(1))
            && !is_quoted(text, name.start(), false)
        {
            let (key, _) = argument(&text[all.end()..]);
            found.push(Access { name: name.as_str(), key, has_value: false });
        }
    }
    found
}

/// The insertions of a line.
fn insertions(text: &str) -> Vec<Access<'_>> {
    let mut found = Vec::new();
    for puts in ADDS.captures_iter(text) {
        if let (Some(all), Some(name), Some(verb)) = (puts.get(0), puts.get(1), puts.get(2)) {
            let (key, rest) = argument(&text[all.end()..]);
            let rest = rest.trim_start_matches(',');
            let has_value = verb.as_str() == "set" && !MARKS.is_match(rest);
            found.push(Access { name: name.as_str(), key, has_value });
        }
    }
    for puts in PUTS.captures_iter(text) {
        if let (Some(all), Some(name)) = (puts.get(0), puts.get(1)) {
            let (key, rest) = argument(&text[all.end()..]);
            let rest = rest.trim_start_matches(']').trim_start();
            let Some(value) = rest.strip_prefix('=').filter(|value| !value.starts_with('=')) else {
                continue;
            };
            let has_value = !MARKS.is_match(value);
            found.push(Access { name: name.as_str(), key, has_value });
        }
    }
    found
}

/// The argument that begins a text, and the rest after it.
fn argument(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            ')' | ']' | '}' | ',' if depth == 0 => return (text[..at].trim(), &text[at..]),
            _ => {}
        }
    }
    (text.trim(), "")
}

/// Whether two texts are one key; of `(day, order.id)` only the end may be there.
fn same_key(one: &str, other: &str) -> bool {
    let plain = |key: &str| key.trim_end_matches([')', '!', ' ']).to_owned();
    let (one, other) = (plain(one), plain(other));
    !one.is_empty() && !other.is_empty() && (one.ends_with(&other) || other.ends_with(&one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_and_insertions_name_their_collection_and_key() {
        let asked = |text| {
            let all: Vec<_> = lookups(text).into_iter().map(|it| (it.name, it.key)).collect();
            all.first().copied()
        };
        for text in [
            "if order.id in done:",
            "elif order.id not in self.done:",
            "if ready and order.id in done: continue",
            "if (order.id in done) {",
            "if (!this.done.has(order.id)) {",
            "const it = done.get(order.id);",
            "if (done[order.id]) return;",
            "return done[order.id]",
        ] {
            assert_eq!(asked(text), Some(("done", "order.id")), "{text}");
        }
        assert_eq!(asked("for order in done:"), None);
        let given = |text| {
            let all: Vec<_> =
                insertions(text).into_iter().map(|it| (it.key, it.has_value)).collect();
            all.first().copied()
        };
        assert_eq!(given("done.add(order.id)"), Some(("order.id", false)));
        assert_eq!(given("done.set(order.id, await run())"), Some(("order.id", true)));
        assert_eq!(given("done[order.id] = True"), Some(("order.id", false)));
        assert_eq!(given("self.done[order.id] = receipt"), Some(("order.id", true)));
        assert_eq!(given("if done[order.id] == 1:"), None);
    }
}
