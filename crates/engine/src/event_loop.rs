//! The loop: one thread that owns all clients of an agent. It waits for sockets, commands and the
//! next instant at which something is due, hands each to the client concerned, and at every
//! interval moves the counts out. Nothing in it is shared with another thread.

use std::hint::black_box;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use agent::pipes::Input;
use plan::{Action, ChangeAction, Command, Snapshot};

use crate::balance::Balance;
use crate::changes::{Changes, Crowd, Step, Waiting};
use crate::client::{Client, Phase};
use crate::host::{Host, Ready};
use crate::pause::Pause;
use crate::pipes;
use crate::setup::Setup;
use crate::shared::Shared;
use crate::stage::Stage;
use crate::stalls::Scene;
use crate::tally::Moment;
use crate::wheel::Wheel;

/// Clients started or stopped before sockets have their turn again.
const RAMP_TURN: usize = 64;
/// Timers handled before sockets have their turn again.
const TIMER_TURN: usize = 1024;
/// Clients whose memory is fetched together.
const FETCHED: usize = 32;
/// How often an ended publish stage looks whether everything due has been sent.
const CLOSE_CHECK_NS: u64 = 20_000_000;

/// The loop of one agent.
pub struct EventLoop {
    shared: Shared,
    clients: Vec<Client>,
    wheel: Wheel,
    /// Clients whose timers have fired, the oldest first.
    due: Vec<u32>,
    /// Number of those that have been handled.
    handled: usize,
    ready: Vec<Ready>,
    stage: Option<Stage>,
    changes: Changes,
    /// The next stage and when it begins.
    pending: Option<(usize, u64)>,
    /// Changes of that stage.
    pending_changes: Vec<Waiting>,
    /// Populations that are owed what they receive in that stage.
    pending_unjudged: Option<Vec<usize>>,
    inputs: Receiver<Input>,
    snapshots: Sender<Snapshot>,
    next_snapshot_ns: u64,
    next_close_check_ns: u64,
    balance: Balance,
    settled: bool,
    /// Since when it is there, in nanoseconds.
    since_ns: u64,
    /// Who joins the stage that is on does so from then on, in nanoseconds.
    joins_from_ns: u64,
    pause: Pause,
    /// Timers wait until then, in nanoseconds.
    timers_ns: u64,
    /// Instant at which the last wait ended, in nanoseconds.
    busy_since_ns: u64,
    /// The loop stops: it ends when every client has left.
    stopping: bool,
}

impl EventLoop {
    /// Makes a loop without connections on a host. The sender of an input wakes the host.
    pub fn new(
        setup: Setup,
        host: Host,
        inputs: Receiver<Input>,
        snapshots: Sender<Snapshot>,
    ) -> Self {
        let now_ns = host.now_ns();
        let mut clients = Vec::with_capacity(setup.clients());
        for (p, population) in setup.populations.iter().enumerate() {
            for local in 0..population.share {
                let index = clients.len() as u32;
                clients.push(Client::new(index, p, local, &setup));
            }
        }
        let wheel = Wheel::new(clients.len(), now_ns);
        let pause = Pause::new(setup.coalescing_ns(), setup.shard.count());
        let next_snapshot_ns = now_ns + setup.plan.snapshot_interval_ns;
        let shared = Shared::new(setup, host);
        Self {
            shared,
            clients,
            wheel,
            due: Vec::new(),
            handled: 0,
            ready: Vec::new(),
            stage: None,
            changes: Changes::default(),
            pending: None,
            pending_changes: Vec::new(),
            pending_unjudged: None,
            inputs,
            snapshots,
            next_snapshot_ns,
            next_close_check_ns: u64::MAX,
            balance: Balance::default(),
            settled: false,
            since_ns: now_ns,
            joins_from_ns: 0,
            pause,
            timers_ns: 0,
            busy_since_ns: now_ns,
            stopping: false,
        }
    }

    /// Runs until it is told to stop; returns how many snapshots it made.
    ///
    /// # Errors
    /// The poll's, which leave nothing to go on with.
    pub fn run(mut self) -> io::Result<u64> {
        while self.turn()? {}
        Ok(self.shared.tally.snapshots())
    }

