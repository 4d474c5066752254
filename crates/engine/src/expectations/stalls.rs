//! Stall detection: subscribers that receive nothing although messages are scheduled for them. The
//! plan says how many messages are scheduled. The check runs with each snapshot; a delivery costs
//! one write of four bytes.

use plan::{Arrivals, PopulationSnapshot, Publishers, Snapshot, Stall};
use rustc_hash::FxHashMap;

use crate::schedule::publishing::Publishing;
use crate::setup::Setup;

/// A tick of the clock of this file as a power of two: 1.05 ms; 32 bits wrap after 52 days.
const TICK_SHIFT: u32 = 20;
/// Scheduled messages below which a subscriber has not stalled: one may be late, and the mean of
/// two may be one.
const SCHEDULED_MIN: f64 = 3.0;
/// Quiet subscribers whose scheduled messages are counted with one snapshot at most, in turn. The
/// count takes a few milliseconds: about 0.5 µs for each filter and each publication of the plan.
const COUNTED_MAX: usize = 4096;

/// Last deliveries of all clients, and the stalled ones.
pub struct Stalls {
    /// Time without a delivery after which a subscriber has stalled; `None`: no detection.
    stall_ns: Option<u64>,
    /// For each client the tick of its last delivery, or at which the first delivery became
    /// possible; empty without detection.
    received: Vec<u32>,
    arrivals: Arrivals,
    /// Ready fraction of each population in this agent, as the estimate for all agents.
    ready_shares: Vec<f64>,
    /// The client that the next check begins with.
    next: usize,
    /// Stalled clients, and their last delivery.
    stalled: FxHashMap<u32, Quiet>,
    /// Stalls that the next snapshot reports.
    reports: Vec<Stall>,
    /// Detection of new stalls is off for this stage.
    suspended: bool,
}

/// Time without a delivery.
#[derive(Clone, Copy)]
struct Quiet {
    /// Tick of the last delivery.
    received: u32,
    since_ns: u64,
    /// Messages scheduled since then.
    scheduled: f64,
}

/// State of the run that a check reads.
pub struct Scene<'a> {
    /// The plan prepared for this agent.
    pub setup: &'a Setup,
    /// The publish stage, unless it is closed.
    pub publishing: Option<&'a Publishing>,
    /// Active clients of each population, over all agents.
    pub active: &'a [u32],
    /// Instant of the check, in nanoseconds.
    pub now_ns: u64,
}

/// A client that a check looks at.
#[derive(Clone, Copy)]
pub struct Watched {
    /// Index of its population.
    pub population: usize,
    /// Its local index in the population.
    pub local: u32,
    /// `true` if the client is ready, subscribed and reads.
    pub reads: bool,
}

impl Stalls {
    /// Detection before the first delivery.
    pub fn new(setup: &Setup) -> Self {
        let stall_ns = setup.plan.stall_ns;
        let watched = if stall_ns.is_some() { setup.clients() } else { 0 };
        Self {
            stall_ns,
            received: vec![0; watched],
            arrivals: Arrivals::new(&setup.plan),
            ready_shares: Vec::new(),
            next: 0,
            stalled: FxHashMap::default(),
            reports: Vec::new(),
            suspended: false,
        }
    }

    /// Notes a delivery to a client.
    #[inline]
    pub fn note_delivery(&mut self, client: u32, now_ns: u64) {
        if let Some(received) = self.received.get_mut(client as usize) {
            *received = (now_ns >> TICK_SHIFT) as u32;
        }
    }

    /// Notes that a client can receive from now on. A stalled client stays stalled until it
    /// receives a message.
    pub fn begin(&mut self, client: u32, now_ns: u64) {
        if !self.stalled.contains_key(&client) {
            self.note_delivery(client, now_ns);
        }
    }

    /// Detects stalls again.
    pub const fn begin_stage(&mut self) {
        self.suspended = false;
    }

    /// Turns detection off for the rest of the stage: the number of scheduled messages is unknown.
    pub const fn suspend(&mut self) {
        self.suspended = true;
    }

    /// Forgets a client that has left. Returns `true` if the client had stalled.
    pub fn forget(&mut self, client: u32) -> bool {
        self.stalled.remove(&client).is_some()
    }

    /// Takes the stalls that began or ended since the last call.
    pub fn take(&mut self) -> Vec<Stall> {
        std::mem::take(&mut self.reports)
    }

