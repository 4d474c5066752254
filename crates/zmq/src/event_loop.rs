//! The event loop of an agent with sockets of libzmq. It waits for commands, descriptors and the
//! next instant with work, enters stages, and sends a snapshot at every interval. A
//! [`PopulationPlayer`] owns the sockets.

use std::sync::mpsc::Receiver;

use agent::clock::now_ns;
use agent::pipes::{self, Input};
use agent::snapshots::Snapshots;
use agent::stages::{Begun, ImmediateCommand, ScheduledChange, Stages};
use agent::tally::{SnapshotHead, Tally};
use agent::wait::Wait;
use mio::{Events, Registry, Waker};
use plan::Resume;

use crate::setup::{Result, ZmqSetup};
use crate::stage::BegunStage;

/// State that a player reads and changes.
pub struct Shared {
    /// The plan made ready.
    pub setup: ZmqSetup,
    /// Counts since the last snapshot.
    pub tally: Tally,
    /// Registry of descriptors, whose tokens are small numbers.
    pub registry: Registry,
    /// The instant of the current event, in nanoseconds.
    pub now_ns: u64,
    /// Pairs of stream and receiver in the ledger.
    pub ledger_pairs: u64,
    /// The population is excluded from loss in the current stage: expected = received.
    pub is_excluded: bool,
}

impl Shared {
    /// Sets expected = received for the population, up to the end of the stage.
    fn exclude_from_loss(&mut self) {
        if !std::mem::replace(&mut self.is_excluded, true) {
            self.tally.exclude_from_loss(self.setup.population);
        }
    }
}

/// Sockets of one population. Errors are those of libzmq and the kernel.
pub trait PopulationPlayer {
    /// Enters a stage.
    fn enter(&mut self, stage: &BegunStage, shared: &mut Shared) -> Result<()>;

    /// Publishes at `factor` times the planned rate from `at_ns` on.
    fn change_rate(&mut self, _at_ns: u64, _factor: f64) {}

    /// Continues where the former process of a publisher has ended, in the stage that was entered.
    fn resume(&mut self, _: Resume) {}

    /// Lets clients join or leave.
    fn move_clients(&mut self, _change: ScheduledChange) {
        pipes::log("a change was ignored: publishers do not join or leave");
    }

    /// Instant of the next client that joins or leaves, in nanoseconds.
    fn next_move_ns(&self) -> u64 {
        u64::MAX
    }

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
pub struct ZmqLoop {
    wait: Wait,
    /// Number of this agent.
    agent: u32,
    shared: Shared,
    player: Box<dyn PopulationPlayer>,
    stage: Option<BegunStage>,
    /// Commands, the next stage, and the intervals of snapshots.
    stages: Stages,
}

impl ZmqLoop {
    /// Creates a loop before its first stage, and the waker for inputs. `ends` are the sources of
    /// inputs and the destination of snapshots.
    ///
    /// # Errors
    /// libzmq's, and the kernel's when it has no descriptors left.
    pub fn new(
        agent: u32,
        setup: ZmqSetup,
        player: Box<dyn PopulationPlayer>,
        ends: (Receiver<Input>, Snapshots),
    ) -> Result<(Self, Waker)> {
        let (wait, waker) = Wait::new()?;
        let now_ns = now_ns();
        let stages = Stages::new(ends, setup.plan.snapshot_interval_ns, now_ns);
        let mut tally = Tally::new(setup.plan.populations.len(), setup.plan.targets.len(), now_ns);
        if setup.population().receives_alike() {
            tally.count_deliveries_of(setup.shard.share(setup.population().clients) as usize);
        }
        let registry = wait.registry().try_clone()?;
        let (ledger_pairs, is_excluded) = (0, false);
        let shared = Shared { setup, tally, registry, now_ns, ledger_pairs, is_excluded };
        let event_loop = Self { wait, agent, shared, player, stage: None, stages };
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
        while let Some(order) = self.stages.next_order() {
            match order {
                ImmediateCommand::Change(change) => self.add_change(change),
                ImmediateCommand::Close(_) => {
                    self.shared.now_ns = now_ns();
                    self.close_stage(self.shared.now_ns)?;
                }
                // Only engines count expected deliveries.
                ImmediateCommand::Stage { .. } | ImmediateCommand::ExcludeFromLoss(_) => {}
                ImmediateCommand::Stop => return Ok(false),
            }
            self.shared.now_ns = now_ns();
            self.settle();
        }
        Ok(true)
    }

