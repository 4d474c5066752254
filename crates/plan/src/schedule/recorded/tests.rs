//! Tests of recorded messages.

use super::*;
use proptest::prelude::*;

/// Rows of a file: gap to the next, client, topic, size, and `true` for QoS 1.
type Rows = Vec<(u64, u32, u8, u32, bool)>;

fn recording(clients: u32) -> Recording {
    Recording {
        file: "f".into(),
        first: 5,
        clients,
        mean_bytes: 1,
        max_bytes: 5000,
        shift_ns: 1000,
        content: RecordedContent::Beside,
        messages: RecordedMessages::default(),
    }
}

fn built(rows: &Rows, clients: u32, (shard, all): (Shard, u32)) -> Recorded {
    let played = Played { shard, first: 5, clients: all };
    let mut builder = RecordedBuilder::new(&recording(clients), (1, false), 3, &played);
    let mut after_ns = 0;
    for &(gap_ns, client, topic, bytes, is_wanted) in rows {
        after_ns += gap_ns;
        let topic = format!("t/{{n}}/{topic}");
        let (qos, retain) = (u8::from(is_wanted), false);
        let payload = BASE64.encode(&vec![bytes as u8; bytes as usize]);
        let payload = (bytes > 0).then_some(payload.as_str());
        let row = RecordedRow { after_ns, client, topic: &topic, bytes, qos, retain, payload };
        builder.push(&row).unwrap();
    }
    builder.build().unwrap()
}

fn rows(clients: u32) -> impl Strategy<Value = Rows> {
    prop::collection::vec((0u64..50, 0..clients, 0u8..4, 0u32..100, any::<bool>()), 0..80)
}

proptest! {
    #[test]
    fn every_message_is_played_at_its_instant_with_its_topic_and_size(
        (clients, rows) in (1u32..6).prop_flat_map(|n| (Just(n), rows(n))),
        round in 0u32..3,
    ) {
        let all = clients * 3;
        let recorded = built(&rows, clients, (Shard::WHOLE, all));
        for own in 0..clients {
            let (mut after_ns, mut number, client) = (0, 0, own + round * clients);
            let mut on_topic = [0u64; 4];
            let shift_ns = recorded.due_ns(client, 0).checked_sub(recorded.due_ns(own, 0));
            prop_assert!(shift_ns.is_some_and(|ns| ns < 1000 && (round > 0 || ns == 0)));
            for &(gap_ns, of, topic, bytes, is_wanted) in &rows {
                after_ns += gap_ns;
                if of != own || !is_wanted { continue; }
                let (n, variant) = (5 + u64::from(client), recorded.variant(client, number));
                let found = recorded.topic(n, variant).unwrap().text(n, 0);
                prop_assert_eq!(found, format!("t/{n}/{topic}"));
                prop_assert_eq!(recorded.bytes(client, number), bytes.max(32) as usize);
                let payload = vec![bytes as u8; bytes as usize];
                prop_assert_eq!(recorded.payload(client, number), payload);
                let due_ns = recorded.due_ns(client, number);
                prop_assert_eq!(due_ns, after_ns + shift_ns.unwrap());
                prop_assert!(recorded.first_from(client, due_ns) <= number);
                prop_assert!(recorded.first_from(client, due_ns + 1) > number);
                let seen = &mut on_topic[usize::from(topic)];
                prop_assert_eq!(recorded.sequence(client, number), *seen);
                *seen += 1;
                number += 1;
                prop_assert_eq!(recorded.messages_on(client, variant, number), *seen);
            }
            prop_assert_eq!(recorded.messages_of(client), number);
            prop_assert_eq!(recorded.due_ns(client, number), NEVER_NS);
            let counted = |messages| (0..recorded.variants(client))
                .map(|variant| recorded.messages_on(client, variant, messages))
                .sum::<u64>();
            for messages in 0..=2 * number {
                prop_assert_eq!(counted(messages), messages);
            }
        }
    }

    #[test]
    fn shards_have_the_messages_of_their_clients(
        (clients, rows) in (1u32..6).prop_flat_map(|n| (Just(n), rows(n))),
        all in 1u32..20,
        count in 1u32..4,
    ) {
        let whole = built(&rows, clients, (Shard::WHOLE, all));
        for index in 0..count {
            let shard = Shard::new(index, count).unwrap();
            let part = built(&rows, clients, (shard, all));
            for client in (0..shard.share(all)).map(|local| shard.global(local)) {
                let schedule = |of: &Recorded| {
                    (0..=of.messages_of(client)).map(|k| of.due_ns(client, k)).collect()
                };
                let (own, same): (Vec<_>, Vec<_>) = (schedule(&part), schedule(&whole));
                prop_assert_eq!(own, same);
                let n = 5 + u64::from(client);
                for number in 0..part.messages_of(client) {
                    let topic = |of: &Recorded| {
                        let variant = of.variant(client, number);
                        (variant, of.topic(n, variant).unwrap().text(n, 0))
                    };
                    prop_assert_eq!(topic(&part), topic(&whole));
                }
            }
        }
    }

    #[test]
    fn samples_are_messages_of_the_clients(
        (clients, rows) in (1u32..6).prop_flat_map(|n| (Just(n), rows(n))),
        all in 1u32..9,
    ) {
        let recorded = built(&rows, clients, (Shard::WHOLE, all));
        let sampled = recorded.sampled(all, 16);
        let messages: u64 = (0..clients.min(all)).map(|c| recorded.messages_of(c)).sum();
        prop_assert_eq!(sampled.len() as u64, messages.min(16));
        for (client, variant) in sampled {
            prop_assert!(client < all && variant < recorded.variants(client));
        }
    }
}

#[test]
fn rows_that_cannot_be_played_are_refused() {
    let row = |after_ns, client, topic, bytes| RecordedRow {
        after_ns,
        client,
        topic,
        bytes,
        qos: 1,
        retain: false,
        payload: Some(if bytes == 1 { "eA==" } else { "x" }),
    };
    let refused = |last: RecordedRow<'_>| {
        let played = Played { shard: Shard::WHOLE, first: 5, clients: 2 };
        let mut builder = RecordedBuilder::new(&recording(2), (1, false), 3, &played);
        builder.push(&row(7, 0, "t", 1)).unwrap();
        builder.push(&last).unwrap_err()
    };
    assert_eq!(refused(row(6, 0, "t", 1)), RecordedError::Order(6, 7));
    assert_eq!(refused(row(NEVER_NS, 0, "t", 1)), RecordedError::Order(NEVER_NS, 7));
    assert_eq!(refused(row(7, 2, "t", 1)), RecordedError::Client(2, 2));
    assert_eq!(refused(row(7, 1, "t", 5001)), RecordedError::Bytes(5001, 5000));
    assert!(matches!(refused(row(7, 1, "t/{", 1)), RecordedError::Topic(..)));
    assert!(matches!(refused(row(7, 1, "t", 2)), RecordedError::Payload(..)));
    let empty = RecordedRow { payload: None, ..row(7, 1, "t", 2) };
    assert_eq!(refused(empty), RecordedError::Length(0, 2));
    for topic in ["t/{1..2}", "t/{recorded}", "{row.a}", "{seq}"] {
        assert_eq!(refused(row(7, 1, topic, 1)), RecordedError::Variable(topic.into()));
    }
}
