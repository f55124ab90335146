//! Places in texts that people and programs write.
//!
//! JSON is masked as such. In any other text, adjacent numbers of three decimals and more that can
//! be degrees are taken for places: masking one too many is better than missing one.

use std::ops::Range;
use std::sync::LazyLock;

use h3o::LatLng;
use hapax::canonical::canonical;
use hapax::guard::{Coordinate, is_precise};
use hapax::json::{Json, MAX_DEPTH};
use regex::{Captures, Regex};

use super::cover::{Shape, spot};
use super::shape::{Order, well_known};
use super::{Mask, REMOVED};

/// The most cells that a place in a text becomes.
const FEW: usize = 16;

/// The most bytes between two named halves of one place.
const NEAR: usize = 64;

/// How deep brackets that are not JSON are searched for JSON.
const DEEP: usize = 8;

static CELLS: LazyLock<Regex> = LazyLock::new(|| fixed(r"\[h3:([0-9a-f ]+)\]"));

static WELL_KNOWN: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)(?:SRID\s*=\s*(\d+)\s*;\s*)?",
        r"\b((?:MULTI)?(?:POINT|LINESTRING|POLYGON)|GEOMETRYCOLLECTION)\s*(?:ZM|Z|M)?\s*\(",
    ))
});

static URI: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(?i)\bgeo:(-?\d+(?:\.\d+)?),(-?\d+(?:\.\d+)?)(?:,-?\d+(?:\.\d+)?)?(?:;[\w.%=;-]+)?")
});

static MINUTES: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"\d{1,3}\s?[°º]\s?\d{1,2}(?:\.\d+)?\s?['′’]"#,
        r#"(?:\s?\d{1,2}(?:\.\d+)?\s?(?:["″”]|''))?(?:\s?[NSEW]\b)?"#,
    ))
});

/// Well-known binary as databases print it: little-endian, with or without more dimensions.
static BINARY: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"(?i)(?:\b|x)01(?:0[1-7]0000[0-9a-e]0|(?:e[9a-f]03|d[1-7]07|b[9a-f]0b)0000)[0-9a-f]{32,}",
    )
});

/// A precise number, with its hemisphere before or after it.
static PRECISE: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"\b([NSEW])\s?(\d+\.\d{3,})",
        r"|([-+−]?\d+\.\d{3,}(?:[eE][-+]?\d+)?)(?:\s?[°º]?\s?([NSEW])\b|\s?[°º])?",
    ))
});

static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r#"([A-Za-z]\w*)([\\"' \t]*(?:[:=]>?|[ \t])[\\"' \t(\[]*)([-+−]?\d+\.\d+)"#)
});

fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a fixed pattern")
}

impl Mask {
    /// A text with the places in it replaced.
    pub(super) fn text(&mut self, text: &str) -> String {
        self.json(text).unwrap_or_else(|| self.fragments(text, 0))
    }

    /// A text that is JSON.
    fn json(&mut self, text: &str) -> Option<String> {
        let bare = text.trim();
        if !bare.starts_with(['{', '[']) {
            return None;
        }
        let json = Json::parse(bare.as_bytes()).ok()?;
        let masked = self.value("", &json);
        if masked == json {
            return Some(text.to_owned());
        }
        // A number without a canonical form cannot be printed.
        let masked = canonical(&masked).unwrap_or_else(|_| REMOVED.to_owned());
        Some(text.replacen(bare, &masked, 1))
    }

    /// A text with JSON in it, as logs have it.
    fn fragments(&mut self, text: &str, depth: usize) -> String {
        let mut masked = String::new();
        let mut plain = 0;
        for at in brackets(text).into_iter().filter(|at| text[at.clone()].contains('{')) {
            let inner = at.start + 1..at.end - 1;
            if let Some(json) = self.json(&text[at.clone()]) {
                masked += &self.scan(&text[plain..at.start]);
                masked += &json;
                plain = at.end;
            } else if depth < DEEP && text[inner.clone()].contains('{') {
                masked += &self.scan(&text[plain..inner.start]);
                masked += &self.fragments(&text[inner.clone()], depth + 1);
                plain = inner.end;
            }
        }
        masked + &self.scan(&text[plain..])
    }

