//! What is notified on `pg_trickle_alert`. It is written down with what happened, and sent by the worker, or just before the
//! transaction commits where none runs: a transaction that notifies can't be prepared.
#![forbid(unsafe_code)]

use serde::Serialize;

use crate::catalog::tasks;
use crate::error::{Error, Result};
use crate::model::Reason;

/// Payload, as JSON.
#[derive(Serialize)]
pub struct Alert<'a> {
    /// suspended, resumed.
    pub event: &'a str,
    pub stream_table: &'a str,
    pub reason: &'a str,
    pub detail: &'a str,
    pub hint: &'a str,
}

/// pg_notify takes less than 8000 bytes.
const MAX_PAYLOAD: usize = 7900;

/// Leaves it to be sent. A payload that is too long, or that quotes the error of a query, goes without what the catalog has as
/// well: every role of the database may listen, and errors quote rows.
pub fn send(alert: &Alert) -> Result<()> {
    let json = |a: &Alert| serde_json::to_string(a).map_err(|e| Error::Internal(format!("alert: {e}")));
    let mut text = json(alert)?;
    if text.len() > MAX_PAYLOAD || alert.reason == Reason::RefreshFailing.word() {
        text = json(&Alert {
            hint: "SELECT hint FROM pgtrickle.stream_tables",
            detail: "see pgtrickle.stream_tables",
            ..*alert
        })?;
    }
    tasks::add_alert(&text)
}
