//! Numbers of messages of a publish stage: the part of each client, and the messages that the
//! clients of this agent have left to send.

use plan::quota;

use crate::setup::Setup;

/// Numbers of messages of a publish stage.
pub struct Quotas {
    /// Messages of each population, and its active clients at the start of the stage.
    populations: Vec<(u64, u32)>,
    /// Messages that clients of this agent have left to send.
    left: u64,
}

impl Quotas {
    /// The numbers of a stage that begins: `messages` of each of its `populations`.
    pub fn new(setup: &Setup, populations: &[usize], messages: &[u64], active: &[u32]) -> Self {
        let mut quotas = Self { populations: vec![(0, 0); active.len()], left: 0 };
        for (&population, &messages) in populations.iter().zip(messages) {
            quotas.populations[population] = (messages, active[population]);
            let own = 0..setup.share(population, active[population]);
            let of = |local| quotas.of(population, setup.shard.global(local));
            quotas.left += own.map(of).sum::<u64>();
        }
        quotas
    }

    /// Messages of a client, which has this index over all agents: as many as those of the others,
    /// or one more. Clients that were not active at the start of the stage have none.
    #[inline]
    pub fn of(&self, population: usize, client: u32) -> u64 {
        let (messages, clients) = self.populations[population];
        quota(messages, clients, client)
    }

    /// Counts messages that a client has sent.
    #[inline]
    pub const fn note_sent(&mut self, messages: u64) {
        self.left = self.left.saturating_sub(messages);
    }

    /// Returns `true` if the clients of this agent have sent all their messages.
    pub const fn are_met(&self) -> bool {
        self.left == 0
    }
}