    /// Waits once, and does what there is to do then; `false`: the run is over.
    ///
    /// # Errors
    /// The poll's, which leave nothing to go on with.
    pub fn turn(&mut self) -> io::Result<bool> {
        if !self.stopping && !self.take_inputs() {
            self.stop();
        }
        if self.stopping && self.shared.leaving == 0 && self.balance.is_done() {
            self.snapshot();
            return Ok(false);
        }
        let (wake_ns, due_ns) = (self.wake_ns(), self.due_ns());
        self.shared.tally.busy_ns += self.shared.host.now_ns() - self.busy_since_ns;
        self.shared.host.wait(wake_ns, &mut self.ready)?;
        self.busy_since_ns = self.shared.host.now_ns();
        self.shared.now_ns = self.busy_since_ns;
        let again = std::mem::take(&mut self.shared.again);
        // What came behind the beginning of a stage belongs to it.
        self.enter_pending();
        for (at, &Ready { client: index, readable, writable, ended }) in
            self.ready.iter().enumerate()
        {
            if at.is_multiple_of(FETCHED) {
                let coming = &self.ready[at..self.ready.len().min(at + FETCHED)];
                fetch(&self.clients, coming.iter().map(|ready| ready.client));
            }
            let Some(client) = self.clients.get_mut(index) else { continue };
            if writable {
                client.writable(&mut self.shared);
            }
            if readable {
                client.readable(&mut self.shared, ended);
            }
            retime(client, index as u32, &mut self.wheel, &mut self.shared);
        }
        for index in again {
            self.with_client(index, Client::read_on);
        }
        self.balance.slice(&mut self.clients, &mut self.shared);
        self.shared.now_ns = self.shared.host.now_ns();
        if self.shared.now_ns >= due_ns {
            self.handle_time();
        } else {
            self.settle();
        }
        Ok(true)
    }

    /// All clients, to bring them into a state that takes years to reach.
    #[cfg(test)]
    pub fn clients_mut(&mut self) -> &mut [Client] {
        &mut self.clients
    }

