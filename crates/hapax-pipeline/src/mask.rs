//! Exact places become H3 cells before anything is written.
//!
//! A value that the core's [guard](hapax::guard) recognises as a place is replaced by the cells it
//! lies in, and removed if it cannot be read as a place. Cells may be coarser than requested,
//! where there would be too many, and never finer.

mod cover;
mod shape;
mod table;
mod text;

use std::collections::{BTreeSet, HashMap, HashSet};

use h3o::{CellIndex, Resolution};
use hapax::guard::{
    Coordinate, Location, axes, called, is_cell_name, is_exact, is_index, is_precise,
};
use hapax::json::Json;

use self::cover::{Shape, cover, spot};
use self::shape::{Nest, Order, geojson, number};

/// The most cells that one geometry becomes.
const MOST: usize = 4096;

/// The replacement for a text that cannot be masked.
const REMOVED: &str = "[masked]";

/// A value without exact places.
#[derive(Debug, Clone, PartialEq)]
pub struct Masked {
    /// The value.
    pub json: Json,
    /// The cells that are in it.
    pub cells: BTreeSet<String>,
}

/// A copy of a value in which every exact place became cells of this H3 resolution, from 0
/// to 15.
///
/// A geometry becomes `{"type":"H3","resolution":7,"cells":["87…"]}`, a latitude and a
/// longitude beside each other become one member `h3`, a text becomes `[h3:87…]`, and half a
/// place becomes null.
///
/// ```
/// use hapax::{canonical::canonical, json::Json};
/// use hapax_pipeline::mask;
///
/// let well = Json::parse(br#"{"id": 7, "site_lat": 38.51234, "site_lon": -98.12345}"#)?;
/// let masked = mask(&well, 7);
/// assert_eq!(canonical(&masked.json)?, r#"{"id":7,"site_h3":"8726e2823ffffff"}"#);
/// assert!(masked.cells.contains("8726e2823ffffff"));
/// # Ok::<(), hapax::json::JsonError>(())
/// ```
pub fn mask(value: &Json, resolution: u8) -> Masked {
    let mut mask = Mask::new(resolution);
    let json = mask.value("", value);
    Masked { json, cells: mask.cells }
}

/// The same text with every place in it replaced by `[h3:…]`, and by `[masked]` where it cannot be
/// read. For log lines, error messages and the output of programs.
///
/// ```
/// use hapax_pipeline::mask_text;
///
/// let line = "well 7 at 38.51234, -98.12345: 0.12345 m";
/// assert_eq!(mask_text(line, 7), "well 7 at [h3:8726e2823ffffff]: 0.12345 m");
/// ```
pub fn mask_text(text: &str, resolution: u8) -> String {
    Mask::new(resolution).text(text)
}

/// Cells in order, at most `most`, and none finer than `finest`. They are coarser where there would
/// be more, and none where even the coarsest are too many. A text that is no cell is skipped.
pub(crate) fn coarse(
    cells: impl IntoIterator<Item = String>,
    finest: u8,
    most: usize,
) -> Vec<String> {
    let mut finest = Resolution::try_from(finest).unwrap_or(Resolution::Fifteen);
    let parent = |cell: CellIndex, finest: Resolution| cell.parent(finest.min(cell.resolution()));
    let cells = cells.into_iter().filter_map(|cell| parent(cell.parse().ok()?, finest));
    let mut cells: BTreeSet<CellIndex> = cells.collect();
    while cells.len() > most {
        let Some(coarser) = finest.pred() else { return Vec::new() };
        finest = coarser;
        cells = cells.into_iter().filter_map(|cell| parent(cell, finest)).collect();
    }
    cells.iter().map(ToString::to_string).collect()
}

struct Mask {
    resolution: Resolution,
    cells: BTreeSet<String>,
}

impl Mask {
    fn new(resolution: u8) -> Self {
        let resolution = Resolution::try_from(resolution).unwrap_or(Resolution::Fifteen);
        Self { resolution, cells: BTreeSet::new() }
    }

