//! Parts of arrays, and what is mapped to them. A part is a box in a plane; what lies in two planes never overlaps.

use std::collections::BTreeMap;

use weir_abi::types::*;

/// What a box lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plane {
    /// One level, in elements.
    Level { level: u32, layer: u32 },
    /// The levels that are smaller than a tile, in bytes.
    Tail { layer: u32 },
    /// All of an array that is mapped as a whole.
    Whole,
}

/// From the first to behind the last.
type Span = (u64, u64);

/// A box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    plane: Plane,
    z: Span,
    y: Span,
    x: Span,
}

impl Area {
    /// All of an array.
    pub const WHOLE: Self = Self { plane: Plane::Whole, z: (0, 1), y: (0, 1), x: (0, 1) };

    /// The part that an entry of a list names.
    pub fn of(info: &CUarrayMapInfo) -> Self {
        let span = |start: u64, length: u64| (start, start.saturating_add(length));
        if info.subresource_type == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL {
            // SAFETY: the type says that this member holds; every bit pattern is one of its values.
            let CUarrayMapInfo_miptail { layer, offset, size } = unsafe { info.subresource.miptail };
            return Self { plane: Plane::Tail { layer }, x: span(offset, size), ..Self::WHOLE };
        }
        // SAFETY: as above.
        let part = unsafe { info.subresource.sparse_level };
        Self {
            plane: Plane::Level { level: part.level, layer: part.layer },
            z: span(part.offset_z.into(), part.extent_depth.into()),
            y: span(part.offset_y.into(), part.extent_height.into()),
            x: span(part.offset_x.into(), part.extent_width.into()),
        }
    }

    fn is_empty(&self) -> bool {
        [self.z, self.y, self.x].iter().any(|(start, end)| start >= end)
    }

    /// What two areas of one plane share; empty if nothing.
    fn and(&self, other: &Self) -> Self {
        let both = |a: Span, b: Span| (a.0.max(b.0), a.1.min(b.1));
        let (z, y, x) = (both(self.z, other.z), both(self.y, other.y), both(self.x, other.x));
        Self { plane: self.plane, z, y, x }
    }

    /// What is left of it without a part of it: slabs before and behind the part, then rows, then what is in its rows.
    fn without(self, part: &Self) -> impl Iterator<Item = Self> {
        let slab = |z| Self { z, ..self };
        let row = |y| Self { z: part.z, y, ..self };
        let end = |x| Self { x, ..*part };
        let around = |whole: Span, part: Span| [(whole.0, part.0), (part.1, whole.1)];
        let pieces = [
            around(self.z, part.z).map(slab),
            around(self.y, part.y).map(row),
            around(self.x, part.x).map(end),
        ];
        pieces.into_iter().flatten().filter(|piece| !piece.is_empty())
    }

    fn corner(&self) -> Corner {
        (self.plane, self.z.0, self.y.0, self.x.0)
    }
}

/// Where an area begins, in an order in which neighbours in a row stand beside each other.
type Corner = (Plane, u64, u64, u64);

/// Memory that is mapped to an area, by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Where.
    pub area: Area,
    /// What.
    pub memory: u64,
}

/// The tiles of one array. No two overlap, so that none but one begins in a corner.
#[derive(Default)]
pub struct Tiling {
    tiles: BTreeMap<Corner, Tile>,
    // The deepest and the highest there was: what begins farther away does not reach as far. An array of thousands of tiles
    // is not searched through for each.
    deepest: u64,
    highest: u64,
}

impl Tiling {
    /// Lays a tile where there is none.
    pub fn lay(&mut self, tile: Tile) {
        let Area { z, y, .. } = tile.area;
        if !tile.area.is_empty() {
            self.deepest = self.deepest.max(z.1 - z.0);
            self.highest = self.highest.max(y.1 - y.0);
            self.tiles.insert(tile.area.corner(), tile);
        }
    }

    /// Takes off what lies in an area. What is left of a tile that is cut stays, in pieces; `stays` hears of each one's
    /// memory.
    pub fn cut(&mut self, area: &Area, mut stays: impl FnMut(u64)) -> Vec<Tile> {
        let mut off = Vec::new();
        for tile in self.overlapping(area) {
            self.tiles.remove(&tile.area.corner());
            let part = tile.area.and(area);
            for piece in tile.area.without(&part) {
                stays(tile.memory);
                self.lay(Tile { area: piece, ..tile });
            }
            off.push(Tile { area: part, ..tile });
        }
        off
    }

    /// All tiles.
    pub fn all(&self) -> impl Iterator<Item = Tile> {
        self.tiles.values().copied()
    }

