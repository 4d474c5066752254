//! State that the loop lends to each client while the loop handles that client: the setup, the
//! counters, the ledger and the buffers. Only one client is handled at a time.

use std::net::SocketAddr;

use agent::ledger::Ledger;
use agent::tally::{AddressCounts, Tally};
use plan::{Population, Random};

use crate::expectations::Expectations;
use crate::expectations::retained::RetainedMessages;
use crate::expectations::returned::Returned;
use crate::expectations::stalls::Stalls;
use crate::host::Host;
use crate::ledger::run::DeliveryRun;
use crate::outboxes::Outboxes;
use crate::rounds::Rounds;
use crate::schedule::flaps::Flaps;
use crate::schedule::lifetimes::Lifetimes;
use crate::schedule::publishing::Publishing;
use crate::seam::{Exchanges, Scratch};
use crate::setup::Setup;
use crate::sparkplug::SparkplugClients;
use crate::transport::{Framing, Silent};

/// Purpose of the random values in frames.
const FRAMING: u64 = 0xf4a3;
/// Bytes read from a socket at once.
const READ_BYTES: usize = 64 * 1024;

/// State of the loop that clients read and change.
pub struct Context {
    /// The plan prepared for this agent.
    pub setup: Setup,
    /// Counters since the last snapshot.
    pub tally: Tally,
    /// Messages that receivers have received.
    pub ledger: Ledger,
    /// Memory for deliveries of one stream in one read.
    pub run: DeliveryRun,
    /// The machine that the engine runs on.
    pub host: Host,
    /// The instant that is being handled, in nanoseconds.
    pub now_ns: u64,
    /// The current publish stage, if there is one.
    pub publishing: Option<Publishing>,
    /// Deliveries that subscribers must receive.
    pub expectations: Expectations,
    /// Messages that the broker has kept, or forwards with the RETAIN flag of their publisher.
    pub retained: RetainedMessages,
    /// Returns of clients to their sessions.
    pub returned: Returned,
    /// Session lifetimes.
    pub lifetimes: Lifetimes,
    /// Flapping subscriptions.
    pub flaps: Flaps,
    /// Last deliveries, for stall detection.
    pub stalls: Stalls,
    /// Addresses of attempts to connect.
    pub rounds: Rounds,
    /// Some clients of this agent have a link.
    pub has_links: bool,
    /// A client of this agent has migrated.
    pub has_migrations: bool,
    /// Clients whose connection is under way, without those that return after a session lifetime.
    pub underway: u32,
    /// Clients whose DISCONNECT waits for room.
    pub leaving: u32,
    /// Clients that have another time slice for reading in the next turn of the loop.
    pub again: Vec<u32>,
    /// Clients of each population that have given up.
    pub gave_up: Vec<u32>,
    /// Bytes to write; empty between two clients.
    pub out: Vec<u8>,
    /// Parts of a packet while the packet is encoded.
    pub scratch: Scratch,
    /// Authentications that wait for a salted password, or for the proof of a broker.
    pub exchanges: Exchanges,
    /// State of all WebSockets.
    pub framing: Framing,
    /// Answers of QoS 1 and 2.
    pub outboxes: Outboxes,
    /// Sparkplug B of the clients that play it.
    pub sparkplug: SparkplugClients,
    /// Connections of clients that have vanished.
    pub silent: Silent,
    /// Buffer for bytes from sockets.
    pub read_buffer: Vec<u8>,
}

impl Context {
    /// State before the first stage.
    pub fn new(setup: Setup, host: Host) -> Self {
        let now_ns = host.now_ns();
        let populations = setup.populations.len();
        let mut tally = Tally::new(populations, setup.addresses.len(), now_ns);
        let named = setup.plan.targets.iter().zip(&setup.addresses).map(|(target, addresses)| {
            let counted = addresses.iter().filter(|_| target.is_named());
            counted.map(SocketAddr::ip).collect()
        });
        tally.addresses = AddressCounts::new(named);
        if setup.plan.populations.iter().any(Population::compares_clients) {
            tally.count_deliveries_of(setup.clients());
        }
        let is_real = host.is_real();
        if !is_real {
            tally.ignore_usage();
        }
        let agent = u64::from(setup.shard.index());
        let seed = Random::new(setup.plan.seed, FRAMING).of(agent).bits();
        Self {
            tally,
            ledger: Ledger::default(),
            run: DeliveryRun::NONE,
            host,
            now_ns,
            publishing: None,
            expectations: Expectations::new(&setup),
            retained: RetainedMessages::new(&setup),
            returned: Returned::new(&setup),
            lifetimes: Lifetimes::new(&setup),
            flaps: Flaps::new(&setup),
            stalls: Stalls::new(&setup),
            rounds: Rounds::new(&setup),
            has_migrations: false,
            has_links: setup.populations.iter().any(|own| own.link.is_some()),
            underway: 0,
            leaving: 0,
            again: Vec::new(),
            gave_up: vec![0; populations],
            out: Vec::new(),
            scratch: Scratch::default(),
            exchanges: Exchanges::new(is_real),
            framing: Framing::new(seed),
            outboxes: Outboxes::default(),
            sparkplug: SparkplugClients::new(&setup),
            silent: Silent::new(setup.clients()),
            read_buffer: vec![0; READ_BYTES],
            setup,
        }
    }

    /// Counts the clients of each population by their deliveries in a publish stage that ends.
    pub fn count_by_deliveries(&mut self) {
        if self.publishing.is_none() {
            return;
        }
        for (index, population) in self.setup.plan.populations.iter().enumerate() {
            let counts = &self.expectations;
            if population.compares_clients()
                && counts.counts_loss(index)
                && counts.expects_alike(index)
            {
                let first = self.setup.populations[index].first_client;
                let clients = self.setup.share(index, self.expectations.receivers_of(index));
                self.tally.count_by_deliveries(index, first..first + clients);
            }
        }
    }

    /// Takes the stage `index`, which comes next and begins at `start_ns`.
    pub fn announce_stage(&mut self, (index, start_ns): (usize, u64)) {
        self.expectations.announce_stage(&self.setup.plan, (index, start_ns));
    }

    /// Begins stage `index`, in which the populations `leaving` disconnect.
    pub fn begin_stage(&mut self, index: usize, leaving: &[usize]) {
        let (setup, tally) = (&self.setup, &mut self.tally);
        self.expectations.begin_stage(setup, index, leaving, tally);
        self.stalls.begin_stage();
    }

    /// Counts clients as offline whose connections were taken over: they were ready once.
    pub fn note_takeovers(&mut self) {
        for (index, own) in self.setup.populations.iter().enumerate() {
            let arrived = own.rival.and_then(|_| self.lifetimes.arrived(index));
            if let Some(arrived) = arrived {
                let gauges = &mut self.tally.populations[index].gauges;
                gauges.offline = u64::from(arrived).saturating_sub(gauges.ready);
            }
        }
    }

    /// Expects the deliveries of all wills that are due.
    pub fn expect_due_wills(&mut self) {
        self.expectations.expect_due_wills(&self.setup, &mut self.tally, self.now_ns);
    }

    /// Sets expected = received for a population, up to the end of the stage.
    pub fn exclude_from_loss(&mut self, population: usize) {
        self.expectations.exclude_from_loss(population, &mut self.tally);
    }
}