    /// Masks a value, by its own name or by the name around it.
    fn value(&mut self, name: &str, value: &Json) -> Json {
        match Location::of(name, value) {
            // Its other half is not beside it.
            Some(Location::Coordinate(_)) => return Json::Null,
            Some(Location::Whole) => return self.whole(name, value),
            Some(Location::Row) => return self.row(name, value.as_array().unwrap_or_default()),
            Some(Location::Written) | None => {}
        }
        match value {
            Json::Object(members) => self.object(name, members),
            Json::Array(items) => {
                Json::Array(items.iter().map(|item| self.value(name, item)).collect())
            }
            Json::String(text) => Json::String(self.string(name, text)),
            Json::Number(_) => self.number(name, value),
            Json::Null | Json::Bool(_) => value.clone(),
        }
    }

    fn object(&mut self, around: &str, members: &[(String, Json)]) -> Json {
        if let Some(geometry) = self.geometry(members) {
            return geometry;
        }
        let mut taken: HashSet<String> = members.iter().map(|(name, _)| name.clone()).collect();
        let halves: HashMap<Coordinate<'_>, &Json> = members
            .iter()
            .filter_map(|(name, value)| Coordinate::of(name).map(|half| (half, value)))
            .collect();
        let axes = axes(members);
        let mut masked = Vec::new();
        for (name, value) in members {
            let by_name =
                Coordinate::of(name).and_then(|half| Some((half, *halves.get(&half.other())?)));
            let exact = |(_, other): &(Coordinate<'_>, &Json)| is_exact(value, other);
            let by_axis =
                Coordinate::axis(name).and_then(|half| Some((half, *axes.get(&half.other())?)));
            let by_axis = by_axis.filter(exact);
            if let Some((half, other)) = by_name.or(by_axis) {
                let (latitude, longitude) =
                    if half.latitude { (value, other) } else { (other, value) };
                let cells = self.pair(latitude, longitude);
                // Only names distinguish x from y, so the other order is tried too.
                let cells = cells.or_else(|| by_axis.and_then(|_| self.pair(longitude, latitude)));
                if let Some(cells) = cells {
                    // Both halves become one member.
                    if half.latitude {
                        masked.push((unique(cell_name(half), &mut taken), cells));
                    }
                    continue;
                }
            }
            let masked_value = match by_axis {
                Some(_) => Json::Null,
                None => self.value(called(around, name), value),
            };
            let masked_name = self.string("", name);
            let changed = masked_name != *name;
            let masked_name = if changed { unique(masked_name, &mut taken) } else { masked_name };
            masked.push((masked_name, masked_value));
        }
        Json::Object(masked)
    }

    /// The cells of a latitude and a longitude: of two numbers, of two columns, or of two objects
    /// that describe a number each.
    fn pair(&mut self, latitude: &Json, longitude: &Json) -> Option<Json> {
        match (latitude, longitude) {
            (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
                self.column(a.iter().zip(b)).map(Json::Array)
            }
            (Json::Object(a), Json::Object(b)) => {
                if !a.iter().map(|(name, _)| name).eq(b.iter().map(|(name, _)| name)) {
                    return None;
                }
                let rows = a.iter().all(|(name, _)| is_index(name));
                let values = a.iter().zip(b).map(|(a, b)| (&a.1, &b.1));
                let cells = if rows { self.column(values)? } else { self.described(a, b)? };
                let names = a.iter().map(|(name, _)| name.clone());
                Some(Json::Object(names.zip(cells).collect()))
            }
            (a, b) => {
                let point = Shape::Point(spot(degrees(a)?, degrees(b)?)?);
                self.cover(&[point], 1).into_iter().next().map(Json::String)
            }
        }
    }

    /// The cells of two columns, row by row, if there are any.
    fn column<'a>(
        &mut self,
        rows: impl Iterator<Item = (&'a Json, &'a Json)>,
    ) -> Option<Vec<Json>> {
        let cells: Vec<_> = rows.map(|(a, b)| self.pair(a, b)).collect();
        let any = cells.iter().any(Option::is_some);
        any.then(|| cells.into_iter().map(|cell| cell.unwrap_or(Json::Null)).collect())
    }

