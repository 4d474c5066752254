//! The loop of an agent that plays sockets of libzmq: it waits for commands, descriptors and the
//! next instant at which something is due, goes from stage to stage, and at every interval moves
//! the counts out. What is to be done with the sockets is the player's.

use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use agent::clock::{Alarm, now_ns};
use agent::pipes::Input;
use agent::tally::{Moment, Tally};
use anyhow::Result;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use plan::{Command, Snapshot};

use crate::own::Own;
use crate::stage::Stage;

const ALARM: Token = Token(usize::MAX - 1);
const COMMAND: Token = Token(usize::MAX - 2);

/// What a player reads and counts.
pub struct Shared {
    /// What it plays.
    pub own: Own,
    /// Counts since the last snapshot.
    pub tally: Tally,
    /// Where descriptors are registered, under tokens that are small numbers.
    pub registry: Registry,
    /// The instant of what is being handled, in nanoseconds.
    pub now_ns: u64,
    /// Pairs of stream and receiver that are followed.
    pub ledger_pairs: u64,
}

/// Sockets of one population.
pub trait Player {
    /// Starts, with everything that was made before the greeting.
    ///
    /// # Errors
    /// libzmq's and the kernel's.
    fn start(&mut self, shared: &mut Shared) -> Result<()>;

    /// Enters a stage.
    ///
    /// # Errors
    /// As above.
    fn enter(&mut self, stage: &Stage, shared: &mut Shared) -> Result<()>;

    /// Publishes at `factor` times the planned rate from `at_ns` on.
    fn change_rate(&mut self, at_ns: u64, factor: f64);

    /// A descriptor has something to read.
    ///
    /// # Errors
    /// As above.
    fn readable(&mut self, token: usize, shared: &mut Shared) -> Result<()>;

    /// Does what is due, for a millisecond at most, and says when to be called again, in
    /// nanoseconds.
    ///
    /// # Errors
    /// As above.
    fn work(&mut self, shared: &mut Shared) -> Result<u64>;

    /// Ends publishing: what was due before `end_ns` and was not sent is skipped.
    ///
    /// # Errors
    /// As above.
    fn close(&mut self, end_ns: u64, shared: &mut Shared) -> Result<()>;

    /// Whether a stage without an end of its own has done all it can.
    fn is_settled(&self, shared: &Shared) -> bool;

    /// Brings the gauges up to date.
    fn note(&self, shared: &mut Shared);

    /// Disconnects.
    fn stop(&mut self, shared: &mut Shared);
}

/// The loop of one agent.
pub struct EventLoop {
    poll: Poll,
    alarm: Alarm,
    /// Number of this agent.
    agent: u32,
    shared: Shared,
    player: Box<dyn Player>,
    stage: Option<Stage>,
    /// The next stage and when it begins.
    pending: Option<(usize, u64)>,
    /// Changes of that stage.
    pending_changes: Vec<Command>,
    inputs: Receiver<Input>,
    snapshots: Sender<Snapshot>,
    next_snapshot_ns: u64,
    settled: bool,
}

