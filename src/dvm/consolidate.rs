//! Weights of equal rows summed, so that a row which changed a thousand times costs as much as one that changed once.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use super::image::{self, Values};
use crate::error::{Error, Result};
use crate::model::Oid;

/// Rows of some columns with their weights, each row once.
pub struct Consolidation {
    /// Number and type of the columns asked for, in order.
    wanted: Vec<(i16, Oid)>,
    layout: Option<Layout>,
    /// The values of all rows, one row after the other.
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// Hash → the newest row that has it.
    by_hash: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
    hasher: RandomState,
    key: Vec<u8>,
}

/// How the wanted columns are found in images with one header.
struct Layout {
    header: Vec<u8>,
    /// Position of each wanted column.
    positions: Vec<usize>,
    /// The columns are all of the image, in its order: its values can be taken as they are.
    whole: bool,
    count: usize,
}

struct Row {
    start: usize,
    end: usize,
    weight: i64,
    /// Another row with the same hash.
    next: Option<u32>,
}

/// The hash of a hash is itself.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |all, byte| all.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl Consolidation {
    /// For these columns, by number and type.
    pub fn new(wanted: Vec<(i16, Oid)>) -> Self {
        Consolidation {
            wanted,
            layout: None,
            bytes: Vec::new(),
            rows: Vec::new(),
            by_hash: HashMap::default(),
            hasher: RandomState::new(),
            key: Vec::new(),
        }
    }

    /// Adds an image. One without a wanted column, or with another type of it, is an error: it can't be computed with.
    pub fn add(&mut self, image: &[u8], weight: i64) -> Result<()> {
        let (header, values) = image::split(image)?;
        let layout = match self.layout.take().filter(|l| l.header == header) {
            Some(layout) => layout,
            None => Layout::of(header, &self.wanted)?,
        };
        let added = if layout.whole {
            self.count(values, weight)
        } else {
            let mut key = std::mem::take(&mut self.key);
            let projected = layout.project(values, &mut key);
            let added = projected.and_then(|()| self.count(&key, weight));
            self.key = key;
            added
        };
        self.layout = Some(layout);
        added
    }

    fn count(&mut self, key: &[u8], weight: i64) -> Result<()> {
        let hash = self.hasher.hash_one(key);
        let number = u32::try_from(self.rows.len())
            .map_err(|_| Error::Internal("more rows than can be counted at once".into()))?;
        let next = match self.by_hash.entry(hash) {
            Entry::Vacant(entry) => {
                entry.insert(number);
                None
            }
            Entry::Occupied(mut entry) => {
                let newest = *entry.get();
                let mut at = Some(newest);
                while let Some(row) = at.and_then(|n| self.rows.get_mut(n as usize)) {
                    if self.bytes.get(row.start..row.end) == Some(key) {
                        row.weight += weight;
                        return Ok(());
                    }
                    at = row.next;
                }
                entry.insert(number);
                Some(newest)
            }
        };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.rows.push(Row { start, end: self.bytes.len(), weight, next });
        Ok(())
    }

    /// Bytes that the rows take.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.rows.len() * (size_of::<Row>() + 16)
    }

    /// Forgets rows whose weight is 0.
    pub fn compact(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let rows = std::mem::take(&mut self.rows);
        self.by_hash.clear();
        for row in rows.iter().filter(|row| row.weight != 0) {
            let Some(values) = bytes.get(row.start..row.end) else { continue };
            let number = self.rows.len() as u32;
            let start = self.bytes.len();
            self.bytes.extend_from_slice(values);
            let next = self.by_hash.insert(self.hasher.hash_one(values), number);
            self.rows.push(Row { start, end: self.bytes.len(), weight: row.weight, next });
        }
    }

    /// Values and weight of each row whose weight is not 0, in the order in which they came; forgets them.
    pub fn drain(&mut self, mut f: impl FnMut(Values<'_>, i64) -> Result<()>) -> Result<()> {
        for row in std::mem::take(&mut self.rows) {
            if row.weight != 0 {
                f(Values(self.bytes.get(row.start..row.end).unwrap_or(&[])), row.weight)?;
            }
        }
        self.bytes.clear();
        self.by_hash.clear();
        Ok(())
    }
}

impl Layout {
    fn of(header: &[u8], wanted: &[(i16, Oid)]) -> Result<Layout> {
        let columns = image::columns(header);
        let positions = wanted
            .iter()
            .map(|(number, type_oid)| {
                let position = columns.iter().position(|c| c.0 == *number).ok_or_else(|| {
                    Error::StaleImage { what: format!("column {number} was not captured when a row changed") }
                })?;
                if columns.get(position).map(|c| c.1) != Some(*type_oid) {
                    let what = format!("column {number} had another type when a row changed");
                    return Err(Error::StaleImage { what });
                }
                Ok(position)
            })
            .collect::<Result<Vec<_>>>()?;
        let whole = columns.as_slice() == wanted;
        let count = positions.iter().max().map_or(0, |p| p + 1);
        Ok(Layout { header: header.to_vec(), positions, whole, count })
    }

    /// The wanted values of an image, in order.
    fn project(&self, values: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut source = Values(values);
        let all = (0..self.count).map(|_| source.take()).collect::<Result<Vec<_>>>()?;
        out.clear();
        for position in &self.positions {
            match all.get(*position).copied().flatten() {
                Some(value) => image::put(out, value),
                None => image::put_null(out),
            }
        }
        Ok(())
    }
}
