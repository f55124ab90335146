//! Exact places: geometries, and fields and texts with coordinates in them.

use std::collections::HashMap;

use super::{GuardFinding, Kind};
use crate::json::Json;

const GEOMETRIES: [&str; 7] = [
    "point",
    "multipoint",
    "linestring",
    "multilinestring",
    "polygon",
    "multipolygon",
    "geometrycollection",
];

const LATITUDES: [&str; 4] = ["lat", "lats", "latitude", "latitudes"];

const LONGITUDES: [&str; 8] =
    ["lon", "lons", "lng", "lngs", "long", "longs", "longitude", "longitudes"];

/// Units that may follow the name of a coordinate: `lat_deg`, and `dec_long_va` of the USGS.
const UNITS: [&str; 7] = ["deg", "degrees", "dd", "dec", "decimal", "va", "wgs"];

/// Names of the two axes of a place, in Esri JSON and in tables made from it.
const AXES: [&str; 6] = ["x", "y", "xmin", "ymin", "xmax", "ymax"];

/// Names of values that have both coordinates.
const PLACES: [&str; 9] = [
    "coordinates",
    "coords",
    "coordinate",
    "bbox",
    "latlon",
    "latlng",
    "latlong",
    "lonlat",
    "lnglat",
];

/// The form in which a value gives a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location<'a> {
    /// A latitude or a longitude, under a name that says so.
    Coordinate(Coordinate<'a>),
    /// One position or many, as numbers or as a text of two numbers.
    Whole,
    /// A list with a latitude and a longitude somewhere in it, as rows of tables have them.
    Row,
    /// A text that is a place, whatever its name: well-known text, a `geo:` URI, a pair.
    Written,
}

/// The name of one coordinate: `site_` and `lat` of `site_lat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Coordinate<'a> {
    /// Whether it is a latitude; else it is a longitude.
    pub latitude: bool,
    /// The text before the word, the same in the name of the other coordinate.
    pub prefix: &'a str,
    /// The text after the word, the same in the name of the other coordinate.
    pub suffix: &'a str,
}

impl<'a> Location<'a> {
    /// The form in which a value gives a place, given its name.
    ///
    /// ```
    /// use hapax_core::guard::Location;
    /// use hapax_core::json::Json;
    ///
    /// assert_eq!(Location::of("note", &Json::text("geo:38.89,-77.03")), Some(Location::Written));
    /// assert_eq!(Location::of("note", &Json::text("east of the river")), None);
    /// ```
    pub fn of(name: &'a str, value: &Json) -> Option<Self> {
        if is_place_name(name) && is_place(value) {
            return Some(Self::Whole);
        }
        match (Coordinate::of(name), value) {
            (Some(half), value) if is_degrees(value) => Some(Self::Coordinate(half)),
            // A list of latitudes or longitudes is reported item by item.
            (None, Json::Array(items)) if is_position(items) => Some(Self::Whole),
            (None, Json::Array(items)) if is_row(items) => Some(Self::Row),
            (_, Json::String(text)) => is_written(text).then_some(Self::Written),
            _ => None,
        }
    }
}

impl<'a> Coordinate<'a> {
    /// The coordinate that a name stands for, if it does.
    ///
    /// ```
    /// use hapax_core::guard::Coordinate;
    ///
    /// let half = Coordinate { latitude: true, prefix: "station", suffix: "_2" };
    /// assert_eq!(Coordinate::of("stationLat_2"), Some(half));
    /// assert_eq!(Coordinate::of("flat"), None);
    /// ```
    pub fn of(name: &'a str) -> Option<Self> {
        let (start, word) = last(name)?;
        let latitude = LATITUDES.contains(&word.as_str());
        if !latitude && !LONGITUDES.contains(&word.as_str()) {
            return None;
        }
        let (prefix, suffix) = (&name[..start], &name[start + word.len()..]);
        Some(Self { latitude, prefix, suffix })
    }

    /// The coordinate that the name of an axis stands for. It counts only if its value and that of
    /// the other axis are [exact](is_exact): `x` and `y`, `POINT_X`, `xmin`.
    pub fn axis(name: &'a str) -> Option<Self> {
        if !name.contains(['x', 'y', 'X', 'Y']) {
            return None;
        }
        let axis = |(_, word): &(usize, String)| AXES.contains(&word.as_str());
        let (start, word) = words(name).into_iter().rfind(axis)?;
        let latitude = word.starts_with('y');
        Some(Self { latitude, prefix: &name[..start], suffix: &name[start + 1..] })
    }

