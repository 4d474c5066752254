//! Parts of clients of a number of messages. Every agent computes the same parts.

/// The part of `client`, one of `clients`, of a number of messages that is divided evenly: as many
/// as those of the others, or one more. Others have no part.
#[must_use]
#[inline]
pub const fn quota(messages: u64, clients: u32, client: u32) -> u64 {
    if client >= clients {
        return 0;
    }
    let (messages, client) = (messages as u128, client as u128);
    let before = messages * client / clients as u128;
    (messages * (client + 1) / clients as u128 - before) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_of_all_clients_are_the_whole_and_nearly_equal(
            messages in 0u64..=1 << 62,
            clients in 1u32..300,
        ) {
            let parts: Vec<u64> = (0..clients).map(|c| quota(messages, clients, c)).collect();
            prop_assert_eq!(parts.iter().sum::<u64>(), messages);
            let (least, most) = (parts.iter().min(), parts.iter().max());
            prop_assert!(most <= least.map(|least| least + 1).as_ref());
            prop_assert_eq!(quota(messages, clients, clients), 0);
        }
    }
}
