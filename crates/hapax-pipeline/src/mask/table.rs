//! Tables in texts: cells between commas, semicolons, tabs or bars, with or without a header line.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use hapax::guard::Coordinate;
use hapax::json::Json;

use super::cover::spot;
use super::text::{Degrees, points, punctuation, replace};
use super::{Mask, REMOVED, degrees};

impl Mask {
    /// Replaces the places in the rows of tables, each cell by itself.
    pub(super) fn tables(&mut self, text: &str) -> String {
        let mut replaced = Vec::new();
        let mut header: Option<Header<'_>> = None;
        let mut start = 0;
        for line in lines(text) {
            let quoted = cells(line, true);
            if let Some(read) = Header::read(line, &quoted) {
                header = Some(read);
            } else {
                let header = header.as_ref().filter(|header| header.cells == quoted.len());
                let named = header.map(|header| self.named_of(line, &quoted, header));
                let found = self.cells_of(line, named.unwrap_or_default(), header);
                let found = found.into_iter();
                replaced.extend(found.map(|(at, new)| (at.start + start..at.end + start, new)));
            }
            start += line.len();
        }
        replace(text, replaced)
    }

    /// The cells of a row to replace: those in `named`, and precise numbers.
    fn cells_of(
        &mut self,
        line: &str,
        named: Vec<Replaced>,
        header: Option<&Header<'_>>,
    ) -> Vec<Replaced> {
        let taken: HashSet<usize> = named.iter().map(|(at, _)| at.start).collect();
        let mut replaced = named;
        let numbers = exact(line, &cells(line, false)).into_iter();
        let numbers: Vec<(Degrees, bool)> =
            numbers.filter(|(degrees, _)| !taken.contains(&degrees.at.start)).collect();
        // A run with a number that is no cell is left to the rules for text.
        let runs = numbers.chunk_by(|(a, _), (b, _)| a.is_beside(b, line));
        let runs = runs.filter(|run| run.iter().all(|(_, is_cell)| *is_cell));
        let runs: Vec<Vec<(Degrees, bool)>> = runs.map(<[_]>::to_vec).collect();
        let places = match header.is_some_and(|header| header.whole) {
            // The names identify the columns that are places. Only adjacent numbers may be another
            // place.
            true => runs,
            // A single run is left to the rules for text, which replace it as one place.
            false if runs.len() < 2 => Vec::new(),
            false => vec![runs.concat()],
        };
        for place in places {
            if place.len() > 1 && place.iter().any(|(degrees, _)| degrees.value.abs() <= 90.0) {
                self.run(&place, &mut replaced);
            }
        }
        replaced.sort_by_key(|(at, _)| at.start);
        replaced
    }

    /// Replaces precise numbers of a row in pairs.
    fn run(&mut self, run: &[(Degrees, bool)], replaced: &mut Vec<Replaced>) {
        let (pairs, odd) = run.as_chunks::<2>();
        for [(one, _), (other, _)] in pairs {
            // An odd number of them cannot be paired.
            let written = self.written(&points(one.with(other).filter(|_| odd.is_empty())));
            replaced.extend([(one.at.clone(), written.clone()), (other.at.clone(), written)]);
        }
        replaced.extend(odd.iter().map(|(degrees, _)| (degrees.at.clone(), REMOVED.to_owned())));
    }

    /// The cells of columns that are named latitude or longitude.
    fn named_of(&mut self, line: &str, row: &[Range<usize>], header: &Header<'_>) -> Vec<Replaced> {
        let value = |nth: usize| degrees(&Json::text(&line[bare(line, &row[nth])]));
        let mut replaced = Vec::new();
        for (nth, half) in &header.halves {
            let Some(one) = value(*nth) else { continue };
            let other = header.columns.get(&half.other()).and_then(|nth| value(*nth));
            let point = other
                .and_then(|other| if half.latitude { spot(one, other) } else { spot(other, one) });
            replaced.push((bare(line, &row[*nth]), self.written(&points(point))));
        }
        replaced
    }
}

