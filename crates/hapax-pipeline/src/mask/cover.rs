//! The cells that a shape lies in.

use std::collections::BTreeSet;

use h3o::{CellIndex, LatLng, Resolution};

/// Points of a shape's outline per edge of a cell, at least.
const DENSITY: f64 = 4.0;

/// The outline points that are examined for each allowed cell.
const EFFORT: usize = 64;

/// A shape on Earth.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Point(LatLng),
    Line(Vec<LatLng>),
    /// Rings: a point inside an odd number of them is inside the polygon.
    Polygon(Vec<Vec<LatLng>>),
}

impl Shape {
    /// A box, given by its west, south, east and north.
    pub(super) fn bounds(west: f64, south: f64, east: f64, north: f64) -> Option<Vec<Self>> {
        if west > east {
            let mut halves = Self::bounds(west, south, 180.0, north)?;
            halves.extend(Self::bounds(-180.0, south, east, north)?);
            return Some(halves);
        }
        let corners = [(south, west), (south, east), (north, east), (north, west), (south, west)];
        let ring: Option<Vec<_>> = corners.iter().map(|(lat, lon)| spot(*lat, *lon)).collect();
        Some(vec![Self::Polygon(vec![ring?])])
    }
}

/// A position, if the latitude and the longitude are in range.
pub(super) fn spot(latitude: f64, longitude: f64) -> Option<LatLng> {
    let there = latitude.abs() <= 90.0 && longitude.abs() <= 180.0;
    there.then(|| LatLng::new(latitude, longitude).ok()).flatten()
}

/// The cells that shapes lie in: at this resolution, or at the finest coarser one with at most
/// `most` cells.
pub(super) fn cover(shapes: &[Shape], finest: Resolution, most: usize) -> BTreeSet<CellIndex> {
    let mut fits = BTreeSet::new();
    for resolution in Resolution::range(Resolution::Zero, finest) {
        let mut cover = Cover { cells: BTreeSet::new(), resolution, most, budget: most * EFFORT };
        if shapes.iter().try_for_each(|shape| cover.add(shape)).is_none() {
            break;
        }
        fits = cover.cells;
    }
    fits
}

/// A cover in progress. Its functions return `None` when it has grown too large.
struct Cover {
    cells: BTreeSet<CellIndex>,
    resolution: Resolution,
    most: usize,
    budget: usize,
}

impl Cover {
    fn add(&mut self, shape: &Shape) -> Option<()> {
        match shape {
            Shape::Point(point) => self.point(*point),
            Shape::Line(points) => self.line(points, true),
            Shape::Polygon(rings) => {
                rings.iter().try_for_each(|ring| self.line(ring, false))?;
                self.fill(rings)
            }
        }
    }

    fn point(&mut self, point: LatLng) -> Option<()> {
        self.cell(point.to_cell(self.resolution))
    }

    fn cell(&mut self, cell: CellIndex) -> Option<()> {
        self.cells.insert(cell);
        (self.cells.len() <= self.most).then_some(())
    }

    /// Straight in degrees, as GeoJSON has it; an open line takes the shorter way around.
    fn line(&mut self, points: &[LatLng], shorter: bool) -> Option<()> {
        if let [only] = points {
            return self.point(*only);
        }
        for ends in points.windows(2) {
            let (from, to) = (ends[0], ends[1]);
            let north = to.lat() - from.lat();
            let mut east = to.lng() - from.lng();
            if shorter && east.abs() > 180.0 {
                east -= east.signum() * 360.0;
            }
            let radians = north.hypot(east).to_radians();
            let steps = (radians / self.resolution.edge_length_rads() * DENSITY).ceil().max(1.0);
            self.budget = self.budget.checked_sub(steps as usize)?;
            for step in 0..=steps as usize {
                let part = step as f64 / steps;
                let lng = from.lng() + east * part;
                self.point(LatLng::new(from.lat() + north * part, lng).ok()?)?;
            }
        }
        Some(())
    }

    /// Fills from the outline inwards, with the cells whose centre is inside.
    fn fill(&mut self, rings: &[Vec<LatLng>]) -> Option<()> {
        let mut edge: Vec<CellIndex> = self.cells.iter().copied().collect();
        let mut outside = BTreeSet::new();
        while let Some(cell) = edge.pop() {
            for next in cell.grid_disk::<Vec<_>>(1) {
                if self.cells.contains(&next) || outside.contains(&next) {
                    continue;
                }
                if is_inside(next.into(), rings) {
                    self.cell(next)?;
                    edge.push(next);
                } else {
                    outside.insert(next);
                }
            }
        }
        Some(())
    }
}

fn is_inside(point: LatLng, rings: &[Vec<LatLng>]) -> bool {
    let (x, y) = (point.lng(), point.lat());
    let crossings = rings.iter().flat_map(|ring| ring.windows(2)).filter(|ends| {
        let (from, to) = (ends[0], ends[1]);
        let passes = (from.lat() > y) != (to.lat() > y);
        let at = (y - from.lat()) / (to.lat() - from.lat());
        passes && x < from.lng() + at * (to.lng() - from.lng())
    });
    crossings.count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Vec<LatLng> {
        points.iter().map(|(lat, lon)| spot(*lat, *lon).unwrap()).collect()
    }

    #[test]
    fn a_line_lies_in_every_cell_that_it_passes_and_the_cells_are_neighbours() {
        let long = Shape::Line(line(&[(38.0, -98.0), (38.4, -97.0)]));
        let cells = cover(&[long], Resolution::Seven, 4096);
        let path: Vec<_> = cells.iter().copied().collect();
        assert!((40..80).contains(&path.len()), "{}", path.len());
        let alone = path.iter().filter(|cell| {
            let near = cell.grid_disk::<BTreeSet<_>>(1);
            near.intersection(&cells).count() < 2
        });
        assert_eq!(alone.count(), 0);
    }

    #[test]
    fn a_line_over_the_antimeridian_takes_the_shorter_way() {
        let short = Shape::Line(line(&[(10.0, 179.9), (10.0, -179.9)]));
        assert!(cover(&[short], Resolution::Five, 4096).len() < 10);
    }

    #[test]
    fn polygons_are_filled_but_for_their_holes() {
        let square = |half: f64| {
            let at = |y: f64, x: f64| (38.0 + y * half, -98.0 + x * half);
            line(&[at(-1., -1.), at(-1., 1.), at(1., 1.), at(1., -1.), at(-1., -1.)])
        };
        let middle = spot(38.0, -98.0).unwrap().to_cell(Resolution::Seven);
        let full = cover(&[Shape::Polygon(vec![square(0.2)])], Resolution::Seven, 4096);
        let holed = vec![square(0.2), square(0.1)];
        let holed = cover(&[Shape::Polygon(holed)], Resolution::Seven, 4096);
        assert!(full.contains(&middle) && !holed.contains(&middle));
        assert!(holed.is_subset(&full) && holed.len() * 10 > full.len() * 7);
    }

    #[test]
    fn a_large_area_is_covered_by_coarser_cells() {
        let kansas = Shape::bounds(-102.05, 37.0, -94.6, 40.0).unwrap();
        let cells = cover(&kansas, Resolution::Nine, 4096);
        assert!(!cells.is_empty() && cells.len() <= 4096);
        assert!(cells.iter().all(|cell| cell.resolution() < Resolution::Nine));
        let world = Shape::bounds(-180.0, -90.0, 180.0, 90.0).unwrap();
        assert_eq!(cover(&world, Resolution::Fifteen, 4096).len(), 842);
    }
}
