//! Instants at which clients returned to sessions that their broker had kept. A message that was
//! sent earlier waited in the queue of its receiver.

use crate::setup::Setup;

/// Instants of the last return of clients whose sessions outlast their connections.
pub struct Returned {
    /// Instants of the clients of each population in this agent, in nanoseconds; 0 in a new
    /// session. Empty for populations whose sessions end with their connections.
    returned_ns: Vec<Box<[u64]>>,
}

impl Returned {
    /// State before the first connection.
    pub fn new(setup: &Setup) -> Self {
        let populations = setup.plan.populations.iter().zip(&setup.populations);
        let instants = populations.map(|(population, own)| {
            let clients = if population.keeps_session() { own.share } else { 0 };
            vec![0; clients as usize].into()
        });
        Self { returned_ns: instants.collect() }
    }

    /// Notes that the broker has accepted a client at `now_ns`, and if it has kept its session.
    pub fn note_accepted(&mut self, population: usize, local: u32, now_ns: u64, resumed: bool) {
        if let Some(instant) = self.returned_ns[population].get_mut(local as usize) {
            *instant = if resumed { now_ns } else { 0 };
        }
    }

    /// Instant in nanoseconds before which the messages were sent that a client receives from its
    /// queue; 0: it has none.
    #[inline]
    pub fn queued_before_ns(&self, population: usize, local: u32) -> u64 {
        self.returned_ns[population].get(local as usize).copied().unwrap_or(0)
    }
}
