//! For the extension's own script.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::error::Error;
use crate::pg;
use crate::pg::foreign::boundary;

/// Refuses a database of another encoding. `sql/catalog.sql` calls it first, and declares it itself.
#[pg_extern(sql = false)]
fn require_utf8() -> Result<(), ErrorReport> {
    boundary(|| match pg::encoding() {
        found if found == "UTF8" => Ok(()),
        found => Err(Error::Encoding { found }),
    })
}