    /// The cell of the one member that differs. Every other member has to be a word, and the same
    /// in both, because minutes or a hemisphere would change the number.
    fn described(
        &mut self,
        latitude: &[(String, Json)],
        longitude: &[(String, Json)],
    ) -> Option<Vec<Json>> {
        let is_value = |(a, b): &(&(String, Json), &(String, Json))| a.1 != b.1;
        let both = || latitude.iter().zip(longitude);
        let words = |value: &Json| match value {
            Json::String(_) => degrees(value).is_none(),
            Json::Null | Json::Bool(_) => true,
            _ => false,
        };
        if both().filter(is_value).count() != 1
            || !both().filter(|pair| !is_value(pair)).all(|(a, _)| words(&a.1))
        {
            return None;
        }
        let (a, b) = both().find(is_value)?;
        let cell = self.pair(&a.1, &b.1)?;
        let members = both().map(|pair| match is_value(&pair) {
            true => cell.clone(),
            false => self.value(&pair.0.0, &pair.0.1),
        });
        Some(members.collect())
    }

    /// Masks a row of a table: a latitude and a longitude become their cell, each in its own place.
    fn row(&mut self, name: &str, items: &[Json]) -> Json {
        let exact: Vec<usize> = (0..items.len()).filter(|nth| is_precise(&items[*nth])).collect();
        let (pairs, odd) = exact.as_chunks::<2>();
        let mut cells: HashMap<usize, Json> = HashMap::new();
        for &[a, b] in pairs {
            let east = items[a].as_str().is_some_and(|text| text.contains(['E', 'W']));
            let order = if east { Order::LonLat } else { Order::Unknown };
            let spot = degrees(&items[a]).zip(degrees(&items[b]));
            let spot = spot.and_then(|(a, b)| order.spot(a, b)).map(Shape::Point);
            // An odd number of them cannot be paired.
            let spot = spot.filter(|_| odd.is_empty());
            let cell = spot.and_then(|spot| self.cover(&[spot], 1).into_iter().next());
            let cell = cell.map_or(Json::Null, Json::String);
            cells.extend([(a, cell.clone()), (b, cell)]);
        }
        cells.extend(odd.iter().map(|nth| (*nth, Json::Null)));
        let items = items.iter().enumerate();
        let items =
            items.map(|(nth, item)| cells.remove(&nth).unwrap_or_else(|| self.value(name, item)));
        Json::Array(items.collect())
    }

    /// Positions without a kind, a box, or a text of two numbers.
    fn whole(&mut self, name: &str, value: &Json) -> Json {
        let letters = name.to_ascii_lowercase().replace(|c: char| !c.is_ascii_lowercase(), "");
        let ends = |ends: &[&str]| ends.iter().any(|end| letters.ends_with(end));
        let lon_first = ends(&["coordinates", "bbox", "lonlat", "lnglat"]);
        let order = if lon_first { Order::LonLat } else { Order::Unknown };
        if let Json::String(text) = value {
            let numbers: Vec<f64> = text
                .split(|c: char| c.is_whitespace() || c == ',' || c == ';')
                .filter_map(|half| half.parse().ok())
                .collect();
            let point = match numbers[..] {
                [a, b, ..] => order.spot(a, b).map(Shape::Point),
                _ => None,
            };
            return Json::String(self.written(&point.into_iter().collect::<Vec<_>>()));
        }
        let flat: Option<Vec<f64>> =
            value.as_array().and_then(|items| items.iter().map(number).collect());
        let bounds = match flat.as_deref() {
            Some(&[w, s, e, n] | &[w, s, _, e, n, _]) if ends(&["bbox", "extent", "bounds"]) => {
                Shape::bounds(w, s, e, n)
            }
            _ => None,
        };
        let points = || Nest::read(value, order).map(|nest| nest.spots());
        let points = || points().into_iter().flatten().map(Shape::Point).collect();
        let cells = self.cover(&bounds.unwrap_or_else(points), MOST);
        if cells.is_empty() {
            return Json::Null;
        }
        Json::Array(cells.into_iter().map(Json::String).collect())
    }