    fn overlapping(&self, area: &Area) -> Vec<Tile> {
        if area.is_empty() {
            return Vec::new();
        }
        let from = |start: u64, longest: u64| start.saturating_sub(longest);
        let first = (area.plane, from(area.z.0, self.deepest), from(area.y.0, self.highest), 0);
        let behind = (area.plane, area.z.1 - 1, area.y.1, 0);
        let near = self.tiles.range(first..behind).map(|(_, tile)| *tile);
        near.filter(|tile| !tile.area.and(area).is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The side of the cube in which these tests map.
    const SIDE: u64 = 3;

    /// Every area in the cube.
    fn areas() -> Vec<Area> {
        let spans: Vec<Span> =
            (0..SIDE).flat_map(|start| (start + 1..=SIDE).map(move |end| (start, end))).collect();
        let plane = Plane::Level { level: 0, layer: 0 };
        let boxes = spans.iter().flat_map(|z| spans.iter().map(move |y| (*z, *y)));
        boxes.flat_map(|(z, y)| spans.iter().map(move |x| Area { plane, z, y, x: *x })).collect()
    }

    fn has(area: &Area, z: u64, y: u64, x: u64) -> bool {
        let inside = |span: Span, at: u64| (span.0..span.1).contains(&at);
        inside(area.z, z) && inside(area.y, y) && inside(area.x, x)
    }

    /// Memory by cell; a cell that two tiles claim fails.
    fn cells(tiles: impl Iterator<Item = Tile>) -> BTreeMap<(u64, u64, u64), u64> {
        let mut cells = BTreeMap::new();
        for tile in tiles {
            for (z, y, x) in (0..SIDE.pow(3)).map(|n| (n / SIDE / SIDE, n / SIDE % SIDE, n % SIDE)) {
                if has(&tile.area, z, y, x) {
                    assert_eq!(cells.insert((z, y, x), tile.memory), None, "two tiles overlap");
                }
            }
        }
        cells
    }

    #[test]
    fn a_cut_takes_off_what_lies_in_the_area_and_nothing_else() {
        for (first, second) in areas().iter().flat_map(|a| areas().into_iter().map(move |b| (*a, b))) {
            let (mut tiling, mut pieces) = (Tiling::default(), 0);
            tiling.lay(Tile { area: first, memory: 1 });
            let off = cells(tiling.cut(&second, |_| pieces += 1).into_iter());
            let left = cells(tiling.all());
            let untouched = usize::from(off.is_empty());
            assert_eq!(pieces + untouched, tiling.all().count(), "each piece was told of");
            for (z, y, x) in cells([Tile { area: first, memory: 1 }].into_iter()).into_keys() {
                let place = (z, y, x);
                assert_eq!(off.contains_key(&place), has(&second, z, y, x), "{first:?} {second:?}");
                assert_ne!(off.contains_key(&place), left.contains_key(&place), "{first:?} {second:?}");
            }
        }
    }

    #[test]
    fn tiles_of_any_size_are_found_whatever_lies_between() {
        for found in areas() {
            let mut tiling = Tiling::default();
            let small = areas().into_iter().filter(|area| {
                let cell = [area.z, area.y, area.x].iter().all(|(start, end)| end - start == 1);
                cell && !has(&found, area.z.0, area.y.0, area.x.0)
            });
            small.for_each(|area| tiling.lay(Tile { area, memory: 1 }));
            tiling.lay(Tile { area: found, memory: 2 });
            for area in areas() {
                let expected = !found.and(&area).is_empty();
                let seen = tiling.overlapping(&area).iter().any(|tile| tile.memory == 2);
                assert_eq!(seen, expected, "{found:?} under {area:?}");
            }
        }
    }

    #[test]
    fn what_lies_in_another_plane_stays() {
        let mut tiling = Tiling::default();
        let planes = [0, 1].map(|level| Plane::Level { level, layer: 0 });
        let planes = planes.into_iter().chain([Plane::Tail { layer: 0 }, Plane::Tail { layer: 1 }]);
        for plane in planes.clone() {
            tiling.lay(Tile { area: Area { plane, ..Area::WHOLE }, memory: 1 });
        }
        for (taken, plane) in planes.enumerate() {
            assert_eq!(tiling.all().count(), 4 - taken);
            let area = Area { plane, ..Area::WHOLE };
            assert_eq!(tiling.cut(&area, |_| {}), [Tile { area, memory: 1 }]);
        }
    }

    #[test]
    fn an_area_of_nothing_takes_and_keeps_nothing() {
        let (mut tiling, empty) = (Tiling::default(), Area { x: (5, 5), ..Area::WHOLE });
        tiling.lay(Tile { area: empty, memory: 1 });
        assert_eq!(tiling.all().count(), 0);
        tiling.lay(Tile { area: Area::WHOLE, memory: 1 });
        assert!(tiling.cut(&empty, |_| {}).is_empty());
    }
}
