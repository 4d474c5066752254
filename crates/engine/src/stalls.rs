//! Subscribers that get nothing for a while though messages are due to them: when each last got
//! something, and who of those that are quiet has stalled. How much is due says the plan. It
//! decides with each snapshot, and costs a message one write of four bytes.

use plan::{Arrivals, PopulationSnapshot, Publishers, Snapshot, Stall};
use rustc_hash::FxHashMap;

use crate::client::{Client, Phase};
use crate::setup::Setup;
use crate::shared::Publishing;

/// A tick of the clock of this file as a power of two: 1.05 ms; 32 bits go round in 52 days.
const TICK_SHIFT: u32 = 20;
/// Messages that must have been due: one may be late, and the mean of two may be one.
const DUE_MIN: f64 = 3.0;
/// Quiet subscribers whose due messages are counted with one snapshot at most, in turn, so that it
/// takes the loop a few milliseconds: about 0.5 µs for each of their filters and the publications
/// of the plan.
const COUNTED_MAX: usize = 4096;

/// Who has got what when.
pub struct Stalls {
    /// `None`: nobody looks.
    stall_ns: Option<u64>,
    /// For each client the tick at which it last got something, or could first have; empty where
    /// nobody looks.
    heard: Vec<u32>,
    arrivals: Arrivals,
    /// Which share of this agent's clients of each population is ready: nobody else knows who of
    /// the publishers goes on.
    going: Vec<f64>,
    /// Whose due messages are counted next.
    next: usize,
    /// Those that have stalled and had nothing since, by client.
    stalled: FxHashMap<u32, Quiet>,
    told: Vec<Stall>,
    /// Nobody is found to have stalled in this stage.
    excused: bool,
}

/// Since when a client has had nothing.
#[derive(Clone, Copy)]
struct Quiet {
    /// What `heard` said then.
    heard: u32,
    since_ns: u64,
    due: f64,
}

/// What one looks at.
pub struct Scene<'a> {
    /// The plan made ready.
    pub setup: &'a Setup,
    /// All clients of this agent.
    pub clients: &'a [Client],
    /// The publish stage, while it is on.
    pub publishing: Option<&'a Publishing>,
    /// How many clients of each population are there, over all agents.
    pub present: &'a [u32],
    /// The instant, in nanoseconds.
    pub now_ns: u64,
}

impl Stalls {
    /// Nobody has had anything yet.
    pub fn new(setup: &Setup) -> Self {
        let stall_ns = setup.plan.stall_ns;
        let watched = if stall_ns.is_some() { setup.clients() } else { 0 };
        Self {
            stall_ns,
            heard: vec![0; watched],
            arrivals: Arrivals::new(&setup.plan),
            going: Vec::new(),
            next: 0,
            stalled: FxHashMap::default(),
            told: Vec::new(),
            excused: false,
        }
    }

    /// A client has got something.
    #[inline]
    pub fn hear(&mut self, client: u32, now_ns: u64) {
        if let Some(heard) = self.heard.get_mut(client as usize) {
            *heard = (now_ns >> TICK_SHIFT) as u32;
        }
    }

    /// A client can get something from here on. Who had stalled before has not gone on by that.
    pub fn begin(&mut self, client: u32, now_ns: u64) {
        if !self.stalled.contains_key(&client) {
            self.hear(client, now_ns);
        }
    }

    /// Looks again from the next stage on.
    pub const fn begin_stage(&mut self) {
        self.excused = false;
    }

    /// In this stage nobody knows any more what is due: who is quiet has not stalled by that.
    pub const fn excuse(&mut self) {
        self.excused = true;
    }

    /// A client has gone; whether it had stalled.
    pub fn forget(&mut self, client: u32) -> bool {
        self.stalled.remove(&client).is_some()
    }

    /// What there is to tell since the last call.
    pub fn take(&mut self) -> Vec<Stall> {
        std::mem::take(&mut self.told)
    }

