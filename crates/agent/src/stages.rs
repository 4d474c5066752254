//! Stages of an agent and intervals of its snapshots: the parts of a loop that do not depend on the
//! clients. Commands for the stage that comes next wait until the agent enters that stage.

use std::sync::mpsc::{Receiver, TryRecvError};

use plan::{ChangeAction, Command, Resume, Sent, Snapshot};

use crate::pipes::{self, Input};
use crate::snapshots::Snapshots;
use crate::tally::Tally;

/// Lines of the log of an agent whose controller does not read, and reads again.
const HELD: &str = "the controller has read nothing for a minute: publishing stops until it reads";
const CONTINUED: &str = "the controller reads again: publishing continues";

/// Commands and snapshots of an agent.
pub struct Stages {
    inputs: Receiver<Input>,
    snapshots: Snapshots,
    interval_ns: u64,
    next_snapshot_ns: u64,
    is_settled: bool,
    /// The next stage and its instant.
    next: Option<(usize, u64)>,
    /// Changes of that stage.
    changes: Vec<ScheduledChange>,
    /// Populations that are excluded from loss in that stage.
    exclusions: Option<Vec<usize>>,
    /// State of a publisher that was started again.
    resume: Option<Resume>,
}

/// A stage that begins.
pub struct Begun {
    /// Index in the plan.
    pub index: usize,
    /// Start, in nanoseconds.
    pub at_ns: u64,
    /// Changes beyond the plan.
    pub changes: Vec<ScheduledChange>,
    /// Populations that are excluded from loss; `None` without a command.
    pub exclusions: Option<Vec<usize>>,
    /// State of a publisher that was started again; `None` without a command.
    pub resume: Option<Resume>,
}

/// A change and its instant.
#[derive(Clone, Copy)]
pub struct ScheduledChange {
    /// Instant, in nanoseconds.
    pub at_ns: u64,
    /// Index of the population.
    pub population: usize,
    /// The change.
    pub action: ChangeAction,
}

/// A command that takes effect at once.
pub enum ImmediateCommand {
    /// Another stage comes next.
    Stage {
        /// Index in the plan.
        index: usize,
        /// Start, in nanoseconds.
        at_ns: u64,
    },
    /// The current stage has a further change.
    Change(ScheduledChange),
    /// The current stage ends; these messages were externally published.
    Close(Vec<Sent>),
    /// These populations are excluded from loss in the current stage.
    ExcludeFromLoss(Vec<usize>),
    /// The run is over.
    Stop,
}

impl Stages {
    /// Begins the first interval at `now_ns`, before any stage.
    #[must_use]
    pub fn new(ends: (Receiver<Input>, Snapshots), interval_ns: u64, now_ns: u64) -> Self {
        let (inputs, snapshots) = ends;
        Self {
            inputs,
            snapshots,
            interval_ns,
            next_snapshot_ns: now_ns + interval_ns,
            is_settled: false,
            next: None,
            changes: Vec::new(),
            exclusions: None,
            resume: None,
        }
    }

    /// Takes the next command that takes effect at once; `None` if none waits.
    pub fn next_order(&mut self) -> Option<ImmediateCommand> {
        loop {
            let command = match self.inputs.try_recv() {
                Ok(Input::Command(command)) => command,
                Ok(Input::Closed) | Err(TryRecvError::Disconnected) => {
                    return Some(ImmediateCommand::Stop);
                }
                Err(TryRecvError::Empty) => return None,
            };
            match command {
                Command::Stage { index, at_ns } => {
                    self.next = Some((index, at_ns));
                    return Some(ImmediateCommand::Stage { index, at_ns });
                }
                Command::Resume(resume) => self.resume = Some(resume),
                Command::Change { at_ns, population, action } => {
                    let change = ScheduledChange { at_ns, population, action };
                    match self.next {
                        Some((_, stage_ns)) if stage_ns <= at_ns => self.changes.push(change),
                        _ => return Some(ImmediateCommand::Change(change)),
                    }
                }
                Command::Close { sent } => return Some(ImmediateCommand::Close(sent)),
                Command::ExcludeFromLoss { populations } if self.next.is_some() => {
                    self.exclusions.get_or_insert_default().extend(populations);
                }
                Command::ExcludeFromLoss { populations } => {
                    return Some(ImmediateCommand::ExcludeFromLoss(populations));
                }
                // The thread that reads it answers.
                Command::Beat => {}
                Command::Stop => return Some(ImmediateCommand::Stop),
            }
        }
    }

    /// Takes the next stage at its instant.
    #[inline]
    pub fn begin_due(&mut self, now_ns: u64) -> Option<Begun> {
        let (index, at_ns) = self.next.take_if(|next| next.1 <= now_ns)?;
        let changes = std::mem::take(&mut self.changes);
        let (exclusions, resume) = (self.exclusions.take(), self.resume.take());
        Some(Begun { index, at_ns, changes, exclusions, resume })
    }

    /// Drops the stage that comes next.
    pub const fn forget_next(&mut self) {
        self.next = None;
    }

    /// Next instant of a stage or of a snapshot, in nanoseconds.
    #[must_use]
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next.map_or(u64::MAX, |(_, at_ns)| at_ns).min(self.next_snapshot_ns)
    }

    /// Notes that the stage is settled, or not. Returns `true` if it has just settled, so that a
    /// snapshot is to be sent: barriers need not wait for the next one.
    #[inline]
    pub fn settle(&mut self, is_settled: bool) -> bool {
        let has_changed = std::mem::replace(&mut self.is_settled, is_settled) != is_settled;
        has_changed && is_settled && self.snapshots.has_room()
    }

    /// Returns `true` if the stage is settled.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Begins the interval of `now_ns`, if the one before is over.
    pub const fn begin_interval(&mut self, now_ns: u64) {
        if now_ns >= self.next_snapshot_ns {
            let behind = (now_ns - self.next_snapshot_ns) / self.interval_ns;
            self.next_snapshot_ns += (behind + 1) * self.interval_ns;
        }
    }

    /// Returns `true` if an interval is over.
    #[must_use]
    #[inline]
    pub const fn has_interval_ended(&self, now_ns: u64) -> bool {
        now_ns >= self.next_snapshot_ns
    }

    /// Returns `true` if there is room for the snapshot of an interval. Without room, the counters
    /// keep it for the next one.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.snapshots.has_room()
    }

    /// Notes that the controller reads nothing, or reads again. Returns `true` if publishing stops
    /// therefore, `false` if it continues, and `None` if nothing has changed.
    pub fn note_silence(&self, now_ns: u64, tally: &mut Tally) -> Option<bool> {
        let is_silent = self.snapshots.is_silent(now_ns);
        (is_silent != tally.held_since_ns.is_some()).then(|| {
            pipes::log(if is_silent { HELD } else { CONTINUED });
            tally.hold(now_ns, is_silent);
            is_silent
        })
    }

    /// Sends a snapshot.
    pub fn send(&self, snapshot: Snapshot) {
        self.snapshots.send(snapshot);
    }
}
