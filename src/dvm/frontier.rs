//! Up to where a stream table has consumed the buffered changes of its sources.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

/// A snapshot in the form of `pg_snapshot`, and what it can't tell: how far its own transaction had been consumed. That
/// looks committed as soon as a later one is, so its rows are told apart by their epoch alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontier {
    xmin: u64,
    xmax: u64,
    /// In progress between the two, in order.
    running: Vec<u64>,
    own: u64,
    epoch: i32,
}

impl Frontier {
    /// From `xmin:xmax:xip,…`, the transaction that took the snapshot (0: none), and the last epoch of it that is consumed.
    pub fn parse(snapshot: &str, own: &str, epoch: i32) -> Result<Frontier> {
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| Error::Internal(format!("not a frontier: {snapshot:?}, {own:?}")))
        };
        let mut parts = snapshot.splitn(3, ':');
        let mut next = || parts.next().unwrap_or("");
        let (xmin, xmax, list) = (number(next())?, number(next())?, next());
        let mut running =
            list.split(',').filter(|x| !x.is_empty()).map(number).collect::<Result<Vec<_>>>()?;
        running.sort_unstable();
        Ok(Frontier { xmin, xmax, running, own: number(own)?, epoch })
    }

    /// Is a row that this transaction wrote in this epoch consumed?
    pub fn has_passed(&self, xid: u64, epoch: i32) -> bool {
        if xid == self.own {
            return epoch <= self.epoch;
        }
        xid < self.xmin || xid < self.xmax && self.running.binary_search(&xid).is_err()
    }
}