impl EventLoop {
    /// A loop before its first stage, and what wakes it after an input was sent. `ends` are where
    /// inputs come from and snapshots go to.
    ///
    /// # Errors
    /// libzmq's, and the kernel's when it has no descriptors left.
    pub fn new(
        agent: u32,
        own: Own,
        mut player: Box<dyn Player>,
        ends: (Receiver<Input>, Sender<Snapshot>),
    ) -> Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), COMMAND)?;
        let alarm = Alarm::new()?;
        let mut source = SourceFd(&alarm.descriptor());
        poll.registry().register(&mut source, ALARM, Interest::READABLE)?;
        let now_ns = now_ns();
        let next_snapshot_ns = now_ns + own.plan.snapshot_interval_ns;
        let tally = Tally::new(own.plan.populations.len(), own.plan.targets.len(), now_ns);
        let registry = poll.registry().try_clone()?;
        let mut shared = Shared { own, tally, registry, now_ns, ledger_pairs: 0 };
        player.start(&mut shared)?;
        let (inputs, snapshots) = ends;
        let event_loop = Self {
            poll,
            alarm,
            agent,
            shared,
            player,
            stage: None,
            pending: None,
            pending_changes: Vec::new(),
            inputs,
            snapshots,
            next_snapshot_ns,
            settled: false,
        };
        Ok((event_loop, waker))
    }

    /// Runs until it is told to stop; returns how many snapshots it made.
    ///
    /// # Errors
    /// The poll's and libzmq's, which leave nothing to go on with.
    pub fn run(mut self) -> Result<u64> {
        let mut events = Events::with_capacity(1024);
        let (mut busy_since_ns, mut next_ns) = (now_ns(), 0);
        while self.take_inputs()? {
            let wake_ns = self.wake_ns().min(next_ns);
            let timeout = if wake_ns <= now_ns() {
                Some(Duration::ZERO)
            } else {
                self.alarm.set(wake_ns)?;
                None
            };
            self.shared.tally.busy_ns += now_ns() - busy_since_ns;
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                    return Err(error.into());
                }
                _ => {}
            }
            busy_since_ns = now_ns();
            self.shared.now_ns = busy_since_ns;
            for Token(index) in events.iter().map(mio::event::Event::token) {
                if index < COMMAND.0 {
                    self.player.readable(index, &mut self.shared)?;
                }
            }
            next_ns = self.handle_time()?;
        }
        self.stop()?;
        Ok(self.shared.tally.snapshots())
    }

    /// Takes what has come from outside; `false`: the run is over.
    fn take_inputs(&mut self) -> Result<bool> {
        loop {
            match self.inputs.try_recv() {
                Ok(Input::Command(Command::Stage { index, at_ns })) => {
                    self.pending = Some((index, at_ns));
                }
                Ok(Input::Command(change @ Command::Change { at_ns, .. })) => match self.pending {
                    Some((_, stage_ns)) if stage_ns <= at_ns => self.pending_changes.push(change),
                    _ => self.add_change(&change),
                },
                Ok(Input::Command(Command::Close { .. })) => {
                    self.shared.now_ns = now_ns();
                    self.close_stage(self.shared.now_ns)?;
                }
                // Only engines judge, and beats are answered where they are read.
                Ok(Input::Command(Command::Unjudge { .. } | Command::Beat)) => continue,
                Ok(Input::Command(Command::Stop) | Input::Closed)
                | Err(TryRecvError::Disconnected) => return Ok(false),
                Err(TryRecvError::Empty) => return Ok(true),
            }
            self.shared.now_ns = now_ns();
            self.settle();
        }
    }

    /// When the loop has to look at the clock again, in nanoseconds.
    fn wake_ns(&self) -> u64 {
        let stage_ns = self.stage.as_ref().map_or(u64::MAX, |stage| {
            if stage.closed { u64::MAX } else { stage.next_ns(self.shared.now_ns) }
        });
        let pending_ns = self.pending.map_or(u64::MAX, |(_, at_ns)| at_ns);
        self.next_snapshot_ns.min(stage_ns).min(pending_ns)
    }

    /// Does all that is due by the clock; returns when the player is to be called again.
    fn handle_time(&mut self) -> Result<u64> {
        if let Some((index, at_ns)) = self.pending.take_if(|pending| pending.1 <= now_ns()) {
            self.shared.now_ns = now_ns();
            self.enter_stage(index, at_ns)?;
        }
        if let Some(stage) = &mut self.stage {
            while let Some((at_ns, factor)) = stage.next_rate(self.shared.now_ns) {
                self.player.change_rate(at_ns, factor);
            }
        }
        let next_ns = self.player.work(&mut self.shared)?;
        self.shared.now_ns = now_ns();
        let ended_ns = self.stage.as_ref().and_then(|stage| stage.end_ns);
        if let Some(end_ns) = ended_ns.filter(|&end_ns| end_ns <= self.shared.now_ns) {
            self.close_stage(end_ns)?;
        }
        self.settle();
        if self.shared.now_ns >= self.next_snapshot_ns {
            self.snapshot();
        }
        Ok(next_ns)
    }

    fn enter_stage(&mut self, index: usize, at_ns: u64) -> Result<()> {
        self.close_stage(self.shared.now_ns)?;
        self.snapshot();
        let changes = std::mem::take(&mut self.pending_changes);
        let own = &self.shared.own;
        if index >= own.plan.stages.len() {
            return Ok(());
        }
        let stage = Stage::new(&own.plan, own.population, index, at_ns);
        self.settled = false;
        self.player.enter(&stage, &mut self.shared)?;
        self.stage = Some(stage);
        changes.iter().for_each(|change| self.add_change(change));
        Ok(())
    }

    fn add_change(&mut self, change: &Command) {
        let Command::Change { at_ns, population, action } = *change else { return };
        if population == self.shared.own.population
            && let Some(stage) = &mut self.stage
        {
            stage.change(at_ns, action);
        }
    }

    /// Closes a publish stage that is on, as if its time had been over at `end_ns`.
    fn close_stage(&mut self, end_ns: u64) -> Result<()> {
        match &mut self.stage {
            Some(stage) if stage.publishes && !stage.closed => stage.closed = true,
            _ => return Ok(()),
        }
        self.player.close(end_ns, &mut self.shared)
    }

    /// Sends a snapshot when the stage has just settled, so that barriers need not wait for one.
    fn settle(&mut self) {
        let settled = self.stage.as_ref().is_some_and(|stage| match stage.end_ns {
            Some(_) if stage.publishes => stage.closed,
            Some(end_ns) => end_ns <= self.shared.now_ns,
            None => self.player.is_settled(&self.shared),
        });
        if settled != self.settled {
            self.settled = settled;
            if settled {
                self.snapshot();
            }
        }
    }

    fn snapshot(&mut self) {
        let interval_ns = self.shared.own.plan.snapshot_interval_ns;
        if self.shared.now_ns >= self.next_snapshot_ns {
            let behind = (self.shared.now_ns - self.next_snapshot_ns) / interval_ns;
            self.next_snapshot_ns += (behind + 1) * interval_ns;
        }
        self.player.note(&mut self.shared);
        let moment = Moment {
            agent: self.agent,
            stage: self.stage.as_ref().map(|stage| stage.index),
            settled: self.settled,
            now_ns: self.shared.now_ns,
            ledger_pairs: self.shared.ledger_pairs,
        };
        // A reader that is gone is noticed by the writer, which closes the inputs.
        let _ = self.snapshots.send(self.shared.tally.snapshot(&moment));
    }

    fn stop(&mut self) -> Result<()> {
        self.shared.now_ns = now_ns();
        self.close_stage(self.shared.now_ns)?;
        self.player.stop(&mut self.shared);
        self.snapshot();
        Ok(())
    }
}
