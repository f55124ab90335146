//! Rule `dedupe-store`: sets and maps that are named for finished work, and keys that a cache
//! server sets only once.

use std::sync::LazyLock;

use regex::Regex;

use super::{Lines, is_quoted};
use crate::rule::Rule;
use crate::scan::Hit;
use crate::words::{Lives, has_any, store_name, store_text};

/// `name = set()`, `name := make(map[..]..)`, `name: Set<..> = new Set()`.
static MADE: LazyLock<Regex> = LazyLock::new(|| {
    let made = [
        r"set\(|dict\(|\{\s*\}|defaultdict\(|OrderedDict\(|make\(map\[|map\[|sync\.Map",
        r"(?:new\s+)?[A-Z]\w*(?:Map|Set|Cache|LRU|Dictionary|Bloom)?(?:Map|Set|Cache|Dictionary|Filter)(?:<[^;=]*>)?\s*\(",
        r"(?:new\s+)?(?:Map|Set|WeakMap|LRU|LRUCache|TTLCache|Dictionary)(?:<[^;=]*>)?\s*\(",
        r"(?:Set|Hash)\.new|mutable(?:Set|Map)Of|ConcurrentHashMap\.newKeySet",
        r"(?:\w+::)*(?:HashMap|HashSet|BTreeMap|BTreeSet|DashMap|LruCache)::",
    ];
    let pattern =
        format!(r"([A-Za-z_$][\w$]*)\s*(?::\s*[^=;]{{0,80}})?(?::=|=)\s*(?:{})", made.join("|"));
    Regex::new(&pattern).expect("a fixed pattern")
});

/// `Set<String> name;`, `name map[string]bool`, `name: Map<..>`.
static DECLARED: LazyLock<Regex> = LazyLock::new(|| {
    let declared = [
        r"\b\w*(?:Map|Set|Cache|Dictionary)<[^;=()]*>\s+(\w+)\s*(?:[;={]|$)",
        r"^\s*(\w+)\s+(?:map\[|sync\.Map)",
        r"\b(\w+)\??:\s*(?:\w+<)*(?:Hash|BTree|Dash)?(?:Map|Set|LRUCache|set|dict|Dict)[<\[]",
    ];
    Regex::new(&declared.join("|")).expect("a fixed pattern")
});

static COUNTS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"map\[[^\]]+\](?:u?int\d*|float64)\b|[<\[][^<>\[\]]*,\s*(?:number|int|Integer|Long|long|Int|u64|usize)[>\]]|Counter\(|defaultdict\(int";
    Regex::new(pattern).expect("a fixed pattern")
});

/// A declaration that lives longer than a call, as far as its line shows.
static LONG: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"^(?:\S|\s+(?:self\.|this\.|@|private\b|public\b|protected\b|internal\b|static\b|readonly\b|final\b|export\b|lateinit\b))";
    Regex::new(pattern).expect("a fixed pattern")
});

static ONCE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?i)\bset_?nx\w*\s*\(|["']NX["']|\bnx\s*[:=]\s*true|\bsetIfAbsent\(|\bSETNX\b|\bSET\b.*\bNX\b|When\.NotExists"#;
    Regex::new(pattern).expect("a fixed pattern")
});

static TEXTS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[A-Za-z_][\w:{}$.\-]*").expect("a fixed pattern"));

pub(super) fn find(lines: &Lines<'_>) -> Vec<Hit> {
    let mut hits = Vec::new();
    for (nth, line) in lines.iter() {
        let found = MADE.captures(line.text).or_else(|| DECLARED.captures(line.text));
        let name = found.and_then(|found| found.iter().skip(1).flatten().next());
        if let Some(name) = name.filter(|name| !is_quoted(line.text, name.start(), false)) {
            let lives = if LONG.is_match(line.text) { Lives::Long } else { Lives::Local };
            let sure = has_any(name.as_str(), "idempotency dedupe dedup");
            let counts = COUNTS.is_match(line.text) && !sure;
            if !counts && store_name(name.as_str(), lives) {
                let why = format!("`{}` remembers what was done", name.as_str());
                hits.push(line.hit(Rule::DedupeStore, nth, name.start(), why));
            }
        }
        if let Some(once) = ONCE.find(line.text) {
            let key = TEXTS.find_iter(line.text).find(|text| store_text(text.as_str()));
            if let Some(key) = key {
                let why = format!("the cache server is asked to remember `{}` once", key.as_str());
                hits.push(line.hit(Rule::DedupeStore, nth, once.start(), why));
            }
        }
    }
    hits
}
