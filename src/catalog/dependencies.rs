//! `pgtrickle.pgt_dependencies`: what each stream table depends on, by oid.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::{self, tables::DEPENDENCIES};
use crate::error::Result;
use crate::model::Oid;
use crate::pg::objects::{self, Change, Object};
use crate::pg::own_rows;
use crate::pg::query::{Use, UseKind};
use crate::pg::snapshot::{Side, with_side};
use crate::pg::spi::{self, Arg, Mode};
use crate::sqltext;

/// Replaces the dependencies of a stream table.
pub fn replace(relid: Oid, uses: &[Use]) -> Result<()> {
    delete(relid)?;
    let own = [
        ("relid", "$1"),
        ("kind", "'self'"),
        ("class", "0"),
        ("object", "$1"),
        ("attnum", "0"),
        ("roles", "'{}'"),
    ];
    catalog::insert(&DEPENDENCIES, &own, &[Arg::Oid(relid)], Mode::Fresh)?;
    for u in uses.iter().filter(|u| u.kind == UseKind::Source) {
        let roles: Vec<&str> = u.roles.iter().map(|r| r.word()).collect();
        let quoted: Vec<String> = roles.iter().map(|r| format!("\"{r}\"")).collect();
        catalog::insert(
            &DEPENDENCIES,
            &[
                ("relid", "$1"),
                ("kind", "$2"),
                ("class", "$3"),
                ("object", "$4"),
                ("attnum", "$5"),
                ("roles", "$6"),
            ],
            &[
                Arg::Oid(relid),
                Arg::Text(u.kind.word()),
                Arg::Oid(u.class),
                Arg::Oid(u.object),
                Arg::Int(u.attnum.into()),
                Arg::Text(&format!("{{{}}}", quoted.join(","))),
            ],
            Mode::Fresh,
        )?;
    }
    insert_objects(relid, uses)
}

/// Replaces those of a stream table that are views, functions, types and the like: one of them is made of other parts now.
pub fn replace_objects(relid: Oid, uses: &[Use]) -> Result<()> {
    let objects = "t.relid = $1 AND t.kind IN ('view', 'object')";
    catalog::delete(&DEPENDENCIES, objects, &[Arg::Oid(relid)], Mode::Fresh)?;
    insert_objects(relid, uses)
}

/// What the query names, and all that is behind it, as it is now.
fn insert_objects(relid: Oid, uses: &[Use]) -> Result<()> {
    let of = |kind| uses.iter().filter(move |u| u.kind == kind).map(|u| (u.class, u.object));
    let views: BTreeSet<Object> = of(UseKind::View).collect();
    let others = objects::with_parts(&of(UseKind::Object).collect())?;
    let fingerprints = objects::fingerprints(&views.union(&others).copied().collect())?;
    let views = views.into_iter().map(|object| (UseKind::View, object));
    for (kind, object) in views.chain(others.into_iter().map(|object| (UseKind::Object, object))) {
        let values = [
            ("relid", "$1"),
            ("kind", "$2"),
            ("class", "$3"),
            ("object", "$4"),
            ("attnum", "0"),
            ("roles", "'{}'"),
            ("fingerprint", "$5"),
        ];
        let args = [
            Arg::Oid(relid),
            Arg::Text(kind.word()),
            Arg::Oid(object.0),
            Arg::Oid(object.1),
            Arg::OptText(fingerprints.get(&object).map(String::as_str)),
        ];
        catalog::insert(&DEPENDENCIES, &values, &args, Mode::Fresh)?;
    }
    Ok(())
}

/// Views and other objects that are not what they were when the query was last resolved; none: it is gone.
pub fn changed_objects(relid: Oid) -> Result<Vec<(Object, Option<Change>)>> {
    let known: BTreeMap<Object, String> = spi::run(
        "SELECT class, object, fingerprint FROM pgtrickle.pgt_dependencies \
         WHERE relid = $1 AND fingerprint IS NOT NULL",
        &[Arg::Oid(relid)],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| Ok(((row.parse(0)?, row.parse(1)?), row.text(2)?)))
    .collect::<Result<_>>()?;
    let now = objects::fingerprints(&known.keys().copied().collect())?;
    let mut changed = Vec::new();
    for (object, then) in known {
        match now.get(&object) {
            Some(now) if *now == then => {}
            Some(now) => changed.push((object, Some(objects::change(object, &then, now)?))),
            None => changed.push((object, None)),
        }
    }
    Ok(changed)
}

/// Functions that a stream table depends on whose bodies are text, so that nobody knows what they read.
pub fn opaque_functions(relid: Oid) -> Result<Vec<String>> {
    spi::run(
        "SELECT p.oid::pg_catalog.regprocedure FROM pgtrickle.pgt_dependencies d \
         JOIN pg_catalog.pg_proc p ON p.oid = d.object JOIN pg_catalog.pg_language l ON l.oid = p.prolang \
         WHERE d.relid = $1 AND d.class = 'pg_catalog.pg_proc'::regclass AND p.prosqlbody IS NULL \
         AND p.prokind <> 'a' AND l.lanname NOT IN ('c', 'internal') ORDER BY 1",
        &[Arg::Oid(relid)],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| row.text(0))
    .collect()
}

