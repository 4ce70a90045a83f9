//! What a command touched of that which concerns a stream table. For the common command, which concerns none, this is a few
//! looks into memory and indexes: no statement, no transaction id, no subtransaction, no lock that stays.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::error::Result;
use crate::evolve::relation_class;
use crate::model::Oid;
use crate::pg::cache::{self, Touched};
use crate::pg::concern::{Kind, dependants, kind_and_name, routines_named};
use crate::pg::event::Command;
use crate::pg::inheritance::with_ancestors;
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::subxact;
use crate::sqltext::name_digest;

/// Commands on objects other than relations that a query may use.
const OBJECT_TAGS: &[&str] =
    &["FUNCTION", "PROCEDURE", "ROUTINE", "AGGREGATE", "OPERATOR", "TYPE", "DOMAIN", "CAST", "COLLATION"];

/// What may have changed, by what it is to stream tables.
#[derive(Debug, Default)]
pub struct Concern {
    pub sources: BTreeSet<Oid>,
    pub views: BTreeSet<Oid>,
    pub stream_tables: BTreeSet<Oid>,
    /// Functions, types and the like that are used: class, oid, name.
    pub objects: Vec<(Oid, Oid, String)>,
    /// Suspended stream tables whose query has a name that the command gave to something.
    pub cures: BTreeSet<Oid>,
}

impl Concern {
    /// Nothing of ours is concerned.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
            && self.views.is_empty()
            && self.stream_tables.is_empty()
            && self.objects.is_empty()
            && self.cures.is_empty()
    }
}

/// What a DDL command that began at `start` may have changed. An error where that can't be told without waiting.
pub fn by_command(command: &Command, start: Option<u32>) -> Result<Concern> {
    let mut concern = Concern::default();
    let gives_names = ["CREATE", "ALTER", "SELECT INTO", "IMPORT"].iter().any(|t| command.tag.starts_with(t));
    // A partition that was detached has no parents any more.
    let start = start.filter(|_| command.tag == "ALTER TABLE" || command.tag == "ALTER FOREIGN TABLE");
    for relation in relations(command)? {
        let Some((kind, name)) = kind_and_name(relation) else { continue };
        if !matches!(kind, 'r' | 'p' | 'f' | 'v' | 'm') {
            continue;
        }
        let with_parents = if matches!(kind, 'v' | 'm') {
            BTreeSet::from([relation])
        } else {
            with_ancestors(relation, start)?
        };
        for one in with_parents {
            concern.enter_relation(one, one == relation)?;
        }
        if gives_names {
            concern.enter_name(&name)?;
        }
    }
    if OBJECT_TAGS.iter().any(|tag| command.tag.contains(tag)) {
        concern.enter_objects(command)?;
    }
    Ok(concern)
}

impl Concern {
    /// A relation, or with `itself` false one that it is a part of.
    fn enter_relation(&mut self, relation: Oid, itself: bool) -> Result<()> {
        let class = relation_class();
        for dependant in dependants(relation)?.iter() {
            match dependant.kind {
                Kind::Source if dependant.class == class => {
                    self.sources.insert(relation);
                }
                Kind::View if itself && dependant.class == class => {
                    self.views.insert(relation);
                }
                Kind::Itself if itself => {
                    self.stream_tables.insert(relation);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn enter_name(&mut self, name: &str) -> Result<()> {
        let found = dependants(name_digest(name))?;
        self.cures.extend(found.iter().filter(|d| d.kind == Kind::Cure).map(|d| d.stream_table));
        Ok(())
    }

    fn enter_objects(&mut self, command: &Command) -> Result<()> {
        if command.tag == "CREATE CAST" {
            // Casts have no name, but a query that needs one has casts.
            self.enter_name("::")?;
        }
        if let Some(name) = &command.given_name {
            self.enter_name(name)?;
        }
        // Nothing depends on what was not there before.
        if command.is_new {
            return Ok(());
        }
        // What replaces a routine has its name: the common one, which nobody uses, is told without a statement.
        if command.makes_routine
            && let Some(name) = &command.given_name
        {
            let mut used = false;
            for routine in routines_named(name) {
                used |= dependants(routine)?.iter().any(|d| d.kind == Kind::Object);
            }
            if !used {
                return Ok(());
            }
        }
        for (class, object, name) in commanded()? {
            if dependants(object)?.iter().any(|d| d.kind == Kind::Object && d.class == class) {
                self.objects.push((class, object, name));
            }
        }
        Ok(())
    }
}

/// Relations whose catalog rows the command may have changed.
fn relations(command: &Command) -> Result<Vec<Oid>> {
    let touched = cache::take_touched();
    if command.tag == "ALTER SCHEMA" {
        // Names of all tables in it, without a change in any of their rows.
        return oids(
            "SELECT c.oid FROM pg_catalog.pg_event_trigger_ddl_commands() e \
             JOIN pg_catalog.pg_class c ON c.relnamespace = e.objid WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm')",
        );
    }
    match touched {
        Touched::These(relations) => Ok(relations),
        Touched::Unknown => oids(include_str!("../../sql/queries/command_relations.sql")),
    }
}

/// Objects that the command names: class, oid, name.
fn commanded() -> Result<Vec<(Oid, Oid, String)>> {
    let sql = "SELECT classid, objid, COALESCE(object_identity, '') FROM pg_catalog.pg_event_trigger_ddl_commands()";
    query(sql)?.into_iter().map(|mut row| Ok((row.parse(0)?, row.parse(1)?, row.text(2)?))).collect()
}

fn oids(sql: &str) -> Result<Vec<Oid>> {
    query(sql)?.into_iter().map(|mut row| row.parse(0)).collect()
}

/// A statement over PostgreSQL's catalogs alone, with the rights of whoever runs the command.
fn query(sql: &str) -> Result<spi::Rows> {
    const NO_ARGS: &[Arg] = &[];
    subxact::run(|| spi::run(sql, NO_ARGS, Mode::Fresh))
        .map_err(|caught| crate::error::Error::Internal(caught.message))
}