    /// Returns the next instant with work of the loop, in nanoseconds.
    fn wake_ns(&self) -> u64 {
        let stage_ns = self.stage.as_ref().map_or(u64::MAX, |stage| {
            if stage.closed { u64::MAX } else { stage.next_ns(self.shared.now_ns) }
        });
        self.stages.next_ns().min(stage_ns).min(self.player.next_move_ns())
    }

    /// Does the work that is due; returns the instant of the next call of the player.
    fn handle_time(&mut self) -> Result<u64> {
        if let Some(begun) = self.stages.begin_due(now_ns()) {
            self.shared.now_ns = now_ns();
            self.enter_stage(begun)?;
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
        if self.stages.has_interval_ended(self.shared.now_ns) {
            self.end_interval();
            return Ok(0);
        }
        Ok(next_ns)
    }

    fn enter_stage(&mut self, begun: Begun) -> Result<()> {
        let Begun { index, at_ns, changes, resume, .. } = begun;
        self.close_stage(self.shared.now_ns)?;
        let publishes = self.stage.as_ref().is_some_and(|stage| stage.publishes);
        if publishes && !self.shared.is_excluded {
            let population = self.shared.setup.population;
            self.shared.tally.count_by_deliveries(population, 0..self.player.receivers());
        }
        self.snapshot();
        self.shared.tally.begin_stage();
        self.shared.is_excluded = false;
        let setup = &self.shared.setup;
        if index >= setup.plan.stages.len() {
            return Ok(());
        }
        let stage = BegunStage::new(&setup.plan, setup.population, index, at_ns);
        let planned: Vec<_> = setup.plan.stages[index].action.changes().to_vec();
        self.stages.settle(false);
        self.player.enter(&stage, &mut self.shared)?;
        resume.into_iter().for_each(|resume| self.player.resume(resume));
        self.stage = Some(stage);
        for plan::Change { after_ns, population, action, .. } in planned {
            self.move_clients(ScheduledChange { at_ns: at_ns + after_ns, population, action });
        }
        changes.into_iter().for_each(|change| self.add_change(change));
        Ok(())
    }

    fn add_change(&mut self, ScheduledChange { at_ns, population, action }: ScheduledChange) {
        self.move_clients(ScheduledChange { at_ns, population, action });
        if population == self.shared.setup.population
            && let Some(stage) = &mut self.stage
        {
            stage.change(at_ns, action);
        }
    }

    /// Takes a change, if clients of the population join or leave by it.
    fn move_clients(&mut self, change: ScheduledChange) {
        if change.population == self.shared.setup.population && change.action.moves_clients() {
            self.shared.exclude_from_loss();
            self.player.move_clients(change);
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
        if self.stages.settle(settled) {
            self.snapshot();
        }
    }

    /// Ends an interval. Without room for its snapshot, the counters keep it for the next one.
    fn end_interval(&mut self) {
        let now_ns = self.shared.now_ns;
        if let Some(is_held) = self.stages.note_silence(now_ns, &mut self.shared.tally) {
            self.player.hold(now_ns, is_held);
        }
        if self.stages.has_room() {
            self.snapshot();
        } else {
            self.stages.begin_interval(now_ns);
        }
    }

    fn snapshot(&mut self) {
        self.stages.begin_interval(self.shared.now_ns);
        self.player.note(&mut self.shared);
        let moment = SnapshotHead {
            agent: self.agent,
            stage: self.stage.as_ref().map(|stage| stage.index),
            settled: self.stages.is_settled(),
            now_ns: self.shared.now_ns,
            ledger_pairs: self.shared.ledger_pairs,
        };
        self.stages.send(self.shared.tally.snapshot(&moment));
    }

    fn stop(&mut self) -> Result<()> {
        self.shared.now_ns = now_ns();
        self.close_stage(self.shared.now_ns)?;
        self.player.stop(&mut self.shared);
        self.snapshot();
        Ok(())
    }
}
