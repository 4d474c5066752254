//! What the loop lends to each client while it handles it: the setup, the counts, the ledger and
//! the buffers that all clients share, since only one is handled at a time.

use mio::Registry;
use plan::FanOut;

use crate::ledger::Ledger;
use crate::setup::Setup;
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
    /// Where sockets are registered.
    pub registry: Registry,
    /// The instant of what is being handled, in nanoseconds.
    pub now_ns: u64,
    /// The publish stage, if one is on.
    pub publishing: Option<Publishing>,
    /// Which populations are owed what is published now.
    pub receiving: Vec<bool>,
    /// Clients whose connection is under way.
    pub underway: u32,
    /// Clients of each population that have given up.
    pub gave_up: Vec<u32>,
    /// Bytes to write; empty between two clients.
    pub out: Vec<u8>,
    /// Where sockets are read to.
    pub read_buffer: Vec<u8>,
    /// The last answer of the fan-out.
    pub fan_out_cache: FanOutCache,
}

/// A publish stage.
pub struct Publishing {
    /// When it began, in nanoseconds.
    pub start_ns: u64,
    /// Messages are due before this instant, in nanoseconds.
    pub end_ns: u64,
    /// Which populations publish.
    pub populations: Vec<bool>,
}

/// Remembers the receivers of one topic: most clients publish to few.
#[derive(Default)]
pub struct FanOutCache {
    topic: String,
    target: usize,
    deliveries: Vec<u64>,
}

impl Shared {
    /// State at the start, before any stage.
    pub fn new(setup: Setup, registry: Registry, now_ns: u64) -> Self {
        let populations = setup.populations.len();
        Self {
            tally: Tally::new(populations, now_ns),
            ledger: Ledger::default(),
            registry,
            now_ns,
            publishing: None,
            receiving: vec![false; populations],
            underway: 0,
            gave_up: vec![0; populations],
            out: Vec::new(),
            read_buffer: vec![0; READ_BYTES],
            fan_out_cache: FanOutCache::default(),
            setup,
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
        plan::Version::Mqtt311 => mqtt::Version::V311,
    }
}

impl FanOutCache {
    /// Deliveries to each population of one message on `topic`, published at `target`.
    pub fn deliveries(&mut self, fan_out: &FanOut, topic: &str, target: usize) -> &[u64] {
        if self.deliveries.is_empty() || self.target != target || self.topic != topic {
            topic.clone_into(&mut self.topic);
            self.target = target;
            self.deliveries.clear();
            let counts = (0..fan_out.populations()).map(|p| fan_out.deliveries(p, topic, target));
            self.deliveries.extend(counts);
        }
        &self.deliveries
    }
}
