//! The event loop of an agent with sockets of libzmq. It waits for commands, descriptors and the
//! next instant with work, enters stages, and sends a snapshot at every interval. A [`Player`] owns
//! the sockets.

use std::sync::mpsc::{Receiver, TryRecvError};

use agent::clock::now_ns;
use agent::pipes::{self, Input};
use agent::snapshots::Snapshots;
use agent::tally::{Moment, Tally};
use agent::wait::Wait;
use mio::{Events, Registry, Waker};
use plan::Command;

use crate::setup::{Result, Setup};
use crate::stage::Stage;

/// State that a player reads and changes.
pub struct Shared {
    /// The plan made ready.
    pub setup: Setup,
    /// Counts since the last snapshot.
    pub tally: Tally,
    /// Registry of descriptors, whose tokens are small numbers.
    pub registry: Registry,
    /// The instant of the current event, in nanoseconds.
    pub now_ns: u64,
    /// Pairs of stream and receiver in the ledger.
    pub ledger_pairs: u64,
}

/// Sockets of one population. Errors are those of libzmq and the kernel.
pub trait Player {
    /// Enters a stage.
    fn enter(&mut self, stage: &Stage, shared: &mut Shared) -> Result<()>;

    /// Publishes at `factor` times the planned rate from `at_ns` on.
    fn change_rate(&mut self, _at_ns: u64, _factor: f64) {}

    /// Publishes nothing from `at_ns` on, or continues.
    fn hold(&mut self, _at_ns: u64, _is_held: bool) {}

    /// Takes news of a descriptor.
    fn readable(&mut self, _token: usize, _shared: &mut Shared) -> Result<()> {
        Ok(())
    }

    /// Works for a millisecond at most; returns the instant of the next call, in nanoseconds.
    fn work(&mut self, shared: &mut Shared) -> Result<u64>;

    /// Ends publishing: messages scheduled before `end_ns` that were not sent count as skipped.
    fn close(&mut self, _end_ns: u64, _shared: &mut Shared) -> Result<()> {
        Ok(())
    }

    /// Returns `true` once a stage without a duration is done.
    fn is_settled(&self) -> bool {
        true
    }

    /// Clients that receive.
    fn receivers(&self) -> u32 {
        0
    }

    /// Updates the gauges.
    fn note(&self, shared: &mut Shared);

    /// Disconnects.
    fn stop(&mut self, shared: &mut Shared);
}

/// The loop of one agent.
pub struct EventLoop {
    wait: Wait,
    /// Number of this agent.
    agent: u32,
    shared: Shared,
    player: Box<dyn Player>,
    stage: Option<Stage>,
    /// The next stage and its instant.
    pending: Option<(usize, u64)>,
    /// Changes of that stage.
    pending_changes: Vec<Command>,
    inputs: Receiver<Input>,
    snapshots: Snapshots,
    next_snapshot_ns: u64,
    settled: bool,
}

