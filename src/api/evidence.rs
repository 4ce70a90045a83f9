//! Schema snapshots in SQL.
//!
//! They hold users' data. All functions here but `schema_hash` are for superusers and those whom a superuser grants them to;
//! they read the snapshots with the rights of the extension's owner.

use pgrx::JsonB;
use pgrx::datum::Interval;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::functions::{given, interval_text};
use crate::catalog::failures;
use crate::drift::account::Gate;
use crate::error::Error;
use crate::monitor::drift;
use crate::pg::foreign::boundary;
use crate::pg::names;
use crate::pg::secctx::{as_extension, current_user};
use crate::pg::snapshot::with_transaction_snapshot;
use crate::snapshot::profile::TableProfile;
use crate::snapshot::shape::TableShape;
use crate::snapshot::{baseline, retention, schema_hash_of, show};

/// For the view `schema_snapshots`.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._snapshot_columns(shape text, profile text) RETURNS jsonb IMMUTABLE STRICT PARALLEL SAFE
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
pub(super) fn snapshot_columns(shape: &str, profile: &str) -> Result<JsonB, ErrorReport> {
    boundary(|| Ok(JsonB(show::columns(&TableShape::from_json(shape)?, &TableProfile::from_json(profile)?))))
}

/// For the view `schema_snapshots`.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._snapshot_details(shape text) RETURNS jsonb IMMUTABLE STRICT PARALLEL SAFE
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
pub(super) fn snapshot_details(shape: &str) -> Result<JsonB, ErrorReport> {
    boundary(|| Ok(JsonB(show::details(&TableShape::from_json(shape)?))))
}

/// One text for the set of a relation's column names.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.schema_hash(relation regclass) RETURNS text STABLE STRICT
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION pgtrickle.schema_hash IS
  'A hash of the set of column names, whatever their order and types, without pg_trickle.snapshot_excluded_columns.';
"#)]
fn schema_hash(relation: pg_sys::Oid) -> Result<String, ErrorReport> {
    boundary(|| as_extension(|| schema_hash_of(relation.to_u32())))
}

/// Records tables that are alive.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.capture_baseline("limit" integer DEFAULT 1000)
RETURNS TABLE (captured integer, skipped integer, remaining integer)
LANGUAGE c ROWS 1 SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
REVOKE ALL ON FUNCTION pgtrickle.capture_baseline FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.capture_baseline IS
  'Takes a schema snapshot of each table that has none of its present shape, at most "limit"; call again while any remain.';
"#)]
#[allow(clippy::type_complexity)] // the row type of a table function
fn capture_baseline(
    limit: Option<i32>,
) -> Result<
    TableIterator<'static, (name!(captured, i32), name!(skipped, i32), name!(remaining, i32))>,
    ErrorReport,
> {
    boundary(|| {
        let limit = given(limit, "limit")?;
        let most = usize::try_from(limit).map_err(|_| Error::BadArgument {
            argument: "limit",
            value: limit.to_string(),
            hint: "Pass the number of snapshots to take at most.".into(),
        })?;
        let pass = as_extension(|| baseline::run(most))?;
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        Ok(TableIterator::once((count(pass.captured), count(pass.skipped), count(pass.remaining))))
    })
}

/// Removes old snapshots.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.prune_snapshots(keep_last integer DEFAULT NULL, older_than interval DEFAULT NULL) RETURNS bigint
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
REVOKE ALL ON FUNCTION pgtrickle.prune_snapshots FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.prune_snapshots IS
  'Removes schema snapshots that are neither among the newest keep_last of their table nor younger than older_than. The newest one stays.';
"#)]
fn prune_snapshots(keep_last: Option<i32>, older_than: Option<Interval>) -> Result<i64, ErrorReport> {
    boundary(|| {
        if let Some(keep) = keep_last.filter(|keep| *keep < 1) {
            return Err(Error::BadArgument {
                argument: "keep_last",
                value: keep.to_string(),
                hint: "Pass 1 or more: the newest snapshot of a table always stays.".into(),
            });
        }
        if let Some(age) = older_than.as_ref().filter(|age| age.as_micros() < 0) {
            return Err(Error::BadArgument {
                argument: "older_than",
                value: interval_text(age),
                hint: "Pass an age such as '90 days'.".into(),
            });
        }
        let age = older_than.as_ref().map(interval_text);
        as_extension(|| retention::prune(keep_last, age.as_deref()))
    })
}

/// Forgets failures that somebody has looked into.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.forget_capture_failures() RETURNS bigint
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
REVOKE ALL ON FUNCTION pgtrickle.forget_capture_failures FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.forget_capture_failures IS
  'Clears what health_check() says of snapshots that could not be taken; returns how many there were.';
"#)]
fn forget_capture_failures() -> Result<i64, ErrorReport> {
    boundary(|| as_extension(failures::forget))
}

/// Reads the snapshots as they are at one moment: others may add some, or remove some that are needed yet.
fn account<T>(f: impl FnOnce() -> crate::error::Result<T>) -> crate::error::Result<T> {
    as_extension(|| with_transaction_snapshot(f))
}

/// What differs between two snapshots.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.diff_snapshots(before bigint, after bigint)
RETURNS TABLE (change text, column_name text, before_value text, after_value text, severity text,
  similarity double precision, detail text)
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
REVOKE ALL ON FUNCTION pgtrickle.diff_snapshots FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.diff_snapshots IS
  'What changed from one schema snapshot to another, whether their tables exist or not. severity is none, additive, compatible or destructive.';
"#)]
#[allow(clippy::type_complexity)] // the row type of a table function
fn diff_snapshots(
    before: Option<i64>,
    after: Option<i64>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(change, String),
            name!(column_name, Option<String>),
            name!(before_value, Option<String>),
            name!(after_value, Option<String>),
            name!(severity, String),
            name!(similarity, Option<f64>),
            name!(detail, String),
        ),
    >,
    ErrorReport,
