//! The loop: one thread that owns all clients of an agent. It waits for sockets, commands and the
//! next instant at which something is due, hands each to the client concerned, and at every
//! interval moves the counts out. The loop shares nothing with another thread.

mod interval;
mod walks;

use std::hint::black_box;
use std::io;
use std::sync::mpsc::Receiver;

use agent::changes::Changes;
use agent::pipes::Input;
use agent::snapshots::Snapshots;
use agent::stages::{Begun, ImmediateCommand, ScheduledChange, Stages};

use crate::client::{Client, ClientPhase};
use crate::context::Context;
use crate::host::Host;
use crate::schedule::coalescing::Coalescing;
use crate::schedule::publishing::Publishing;
use crate::schedule::stage::Stage;
use crate::schedule::unfinished::Unfinished;
use crate::schedule::wheel::Wheel;
use crate::setup::Setup;
use crate::transport::tcp::Ready;
use agent::pipes;

/// Clients started or stopped before sockets have a time slice again.
const RAMP_SLICE: usize = 64;
/// Timers handled before sockets have a time slice again.
const TIMER_SLICE: usize = 1024;
/// Clients whose memory is fetched together.
const FETCHED: usize = 32;
/// Time between two checks of an ended publish stage for unsent messages, in nanoseconds.
const CLOSE_CHECK_NS: u64 = 20_000_000;

/// The loop of one agent.
pub struct EventLoop {
    context: Context,
    clients: Vec<Client>,
    wheel: Wheel,
    /// Clients whose timers have fired, the oldest first.
    due: Vec<u32>,
    /// Number of those that have been handled.
    handled: usize,
    ready: Vec<Ready>,
    stage: Option<Stage>,
    changes: Changes,
    /// Commands, the next stage, and the intervals of snapshots.
    stages: Stages,
    next_close_check_ns: u64,
    /// Clients for which the end of a publish stage waits.
    unfinished: Unfinished,
    /// Start of the agent, in nanoseconds.
    since_ns: u64,
    /// Earliest instant at which a client joins the current stage, in nanoseconds.
    joins_from_ns: u64,
    coalescing: Coalescing,
    /// Timers wait until then, in nanoseconds.
    timers_ns: u64,
    /// Instant at which the last wait ended, in nanoseconds.
    busy_since_ns: u64,
    /// The loop stops: it ends when every client has left.
    stopping: bool,
}

impl EventLoop {
    /// Makes a loop without connections on a host. The sender of an input wakes the host.
    pub fn new(setup: Setup, host: Host, inputs: Receiver<Input>, snapshots: Snapshots) -> Self {
        let now_ns = host.now_ns();
        let mut clients = Vec::with_capacity(setup.clients());
        for (p, population) in setup.populations.iter().enumerate() {
            for local in 0..population.share {
                let index = clients.len() as u32;
                clients.push(Client::new(index, p, local, &setup));
            }
        }
        let wheel = Wheel::new(clients.len(), now_ns);
        let coalescing = Coalescing::new(setup.coalescing_ns(), setup.agent.count());
        let interval_ns = setup.plan.snapshot_interval_ns;
        let context = Context::new(setup, host);
        Self {
            context,
            clients,
            wheel,
            due: Vec::new(),
            handled: 0,
            ready: Vec::new(),
            stage: None,
            changes: Changes::default(),
            stages: Stages::new((inputs, snapshots), interval_ns, now_ns),
            next_close_check_ns: u64::MAX,
            unfinished: Unfinished::default(),
            since_ns: now_ns,
            joins_from_ns: 0,
            coalescing,
            timers_ns: 0,
            busy_since_ns: now_ns,
            stopping: false,
        }
    }

    /// Runs up to the command to stop. Returns the number of snapshots.
    ///
    /// # Errors
    /// Errors of the poll, after which the loop cannot continue.
    pub fn run(mut self) -> io::Result<u64> {
        while self.turn()? {}
        Ok(self.context.tally.snapshots())
    }

