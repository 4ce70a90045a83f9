//! Order, cycles and reach of stream tables.

use pgtrickle::scheduler::dag::{above, below, order};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

#[test]
fn order_is_from_below_to_above_then_by_oid() {
    for (nodes, edges, sorted) in [
        (&[][..], &[][..], &[][..]),
        (&[3, 1, 2], &[], &[1, 2, 3]),
        (&[1, 2, 3], &[(3, 1)], &[2, 3, 1]),
        (&[1, 2, 3], &[(3, 2), (2, 1)], &[3, 2, 1]),
        // A diamond, an edge twice, and edges to relations that are no stream tables.
        (&[1, 2, 3, 4], &[(4, 2), (4, 3), (2, 1), (3, 1), (3, 1), (99, 4), (1, 98)], &[4, 2, 3, 1]),
    ] {
        assert_eq!(order(nodes, edges).as_deref(), Ok(sorted), "{nodes:?} {edges:?}");
    }
}

#[test]
fn a_cycle_is_told_as_a_path() {
    for (edges, path) in [
        (&[(1, 1)][..], &[1, 1][..]),
        (&[(1, 2), (2, 1)], &[1, 2, 1]),
        (&[(1, 2), (2, 3), (3, 1), (4, 1), (3, 5)], &[1, 2, 3, 1]),
        // 5 only waits for the cycle.
        (&[(2, 3), (3, 4), (4, 2), (4, 1)], &[4, 2, 3, 4]),
    ] {
        let found = order(&[1, 2, 3, 4, 5], edges).expect_err("a cycle");
        assert_eq!(found, path, "{edges:?}");
        for step in found.windows(2) {
            assert!(edges.contains(&(step[0], step[1])), "{found:?} has no edge {step:?}");
        }
    }
}

#[test]
fn reach() {
    let edges = [(1, 2), (2, 3), (2, 4), (9, 4)];
    let set = |nodes: &[u32]| nodes.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(above(1, &edges), set(&[2, 3, 4]));
    assert_eq!(above(3, &edges), set(&[]));
    assert_eq!(below(4, &edges), set(&[1, 2, 9]));
    assert_eq!(below(1, &edges), set(&[]));
    assert_eq!(above(1, &[(1, 2), (2, 1)]), set(&[1, 2]), "a cycle ends too");
}

#[test]
fn random_graphs() {
    let (mut sorted, mut cyclic) = (0, 0);
    for seed in 0..2_000 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let count: u32 = rng.random_range(1..12);
        let nodes: Vec<u32> = (1..=count).collect();
        let edges: Vec<(u32, u32)> = (0..rng.random_range(0..12))
            .map(|_| (rng.random_range(1..=count), rng.random_range(1..=count)))
            .collect();
        match order(&nodes, &edges) {
            Ok(result) => {
                sorted += 1;
                assert_eq!(result.len(), nodes.len(), "seed {seed}");
                let at = |n: &u32| result.iter().position(|r| r == n);
                for (b, a) in &edges {
                    assert!(at(b) < at(a), "seed {seed}: {b} before {a} in {result:?}");
                }
            }
            Err(path) => {
                cyclic += 1;
                assert!(path.len() > 1 && path.first() == path.last(), "seed {seed}: {path:?}");
                assert!(path.windows(2).all(|w| edges.contains(&(w[0], w[1]))), "seed {seed}: {path:?}");
            }
        }
    }
    assert!(sorted > 200 && cyclic > 200, "{sorted} sorted, {cyclic} cyclic");
}