    /// The name of the other coordinate of the place.
    pub fn other(self) -> Self {
        Self { latitude: !self.latitude, ..self }
    }
}

/// Adds every exact place in a payload. A value without a name goes by the name around it.
pub(super) fn find(name: &str, value: &Json, at: &mut String, found: &mut Vec<GuardFinding>) {
    if Location::of(name, value).is_some() {
        found.push(GuardFinding { pointer: at.clone(), kind: Kind::Coordinates });
        return;
    }
    let length = at.len();
    match value {
        Json::Object(members) => {
            // A name that is a place is not repeated; the object that has it is named.
            if members.iter().any(|(name, _)| is_written(name)) {
                found.push(GuardFinding { pointer: at.clone(), kind: Kind::Coordinates });
                return;
            }
            let axes = axes(members);
            for (member, value) in members {
                at.push('/');
                at.push_str(&member.replace('~', "~0").replace('/', "~1"));
                match Coordinate::axis(member).and_then(|axis| axes.get(&axis.other())) {
                    Some(other) if is_exact(value, other) => {
                        found.push(GuardFinding { pointer: at.clone(), kind: Kind::Coordinates });
                    }
                    _ => find(called(name, member), value, at, found),
                }
                at.truncate(length);
            }
        }
        Json::Array(items) => {
            for (nth, value) in items.iter().enumerate() {
                at.push_str(&format!("/{nth}"));
                find(name, value, at, found);
                at.truncate(length);
            }
        }
        _ => {}
    }
}

/// The members of an object whose names are those of axes.
pub fn axes(members: &[(String, Json)]) -> HashMap<Coordinate<'_>, &Json> {
    let axes = members.iter().map(|(name, value)| (Coordinate::axis(name), value));
    axes.filter_map(|(axis, value)| Some((axis?, value))).collect()
}

/// The name that applies to the value of a member. It is the name around it if the member's own
/// name is an index. It is so, too, if the name around it is a coordinate's or a cell's, and the
/// member's own is no coordinate's, place's or cell's.
///
/// ```
/// use hapax_core::guard::called;
///
/// assert_eq!(called("lat", "value"), "lat");
/// assert_eq!(called("well", "value"), "value");
/// ```
pub fn called<'a>(around: &'a str, member: &'a str) -> &'a str {
    let tells =
        || Coordinate::of(member).is_some() || is_place_name(member) || is_cell_name(member);
    let goes_on = || (Coordinate::of(around).is_some() || is_cell_name(around)) && !tells();
    if is_index(member) || goes_on() { around } else { member }
}

/// Whether a name is one that H3 cells have; the value is not looked at.
pub fn is_cell_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("h3") || name.ends_with("cell") || name.ends_with("cells")
}

/// Whether a name is an index, such as a row of a column.
pub fn is_index(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

/// The last word of a name in lower case, and where it begins: `lat` of `stationLat`,
/// `site_lat_deg` and `LAT`.
fn last(name: &str) -> Option<(usize, String)> {
    let mut words = words(name);
    words.pop_if(|(_, word)| UNITS.contains(&word.as_str()));
    words.pop()
}

/// `coordinates`, `stationCoords`, `latLon`.
fn is_place_name(name: &str) -> bool {
    let named = last(name).is_some_and(|(_, word)| PLACES.contains(&word.as_str()));
    named || is_pair_name(name)
}

/// `latLon`, `lat_lng`, `lon-lat`.
fn is_pair_name(name: &str) -> bool {
    Coordinate::of(name).is_some_and(|half| {
        let before = last(half.prefix).map(|(start, _)| &half.prefix[start..]);
        before.and_then(Coordinate::of).is_some_and(|first| first.latitude != half.latitude)
    })
}

fn words(name: &str) -> Vec<(usize, String)> {
    let bytes = name.as_bytes();
    let mut words: Vec<(usize, String)> = Vec::new();
    for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| byte.is_ascii_alphabetic()) {
        let before = at.checked_sub(1).map(|at| bytes[at]).filter(u8::is_ascii_alphabetic);
        let begins = before.is_none_or(|before| {
            let after = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
            byte.is_ascii_uppercase() && (before.is_ascii_lowercase() || after)
        });
        let letter = byte.to_ascii_lowercase() as char;
        match words.last_mut() {
            Some((_, word)) if !begins => word.push(letter),
            _ => words.push((at, letter.into())),
        }
    }
    words
}