> {
    boundary(|| {
        let (before, after) = (given(before, "before")?, given(after, "after")?);
        let found = account(|| drift::diff_snapshots(before, after))?;
        let rows = found.into_iter().map(|f| {
            let severity = f.severity.word().to_string();
            (f.change.to_string(), f.column, f.before, f.after, severity, f.similarity, f.detail)
        });
        Ok(TableIterator::new(rows))
    })
}

/// The history of one table.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.schema_history(relation text)
RETURNS TABLE (captured_at timestamptz, actor text, what text, command text, table_name text, snapshot_id bigint)
LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
REVOKE ALL ON FUNCTION pgtrickle.schema_history FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.schema_history IS
  'What became of a table, also of one that is gone: one line for each snapshot and change, in the order of time.';
"#)]
#[allow(clippy::type_complexity)] // the row type of a table function
fn schema_history(
    relation: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(captured_at, TimestampWithTimeZone),
            name!(actor, String),
            name!(what, String),
            name!(command, Option<String>),
            name!(table_name, String),
            name!(snapshot_id, i64),
        ),
    >,
    ErrorReport,
> {
    boundary(|| {
        let relation = given(relation, "relation")?;
        // The caller's own search_path decides what a bare name means, so it is not pinned for this function.
        let path = names::search_path();
        let told = account(|| {
            let (schema, name) = match names::split(relation)?.as_slice() {
                [name] => (drift::resolve(name, &path)?, name.clone()),
                [schema, name] => (schema.clone(), name.clone()),
                _ => return Err(bad_name(relation)),
            };
            let told = drift::history(&schema, &name)?;
            if told.is_empty() {
                return Err(Error::NoHistory { name: crate::sqltext::display(&schema, &name) });
            }
            Ok(told)
        })?;
        let rows = told
            .into_iter()
            .map(|t| Ok((timestamp(t.at)?, t.actor, t.what, t.command, t.table, t.snapshot)))
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(TableIterator::new(rows))
    })
}

fn bad_name(name: &str) -> Error {
    Error::BadArgument {
        argument: "relation",
        value: crate::sqltext::literal(name),
        hint: "Pass the name of a table, with or without its schema.".into(),
    }
}

fn timestamp(micros: i64) -> Result<TimestampWithTimeZone, Error> {
    TimestampWithTimeZone::try_from(micros)
        .map_err(|e| Error::Internal(format!("a time of a snapshot is out of bounds: {e}")))
}

/// How often what happened.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.drift_report(since timestamptz DEFAULT '-infinity')
RETURNS TABLE (pairing text, class text, severity text, gate text, pairs bigint, relations bigint, abstained text[],
  examples text[])
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
REVOKE ALL ON FUNCTION pgtrickle.drift_report FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.drift_report IS
  'How often tables changed and how: consecutive schema snapshots by class of change and by the gate that exonerates it.';
"#)]
#[allow(clippy::type_complexity)] // the row type of a table function
fn drift_report(
    since: Option<TimestampWithTimeZone>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(pairing, String),
            name!(class, String),
            name!(severity, String),
            name!(gate, Option<String>),
            name!(pairs, i64),
            name!(relations, i64),
            name!(abstained, Vec<String>),
            name!(examples, Vec<String>),
        ),
    >,
    ErrorReport,
> {
    boundary(|| {
        let since = pg_sys::TimestampTz::from(given(since, "since")?);
        let tallies = account(|| drift::report(since))?;
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let rows = tallies.into_iter().map(move |t| {
            let gate = t.gate.map(|g| g.word().to_string());
            let (class, severity) = (t.class.word().to_string(), t.severity.word().to_string());
            let abstained = words(t.abstained);
            let pairing = t.pairing.word().to_string();
            (pairing, class, severity, gate, count(t.pairs), count(t.relations), abstained, t.examples)
        });
        Ok(TableIterator::new(rows))
    })
}

fn words(gates: impl IntoIterator<Item = Gate>) -> Vec<String> {
    gates.into_iter().map(|gate| gate.word().to_string()).collect()
}

/// For the view `schema_drift`; a grant of that is enough, and needed.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._verdicts()
RETURNS TABLE (captured_at timestamptz, schema_name text, table_name text, pairing text, link text, before bigint,
  after bigint, class text, severity text, gate text, exonerated_by text[], abstained text[], evidence text[])
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
#[allow(clippy::type_complexity)] // the row type of a table function
pub(super) fn verdicts() -> Result<
    TableIterator<
        'static,
        (
            name!(captured_at, TimestampWithTimeZone),
            name!(schema_name, String),
            name!(table_name, String),
            name!(pairing, String),
            name!(link, String),
            name!(before, i64),
            name!(after, i64),
            name!(class, String),
            name!(severity, String),
            name!(gate, Option<String>),
            name!(exonerated_by, Vec<String>),
            name!(abstained, Vec<String>),
            name!(evidence, Vec<String>),
        ),
    >,
    ErrorReport,
> {
    boundary(|| {
        let user = current_user();
        let rows = account(|| drift::verdicts(user))?
            .into_iter()
            .map(|v| {
                let j = v.judgement;
                Ok((
                    timestamp(v.at)?,
                    v.schema,
                    v.table,
                    v.pairing.to_string(),
                    v.link.to_string(),
                    v.before,
                    v.after,
                    j.class.word().to_string(),
                    j.severity.word().to_string(),
                    j.gate.map(|g| g.word().to_string()),
                    words(j.exonerated_by),
                    words(j.abstained),
                    v.evidence,
                ))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(TableIterator::new(rows))
    })
}
