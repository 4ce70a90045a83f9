//! `health_check()`.
#![forbid(unsafe_code)]

use crate::catalog::failures;
use crate::cdc;
use crate::error::Result;
use crate::model::Oid;
use crate::monitor::lateness;
use crate::pg::guc::{SchemaSnapshots, schema_snapshots};
use crate::pg::secctx::{extension_owner, has_rights_of};
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::subxact;

/// Rows (check, status, detail); status is OK, WARN or FAIL.
pub fn check(user: Oid) -> Result<Vec<(String, String, String)>> {
    let args = [Arg::Bool(crate::pg::preloaded()), Arg::Oid(user)];
    let mut rows = spi::run(include_str!("../../sql/queries/health.sql"), &args, Mode::Fresh)?
        .into_iter()
        .map(|mut row| Ok((row.text(0)?, row.text(1)?, row.text(2)?)))
        .collect::<Result<Vec<_>>>()?;
    rows.push(capture()?);
    rows.extend(lateness::rows(user)?);
    rows.push(evidence(user));
    Ok(rows)
}

/// The row about capture triggers.
fn capture() -> Result<(String, String, String)> {
    let faults = cdc::all_faults()?;
    Ok(if faults.is_empty() {
        (
            "capture".into(),
            "OK".into(),
            "all capture triggers are there, as they were made, and enabled".into(),
        )
    } else {
        let text = format!(
            "missing, changed or not ENABLE ALWAYS: {}; the next refresh puts it right",
            faults.join(", ")
        );
        ("capture".into(), "FAIL".into(), text)
    })
}

/// The row about schema snapshots. Their tables may be missing or damaged, which is just what this is to tell.
fn evidence(user: Oid) -> (String, String, String) {
    let check = "schema snapshots".to_string();
    if schema_snapshots() == SchemaSnapshots::off {
        return (check, "OK".into(), "switched off by pg_trickle.schema_snapshots".into());
    }
    let found = subxact::run(|| {
        crate::catalog::snapshots::exists()?;
        failures::health(has_rights_of(user, extension_owner()?))
    });
    match found {
        Ok((status, detail)) => (check, status, detail),
        Err(caught) => (check, "FAIL".into(), format!("none can be taken: {}", caught.message)),
    }
}