    fn scan(&mut self, text: &str) -> String {
        let text = CELLS.replace_all(text, |found: &Captures<'_>| {
            let cells: Vec<String> =
                found[1].split(' ').filter_map(|cell| self.coarser(cell)).collect();
            format!("[h3:{}]", cells.join(" "))
        });
        let text = self.well_known(&text);
        let text = URI.replace_all(&text, |found: &Captures<'_>| {
            let point = found[1].parse().ok().zip(found[2].parse().ok());
            self.written(&points(point.and_then(|(lat, lon)| spot(lat, lon))))
        });
        let text = MINUTES.replace_all(&text, REMOVED);
        let text = BINARY.replace_all(&text, REMOVED);
        let text = self.tables(&text);
        let text = self.pairs(&text);
        self.named(&text)
    }

    /// Shapes as a text: `[h3:…]`.
    pub(super) fn written(&mut self, shapes: &[Shape]) -> String {
        let cells: Vec<String> = self.cover(shapes, FEW).into_iter().collect();
        if cells.is_empty() { REMOVED.to_owned() } else { format!("[h3:{}]", cells.join(" ")) }
    }

    fn well_known(&mut self, text: &str) -> String {
        let mut replaced = Vec::new();
        let mut from = 0;
        while let Some(found) = WELL_KNOWN.captures_at(text, from) {
            let (Some(whole), Some(kind)) = (found.get(0), found.get(2)) else { break };
            let open = whole.end() - 1;
            let body = parentheses(&text[open..]);
            from = open + body.len();
            if !body.contains(|c: char| c.is_ascii_digit()) {
                continue;
            }
            // Degrees only: other reference systems are not converted.
            let degrees = found.get(1).is_none_or(|srid| srid.as_str() == "4326");
            let shapes = if degrees { well_known(kind.as_str(), body) } else { Vec::new() };
            replaced.push((whole.start()..from, self.written(&shapes)));
        }
        replace(text, replaced)
    }

    /// Precise numbers beside each other.
    fn pairs(&mut self, text: &str) -> String {
        let mut runs: Vec<Vec<Degrees>> = Vec::new();
        for number in Degrees::all(text) {
            match runs.last_mut() {
                Some(run) if run.last().is_some_and(|last| last.is_beside(&number, text)) => {
                    run.push(number);
                }
                _ => runs.push(vec![number]),
            }
        }
        let places = runs
            .iter()
            .filter(|run| run.len() > 1 && run.iter().any(|number| number.value.abs() <= 90.0));
        let replaced = places.map(|run| {
            let (pairs, odd) = run.as_chunks::<2>();
            let shapes: Option<Vec<_>> =
                pairs.iter().map(|[a, b]| a.with(b).map(Shape::Point)).collect();
            // An odd number of them cannot be paired.
            let shapes = shapes.filter(|_| odd.is_empty()).unwrap_or_default();
            let (first, last) = (&run[0], &run[run.len() - 1]);
            (first.at.start..last.at.end, self.written(&shapes))
        });
        let replaced = replaced.collect();
        replace(text, replaced)
    }

    /// Numbers that are named latitude or longitude, or x or y.
    fn named(&mut self, text: &str) -> String {
        let mut halves: Vec<Named<'_>> = Vec::new();
        for found in NAMED.captures_iter(text) {
            let (Some(name), Some(number)) = (found.get(1), found.get(3)) else { continue };
            let unit = text[number.end()..].starts_with(|c: char| c.is_ascii_lowercase());
            let exact = is_precise(&Json::text(&number.as_str().replace('−', "-")));
            let axis = || Coordinate::axis(name.as_str()).filter(|_| exact);
            let half = Coordinate::of(name.as_str()).map(|half| (half, false));
            if let Some((half, axis)) = half.or_else(|| Some((axis()?, true))).filter(|_| !unit) {
                halves.push(Named {
                    half,
                    axis,
                    at: number.range(),
                    value: value(number.as_str()),
                });
            }
        }
        let mut replaced = Vec::new();
        let mut halves = halves.into_iter().peekable();
        while let Some(one) = halves.next() {
            let other = halves.next_if(|other| {
                let same_line = !text[one.at.end..other.at.start].contains('\n');
                let near = other.at.start - one.at.end <= NEAR;
                other.half == one.half.other() && other.axis == one.axis && same_line && near
            });
            if one.axis && other.is_none() {
                continue;
            }
            let point = other.as_ref().and_then(|other| {
                let (lat, lon) = if one.half.latitude { (&one, other) } else { (other, &one) };
                let turned = || spot(lon.value, lat.value).filter(|_| one.axis);
                spot(lat.value, lon.value).or_else(turned)
            });
            let written = self.written(&points(point));
            replaced.push((one.at, written.clone()));
            replaced.extend(other.map(|other| (other.at, written)));
        }
        replace(text, replaced)
    }
}

/// A number that has the name of half a place.
struct Named<'a> {
    half: Coordinate<'a>,
    axis: bool,
    at: Range<usize>,
    value: f64,
}

