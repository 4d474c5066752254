//! The address of each attempt to connect. An attempt uses one address, and no two attempts of a
//! client run at once.

use plan::{AddressOrder, AddressUse, Random, Reason};

use crate::setup::Setup;

/// Separates these draws from the draws of schedules, targets and orders.
const ADDRESS_DRAWS: u64 = 0xadd2;

/// The address of each client's attempt to connect. Empty if every target has one address.
pub struct Rounds {
    rule: AddressUse,
    seed: u64,
    /// One for each client of this agent.
    clients: Vec<Attempts>,
}

/// A client's attempts since the last one that was not a failover.
#[derive(Clone, Copy)]
struct Attempts {
    /// Place of the address among those of the target.
    place: u8,
    /// Addresses that have failed in this round.
    failed: u8,
}

impl Rounds {
    /// Rounds before the first attempt.
    pub fn new(setup: &Setup) -> Self {
        let alone = AddressUse { order: AddressOrder::First, failover: false };
        let rule = setup.plan.addresses.unwrap_or(alone);
        let has_several = setup.addresses.iter().any(|addresses| addresses.len() > 1);
        let mut clients = Vec::new();
        for (p, population) in setup.populations.iter().enumerate().filter(|_| has_several) {
            clients.extend((0..population.share).map(|local| {
                let client = setup.shard.global(local);
                let count = setup.addresses[setup.target(p, client)].len();
                let turn = client as usize / setup.plan.populations[p].at.count;
                // The first attempt uses the next place.
                Attempts { place: ((turn + count - 1) % count) as u8, failed: 0 }
            }));
        }
        Self { rule, seed: setup.plan.seed, clients }
    }

    /// Chooses the address of a client's next attempt, of `count` addresses of its target.
    pub fn begin(&mut self, client: u32, count: usize, now_ns: u64) {
        let Some(round) = self.clients.get_mut(client as usize) else { return };
        let next = (usize::from(round.place) + 1) % count;
        let place = match self.rule.order {
            _ if round.failed > 0 => next,
            AddressOrder::First => 0,
            AddressOrder::InTurn => next,
            AddressOrder::Random => {
                let random = Random::new(self.seed ^ ADDRESS_DRAWS, u64::from(client));
                (random.of(now_ns).unit() * count as f64) as usize
            }
        };
        round.place = place.min(count - 1) as u8;
    }

    /// Place of the address of a client's attempt among those of its target.
    pub fn place(&self, client: u32) -> usize {
        self.clients.get(client as usize).map_or(0, |round| usize::from(round.place))
    }

    /// Notes that a client's attempt has ended with a reason. Returns `true` if the client tries
    /// the next address at once.
    pub fn fails_over(&mut self, client: u32, count: usize, reason: Reason) -> bool {
        let Some(round) = self.clients.get_mut(client as usize) else { return false };
        let failed = usize::from(round.failed) + 1;
        let continues = self.rule.failover && failed < count && is_unanswered(reason);
        round.failed = if continues { failed as u8 } else { 0 };
        continues
    }

    /// Notes that the peer has accepted a client.
    pub fn accepted(&mut self, client: u32) {
        if let Some(round) = self.clients.get_mut(client as usize) {
            round.failed = 0;
        }
    }
}

/// Returns `true` if no peer has answered at the address. A refusal by the broker is an answer, and
/// a host without ports has none for another address either.
const fn is_unanswered(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ConnectRefused
            | Reason::ConnectReset
            | Reason::ConnectClosed
            | Reason::ConnectTimeout
            | Reason::ConnectUnreachable
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::tests::named;
    use plan::Shard;

    /// Places of the attempts of client 1, each of which ends with a reason, or is accepted.
    fn places(rule: (AddressOrder, bool), ends: &[Option<Reason>]) -> Vec<(usize, bool)> {
        let setup = Setup::new(named(rule.0, rule.1), Shard::WHOLE, 0).unwrap();
        let mut rounds = Rounds::new(&setup);
        let attempt = |(now_ns, end): (usize, &Option<Reason>)| {
            rounds.begin(1, 3, now_ns as u64);
            let fails_over = end.is_some_and(|reason| rounds.fails_over(1, 3, reason));
            if end.is_none() {
                rounds.accepted(1);
            }
            (rounds.place(1), fails_over)
        };
        ends.iter().enumerate().map(attempt).collect()
    }

    #[test]
    fn a_client_tries_each_address_once_before_it_waits() {
        let (refused, full) = (Some(Reason::ConnectRefused), Some(Reason::NoPorts));
        let ends = [refused, refused, refused, refused, None, refused];
        let found = places((AddressOrder::First, true), &ends);
        assert_eq!(found, [(0, true), (1, true), (2, false), (0, true), (1, false), (0, true)]);
        let found = places((AddressOrder::InTurn, true), &ends);
        assert_eq!(found, [(1, true), (2, true), (0, false), (1, true), (2, false), (0, true)]);
        let found = places((AddressOrder::InTurn, false), &ends[..3]);
        assert_eq!(found, [(1, false), (2, false), (0, false)]);
        for answer in [full, Some(Reason::BadCredentials), Some(Reason::TlsRefused)] {
            let found = places((AddressOrder::First, true), &[answer, refused]);
            assert_eq!(found, [(0, false), (0, true)], "{answer:?}");
        }
    }

    #[test]
    fn attempts_at_random_use_all_addresses() {
        let found = places((AddressOrder::Random, false), &[Some(Reason::ConnectRefused); 40]);
        let places: std::collections::BTreeSet<_> = found.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [0, 1, 2].into());
    }

    #[test]
    fn clients_begin_with_different_addresses_in_turn() {
        let setup = Setup::new(named(AddressOrder::InTurn, true), Shard::WHOLE, 0).unwrap();
        let mut rounds = Rounds::new(&setup);
        (0..5).for_each(|client| rounds.begin(client, 3, 0));
        let found: Vec<_> = (0..5).map(|client| rounds.place(client)).collect();
        assert_eq!(found, [0, 1, 2, 0, 1]);
    }
}