/// Forgets those of a stream table.
pub fn delete(relid: Oid) -> Result<()> {
    catalog::delete(&DEPENDENCIES, "t.relid = $1", &[Arg::Oid(relid)], Mode::Fresh).map(|_| ())
}

/// Tables that a stream table reads, with the columns used (0: the whole row) of each.
pub fn source_columns(relid: Oid) -> Result<BTreeMap<Oid, BTreeSet<i16>>> {
    let rows = spi::run(
        "SELECT object, attnum, roles @> ARRAY['whole row'] FROM pgtrickle.pgt_dependencies \
         WHERE relid = $1 AND kind = 'source'",
        &[Arg::Oid(relid)],
        Mode::Fresh,
    )?;
    let mut found: BTreeMap<Oid, BTreeSet<i16>> = BTreeMap::new();
    for mut row in rows {
        let columns = found.entry(row.parse(0)?).or_default();
        let attnum = row.parse(1)?;
        if attnum != 0 || row.bool(2)? {
            columns.insert(attnum);
        }
    }
    Ok(found)
}

/// Does the stream table read the source's children, not ONLY the source itself?
pub fn reads_children(relid: Oid, source: Oid) -> Result<bool> {
    let rows = spi::run(
        "SELECT FROM pgtrickle.pgt_dependencies WHERE relid = $1 AND object = $2 AND kind = 'source' \
         AND roles @> ARRAY['children']",
        &[Arg::Oid(relid), Arg::Oid(source)],
        Mode::Fresh,
    )?;
    Ok(rows.first().is_some())
}

/// Columns of a source that differential, not suspended stream tables use; empty when there is none.
pub fn captured_columns(source: Oid) -> Result<Option<BTreeSet<i16>>> {
    let rows = spi::run(
        "SELECT d.attnum FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables s USING (relid) \
         WHERE d.object = $1 AND d.kind = 'source' AND d.class = 'pg_catalog.pg_class'::regclass \
         AND s.differential AND s.status <> 'suspended'",
        &[Arg::Oid(source)],
        Mode::Fresh,
    )?;
    let mut any = false;
    let mut columns = BTreeSet::new();
    for mut row in rows {
        any = true;
        let attnum: i16 = row.parse(0)?;
        if attnum > 0 {
            columns.insert(attnum);
        }
    }
    Ok(any.then_some(columns))
}

/// Edges (stream table below, stream table that reads it).
pub fn edges() -> Result<Vec<(Oid, Oid)>> {
    spi::run(
        "SELECT DISTINCT d.object, d.relid FROM pgtrickle.pgt_dependencies d \
         JOIN pgtrickle.pgt_stream_tables s ON s.relid = d.object WHERE d.kind = 'source' ORDER BY 1, 2",
        &[],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| Ok((row.parse(0)?, row.parse(1)?)))
    .collect()
}

/// Is the table a source of any stream table?
pub fn is_source(relation: Oid) -> Result<bool> {
    Ok(spi::run(
        "SELECT FROM pgtrickle.pgt_dependencies WHERE object = $1 AND kind = 'source' \
         AND class = 'pg_catalog.pg_class'::regclass LIMIT 1",
        &[Arg::Oid(relation)],
        Mode::Fresh,
    )?
    .first()
    .is_some())
}

/// Which of these relations are sources, or belong to a source's tree, for `side` of a command.
pub fn sources_among(relations: &[Oid], side: Side) -> Result<BTreeSet<Oid>> {
    with_side(side, || {
        spi::run(include_str!("../../sql/queries/sources_among.sql"), &[Arg::Oids(relations)], Mode::Read)?
            .into_iter()
            .map(|mut row| row.parse(0))
            .collect()
    })
}

/// Notes that a stream table is suspended, for commands that look for any. `replace` forgets it.
pub fn mark_suspended(relid: Oid) -> Result<()> {
    add_missing("'suspended'", "0", "-2", "(VALUES (true)) one", &[Arg::Oid(relid)])
}

/// Notes the names that a suspended stream table's query uses, so that a command which gives one of them to something is
/// seen to be perhaps its cure. `replace` forgets them.
pub fn await_names(relid: Oid, query: &str) -> Result<()> {
    let mut names = sqltext::names_in(query);
    // What CREATE CAST gives, which has no name.
    names.insert("::".into());
    let digests: BTreeSet<Oid> = names.iter().map(|n| sqltext::name_digest(n)).collect();
    let digests: Vec<Oid> = digests.into_iter().collect();
    add_missing("'cure'", "o", "-1", "pg_catalog.unnest($2) o", &[Arg::Oid(relid), Arg::Oids(&digests)])
}

/// Adds rows of class 0 for stream table `$1` that are not there yet, one for each row of `from`.
fn add_missing(kind: &str, object: &str, attnum: &str, from: &str, args: &[Arg]) -> Result<()> {
    let values = [
        ("relid", "$1"),
        ("kind", kind),
        ("class", "0"),
        ("object", object),
        ("attnum", attnum),
        ("roles", "'{}'"),
    ];
    let missing = format!(
        "FROM {from} WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d \
         WHERE d.relid = $1 AND d.class = 0 AND d.object = {object} AND d.attnum = {attnum})"
    );
    own_rows::put(&DEPENDENCIES, &DEPENDENCIES.insert_from(&values, &missing)?, args, Mode::Fresh)?;
    Ok(())
}