fn is_number(value: &Json) -> bool {
    match value {
        Json::Number(_) => true,
        Json::String(text) => text.trim().parse::<f64>().is_ok(),
        _ => false,
    }
}

/// A number, with or without its hemisphere, or degrees and minutes.
fn is_degrees(value: &Json) -> bool {
    let degrees = |text: &str| {
        let number = bare(text).parse::<f64>().is_ok();
        number || text.contains('°') && text.contains(|c: char| c.is_ascii_digit())
    };
    is_number(value) || value.as_str().is_some_and(degrees)
}

/// Degrees without their hemisphere.
fn bare(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || "NSEW°º".contains(c))
}

/// Numbers, however deep: a position, a line, a ring.
fn is_place(value: &Json) -> bool {
    match value {
        Json::Array(items) => {
            items.len() >= 2 && items.iter().all(is_number) || items.iter().any(is_place)
        }
        Json::String(text) => is_pair(text),
        _ => false,
    }
}

/// A position or the corners of a box, too precise to be anything else.
fn is_position(items: &[Json]) -> bool {
    let two = match items {
        [a, b] | [a, b, _] | [a, b, _, _] => is_exact(a, b),
        _ => false,
    };
    two && items.iter().all(is_number)
}

/// Two precise numbers among others, of which one can be a latitude. Five items and more whose
/// numbers all lie within one of zero are shares of something.
fn is_row(items: &[Json]) -> bool {
    let degrees = || items.iter().filter_map(precise);
    let shares = || {
        let numbers = items.iter().filter(|item| is_number(item));
        let within = |item: &Json| number(item).is_none_or(|number| number.abs() <= 1.0);
        items.len() >= 5 && numbers.into_iter().all(within)
    };
    degrees().nth(1).is_some() && degrees().any(|degrees| degrees.abs() <= 90.0) && !shares()
}

/// Whether a number can be degrees and has at least three decimals, about a hundred metres, so that
/// it is one of a place.
pub fn is_precise(value: &Json) -> bool {
    precise(value).is_some()
}

/// Whether two numbers, or two columns of numbers, are a place, in either order.
pub fn is_exact(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).any(|(a, b)| is_exact(a, b))
        }
        _ => match (precise(one), precise(other)) {
            (Some(a), Some(b)) => a.abs() <= 90.0 || b.abs() <= 90.0,
            _ => false,
        },
    }
}

fn precise(value: &Json) -> Option<f64> {
    let number = number(value).filter(|number| number.abs() <= 180.0)?;
    let text = match value {
        Json::Number(number) => number.as_str(),
        Json::String(text) => bare(text),
        _ => return None,
    };
    has_decimals(text).then_some(number)
}

fn number(value: &Json) -> Option<f64> {
    match value {
        Json::Number(number) => number.as_str().parse().ok(),
        Json::String(text) => bare(text).parse().ok(),
        _ => None,
    }
}

/// A number with at least three decimals, about a hundred metres, is no price.
fn has_decimals(text: &str) -> bool {
    text.rsplit_once('.').is_some_and(|(_, digits)| digits.len() >= 3)
}

/// Well-known text, a `geo:` URI, or two numbers that are too precise to be anything else.
fn is_written(text: &str) -> bool {
    let text = text.trim();
    let well_known = text.rsplit_once(';').map_or(text, |(_, rest)| rest).trim_start();
    let shape = well_known.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    let shape = shape.to_ascii_lowercase();
    let is_shape = GEOMETRIES.contains(&shape.trim_end_matches(['z', 'm']));
    if is_shape && well_known.contains('(') && well_known.contains(|c: char| c.is_ascii_digit()) {
        return true;
    }
    let uri = text.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("geo:"));
    if uri {
        return is_pair(text[4..].split(';').next().unwrap_or_default());
    }
    is_pair(text) && halves(text).all(has_decimals)
}

/// Two numbers in the range of degrees, in either order.
fn is_pair(text: &str) -> bool {
    let numbers: Option<Vec<f64>> = halves(text).map(|half| half.parse().ok()).collect();
    matches!(numbers.as_deref(), Some([a, b, ..]) if a.abs() <= 180.0 && b.abs() <= 180.0
        && (a.abs() <= 90.0 || b.abs() <= 90.0))
}

