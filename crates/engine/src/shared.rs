//! What the loop lends to each client while it handles it: the setup, the counts, the ledger and
//! the buffers that all clients share, since only one is handled at a time.

use plan::{FanOut, Tempo, Ways};

use crate::client::Wills;
use crate::host::Host;
use crate::ledger::Ledger;
use crate::lifetimes::Lifetimes;
use crate::setup::Setup;
use crate::stalls::Stalls;
use crate::tally::Tally;

/// Bytes read from a socket at once.
const READ_BYTES: usize = 64 * 1024;

/// The loop's state that clients read and change.
pub struct Shared {
    /// The plan made ready.
    pub setup: Setup,
    /// Counts since the last snapshot.
    pub tally: Tally,
    /// What receivers have had.
    pub ledger: Ledger,
    /// The machine that the engine runs on.
    pub host: Host,
    /// The instant of what is being handled, in nanoseconds.
    pub now_ns: u64,
    /// The publish stage, if one is on.
    pub publishing: Option<Publishing>,
    /// How many clients of each population are there, over all agents: those with the lowest
    /// indices.
    pub present: Vec<u32>,
    /// Which populations are owed what is published in this stage; the others change in it, and
    /// are owed what they receive.
    pub judged: Vec<bool>,
    /// How long clients stay.
    pub lifetimes: Lifetimes,
    /// Who got what when.
    pub stalls: Stalls,
    /// Clients whose connection is under way.
    pub underway: u32,
    /// Clients whose DISCONNECT waits for room.
    pub leaving: u32,
    /// Clients that read on in the next turn of the loop.
    pub again: Vec<u32>,
    /// Clients of each population that have given up.
    pub gave_up: Vec<u32>,
    /// Bytes to write; empty between two clients.
    pub out: Vec<u8>,
    /// The text of a payload while its message is written.
    pub text: Vec<u8>,
    /// Where sockets are read to.
    pub read_buffer: Vec<u8>,
    /// Who ought to receive what.
    pub receivers: Receivers,
    /// Wills of clients that ended their connections.
    pub wills: Wills,
}

/// A publish stage.
pub struct Publishing {
    /// When it began, in nanoseconds.
    pub start_ns: u64,
    /// Messages are due before this instant, in nanoseconds.
    pub end_ns: u64,
    /// Messages due at or after this instant wait for a change that has not begun, in nanoseconds;
    /// `u64::MAX` if there is none.
    pub horizon_ns: u64,
    /// Which populations publish.
    pub populations: Vec<bool>,
    /// How the schedule of each population runs.
    pub tempos: Vec<Tempo>,
    /// From when on those clients of each population are there that are said to be, in nanoseconds.
    pub complete_ns: Vec<u64>,
    /// Programs other than engines publish too: the conductor knows when they are done, and closes
    /// the stage.
    pub waits: bool,
}

/// The fan-out, with its last answer: most clients publish to few topics.
pub struct Receivers {
    fan_out: FanOut,
    /// Clients of each population that receive.
    clients: Vec<u32>,
    /// Topic, target and, if it sets the bridge bit, publisher that `deliveries` are for.
    topic: String,
    target: usize,
    bridge: Option<(usize, u32)>,
    deliveries: Vec<u64>,
}

impl Shared {
    /// State at the start, before any stage.
    pub fn new(setup: Setup, host: Host) -> Self {
        let now_ns = host.now_ns();
        let populations = setup.populations.len();
        Self {
            tally: Tally::new(populations, setup.targets.len(), now_ns),
            ledger: Ledger::default(),
            host,
            now_ns,
            publishing: None,
            present: vec![0; populations],
            judged: vec![true; populations],
            lifetimes: Lifetimes::new(&setup),
            stalls: Stalls::new(&setup),
            underway: 0,
            leaving: 0,
            again: Vec::new(),
            gave_up: vec![0; populations],
            out: Vec::new(),
            text: Vec::new(),
            read_buffer: vec![0; READ_BYTES],
            receivers: Receivers::new(FanOut::new(&setup.plan)),
            wills: Wills::default(),
            setup,
        }
    }

