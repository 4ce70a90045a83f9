//! What capture takes of privileges, and what nobody gets.
#![forbid(unsafe_code)]

use crate::catalog::stream_tables::{self, StreamTable};
use crate::error::{Error, Result};
use crate::model::{Oid, Status};
use crate::pg::guc;
use crate::pg::secctx::may_create_triggers;
use crate::pg::spi::{self, Arg, Mode};
use crate::sqltext;

/// Capture puts triggers on its sources, with whose cost their writers have to live: that takes what CREATE TRIGGER takes.
/// Asked whenever they are made or relied on, so by each refresh, and for partitioned tables of the root.
pub fn require_trigger_privilege(sources: impl IntoIterator<Item = Oid>, owner: Oid) -> Result<()> {
    if !guc::require_trigger_privilege() {
        return Ok(());
    }
    match sources.into_iter().find(|source| !may_create_triggers(owner, *source)) {
        None => Ok(()),
        Some(source) => Err(no_trigger_privilege(source, owner)?),
    }
}

fn no_trigger_privilege(source: Oid, owner: Oid) -> Result<Error> {
    let rows = spi::run(
        "SELECT n.nspname, c.relname, r.rolname FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace CROSS JOIN pg_catalog.pg_roles r \
         WHERE c.oid = $1 AND r.oid = $2",
        &[Arg::Oid(source), Arg::Oid(owner)],
        Mode::Fresh,
    )?;
    let Some(mut row) = rows.first() else {
        return Ok(Error::Internal(format!("relation {source} or role {owner} does not exist")));
    };
    let (schema, table, role) = (row.text(0)?, row.text(1)?, row.text(2)?);
    Ok(Error::Privilege {
        what: format!(
            "role {} needs the TRIGGER privilege on table {} for a stream table that captures its changes",
            sqltext::display_ident(&role),
            sqltext::display(&schema, &table)
        ),
        hint: format!(
            "GRANT TRIGGER ON {}.{} TO {}; or use refresh_mode => 'full', which captures nothing.",
            sqltext::visible_ident(&schema),
            sqltext::visible_ident(&table),
            sqltext::visible_ident(&role)
        ),
    })
}

/// Has one of those whose stream tables capture the source the privilege for it?
pub fn somebody_may_capture(source: Oid) -> Result<bool> {
    if !guc::require_trigger_privilege() {
        return Ok(true);
    }
    let users = stream_tables::users_of(pgrx::pg_sys::RelationRelationId.to_u32(), source)?;
    let capturing = |t: &StreamTable| t.differential && t.status != Status::Suspended;
    Ok(users.iter().filter(|t| capturing(t)).any(|t| may_create_triggers(t.owner, source)))
}

/// Takes back what default privileges gave on a relation that we just made.
pub fn revoke_all(relation: &str) -> Result<()> {
    let rows = spi::run(
        "SELECT DISTINCT CASE WHEN a.grantee = 0 THEN 'PUBLIC' \
                ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END \
         FROM pg_catalog.pg_class c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) a \
         WHERE c.oid = $1::pg_catalog.regclass AND a.grantee <> c.relowner",
        &[Arg::Text(relation)],
        Mode::Fresh,
    )?;
    for mut row in rows {
        spi::run_once(&format!("REVOKE ALL ON {relation} FROM {}", row.text(0)?), &[], Mode::Fresh)?;
    }
    Ok(())
}