    /// Notes who goes on and who has stalled, and counts them.
    pub fn look(&mut self, scene: &Scene<'_>, tallies: &mut [PopulationSnapshot]) {
        let Some(stall_ns) = self.stall_ns else { return };
        self.going.clear();
        self.going.extend(tallies.iter().enumerate().map(|(population, tally)| {
            let share = scene.setup.share(population, scene.present[population]);
            if share == 0 { 1.0 } else { tally.gauges.ready as f64 / f64::from(share) }
        }));
        self.note_ends(scene, tallies);
        let Some(publishing) = scene.publishing.filter(|_| !self.excused) else { return };
        let clients = scene.clients;
        let mut counted = 0;
        for step in 0..clients.len() {
            let index = (self.next + step) % clients.len();
            let client = &clients[index];
            let since_ns = self.heard_ns(index, scene.now_ns).max(publishing.start_ns);
            if scene.now_ns.saturating_sub(since_ns) < stall_ns || !self.is_watched(client, index) {
                continue;
            }
            if counted == COUNTED_MAX {
                self.next = index;
                return;
            }
            counted += 1;
            let due = self.due(scene, client, since_ns, scene.now_ns);
            if due >= DUE_MIN {
                let quiet = Quiet { heard: self.heard[index], since_ns, due };
                self.stalled.insert(index as u32, quiet);
                let tally = &mut tallies[client.population()];
                tally.counters.stalled_total += 1;
                tally.gauges.stalled += 1;
                self.tell(scene, client, quiet, None);
            }
        }
    }

    /// Whether a client ought to get what is due to it, and has not stalled already.
    fn is_watched(&self, client: &Client, index: usize) -> bool {
        client.phase() == Phase::Ready
            && !client.is_paused()
            && self.arrivals.may_come(client.population())
            && !self.stalled.contains_key(&(index as u32))
    }

    /// Notes who has had something again.
    fn note_ends(&mut self, scene: &Scene<'_>, tallies: &mut [PopulationSnapshot]) {
        let goes_on = |(&client, quiet): (&u32, &Quiet)| {
            (self.heard[client as usize] != quiet.heard).then_some((client, *quiet))
        };
        let ended: Vec<(u32, Quiet)> = self.stalled.iter().filter_map(goes_on).collect();
        for (index, quiet) in ended {
            self.stalled.remove(&index);
            let client = &scene.clients[index as usize];
            tallies[client.population()].gauges.stalled -= 1;
            let until_ns = self.heard_ns(index as usize, scene.now_ns);
            let due = self.due(scene, client, quiet.since_ns, until_ns).max(quiet.due);
            self.tell(scene, client, Quiet { due, ..quiet }, Some(until_ns));
        }
    }

    /// Messages that were due to a client in a span of a publish stage, in nanoseconds.
    fn due(&self, scene: &Scene<'_>, client: &Client, since_ns: u64, until_ns: u64) -> f64 {
        let Some(publishing) = scene.publishing else { return 0.0 };
        let global = scene.setup.shard.global(client.local());
        self.arrivals.due(client.population(), global, |population| Publishers {
            clients: scene.present[population],
            schedule_ns: publishing.passed_ns(population, since_ns, until_ns) as f64
                * self.going[population].min(1.0),
        })
    }

    fn tell(&mut self, scene: &Scene<'_>, client: &Client, quiet: Quiet, until_ns: Option<u64>) {
        if self.told.len() >= Snapshot::STALLS_MAX {
            return;
        }
        let population = client.population();
        let first = scene.setup.plan.populations[population].first;
        self.told.push(Stall {
            population,
            number: first + u64::from(scene.setup.shard.global(client.local())),
            since_ns: quiet.since_ns,
            until_ns,
            due: quiet.due as u64,
        });
    }

    /// When a client has last got something, as one sees it at `now_ns`.
    fn heard_ns(&self, client: usize, now_ns: u64) -> u64 {
        let tick = now_ns >> TICK_SHIFT;
        let ago = (tick as u32).wrapping_sub(self.heard[client]);
        tick.saturating_sub(u64::from(ago)) << TICK_SHIFT
    }
}