/// A range, and the text that replaces it.
type Replaced = (Range<usize>, String);

/// A header line, which names the columns.
struct Header<'a> {
    cells: usize,
    /// The columns that are a latitude or a longitude.
    halves: BTreeMap<usize, Coordinate<'a>>,
    columns: HashMap<Coordinate<'a>, usize>,
    /// Whether it names both halves of a place.
    whole: bool,
}

impl<'a> Header<'a> {
    /// Reads a line of names. One has to be half a place, and either a single word or with its
    /// other half in the line.
    fn read(line: &'a str, cells: &[Range<usize>]) -> Option<Self> {
        let in_name = |c: char| c.is_alphanumeric() || " _-()/#°".contains(c);
        let is_name =
            |name: &&str| name.chars().all(in_name) && degrees(&Json::text(name)).is_none();
        let names: Vec<&str> = cells.iter().map(|cell| &line[bare(line, cell)]).collect();
        if names.len() < 2 || !names.iter().all(is_name) {
            return None;
        }
        let halves = names.iter().enumerate().map(|(nth, name)| (nth, Coordinate::of(name)));
        let mut halves: BTreeMap<usize, Coordinate<'_>> =
            halves.filter_map(|(nth, half)| Some((nth, half?))).collect();
        let columns: HashMap<Coordinate<'_>, usize> =
            halves.iter().map(|(nth, half)| (*half, *nth)).collect();
        let is_whole = |half: &Coordinate<'_>| columns.contains_key(&half.other());
        halves.retain(|nth, half| is_whole(half) || !names[*nth].contains(char::is_whitespace));
        let whole = halves.values().any(is_whole);
        (!halves.is_empty()).then_some(Self { cells: cells.len(), halves, columns, whole })
    }
}

/// The precise numbers of a line, and whether each is a cell. The first and the last cell may have
/// other text around the number.
fn exact(line: &str, cells: &[Range<usize>]) -> Vec<(Degrees, bool)> {
    let mut nth = 0;
    let numbers = Degrees::all(line).map(|number| {
        nth += cells[nth..].iter().take_while(|cell| cell.end < number.at.end).count();
        let cell = cells.get(nth).filter(|cell| cell.start <= number.at.start);
        let is_cell = cells.len() > 1
            && cell.is_some_and(|cell| {
                let before = &line[cell.start..number.at.start];
                let after = &line[number.at.end..cell.end];
                let ends = |c: char| c.is_whitespace() || "=:([{\"'".contains(c);
                let begins = |c: char| c.is_whitespace() || ".:)]}\"'\\".contains(c);
                let opens = before.chars().all(punctuation) || nth == 0 && before.ends_with(ends);
                let last = nth + 1 == cells.len();
                opens && (after.chars().all(punctuation) || last && after.starts_with(begins))
            });
        (number, is_cell)
    });
    numbers.collect()
}

/// A cell without the punctuation around it.
fn bare(line: &str, cell: &Range<usize>) -> Range<usize> {
    let text = &line[cell.clone()];
    let start = cell.start + (text.len() - text.trim_start_matches(punctuation).len());
    start..start + text.trim_matches(punctuation).len()
}

/// The lines of a text, with their ends. Those of a text in quotes end in `\n`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').flat_map(|line| line.split_inclusive(r"\n"))
}

/// The ranges of a line's cells. With `quotes`, a separator in quotes does not end a cell.
fn cells(line: &str, quotes: bool) -> Vec<Range<usize>> {
    let bytes = line.as_bytes();
    let (mut cells, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, byte) in bytes.iter().enumerate() {
        let width = match byte {
            b',' | b';' | b'\t' | b'|' => 1,
            b'\\' if matches!(bytes.get(at + 1), Some(b't' | b'r' | b'n')) => 2,
            b'"' => {
                quoted ^= quotes;
                continue;
            }
            _ => continue,
        };
        if !quoted {
            cells.push(start..at);
            start = at + width;
        }
    }
    cells.push(start..line.len());
    // A quote that does not close is ignored.
    if quoted { self::cells(line, false) } else { cells }
}