    /// Begins a stage with the clients that are there. A persistent session is owed what comes
    /// while its client is away; who comes and goes by itself is owed what it receives.
    pub fn begin_receiving(&mut self) {
        for (p, population) in self.setup.plan.populations.iter().enumerate() {
            let kept = if population.clean_session { 0 } else { self.receivers.clients[p] };
            self.receivers.set_clients(p, self.present[p].max(kept));
        }
        self.judged.fill(true);
        self.tally.begin_stage();
        self.stalls.begin_stage();
        for population in 0..self.judged.len() {
            if self.setup.plan.populations[population].lifetime.is_some() {
                self.stop_judging(population);
            }
        }
    }

    /// From here to the end of the stage a population is owed what it receives: it changes, so
    /// nobody can say what it ought to have had.
    pub fn stop_judging(&mut self, population: usize) {
        if std::mem::replace(&mut self.judged[population], false) {
            self.tally.owe_received(population);
        }
    }

    /// Version that a population speaks.
    pub fn version(&self, population: usize) -> mqtt::Version {
        wire_version(self.setup.plan.populations[population].version)
    }
}

/// The codec's version for the plan's.
pub const fn wire_version(version: plan::Version) -> mqtt::Version {
    match version {
        plan::Version::Mqtt311 | plan::Version::Zmtp31 => mqtt::Version::V311,
    }
}

impl Publishing {
    /// The instants of a population's schedule before this one lie before `until_ns`.
    pub fn schedule_before(&self, population: usize, until_ns: u64) -> u64 {
        self.tempos[population].schedule_before(until_ns.saturating_sub(self.start_ns))
    }

    /// How far the schedule of a population has gone from one instant to another, while its clients
    /// were there; all in nanoseconds.
    pub fn passed_ns(&self, population: usize, since_ns: u64, until_ns: u64) -> u64 {
        if !self.populations[population] {
            return 0;
        }
        let since_ns = since_ns.max(self.complete_ns[population]);
        let after = |ns: u64| ns.min(self.end_ns).saturating_sub(self.start_ns);
        let passed = |ns| self.tempos[population].schedule_ns(after(ns));
        passed(until_ns).saturating_sub(passed(since_ns))
    }
}

impl Receivers {
    fn new(fan_out: FanOut) -> Self {
        let clients = vec![0; fan_out.populations()];
        let mut receivers = Self {
            fan_out,
            clients,
            topic: String::new(),
            target: 0,
            bridge: None,
            deliveries: Vec::new(),
        };
        (0..receivers.clients.len()).for_each(|p| receivers.set_clients(p, 0));
        receivers
    }

    fn set_clients(&mut self, population: usize, clients: u32) {
        self.clients[population] = clients;
        self.fan_out.set_receivers(population, clients);
        self.deliveries.clear();
    }

    /// Deliveries to each population of one message on `topic`, published at `target`; its
    /// publisher is named if it sets the bridge bit.
    pub fn deliveries(
        &mut self,
        topic: &str,
        target: usize,
        bridge: Option<(usize, u32)>,
    ) -> &[u64] {
        let same = self.target == target && self.bridge == bridge && self.topic == topic;
        if self.deliveries.is_empty() || !same {
            topic.clone_into(&mut self.topic);
            (self.target, self.bridge) = (target, bridge);
            self.fan_out.deliveries(topic, target, bridge, &mut self.deliveries);
        }
        &self.deliveries
    }

    /// The ways in which a client may get a message on `topic`.
    pub fn ways(&self, population: usize, client: u32, topic: &str) -> Ways {
        let has_groups = self.fan_out.has_groups(population);
        if has_groups { self.fan_out.ways(population, client, topic) } else { Ways::ONE }
    }

    /// Deliveries to each population of one message of ZeroMQ, as [`FanOut::frame_deliveries`].
    pub fn frame_deliveries(&mut self, topic: &str, target: usize) -> &[u64] {
        // They answer another question than `deliveries` remembers.
        self.topic.clear();
        self.fan_out.frame_deliveries(topic, target, &mut self.deliveries);
        &self.deliveries
    }
}