    /// Detects stalls that have begun or ended, and counts them. `client` gives a client of this
    /// agent by its index.
    pub fn check(
        &mut self,
        scene: &Scene<'_>,
        tallies: &mut [PopulationSnapshot],
        client: impl Fn(usize) -> Watched,
    ) {
        let Some(stall_ns) = self.stall_ns else { return };
        self.ready_shares.clear();
        self.ready_shares.extend(tallies.iter().enumerate().map(|(population, tally)| {
            let share = scene.setup.share(population, scene.active[population]);
            if share == 0 { 1.0 } else { tally.gauges.ready as f64 / f64::from(share) }
        }));
        self.note_ends(scene, tallies, &client);
        let Some(publishing) = scene.publishing.filter(|_| !self.suspended) else { return };
        let mut counted = 0;
        for step in 0..self.received.len() {
            let index = (self.next + step) % self.received.len();
            let since_ns = self.received_ns(index, scene.now_ns).max(publishing.start_ns);
            let watched = client(index);
            if scene.now_ns.saturating_sub(since_ns) < stall_ns || !self.can_stall(watched, index) {
                continue;
            }
            if counted == COUNTED_MAX {
                self.next = index;
                return;
            }
            counted += 1;
            let scheduled = self.scheduled(scene, watched, since_ns, scene.now_ns);
            if scheduled >= SCHEDULED_MIN {
                let quiet = Quiet { received: self.received[index], since_ns, scheduled };
                self.stalled.insert(index as u32, quiet);
                let tally = &mut tallies[watched.population];
                tally.counters.stalled_total += 1;
                tally.gauges.stalled += 1;
                self.report(scene, watched, quiet, None);
            }
        }
    }

    fn can_stall(&self, watched: Watched, index: usize) -> bool {
        watched.reads
            && self.arrivals.may_come(watched.population)
            && !self.stalled.contains_key(&(index as u32))
    }

    /// Ends the stalls of clients that have received a message.
    fn note_ends(
        &mut self,
        scene: &Scene<'_>,
        tallies: &mut [PopulationSnapshot],
        client: impl Fn(usize) -> Watched,
    ) {
        let has_received = |(&client, quiet): (&u32, &Quiet)| {
            (self.received[client as usize] != quiet.received).then_some((client, *quiet))
        };
        let ended: Vec<(u32, Quiet)> = self.stalled.iter().filter_map(has_received).collect();
        for (index, quiet) in ended {
            self.stalled.remove(&index);
            let watched = client(index as usize);
            tallies[watched.population].gauges.stalled -= 1;
            let until_ns = self.received_ns(index as usize, scene.now_ns);
            let scheduled = self.scheduled(scene, watched, quiet.since_ns, until_ns);
            let quiet = Quiet { scheduled: scheduled.max(quiet.scheduled), ..quiet };
            self.report(scene, watched, quiet, Some(until_ns));
        }
    }

    /// Messages scheduled for a client in a span of a publish stage, in nanoseconds.
    fn scheduled(&self, scene: &Scene<'_>, to: Watched, since_ns: u64, until_ns: u64) -> f64 {
        let Some(publishing) = scene.publishing else { return 0.0 };
        let global = scene.setup.shard.global(to.local);
        self.arrivals.due(to.population, global, |population| Publishers {
            clients: scene.active[population],
            schedule_ns: publishing.passed_ns(population, since_ns, until_ns) as f64
                * self.ready_shares[population].min(1.0),
        })
    }

    fn report(&mut self, scene: &Scene<'_>, watched: Watched, quiet: Quiet, until_ns: Option<u64>) {
        if self.reports.len() >= Snapshot::STALLS_MAX {
            return;
        }
        let first = scene.setup.plan.populations[watched.population].first;
        self.reports.push(Stall {
            population: watched.population,
            number: first + u64::from(scene.setup.shard.global(watched.local)),
            since_ns: quiet.since_ns,
            until_ns,
            due: quiet.scheduled as u64,
        });
    }

    /// Instant of a client's last delivery, in nanoseconds, as seen at `now_ns`.
    fn received_ns(&self, client: usize, now_ns: u64) -> u64 {
        let tick = now_ns >> TICK_SHIFT;
        let ago = (tick as u32).wrapping_sub(self.received[client]);
        tick.saturating_sub(u64::from(ago)) << TICK_SHIFT
    }
}