impl EventLoop {
    /// Creates a loop before its first stage, and the waker for inputs. `ends` are the sources of
    /// inputs and the destination of snapshots.
    ///
    /// # Errors
    /// libzmq's, and the kernel's when it has no descriptors left.
    pub fn new(
        agent: u32,
        setup: Setup,
        player: Box<dyn Player>,
        ends: (Receiver<Input>, Snapshots),
    ) -> Result<(Self, Waker)> {
        let (wait, waker) = Wait::new()?;
        let now_ns = now_ns();
        let next_snapshot_ns = now_ns + setup.plan.snapshot_interval_ns;
        let mut tally = Tally::new(setup.plan.populations.len(), setup.plan.targets.len(), now_ns);
        if setup.population().receives_alike() {
            tally.count_deliveries_of(setup.shard.share(setup.population().clients) as usize);
        }
        let registry = wait.registry().try_clone()?;
        let shared = Shared { setup, tally, registry, now_ns, ledger_pairs: 0 };
        let (inputs, snapshots) = ends;
        let event_loop = Self {
            wait,
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

    /// Runs until the controller stops the agent; returns the number of snapshots.
    ///
    /// # Errors
    /// The kernel's and libzmq's, after which the agent cannot continue.
    pub fn run(mut self) -> Result<u64> {
        let mut events = Events::with_capacity(1024);
        let (mut busy_since_ns, mut next_ns) = (now_ns(), 0);
        while self.take_inputs()? {
            let wake_ns = self.wake_ns().min(next_ns);
            self.shared.tally.busy_ns += now_ns() - busy_since_ns;
            let ready = self.wait.until(wake_ns, &mut events)?;
            busy_since_ns = now_ns();
            self.shared.now_ns = busy_since_ns;
            for event in ready {
                self.player.readable(event.token().0, &mut self.shared)?;
            }
            next_ns = self.handle_time()?;
        }
        self.stop()?;
        Ok(self.shared.tally.snapshots())
    }

    /// Takes inputs; `false`: the run is over.
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
                // Only engines count expected deliveries; the reader of stdin answers beats.
                Ok(Input::Command(Command::ExcludeFromLoss { .. } | Command::Beat)) => continue,
                Ok(Input::Command(Command::Stop) | Input::Closed)
                | Err(TryRecvError::Disconnected) => return Ok(false),
                Err(TryRecvError::Empty) => return Ok(true),
            }
            self.shared.now_ns = now_ns();
            self.settle();
        }
    }

    /// Returns the next instant with work of the loop, in nanoseconds.
    fn wake_ns(&self) -> u64 {
        let stage_ns = self.stage.as_ref().map_or(u64::MAX, |stage| {
            if stage.closed { u64::MAX } else { stage.next_ns(self.shared.now_ns) }
        });
        let pending_ns = self.pending.map_or(u64::MAX, |(_, at_ns)| at_ns);
        self.next_snapshot_ns.min(stage_ns).min(pending_ns)
    }

    /// Does the work that is due; returns the instant of the next call of the player.
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
            self.end_interval();
            return Ok(0);
        }
        Ok(next_ns)
    }

    fn enter_stage(&mut self, index: usize, at_ns: u64) -> Result<()> {
        self.close_stage(self.shared.now_ns)?;
        if self.stage.as_ref().is_some_and(|stage| stage.publishes) {
            let population = self.shared.setup.population;
            self.shared.tally.count_by_deliveries(population, 0..self.player.receivers());
        }
        self.snapshot();
        self.shared.tally.begin_stage();
        let changes = std::mem::take(&mut self.pending_changes);
        let setup = &self.shared.setup;
        if index >= setup.plan.stages.len() {
            return Ok(());
        }
        let stage = Stage::new(&setup.plan, setup.population, index, at_ns);
        self.settled = false;
        self.player.enter(&stage, &mut self.shared)?;
        self.stage = Some(stage);
        changes.iter().for_each(|change| self.add_change(change));
        Ok(())
    }

    fn add_change(&mut self, change: &Command) {
        let Command::Change { at_ns, population, action } = *change else { return };
        if population == self.shared.setup.population
            && let Some(stage) = &mut self.stage
        {
            stage.change(at_ns, action);
        }
    }

    /// Closes the current publish stage, as if its time had ended at `end_ns`.
    fn close_stage(&mut self, end_ns: u64) -> Result<()> {
        match &mut self.stage {
            Some(stage) if stage.publishes && !stage.closed => stage.closed = true,
            _ => return Ok(()),
        }
        self.player.close(end_ns, &mut self.shared)
    }

    /// Sends a snapshot when the stage has just settled, so that barriers need not wait.
    fn settle(&mut self) {
        let settled = self.stage.as_ref().is_some_and(|stage| match stage.end_ns {
            Some(_) if stage.publishes => stage.closed,
            Some(end_ns) => end_ns <= self.shared.now_ns,
            None => self.player.is_settled(),
        });
        if settled != self.settled {
            self.settled = settled;
            if settled && self.snapshots.has_room() {
                self.snapshot();
            }
        }
    }

    /// Ends an interval. Without room for its snapshot, the counters keep it for the next one.
    fn end_interval(&mut self) {
        let now_ns = self.shared.now_ns;
        let is_silent = self.snapshots.is_silent(now_ns);
        if is_silent != self.shared.tally.held_since_ns.is_some() {
            pipes::log(if is_silent { pipes::HELD } else { pipes::CONTINUED });
            self.shared.tally.hold(now_ns, is_silent);
            self.player.hold(now_ns, is_silent);
        }
        if self.snapshots.has_room() {
            self.snapshot();
        } else {
            self.begin_interval();
        }
    }

    fn begin_interval(&mut self) {
        let interval_ns = self.shared.setup.plan.snapshot_interval_ns;
        if self.shared.now_ns >= self.next_snapshot_ns {
            let behind = (self.shared.now_ns - self.next_snapshot_ns) / interval_ns;
            self.next_snapshot_ns += (behind + 1) * interval_ns;
        }
    }

    fn snapshot(&mut self) {
        self.begin_interval();
        self.player.note(&mut self.shared);
        let moment = Moment {
            agent: self.agent,
            stage: self.stage.as_ref().map(|stage| stage.index),
            settled: self.settled,
            now_ns: self.shared.now_ns,
            ledger_pairs: self.shared.ledger_pairs,
        };
        self.snapshots.send(self.shared.tally.snapshot(&moment));
    }

    fn stop(&mut self) -> Result<()> {
        self.shared.now_ns = now_ns();
        self.close_stage(self.shared.now_ns)?;
        self.player.stop(&mut self.shared);
        self.snapshot();
        Ok(())
    }
}