    /// Waits once and handles all events. Returns `false` if the run is over.
    ///
    /// # Errors
    /// Errors of the poll, after which the loop cannot continue.
    pub fn turn(&mut self) -> io::Result<bool> {
        let (wake_ns, due_ns) = (self.wake_ns(), self.due_ns());
        self.context.tally.busy_ns += self.context.host.now_ns() - self.busy_since_ns;
        self.context.host.wait(wake_ns, &mut self.ready)?;
        self.busy_since_ns = self.context.host.now_ns();
        self.context.now_ns = self.busy_since_ns;
        let again = std::mem::take(&mut self.context.again);
        // Bytes that arrived after the beginning of a stage belong to that stage. Its command may
        // have come in the same wait.
        if !self.stopping && !self.take_inputs() {
            self.stop();
        }
        self.enter_pending();
        for (at, &Ready { client: index, readable, writable, ended }) in
            self.ready.iter().enumerate()
        {
            if at.is_multiple_of(FETCHED) {
                let coming = &self.ready[at..self.ready.len().min(at + FETCHED)];
                fetch(&self.clients, coming.iter().map(|ready| ready.client));
            }
            let Some(client) = self.clients.get_mut(index) else {
                if ended {
                    self.context.silent.close(index);
                }
                continue;
            };
            if writable {
                client.writable(&mut self.context);
            }
            if readable {
                client.readable(&mut self.context, ended);
            }
            retime(client, index as u32, &mut self.wheel, &mut self.context);
        }
        for index in again {
            self.with_client(index, Client::read_on);
        }
        self.balance_slice();
        self.context.now_ns = self.context.host.now_ns();
        if self.context.now_ns >= due_ns {
            self.handle_time();
        } else {
            self.settle();
        }
        let is_quiet = self.context.leaving == 0 && !self.context.host.lingers();
        if self.stopping && is_quiet && self.context.expectations.is_balanced() {
            self.snapshot();
            self.context.silent.close_all();
            return Ok(false);
        }
        Ok(true)
    }

    /// All clients, to bring them into a state that takes years to reach.
    pub fn clients_mut(&mut self) -> &mut [Client] {
        &mut self.clients
    }

    /// Takes commands. Returns `false` if the run is over.
    fn take_inputs(&mut self) -> bool {
        while let Some(order) = self.stages.next_order() {
            match order {
                ImmediateCommand::Stage { index, at_ns } => {
                    self.context.announce_stage((index, at_ns));
                }
                ImmediateCommand::Change(change) => self.add_change(change),
                ImmediateCommand::Close(sent) => {
                    self.context.expectations.report(&self.context.setup, &sent);
                    self.close_stage();
                }
                ImmediateCommand::ExcludeFromLoss(populations) => {
                    self.exclude_from_loss(populations);
                }
                ImmediateCommand::Stop => return false,
            }
            self.context.now_ns = self.context.host.now_ns();
            self.settle();
        }
        true
    }

    /// Instant at which the loop has work again, in nanoseconds.
    pub fn wake_ns(&mut self) -> u64 {
        let waits = self.context.again.is_empty() && self.context.expectations.is_balanced();
        if waits { self.due_ns() } else { 0 }
    }

    /// Next instant at which something is scheduled, in nanoseconds.
    fn due_ns(&mut self) -> u64 {
        if !self.due.is_empty() {
            return 0;
        }
        let mut next_ns = self.stages.next_ns().min(self.next_close_check_ns);
        let context = &self.context;
        let stage = self.stage.as_mut().filter(|_| !self.stopping);
        if let Some(stage_ns) = stage.and_then(|stage| stage.next_ns(context)) {
            next_ns = next_ns.min(stage_ns);
        }
        next_ns = next_ns.min(self.changes.next_ns().unwrap_or(u64::MAX));
        next_ns = next_ns.min(self.context.lifetimes.next_ns().unwrap_or(u64::MAX));
        next_ns = next_ns.min(self.context.flaps.next_ns().unwrap_or(u64::MAX));
        next_ns = next_ns.min(self.context.expectations.next_will_ns().unwrap_or(u64::MAX));
        next_ns = next_ns.min(self.context.exchanges.next_ns().unwrap_or(u64::MAX));
        let timer_ns = self.wheel.next_ns().unwrap_or(u64::MAX);
        next_ns.min(timer_ns).max(self.timers_ns)
    }

