//! Shared subscriptions (`$share/GROUP/FILTER`): chooses the member of a group that receives a
//! message. Without this file rmqtt grants such a subscription and never delivers to it.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use rmqtt::context::ServerContext;
use rmqtt::subscribe::SharedSubscription;
use rmqtt::types::{
    ClientId, Id, IsOnline, NodeId, SharedGroup, SubscriptionIdentifier, SubscriptionOptions,
    TopicName,
};

/// Chooses the members in turn, offline members only if none is connected.
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

/// Returns the index of the next member, and its connection; `None` without members.
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
    fn offline_members_take_turns_if_none_is_connected() {
        assert_eq!(in_turn(&[false, false], 3), Some((1, false)));
        assert_eq!(in_turn(&[], 3), None);
    }
}
