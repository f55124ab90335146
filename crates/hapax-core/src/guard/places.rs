//! Exact places: geometries, and fields and texts with coordinates in them.

use super::{Found, Kind};
use crate::json::Json;

const GEOMETRIES: [&str; 7] = [
    "Point",
    "MultiPoint",
    "LineString",
    "MultiLineString",
    "Polygon",
    "MultiPolygon",
    "GeometryCollection",
];

/// Names of one half of a place.
const HALVES: [&str; 6] = ["lat", "latitude", "lon", "lng", "long", "longitude"];

/// Names of whole places.
const PLACES: [&str; 5] = ["coordinates", "coords", "coordinate", "bbox", "latlon"];

/// Adds every exact place in a payload.
pub(super) fn find(value: &Json, at: &mut String, found: &mut Vec<Found>) {
    let length = at.len();
    match value {
        Json::Object(members) => {
            let geometry = members.iter().any(|(name, value)| {
                name == "type" && value.as_str().is_some_and(|name| GEOMETRIES.contains(&name))
            });
            for (name, value) in members {
                at.push('/');
                at.push_str(&name.replace('~', "~0").replace('/', "~1"));
                let word = last_word(name);
                let half = HALVES.contains(&word.as_str()) && is_number(value);
                let whole = (geometry && name == "coordinates" || PLACES.contains(&word.as_str()))
                    && is_place(value);
                if half || whole {
                    found.push(exact(at));
                } else {
                    find(value, at, found);
                }
                at.truncate(length);
            }
        }
        Json::Array(items) => {
            for (nth, value) in items.iter().enumerate() {
                at.push_str(&format!("/{nth}"));
                find(value, at, found);
                at.truncate(length);
            }
        }
        Json::String(text) if is_written_place(text) => found.push(exact(at)),
        _ => {}
    }
}

fn exact(at: &str) -> Found {
    Found { pointer: at.to_owned(), kind: Kind::Coordinates }
}

/// The last word of a name: `lat` of `stationLat`, `site_lat` and `LAT`.
fn last_word(name: &str) -> String {
    let end = name.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
    let all_upper = !end.chars().any(|c| c.is_ascii_lowercase());
    let mut word: Vec<char> = Vec::new();
    for c in end.chars().rev() {
        if !c.is_ascii_alphabetic() {
            break;
        }
        word.push(c.to_ascii_lowercase());
        if c.is_ascii_uppercase() && !all_upper {
            break;
        }
    }
    word.iter().rev().collect()
}

fn is_number(value: &Json) -> bool {
    match value {
        Json::Number(_) => true,
        Json::String(text) => text.trim().parse::<f64>().is_ok(),
        _ => false,
    }
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

/// Well-known text, a `geo:` URI, or two numbers that can be nothing else.
fn is_written_place(text: &str) -> bool {
    let text = text.trim();
    let well_known = text.rsplit_once(';').map_or(text, |(_, rest)| rest).trim_start();
    let shape = well_known.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    let is_shape = GEOMETRIES.iter().any(|name| name.eq_ignore_ascii_case(shape));
    if is_shape && well_known.contains('(') && well_known.contains(|c: char| c.is_ascii_digit()) {
        return true;
    }
    let uri = text.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("geo:"));
    if uri {
        return is_pair(text[4..].split(';').next().unwrap_or_default());
    }
    // With three decimals, about a hundred metres, it is no pair of prices.
    let precise = |text: &str| text.rsplit_once('.').is_some_and(|(_, digits)| digits.len() >= 3);
    is_pair(text) && text.split([',', ' ']).filter(|half| !half.is_empty()).all(precise)
}

/// Two numbers in the range of degrees, in either order.
fn is_pair(text: &str) -> bool {
    let numbers = text.split([',', ' ']).filter(|half| !half.is_empty());
    let numbers: Option<Vec<f64>> = numbers.map(|half| half.parse().ok()).collect();
    matches!(numbers.as_deref(), Some([a, b, ..]) if a.abs() <= 180.0 && b.abs() <= 180.0
        && (a.abs() <= 90.0 || b.abs() <= 90.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(payload: &str) -> Vec<String> {
        let mut found = Vec::new();
        find(&Json::parse(payload.as_bytes()).unwrap(), &mut String::new(), &mut found);
        found.into_iter().map(|found| found.pointer).collect()
    }

    #[test]
    fn exact_places_are_found_where_they_are() {
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
        ] {
            assert_eq!(places(payload), [pointer], "{payload}");
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
        ] {
            assert_eq!(places(payload), [""; 0], "{payload}");
        }
    }
}
