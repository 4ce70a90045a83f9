//! Which stream table reads which: order, cycles, reach.
//!
//! An edge is `(below, above)`: `above` reads `below`. Edges to relations that are no stream tables are ignored.
#![forbid(unsafe_code)]

use crate::model::Oid;
use std::collections::{BTreeMap, BTreeSet};

/// `nodes` so that each comes after all that it reads; among equals by oid. Err: a cycle, as the path from a node back to
/// itself, each reading the one before it.
pub fn order(nodes: &[Oid], edges: &[(Oid, Oid)]) -> Result<Vec<Oid>, Vec<Oid>> {
    let nodes: BTreeSet<Oid> = nodes.iter().copied().collect();
    let edges: BTreeSet<(Oid, Oid)> =
        edges.iter().copied().filter(|(b, a)| nodes.contains(b) && nodes.contains(a)).collect();
    let readers = adjacency(edges.iter().copied());
    let mut waiting: BTreeMap<Oid, usize> = nodes.iter().map(|n| (*n, 0)).collect();
    for (_, above) in &edges {
        *waiting.entry(*above).or_default() += 1;
    }
    let mut ready: BTreeSet<Oid> = waiting.iter().filter(|(_, n)| **n == 0).map(|(oid, _)| *oid).collect();
    let mut sorted = Vec::with_capacity(nodes.len());
    while let Some(next) = ready.pop_first() {
        waiting.remove(&next);
        sorted.push(next);
        for above in readers.get(&next).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(above) {
                *count -= 1;
                if *count == 0 {
                    ready.insert(*above);
                }
            }
        }
    }
    match waiting.keys().next() {
        None => Ok(sorted),
        Some(stuck) => Err(cycle(*stuck, &edges, &waiting)),
    }
}

/// Stream tables that read `node`, directly or through others; `node` itself only if it is in a cycle.
pub fn above(node: Oid, edges: &[(Oid, Oid)]) -> BTreeSet<Oid> {
    reach(node, &adjacency(edges.iter().copied()))
}

/// What `node` reads, directly or through others; `node` itself only if it is in a cycle.
pub fn below(node: Oid, edges: &[(Oid, Oid)]) -> BTreeSet<Oid> {
    reach(node, &adjacency(edges.iter().map(|(below, above)| (*above, *below))))
}

fn adjacency(edges: impl Iterator<Item = (Oid, Oid)>) -> BTreeMap<Oid, BTreeSet<Oid>> {
    let mut map: BTreeMap<Oid, BTreeSet<Oid>> = BTreeMap::new();
    for (from, to) in edges {
        map.entry(from).or_default().insert(to);
    }
    map
}

fn reach(from: Oid, next: &BTreeMap<Oid, BTreeSet<Oid>>) -> BTreeSet<Oid> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(node) = todo.pop() {
        for to in next.get(&node).into_iter().flatten() {
            if seen.insert(*to) {
                todo.push(*to);
            }
        }
    }
    seen
}

/// A cycle among nodes that wait for each other. Each of them reads another one of them, so walking down from any must
/// come back to a node already seen.
fn cycle(start: Oid, edges: &BTreeSet<(Oid, Oid)>, waiting: &BTreeMap<Oid, usize>) -> Vec<Oid> {
    let reads =
        adjacency(edges.iter().filter(|(below, _)| waiting.contains_key(below)).map(|(b, a)| (*a, *b)));
    let mut path = vec![start];
    let mut at = start;
    while let Some(next) = reads.get(&at).and_then(BTreeSet::first) {
        if let Some(seen) = path.iter().position(|n| n == next) {
            let mut path = path.split_off(seen);
            path.push(*next);
            path.reverse();
            return path;
        }
        path.push(*next);
        at = *next;
    }
    path
}