fn halves(text: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| c.is_whitespace() || c == ',' || c == ';';
    text.split(between).filter(|half| !half.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(payload: &str) -> Vec<String> {
        let mut found = Vec::new();
        find("", &Json::parse(payload.as_bytes()).unwrap(), &mut String::new(), &mut found);
        found.into_iter().map(|found| found.pointer).collect()
    }

    /// Proves O-9: a place is found in each form in which payloads give it.
    #[test]
    fn exact_places_are_found_with_their_pointers() {
        for (payload, pointer) in [
            (r#"{"type":"Point","coordinates":[-98.1,38.2]}"#, "/coordinates"),
            (
                r#"{"f":[{"geometry":{"type":"Polygon","coordinates":[[[1,2],[3,4]]]}}]}"#,
                "/f/0/geometry/coordinates",
            ),
            (r#"{"site_lat": 38.2}"#, "/site_lat"),
            (r#"{"stationLongitude": "-98.1"}"#, "/stationLongitude"),
            (r#"{"LAT": 38}"#, "/LAT"),
            (r#"{"bbox": [1, 2, 3, 4]}"#, "/bbox"),
            (r#"{"g": "SRID=4326;POINT Z (1 2 3)"}"#, "/g"),
            (r#"{"g": "linestring(30 10, 10 30)"}"#, "/g"),
            (r#"["geo:37.786971,-122.399677;u=35"]"#, "/0"),
            (r#"{"note": "38.8951, -77.0364"}"#, "/note"),
            (r#"{"GPSLatitude": "38.8951 N"}"#, "/GPSLatitude"),
            (r#"{"dec_long_va": -98.1}"#, "/dec_long_va"),
            (r#"{"lats": [null, 38.1]}"#, "/lats/1"),
            (r#"{"lat": {"0": 38.1}}"#, "/lat/0"),
            (r#"{"latLng": [38.1, -98.2]}"#, "/latLng"),
            (r#"{"where": [-98.1234, 38.5678, 412]}"#, "/where"),
            (r#"{"g": "POINTZ(1 2 3)"}"#, "/g"),
            (r#"{"seen": {"38.8951,-77.0364": 3}}"#, "/seen"),
            (r#"{"columns":["id","lat","lon"],"data":[[7,38.5123,-98.1234]]}"#, "/data/0"),
            (r#"{"rows":[["well 7","38.5123 N",12,"98.1234 W",null,true]]}"#, "/rows/0"),
            (r#"[0.12, 12.5, 7, 8, 9, 10, 0.1234, -0.5678]"#, ""),
            (r#"{"lat":{"unit":"deg","value":38.5}}"#, "/lat/value"),
            (r#"{"lon":[{"obs":{"min":-98.1,"n":"many"}}]}"#, "/lon/0/obs/min"),
        ] {
            assert_eq!(places(payload), [pointer], "{payload}");
        }
        for (payload, pointers) in [
            (r#"{"x":-98.1234,"y":38.5123,"z":412.125}"#, ["/x", "/y"]),
            (r#"{"POINT_X":"-98.1234","id":7,"POINT_Y":"38.5123"}"#, ["/POINT_X", "/POINT_Y"]),
            (r#"{"xmin":-98.1234,"xmax":-97.1,"ymin":38.5123}"#, ["/xmin", "/ymin"]),
            (r#"{"x":[-98.1234],"y":[38.5123]}"#, ["/x", "/y"]),
        ] {
            assert_eq!(places(payload), pointers, "{payload}");
        }
    }

    #[test]
    fn other_things_are_not_places() {
        for payload in [
            r#"{"h3": "872830828ffffff", "flat": 3, "plan": 4, "along": 5}"#,
            r#"{"lat": null, "coordinates": "masked", "type": "Point"}"#,
            r#"{"price": "3.50, 4.20", "text": "a point (of view) in 2 parts", "range": [1, 2]}"#,
            r#"{"coordinates": ["872830828ffffff", "872830829ffffff"]}"#,
            r#"{"a": "1234.567, 7654.321", "b": "38.8951"}"#,
            r#"{"parts": [0.1234, 0.2345, 0.3456, 0.4567, 0.5678], "how_long_ms": 3, "a": [0.5, 0.25]}"#,
            r#"{"x": 12.5, "y": 7.25, "dx": 1.2345, "box": {"x": 412.1234, "y": 38.5123}}"#,
            r#"{"weights": [0.1234, -0.2345, 1, 0.4567, 0, 0.6789], "y": 38.5123}"#,
            r#"{"row": [7, "a", 38.5123, null, 1234.5678], "ms": [150.1234, 160.1234, 170.1234]}"#,
        ] {
            assert_eq!(places(payload), [""; 0], "{payload}");
        }
    }
}
