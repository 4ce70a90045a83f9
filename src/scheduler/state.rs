//! The life of one scheduled refresh, as it is kept in the catalog: the start is committed before the work begins and
//! cleared with its result, so a start found by a worker that has just begun is a run that crashed.
#![forbid(unsafe_code)]

use crate::scheduler::backoff::Backoff;
use crate::scheduler::schedule::Micros;
use std::time::Duration;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With its result committed.
    Completed,
    /// With an error of its own.
    Failed,
    /// Nobody saw the end: the server or the worker was killed.
    Crashed,
    /// Cancelled, shut down, or gave way to a lock: says nothing about the stream table.
    Interrupted,
}

/// What is remembered of the runs of one stream table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunState {
    /// A run is under way since.
    pub running_since: Option<Micros>,
    /// Start of the last attempt.
    pub last_attempt: Option<Micros>,
    /// Failures and crashes in a row.
    pub failures: u32,
}

/// What follows a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// As scheduled.
    OnSchedule,
    /// Not before this long after the attempt.
    BackOff(Duration),
    /// No more: it failed too often in a row, suspend it.
    Suspend,
}

impl RunState {
    /// Before the work, to be committed on its own.
    pub fn start(self, now: Micros) -> RunState {
        RunState { running_since: Some(now), last_attempt: Some(now), ..self }
    }

    /// After the work. `limit`: consecutive failures that suspend, 0 for never.
    pub fn finish(self, outcome: Outcome, backoff: &Backoff, limit: u32) -> (RunState, Next) {
        let failures = match outcome {
            Outcome::Completed => 0,
            Outcome::Failed | Outcome::Crashed => self.failures.saturating_add(1),
            Outcome::Interrupted => self.failures,
        };
        let state = RunState { running_since: None, failures, ..self };
        let next = match outcome {
            Outcome::Failed | Outcome::Crashed if Backoff::exhausted(failures, limit) => Next::Suspend,
            _ if failures > 0 => Next::BackOff(backoff.delay(failures)),
            _ => Next::OnSchedule,
        };
        (state, next)
    }

    /// When a worker begins and no other can be at work: a run without an end has crashed.
    pub fn recover(self, backoff: &Backoff, limit: u32) -> Option<(RunState, Next)> {
        self.running_since.map(|_| self.finish(Outcome::Crashed, backoff, limit))
    }
}
