//! What is remembered of the stream tables that this backend refreshed last: a bounded number of them.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use crate::model::Oid;

/// So many stream tables are remembered.
const MOST: usize = 500;

/// A value by stream table; the one that was used least recently goes first.
pub struct Recent<V> {
    by_oid: HashMap<Oid, (u64, V)>,
    uses: u64,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Recent { by_oid: HashMap::new(), uses: 0 }
    }
}

impl<V> Recent<V> {
    pub fn get(&mut self, relid: Oid) -> Option<&mut V> {
        self.uses += 1;
        let (used, value) = self.by_oid.get_mut(&relid)?;
        *used = self.uses;
        Some(value)
    }

    /// Remembers a value; gives back what it takes the place of.
    pub fn insert(&mut self, relid: Oid, value: V) -> Option<V> {
        self.uses += 1;
        if let Some((_, old)) = self.by_oid.insert(relid, (self.uses, value)) {
            return Some(old);
        }
        if self.by_oid.len() <= MOST {
            return None;
        }
        let oldest = self.by_oid.iter().min_by_key(|(_, (used, _))| *used).map(|(oid, _)| *oid)?;
        self.remove(oldest)
    }

    pub fn remove(&mut self, relid: Oid) -> Option<V> {
        self.by_oid.remove(&relid).map(|(_, value)| value)
    }
}