    /// Handles everything that is scheduled up to now.
    fn handle_time(&mut self) {
        self.enter_pending();
        self.walk_changes();
        self.walk_lives();
        self.walk_flaps();
        self.walk_exchanges();
        self.context.expect_due_wills();
        self.wheel.advance(self.context.now_ns, &mut self.due);
        let fired = self.handle_timers();
        self.walk_stage();
        if self.context.now_ns >= self.next_close_check_ns {
            self.check_close();
        }
        self.settle();
        self.context.now_ns = self.context.host.now_ns();
        if self.stages.has_interval_ended(self.context.now_ns) {
            self.end_interval();
        }
        self.timers_ns = self.coalescing.after(fired, self.context.now_ns);
    }

    /// Handles timers that have fired, the oldest first. Returns their number.
    fn handle_timers(&mut self) -> usize {
        let end = self.due.len().min(self.handled + TIMER_SLICE);
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

    /// Enters the pending stage at its instant.
    fn enter_pending(&mut self) {
        if let Some(begun) = self.stages.begin_due(self.context.now_ns) {
            self.enter_stage(begun);
        }
    }

    fn enter_stage(&mut self, begun: Begun) {
        let Begun { index, at_ns, changes, exclusions, .. } = begun;
        self.close_stage();
        // The next stage may have other receivers.
        while !self.context.expectations.is_balanced() {
            self.balance_slice();
        }
        self.context.count_by_deliveries();
        self.snapshot();
        self.context.publishing = None;
        if index >= self.context.setup.plan.stages.len() {
            return;
        }
        self.stage = Some(Stage::new(index, at_ns, &mut self.context));
        self.stages.settle(false);
        self.changes = Changes::of(&self.context.setup.plan.stages[index].action, at_ns);
        self.context.setup.begin_links((index, at_ns));
        self.hold_back();
        if let Some(publishing) = &self.context.publishing {
            self.next_close_check_ns = if publishing.waits { u64::MAX } else { publishing.end_ns };
            for index in 0..self.clients.len() as u32 {
                self.with_client(index, Client::begin_publishing);
            }
        }
        self.joins_from_ns = 0;
        if at_ns < self.since_ns {
            self.catch_up();
        }
        let Context { lifetimes, publishing, .. } = &mut self.context;
        lifetimes.begin_stage(publishing.as_ref(), self.joins_from_ns);
        changes.into_iter().for_each(|change| self.add_change(change));
        if let Some(excluded) = exclusions {
            self.exclude_from_loss(excluded);
        }
    }

    /// Catches up with a stage that began before this agent: applies the changes so far at once,
    /// and sends no message that was scheduled before now.
    fn catch_up(&mut self) {
        self.joins_from_ns = self.context.now_ns;
        let begun = self.changes.begin_due(&mut walks::crowd(&mut self.context));
        self.hold_back();
        begun.into_iter().for_each(|step| self.step(step));
    }

    /// Takes a change beyond the plan, if the current stage has room for it.
    fn add_change(&mut self, change: ScheduledChange) {
        let until_ns = change.at_ns.saturating_add(change.action.over_ns());
        let populations = self.context.setup.populations.len();
        let refused = match &self.context.publishing {
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
        if change.action.moves_clients() {
            self.context.exclude_from_loss(change.population);
        }
        self.changes.push(change);
        self.hold_back();
    }

    /// Excludes populations from loss in the current stage.
    fn exclude_from_loss(&mut self, populations: Vec<usize>) {
        self.context.stalls.suspend();
        for population in populations {
            if population < self.context.setup.populations.len() {
                self.context.exclude_from_loss(population);
            }
        }
    }

    /// Adds some expected deliveries of a closed stage.
    fn balance_slice(&mut self) {
        let Context { expectations, setup, tally, host, .. } = &mut self.context;
        let (setup, clients) = (&*setup, &mut self.clients);
        let take_sent = |client: u32, batches: &mut Vec<_>| {
            clients[client as usize].take_sent(setup, batches);
        };
        expectations.balance_slice(setup, tally, || host.now_ns(), take_sent);
    }

    /// Closes an ended publish stage once no message waits that can still be sent.
    fn check_close(&mut self) {
        self.next_close_check_ns = self.context.now_ns + CLOSE_CHECK_NS;
        let context = &self.context;
        let waits = |client: &Client| {
            !matches!(client.phase(), ClientPhase::Idle | ClientPhase::GaveUp)
                && client.backlog(context, u64::MAX) > 0
        };
        if self.changes.is_empty() && !self.unfinished.is_any(&self.clients, waits) {
            self.close_stage();
        }
    }

    fn close_stage(&mut self) {
        self.next_close_check_ns = u64::MAX;
        match &mut self.stage {
            Some(stage) if self.context.publishing.is_some() && !stage.closed => {
                stage.closed = true;
            }
            _ => return,
        }
        self.context.now_ns = self.context.host.now_ns();
        // A change that is due is made, also if it came with the command that closes the stage.
        while self.walk_change() {}
        if let Some(publishing) = &mut self.context.publishing {
            publishing.end_ns = publishing.end_ns.min(self.context.now_ns);
        }
        self.changes = Changes::default();
        for index in 0..self.clients.len() as u32 {
            self.with_client(index, Client::end_publishing);
        }
        self.context.expectations.begin_balance(self.clients.len());
        // A client that returns in the drain does not send messages counted as skipped.
        if let Some(publishing) = &mut self.context.publishing {
            publishing.populations.fill(false);
        }
    }

    /// Closes a publish stage whose numbers of messages are sent. Sends a snapshot when the stage
    /// has just settled, so that barriers need not wait for it.
    fn settle(&mut self) {
        if self.context.publishing.as_ref().is_some_and(Publishing::has_sent_all) {
            self.close_stage();
        }
        let context = &self.context;
        let settled = self.stage.as_mut().is_some_and(|stage| stage.is_settled(context));
        let settled = settled && self.changes.is_empty();
        let settled = settled && self.context.expectations.is_balanced();
        if self.stages.settle(settled) {
            self.snapshot();
        }
    }

    fn note_backlogs(&mut self) {
        for population in &mut self.context.tally.populations {
            population.gauges.backlog = 0;
        }
        if self.context.publishing.is_none() || self.stage.as_ref().is_some_and(|s| s.closed) {
            return;
        }
        for client in &self.clients {
            let backlog = client.backlog(&self.context, self.context.now_ns);
            self.context.tally.populations[client.population()].gauges.backlog += backlog;
        }
    }

    fn stop(&mut self) {
        self.context.now_ns = self.context.host.now_ns();
        self.close_stage();
        for index in 0..self.clients.len() as u32 {
            self.with_client(index, Client::disconnect);
        }
        self.stages.forget_next();
        self.stopping = true;
    }

    fn with_client(&mut self, index: u32, act: impl FnOnce(&mut Client, &mut Context)) {
        let client = &mut self.clients[index as usize];
        act(client, &mut self.context);
        retime(client, index, &mut self.wheel, &mut self.context);
    }
}

/// Reads from all clients that have work, so that their memory is fetched at the same time and not
/// one after the other, each behind a system call.
fn fetch(clients: &[Client], indices: impl Iterator<Item = usize>) {
    let looks = indices.filter_map(|index| clients.get(index)).map(Client::look);
    black_box(looks.fold(0, u32::wrapping_add));
}

fn retime(client: &mut Client, index: u32, wheel: &mut Wheel, context: &mut Context) {
    if context.has_links {
        client.settle_link(context);
    }
    if context.has_migrations {
        client.settle_migration(context);
    }
    match client.take_deadline(context) {
        Some(Some(deadline_ns)) => wheel.set(index, deadline_ns),
        Some(None) => wheel.cancel(index),
        None => {}
    }
}