    /// A geometry in GeoJSON, or one that was masked before.
    fn geometry(&mut self, members: &[(String, Json)]) -> Option<Json> {
        let kind =
            members.iter().find(|(name, _)| name == "type").and_then(|(_, kind)| kind.as_str())?;
        let geometry = Json::Object(members.to_vec());
        let cells = if kind == "H3" {
            let cells = geometry.get("cells").and_then(Json::as_array).unwrap_or_default();
            cells.iter().filter_map(|cell| self.coarser(cell.as_str()?)).collect()
        } else {
            self.cover(&geojson(&geometry), MOST)
        };
        let finest = cells.iter().filter_map(|cell| cell.parse::<CellIndex>().ok());
        let finest = u8::from(finest.map(CellIndex::resolution).max()?);
        let mut masked = vec![
            ("type".to_owned(), Json::text("H3")),
            ("resolution".to_owned(), Json::number(finest.into())),
            ("cells".to_owned(), Json::Array(cells.into_iter().map(Json::String).collect())),
        ];
        let own = ["type", "coordinates", "geometries", "bbox", "resolution", "cells"];
        let others = members.iter().filter(|(name, _)| !own.contains(&name.as_str()));
        if let Json::Object(others) = self.object("", &others.cloned().collect::<Vec<_>>()) {
            masked.extend(others);
        }
        Some(Json::Object(masked))
    }

    fn string(&mut self, name: &str, text: &str) -> String {
        if let Some(cell) = is_cell_name(name).then(|| self.coarser(text)).flatten() {
            return cell;
        }
        let masked = Json::String(self.text(text));
        match (Location::of(name, &masked), masked) {
            (None, Json::String(text)) => text,
            _ => REMOVED.to_owned(),
        }
    }

    /// A number stays, unless it is a cell written as a number.
    fn number(&mut self, name: &str, value: &Json) -> Json {
        let cell = value.as_u64().filter(|_| is_cell_name(name));
        let cell = cell.and_then(|cell| CellIndex::try_from(cell).ok());
        match cell.and_then(|cell| cell.parent(self.resolution.min(cell.resolution()))) {
            Some(cell) => Json::number(cell.into()),
            None => value.clone(),
        }
    }

    /// A cell that is no finer than is allowed, if the text is a cell.
    fn coarser(&mut self, text: &str) -> Option<String> {
        let cell: CellIndex = text.parse().ok()?;
        let cell = cell.parent(self.resolution.min(cell.resolution()))?.to_string();
        self.cells.insert(cell.clone());
        Some(cell)
    }

    fn cover(&mut self, shapes: &[Shape], most: usize) -> BTreeSet<String> {
        let cells = cover(shapes, self.resolution, most);
        let cells: BTreeSet<String> = cells.iter().map(ToString::to_string).collect();
        self.cells.extend(cells.iter().cloned());
        cells
    }
}

/// `site_h3` for `site_lat` and `site_lon`.
fn cell_name(half: Coordinate<'_>) -> String {
    let counted = half.suffix.starts_with(|c: char| c.is_ascii_digit());
    format!("{}h3{}{}", half.prefix, if counted { "_" } else { "" }, half.suffix)
}

/// A name that no other member has.
fn unique(name: String, taken: &mut HashSet<String>) -> String {
    let mut free = name.clone();
    let mut nth = 2;
    while !taken.insert(free.clone()) {
        free = format!("{name}_{nth}");
        nth += 1;
    }
    free
}

/// `38.5`, `"38.5"` and `"38.5 S"`.
fn degrees(json: &Json) -> Option<f64> {
    number(json).or_else(|| {
        let text = json.as_str()?.trim();
        let number = text.trim_matches(|c: char| c.is_whitespace() || "NSEW°º".contains(c));
        let number: f64 = number.parse().ok()?;
        Some(if text.contains(['S', 'W']) { -number } else { number })
    })
}

#[cfg(test)]
mod tests;