/// A precise number that can be degrees.
#[derive(Clone)]
pub(super) struct Degrees {
    pub(super) at: Range<usize>,
    pub(super) value: f64,
    hemisphere: Option<char>,
}

impl Degrees {
    /// Those in a text.
    pub(super) fn all(text: &str) -> impl Iterator<Item = Self> {
        PRECISE.captures_iter(text).filter_map(|found| Self::read(text, &found))
    }

    fn read(text: &str, found: &Captures<'_>) -> Option<Self> {
        let at = found.get(0)?.range();
        let number = found.get(2).or(found.get(3))?;
        let hemisphere =
            found.get(1).or(found.get(4)).and_then(|found| found.as_str().chars().next());
        let before = &text.as_bytes()[..at.start];
        let in_number = before.last() == Some(&b'.');
        let in_time = matches!(before, [.., b'0'..=b'9', b':']);
        let sign = if matches!(hemisphere, Some('S' | 'W')) { -1.0 } else { 1.0 };
        let value = sign * value(number.as_str());
        (!in_number && !in_time && value.abs() <= 180.0).then_some(Self { at, value, hemisphere })
    }

    /// Whether only punctuation is between them on one line; or across the end of a line, if there
    /// is a comma in it or one of the two lines has nothing else.
    pub(super) fn is_beside(&self, next: &Self, text: &str) -> bool {
        if next.at.start - self.at.end > NEAR {
            return false;
        }
        // Lines of a text in quotes end in `\n`.
        let between = text[self.at.end..next.at.start].replace(r"\n", "\n").replace(r"\r", "");
        let one_line = !between.contains('\n') || between.contains(',');
        let alone = || begins_line(&text[..self.at.start]) || ends_line(&text[next.at.end..]);
        between.chars().all(punctuation) && (one_line || alone())
    }

    pub(super) fn with(&self, other: &Self) -> Option<LatLng> {
        let east = |number: &Self| matches!(number.hemisphere, Some('E' | 'W'));
        let order = if east(self) && !east(other) { Order::LonLat } else { Order::Unknown };
        order.spot(self.value, other.value)
    }
}

fn begins_line(before: &str) -> bool {
    let before = before.trim_end_matches(|c| c != '\n' && punctuation(c));
    before.is_empty() || before.ends_with('\n') || before.ends_with(r"\n")
}

fn ends_line(after: &str) -> bool {
    let after = after.trim_start_matches(|c| !matches!(c, '\n' | '\\') && punctuation(c));
    after.is_empty() || after.starts_with('\n') || after.starts_with(r"\n")
}

/// Characters that may stand between two numbers of a place, or around them.
pub(super) fn punctuation(c: char) -> bool {
    c.is_whitespace() || ",;/|\\\"'()[]".contains(c)
}

fn value(number: &str) -> f64 {
    // A number that cannot be parsed is far from any degrees.
    number.replace('−', "-").parse().unwrap_or(f64::MAX)
}

pub(super) fn points(point: Option<LatLng>) -> Vec<Shape> {
    point.into_iter().map(Shape::Point).collect()
}

/// The ranges of the outermost brackets and braces that close.
fn brackets(text: &str) -> Vec<Range<usize>> {
    let mut open: Vec<(usize, u8)> = Vec::new();
    let mut closed: Vec<Range<usize>> = Vec::new();
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        if quoted && byte != b'\n' {
            quoted = escaped || byte != b'"';
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        (quoted, escaped) = (false, false);
        match byte {
            b'"' => quoted = open.last().is_some_and(|(_, bracket)| *bracket == b'{'),
            b'[' | b'{' => open.push((at, byte)),
            b']' | b'}' => {
                // In ASCII, `[` and `{` are two before `]` and `}`.
                let mut near = open.iter().rev().take(MAX_DEPTH);
                let Some(nth) = near.position(|(_, bracket)| *bracket == byte - 2) else {
                    continue;
                };
                open.truncate(open.len() - nth);
                let Some((start, _)) = open.pop() else { continue };
                while closed.pop_if(|inner| inner.start > start).is_some() {}
                closed.push(start..at + 1);
            }
            _ => {}
        }
    }
    closed
}

/// A pair of parentheses and the text in it; if it does not close, as much as looks like a shape.
fn parentheses(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return &text[..=at],
            ')' => depth -= 1,
            '+' | '-' | '.' | ',' => {}
            c if c.is_ascii_alphanumeric() || c.is_whitespace() => {}
            _ => return &text[..at],
        }
    }
    text
}

pub(super) fn replace(text: &str, replaced: Vec<(Range<usize>, String)>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (at, new) in replaced {
        out += &text[from..at.start];
        out += &new;
        from = at.end;
    }
    out + &text[from..]
}
