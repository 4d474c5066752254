//! Shared subscriptions (`$share/GROUP/FILTER`): whose turn it is in a group. Without it rmqtt
//! grants such a subscription and never delivers to it. It knows no socket and no message.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use rmqtt::context::ServerContext;
use rmqtt::subscribe::SharedSubscription;
use rmqtt::types::{
    ClientId, Id, IsOnline, NodeId, SharedGroup, SubscriptionIdentifier, SubscriptionOptions,
    TopicName,
};

/// Takes the members in turn, and those that are away only where none is connected.
#[derive(Default)]
pub struct InTurn {
    turns: AtomicUsize,
}

type Member =
    (NodeId, ClientId, SubscriptionOptions, Option<Vec<SubscriptionIdentifier>>, Option<IsOnline>);

#[async_trait]
impl SharedSubscription for InTurn {
    fn is_supported(&self) -> bool {
        true
    }

    async fn choice(
        &self,
        _: &ServerContext,
        _: &SharedGroup,
        _: &Id,
        _: &TopicName,
        members: &[Member],
    ) -> Option<(usize, IsOnline)> {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let online: Vec<bool> = members.iter().map(|member| member.4 == Some(true)).collect();
        in_turn(&online, turn)
    }
}

/// Index of the member whose turn it is, and whether it is connected; none of no member.
fn in_turn(online: &[bool], turn: usize) -> Option<(usize, bool)> {
    let connected = online.iter().filter(|online| **online).count();
    let anyone = connected == 0;
    let turn = turn.checked_rem(if anyone { online.len() } else { connected })?;
    let eligible = (0..online.len()).filter(|&index| anyone || online[index]);
    eligible.skip(turn).map(|index| (index, !anyone)).next()
}

#[cfg(test)]
mod tests {
    use super::in_turn;

    #[test]
    fn connected_members_take_turns() {
        let taken: Vec<_> = (0..4).map(|turn| in_turn(&[true, false, true], turn)).collect();
        let (first, last) = (Some((0, true)), Some((2, true)));
        assert_eq!(taken, [first, last, first, last]);
    }

    #[test]
    fn where_none_is_connected_those_away_take_turns() {
        assert_eq!(in_turn(&[false, false], 3), Some((1, false)));
        assert_eq!(in_turn(&[], 3), None);
    }
}
