//! The notations of shapes: GeoJSON, and well-known text.

use h3o::LatLng;
use hapax::json::Json;

use super::cover::{Shape, spot};

/// The deepest parentheses that are read as a shape.
const DEEPEST: usize = 16;

/// Nested lists of positions, as both notations have them.
#[derive(Debug)]
pub(super) enum Nest {
    Spot(Option<LatLng>),
    List(Vec<Nest>),
}

/// Which of two numbers is the latitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The second, as in GeoJSON and well-known text.
    LonLat,
    /// The first, if it can be.
    Unknown,
}

impl Order {
    /// The position of two numbers; in the other order if they are out of range in this one.
    pub(super) fn spot(self, a: f64, b: f64) -> Option<LatLng> {
        match self {
            Self::LonLat => spot(b, a).or_else(|| spot(a, b)),
            Self::Unknown => spot(a, b).or_else(|| spot(b, a)),
        }
    }
}

/// The shapes of a GeoJSON geometry; none if it is not one.
pub(super) fn geojson(geometry: &Json) -> Vec<Shape> {
    let kind = geometry.get("type").and_then(Json::as_str).unwrap_or_default();
    if kind == "GeometryCollection" {
        let members = geometry.get("geometries").and_then(Json::as_array).unwrap_or_default();
        return members.iter().flat_map(geojson).collect();
    }
    let coordinates = geometry.get("coordinates").and_then(|json| Nest::read(json, Order::LonLat));
    coordinates.map(|nest| shapes(kind, &nest)).unwrap_or_default()
}

/// The shapes of a well-known text, whose `body` begins at the parenthesis after its kind; none if
/// it cannot be read.
pub(super) fn well_known(kind: &str, body: &str) -> Vec<Shape> {
    if depth(body) > DEEPEST {
        return Vec::new();
    }
    let Some(inner) = body.strip_prefix('(').and_then(|body| body.strip_suffix(')')) else {
        return Vec::new();
    };
    if kind.eq_ignore_ascii_case("geometrycollection") {
        let members = split(inner).map(|member| {
            let open = member.find('(')?;
            let kind = member[..open].split_whitespace().next().unwrap_or_default();
            let shapes = well_known(kind.trim_end_matches(['Z', 'M', 'z', 'm']), &member[open..]);
            (!shapes.is_empty()).then_some(shapes)
        });
        let members: Option<Vec<_>> = members.collect();
        return members.unwrap_or_default().concat();
    }
    Nest::list(inner).map(|nest| shapes(kind, &nest)).unwrap_or_default()
}

fn shapes(kind: &str, nest: &Nest) -> Vec<Shape> {
    let points = |spots: Vec<LatLng>| spots.into_iter().map(Shape::Point).collect();
    let lines = |nests: &[Nest]| nests.iter().map(Nest::spots).collect::<Vec<_>>();
    let solid = |line: &Vec<LatLng>| !line.is_empty();
    match (kind.to_ascii_lowercase().as_str(), nest) {
        ("point" | "multipoint", nest) => points(nest.spots()),
        ("linestring", Nest::List(_)) => {
            Some(nest.spots()).filter(solid).into_iter().map(Shape::Line).collect()
        }
        ("multilinestring", Nest::List(nests)) => {
            lines(nests).into_iter().filter(solid).map(Shape::Line).collect()
        }
        ("polygon", Nest::List(rings)) => {
            let rings: Vec<_> = lines(rings).into_iter().filter(solid).collect();
            if rings.is_empty() { Vec::new() } else { vec![Shape::Polygon(rings)] }
        }
        ("multipolygon", Nest::List(nests)) => {
            nests.iter().flat_map(|nest| shapes("polygon", nest)).collect()
        }
        _ => Vec::new(),
    }
}

impl Nest {
    /// Arrays of numbers, or of such arrays.
    pub(super) fn read(json: &Json, order: Order) -> Option<Self> {
        let items = json.as_array()?;
        match items {
            [a, b, ..] if number(a).is_some() => {
                Some(Self::Spot(order.spot(number(a)?, number(b)?)))
            }
            _ => {
                Some(Self::List(items.iter().filter_map(|item| Self::read(item, order)).collect()))
            }
        }
    }

    /// `1 2, 3 4` or `(1 2), (3 4)`.
    fn list(text: &str) -> Option<Self> {
        let items = split(text).map(|item| {
            if let Some(inner) = item.strip_prefix('(') {
                return Self::list(inner.strip_suffix(')')?);
            }
            let numbers: Vec<f64> =
                item.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
            let [x, y, ..] = numbers[..] else { return None };
            Some(Self::Spot(Order::LonLat.spot(x, y)))
        });
        items.collect::<Option<Vec<_>>>().map(Self::List)
    }

    /// Every valid position, at any depth.
    pub(super) fn spots(&self) -> Vec<LatLng> {
        match self {
            Self::Spot(spot) => spot.iter().copied().collect(),
            Self::List(nests) => nests.iter().flat_map(Self::spots).collect(),
        }
    }
}

/// A number, also one written as a text.
pub(super) fn number(json: &Json) -> Option<f64> {
    let text = match json {
        Json::Number(number) => number.as_str(),
        Json::String(text) => text.trim(),
        _ => return None,
    };
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

fn depth(text: &str) -> usize {
    let mut depth = 0_usize;
    let depths = text.bytes().map(|byte| {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth
    });
    depths.max().unwrap_or_default()
}

/// Splits a text at the commas that are in no parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_writing_give_the_same_shapes() {
        for (kind, coordinates, text) in [
            ("Point", "[30, 10, 5]", "(30 10 5)"),
            ("LineString", "[[30, 10], [10, 30]]", "(30 10, 10 30)"),
            ("Polygon", "[[[0, 0], [4, 0], [0, 4], [0, 0]]]", "((0 0,4 0,0 4, 0 0))"),
            ("MultiPoint", "[[10, 40], [40, 30]]", "((10 40), (40 30))"),
            ("MultiPoint", "[[10, 40], [40, 30]]", "(10 40, 40 30)"),
            ("MultiLineString", "[[[1, 2], [3, 4]], [[5, 6]]]", "((1 2, 3 4), (5 6))"),
            ("MultiPolygon", "[[[[0, 0], [4, 0], [0, 4]]]]", "(((0 0, 4 0, 0 4)))"),
        ] {
            let json = format!(r#"{{"type": "{kind}", "coordinates": {coordinates}}}"#);
            let shapes = geojson(&Json::parse(json.as_bytes()).unwrap());
            assert!(!shapes.is_empty(), "{json}");
            assert_eq!(shapes, well_known(&kind.to_uppercase(), text), "{kind}");
        }
        let both = well_known("GEOMETRYCOLLECTION", "(POINT Z (1 2 3), LINESTRING(3 4, 5 6))");
        assert_eq!(both.len(), 2);
        assert_eq!(well_known("POINT", "(1)"), []);
        assert_eq!(well_known("GEOMETRYCOLLECTION", "(POINT (1 2), WHAT (3 4))"), []);
    }
}