    /// Takes what has come from outside; `false`: the run is over.
    fn take_inputs(&mut self) -> bool {
        loop {
            match self.inputs.try_recv() {
                Ok(Input::Command(Command::Stage { index, at_ns })) => {
                    self.pending = Some((index, at_ns));
                }
                Ok(Input::Command(Command::Change { at_ns, population, action })) => {
                    let change = Waiting { at_ns, population, action };
                    match self.pending {
                        Some((_, stage_ns)) if stage_ns <= at_ns => {
                            self.pending_changes.push(change);
                        }
                        _ => self.add_change(change),
                    }
                }
                Ok(Input::Command(Command::Close { sent })) => {
                    self.balance.report(&self.shared, &sent);
                    self.close_stage();
                }
                Ok(Input::Command(Command::Unjudge { populations })) => self.unjudge(populations),
                // Answered where it is read.
                Ok(Input::Command(Command::Beat)) => continue,
                Ok(Input::Command(Command::Stop) | Input::Closed)
                | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
            self.shared.now_ns = self.shared.host.now_ns();
            self.settle();
        }
    }

    /// Instant at which the loop has work again, in nanoseconds.
    pub fn wake_ns(&mut self) -> u64 {
        let waits = self.shared.again.is_empty() && self.balance.is_done();
        if waits { self.due_ns() } else { 0 }
    }

    /// When the loop has to look at the clock again, in nanoseconds.
    fn due_ns(&mut self) -> u64 {
        if !self.due.is_empty() {
            return 0;
        }
        let mut next_ns = self.next_snapshot_ns.min(self.next_close_check_ns);
        let shared = &self.shared;
        let stage = self.stage.as_mut().filter(|_| !self.stopping);
        if let Some(stage_ns) = stage.and_then(|stage| stage.next_ns(shared)) {
            next_ns = next_ns.min(stage_ns);
        }
        next_ns = next_ns.min(self.changes.next_ns().unwrap_or(u64::MAX));
        next_ns = next_ns.min(self.shared.lifetimes.next_ns().unwrap_or(u64::MAX));
        if let Some((_, at_ns)) = self.pending {
            next_ns = next_ns.min(at_ns);
        }
        let timer_ns = self.wheel.next_ns().unwrap_or(u64::MAX);
        next_ns.min(timer_ns).max(self.timers_ns)
    }

    /// Does all that is due by the clock.
    fn handle_time(&mut self) {
        self.enter_pending();
        self.walk_changes();
        self.walk_lives();
        self.wheel.advance(self.shared.now_ns, &mut self.due);
        let fired = self.handle_timers();
        self.walk_stage();
        if self.shared.now_ns >= self.next_close_check_ns {
            self.check_close();
        }
        self.settle();
        self.shared.now_ns = self.shared.host.now_ns();
        if self.shared.now_ns >= self.next_snapshot_ns {
            self.snapshot();
        }
        self.timers_ns = self.pause.after(fired, self.shared.now_ns);
    }

    /// Handles timers that have fired, the oldest first; returns how many.
    fn handle_timers(&mut self) -> usize {
        let end = self.due.len().min(self.handled + TIMER_TURN);
        for at in self.handled..end {
            if (at - self.handled).is_multiple_of(FETCHED) {
                let fired = &self.due[at..end.min(at + FETCHED)];
                fetch(&self.clients, fired.iter().map(|&index| index as usize));
            }
            self.with_client(self.due[at], Client::timer);
        }
        let fired = end - std::mem::replace(&mut self.handled, end);
        if end == self.due.len() {
            self.due.clear();
            self.handled = 0;
        }
        fired
    }

    /// Enters the next stage if its time has come.
    fn enter_pending(&mut self) {
        let now_ns = self.shared.now_ns;
        if let Some((index, at_ns)) = self.pending.take_if(|pending| pending.1 <= now_ns) {
            self.enter_stage(index, at_ns);
        }
    }

    fn enter_stage(&mut self, index: usize, at_ns: u64) {
        self.close_stage();
        // The next stage may have other receivers.
        self.balance.finish(&mut self.clients, &mut self.shared);
        self.snapshot();
        self.shared.publishing = None;
        let changes = std::mem::take(&mut self.pending_changes);
        if index >= self.shared.setup.plan.stages.len() {
            return;
        }
        self.stage = Some(Stage::new(index, at_ns, &mut self.shared));
        self.settled = false;
        self.changes = Changes::of(&self.shared.setup.plan.stages[index].action, at_ns);
        self.hold_back();
        if let Some(publishing) = &self.shared.publishing {
            self.next_close_check_ns = if publishing.waits { u64::MAX } else { publishing.end_ns };
            for index in 0..self.clients.len() as u32 {
                self.with_client(index, Client::begin_publishing);
            }
        }
        self.joins_from_ns = 0;
        if at_ns < self.since_ns {
            self.catch_up();
        }
        changes.into_iter().for_each(|change| self.add_change(change));
        if let Some(unjudged) = self.pending_unjudged.take() {
            self.unjudge(unjudged);
        }
    }

    /// The stage began before this agent did: what has changed by now is so from the start, and
    /// nobody sends what was due before.
    fn catch_up(&mut self) {
        self.joins_from_ns = self.shared.now_ns;
        let begun = self.changes.begin_due(&mut Crowd::of(&mut self.shared));
        self.hold_back();
        begun.into_iter().for_each(|step| self.step(step));
    }

    /// Takes a change beyond the plan, if the stage that is on has room for it.
    fn add_change(&mut self, change: Waiting) {
        let until_ns = change.at_ns.saturating_add(change.action.over_ns());
        let populations = self.shared.setup.populations.len();
        let refused = match &self.shared.publishing {
            None => Some("no publish stage is on".to_owned()),
            Some(publishing) if until_ns > publishing.end_ns => {
                Some("it goes beyond the end of the stage".to_owned())
            }
            _ if change.population >= populations => Some(format!(
                "found population {}, allowed are below {populations}",
                change.population
            )),
            _ if !change.action.is_possible() => Some("its factor is out of range".to_owned()),
            _ => None,
        };
        if let Some(why) = refused {
            return pipes::log(&format!("a change was ignored: {why}"));
        }
        if !matches!(change.action, ChangeAction::Rate { .. }) {
            self.shared.stop_judging(change.population);
        }
        self.changes.push(change);
        self.hold_back();
    }

    /// Owes populations what they receive, in the stage that comes next or in the one that is on.
    fn unjudge(&mut self, populations: Vec<usize>) {
        if self.pending.is_some() {
            return self.pending_unjudged.get_or_insert_default().extend(populations);
        }
        self.shared.stalls.excuse();
        for population in populations {
            if population < self.shared.judged.len() {
                self.shared.stop_judging(population);
            }
        }
    }

    /// Does what changes now.
    fn walk_changes(&mut self) {
        for _ in 0..RAMP_TURN {
            let step = self.changes.next(&mut Crowd::of(&mut self.shared));
            self.hold_back();
            let Some(step) = step else { return };
            self.step(step);
        }
    }

    /// Holds back messages that are due once the next change has begun: it decides about them.
    fn hold_back(&mut self) {
        if let Some(publishing) = &mut self.shared.publishing {
            publishing.horizon_ns = self.changes.next_ns().unwrap_or(u64::MAX);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join { client, at_ns } => {
                let at_ns = at_ns.max(self.joins_from_ns);
                self.with_client(client, |client, shared| client.join(shared, at_ns));
            }
            Step::Leave { client, at_ns } => {
                self.with_client(client, |client, shared| client.leave(shared, at_ns));
            }
            Step::Rate { population, at_ns, factor } => {
                self.change_rate(population, at_ns, factor);
            }
        }
    }

    /// Lets clients go whose life is over, and come back.
    fn walk_lives(&mut self) {
        for _ in 0..RAMP_TURN {
            let Some(turn) = self.shared.lifetimes.next(self.shared.now_ns) else { return };
            let index = self.shared.setup.populations[turn.population].first_client + turn.local;
            let act = if turn.returns { Client::join } else { Client::go_away };
            self.with_client(index, |client, shared| act(client, shared, turn.at_ns));
        }
    }

    fn change_rate(&mut self, population: usize, at_ns: u64, factor: f64) {
        if let Some(publishing) = &mut self.shared.publishing {
            let after_ns = at_ns.saturating_sub(publishing.start_ns);
            publishing.tempos[population].change(after_ns, factor);
        }
        let own = &self.shared.setup.populations[population];
        for index in own.first_client..own.first_client + own.share {
            self.with_client(index, Client::publish_due);
        }
    }

    /// Starts or stops the clients whose turn has come.
    fn walk_stage(&mut self) {
        for _ in 0..RAMP_TURN {
            let Some(stage) = self.stage.as_mut().filter(|_| !self.stopping) else { return };
            let Some(index) = stage.next_client(&self.shared) else { return };
            match stage.action(&self.shared.setup) {
                Action::Connect { .. } => {
                    let phase = self.clients[index as usize].phase();
                    if matches!(phase, Phase::Idle | Phase::GaveUp | Phase::Leaving(_)) {
                        self.with_client(index, Client::begin);
                    }
                }
                Action::Disconnect { .. } => self.with_client(index, Client::end),
                Action::Publish { .. } | Action::Hold { .. } => return,
            }
        }
    }

    /// Closes an ended publish stage once nothing that can still be sent is waiting.
    fn check_close(&mut self) {
        self.next_close_check_ns = self.shared.now_ns + CLOSE_CHECK_NS;
        let shared = &self.shared;
        let waits = |client: &Client| {
            !matches!(client.phase(), Phase::Idle | Phase::GaveUp)
                && client.backlog(shared, u64::MAX) > 0
        };
        if self.changes.is_empty() && !self.clients.iter().any(waits) {
            self.close_stage();
        }
    }

    fn close_stage(&mut self) {
        self.next_close_check_ns = u64::MAX;
        match &mut self.stage {
            Some(stage) if self.shared.publishing.is_some() && !stage.closed => stage.closed = true,
            _ => return,
        }
        if let Some(publishing) = &mut self.shared.publishing {
            publishing.end_ns = publishing.end_ns.min(self.shared.now_ns);
        }
        self.changes = Changes::default();
        for index in 0..self.clients.len() as u32 {
            self.with_client(index, Client::skip_rest);
        }
        self.balance.begin(self.clients.len());
        // Who comes back in the drain does not send what has been counted as skipped.
        if let Some(publishing) = &mut self.shared.publishing {
            publishing.populations.fill(false);
        }
    }

    /// Sends a snapshot when the stage has just settled, so that barriers need not wait for one.
    fn settle(&mut self) {
        let shared = &self.shared;
        let settled = self.stage.as_mut().is_some_and(|stage| stage.is_settled(shared));
        let settled = settled && self.balance.is_done();
        if settled != self.settled {
            self.settled = settled;
            if settled {
                self.snapshot();
            }
        }
    }

    fn snapshot(&mut self) {
        let interval_ns = self.shared.setup.plan.snapshot_interval_ns;
        if self.shared.now_ns >= self.next_snapshot_ns {
            let behind = (self.shared.now_ns - self.next_snapshot_ns) / interval_ns;
            self.next_snapshot_ns += (behind + 1) * interval_ns;
        }
        self.note_backlogs();
        self.look_for_stalls();
        let moment = Moment {
            agent: self.shared.setup.shard.index(),
            stage: self.stage.as_ref().map(|stage| stage.index),
            settled: self.settled,
            now_ns: self.shared.now_ns,
            ledger_pairs: self.shared.ledger.pairs(),
        };
        let mut snapshot = self.shared.tally.snapshot(&moment);
        snapshot.stalls = self.shared.stalls.take();
        // A reader that is gone is noticed by the writer, which closes the inputs.
        let _ = self.snapshots.send(snapshot);
    }

    fn look_for_stalls(&mut self) {
        let closed = self.stage.as_ref().is_some_and(|stage| stage.closed);
        let Shared { stalls, setup, tally, publishing, present, now_ns, .. } = &mut self.shared;
        let publishing = publishing.as_ref().filter(|_| !closed);
        let scene = Scene { setup, clients: &self.clients, publishing, present, now_ns: *now_ns };
        stalls.look(&scene, &mut tally.populations);
    }

    fn note_backlogs(&mut self) {
        for population in &mut self.shared.tally.populations {
            population.gauges.backlog = 0;
        }
        if self.shared.publishing.is_none() || self.stage.as_ref().is_some_and(|s| s.closed) {
            return;
        }
        for client in &self.clients {
            let backlog = client.backlog(&self.shared, self.shared.now_ns);
            self.shared.tally.populations[client.population()].gauges.backlog += backlog;
        }
    }

    fn stop(&mut self) {
        self.shared.now_ns = self.shared.host.now_ns();
        self.close_stage();
        for index in 0..self.clients.len() as u32 {
            self.with_client(index, Client::disconnect);
        }
        (self.pending, self.stopping) = (None, true);
    }

    fn with_client(&mut self, index: u32, act: impl FnOnce(&mut Client, &mut Shared)) {
        let client = &mut self.clients[index as usize];
        act(client, &mut self.shared);
        retime(client, index, &mut self.wheel, &mut self.shared);
    }
}

/// Looks at clients that have something to do, so that their memory comes from far at the same time
/// and not one after the other, each behind a system call.
fn fetch(clients: &[Client], indices: impl Iterator<Item = usize>) {
    let looks = indices.filter_map(|index| clients.get(index)).map(Client::look);
    black_box(looks.fold(0, u32::wrapping_add));
}

fn retime(client: &mut Client, index: u32, wheel: &mut Wheel, shared: &mut Shared) {
    match client.take_deadline(shared) {
        Some(Some(deadline_ns)) => wheel.set(index, deadline_ns),
        Some(None) => wheel.cancel(index),
        None => {}
    }
}
