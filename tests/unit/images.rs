//! Row images, the sums of their weights, and frontiers.

use pgtrickle::dvm::consolidate::Consolidation;
use pgtrickle::dvm::frontier::Frontier;
use pgtrickle::dvm::image::{self, Values};

type Column = (i16, u32);

fn row(columns: &[Column], values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut out = image::header(columns);
    for value in values {
        match value {
            Some(value) => image::put(&mut out, value),
            None => image::put_null(&mut out),
        }
    }
    out
}

/// Rows of `count` columns with their weights.
fn rows(all: &mut Consolidation, count: usize) -> Vec<(Vec<Option<Vec<u8>>>, i64)> {
    let mut found = Vec::new();
    all.drain(|mut values, weight| {
        let row = (0..count)
            .map(|_| Ok(values.take()?.map(<[u8]>::to_vec)))
            .collect::<pgtrickle::error::Result<_>>()?;
        found.push((row, weight));
        Ok(())
    })
    .expect("readable rows");
    found
}

#[test]
fn an_image_is_read_as_it_was_written() {
    for length in [0usize, 1, 126, 127, 128, 16_382, 16_383, 16_384, 3_000_000] {
        let long = vec![7u8; length];
        let image = row(&[(1, 23), (-3, u32::MAX), (1600, 25)], &[Some(&long), None, Some(b"end")]);
        let (header, values) = image::split(&image).expect("an image");
        assert_eq!(image::columns(header), [(1, 23), (-3, u32::MAX), (1600, 25)]);
        let mut values = Values(values);
        assert_eq!(values.take().expect("a value"), Some(long.as_slice()));
        assert_eq!(values.take().expect("a value"), None);
        assert_eq!(values.take().expect("a value"), Some(b"end".as_slice()));
        assert!(values.take().is_err(), "the end");
    }
}

#[test]
fn a_damaged_image_is_an_error() {
    let whole = row(&[(1, 23), (2, 25)], &[Some(&[1, 2, 3, 4]), Some(b"text")]);
    for end in 0..whole.len() {
        let mut all = Consolidation::new(vec![(2, 25), (1, 23)]);
        assert!(all.add(&whole[..end], 1).is_err(), "cut at {end}");
    }
    assert!(Values(&[0xff; 12]).take().is_err(), "a length without end");
}

#[test]
fn weights_of_equal_rows_are_summed_and_zero_ones_are_gone() {
    let columns = [(1, 23), (2, 25), (5, 16)];
    let mut all = Consolidation::new(vec![(2, 25), (1, 23)]);
    let (a, b): (&[u8], &[u8]) = (b"a", b"b");
    all.add(&row(&columns, &[Some(&[1]), Some(a), None]), 1).expect("added");
    all.add(&row(&columns, &[Some(&[2]), Some(a), None]), 1).expect("added");
    // Differs in a column that nobody asked for.
    all.add(&row(&columns, &[Some(&[1]), Some(a), Some(&[9])]), 1).expect("added");
    all.add(&row(&columns, &[Some(&[2]), Some(a), None]), -1).expect("added");
    all.add(&row(&columns, &[None, Some(b), None]), -2).expect("added");
    // Another layout of the same source, as after a widening.
    all.add(&row(&[(2, 25), (1, 23)], &[Some(b), None]), -1).expect("added");
    // NULL is not the empty value.
    all.add(&row(&columns, &[Some(b""), Some(b), None]), 1).expect("added");
    let expected = vec![
        (vec![Some(a.to_vec()), Some(vec![1])], 2),
        (vec![Some(b.to_vec()), None], -3),
        (vec![Some(b.to_vec()), Some(vec![])], 1),
    ];
    assert_eq!(rows(&mut all, 2), expected);
    assert_eq!(rows(&mut all, 2), [], "drained");
}

#[test]
fn many_versions_of_few_rows() {
    let columns = [(1, 23), (2, 20)];
    let mut all = Consolidation::new(columns.to_vec());
    let image = |id: u8, version: u64| row(&columns, &[Some(&[id]), Some(&version.to_le_bytes())]);
    for version in 0..20_000 {
        for id in 0..3 {
            all.add(&image(id, version), -1).expect("added");
            all.add(&image(id, version + 1), 1).expect("added");
        }
        if version % 5_000 == 0 {
            let before = all.size();
            all.compact();
            assert!(all.size() <= before);
        }
    }
    all.compact();
    assert!(all.size() < 1_000, "{}", all.size());
    let mut found = rows(&mut all, 2);
    found.sort();
    let wanted = |id: u8, version: u64, w| (vec![Some(vec![id]), Some(version.to_le_bytes().to_vec())], w);
    let expected: Vec<_> =
        (0..3).flat_map(|id| [wanted(id, 0, -1), wanted(id, 20_000, 1)]).collect::<Vec<_>>();
    assert_eq!(found, expected);
}

#[test]
fn no_columns_are_columns_too() {
    let mut all = Consolidation::new(Vec::new());
    for weight in [1, 1, -1, 5] {
        all.add(&row(&[(1, 23)], &[Some(&[weight as u8])]), weight).expect("added");
    }
    assert_eq!(rows(&mut all, 0), [(vec![], 6)]);
}

#[test]
fn a_value_of_another_type_or_none_can_not_be_used() {
    let image = row(&[(1, 23), (2, 25)], &[Some(&[1]), None]);
    for wanted in [vec![(1, 20)], vec![(3, 25)], vec![(1, 23), (2, 1043)]] {
        let error = Consolidation::new(wanted).add(&image, 1).expect_err("stale");
        assert!(error.detail().contains("STALE_IMAGE"), "{error:?}");
    }
}

#[test]
fn what_a_frontier_has_passed() {
    let frontier = Frontier::parse("100:110:109,102,105", "103", 4).expect("a frontier");
    for (xid, epoch, passed) in [
        (1, 0, true),
        (99, 9, true),
        (100, 0, true),
        (102, 0, false),
        (103, 4, true),
        (103, 5, false),
        (104, 99, true),
        (105, 0, false),
        (109, 0, false),
        (110, 0, false),
        (u64::MAX, 0, false),
    ] {
        assert_eq!(frontier.has_passed(xid, epoch), passed, "{xid} {epoch}");
    }
    // The transaction that took the snapshot had written nothing.
    let frontier = Frontier::parse("100:100:", "0", -1).expect("a frontier");
    assert!(frontier.has_passed(99, 0) && !frontier.has_passed(100, 0));
    for bad in ["", "100", "100:", "a:b:", "100:110:x"] {
        assert!(Frontier::parse(bad, "0", 0).is_err(), "{bad:?}");
    }
    assert!(Frontier::parse("1:1:", "-1", 0).is_err());
}

#[test]
fn a_pair_gives_both_images_back_and_a_damaged_one_is_noticed() {
    let columns = [(1, 23), (2, 25)];
    let (before, after) =
        (row(&columns, &[Some(b"1234"), None]), row(&columns, &[None, Some("ä".as_bytes())]));
    let pair = image::pair(&before, &after);
    assert_eq!(image::split_pair(&pair).expect("a pair"), (before.as_slice(), after.as_slice()));
    assert_eq!(image::split_pair(&image::pair(&[], &after)).expect("a pair"), (&[][..], after.as_slice()));
    for short in [0, 3, 4 + before.len() - 1] {
        assert!(image::split_pair(&pair[..short]).is_err(), "{short} bytes");
    }
}
