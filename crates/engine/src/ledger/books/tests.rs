//! Messages in one read count as the same messages one by one.

use agent::tally::SnapshotHead;
use plan::{FlowSnapshot, Plan, PopulationSnapshot, SentAt, Shard};
use proptest::prelude::*;

use super::*;
use crate::expectations::returned::Returned;
use crate::host::Host;
use crate::seam::received::{Carried, Rest};
use testkit::plans::{self, publication, subscription};

const NOW_NS: u64 = 1_000_000_000;
const RECEIVER: Receiver = Receiver { population: 1, index: 2, local: 0, watched: RETAINED };

/// Two publishers, and a subscriber of `filter`.
fn context(filter: &str) -> Context {
    let mut publishers = plans::population("publishers", 2);
    publishers.publications = vec![publication("t/{n}", 0, 1)];
    let mut subscriber = plans::population("subscriber", 1);
    subscriber.subscriptions = vec![subscription(filter, 0)];
    let plan = Plan { populations: vec![publishers, subscriber], ..plans::empty(1) };
    let setup = Setup::new(plan, Shard::WHOLE, 0).unwrap();
    let mut context = Context::new(setup, Host::machine().unwrap().0);
    context.now_ns = NOW_NS;
    context
}

/// The payload of a message of one of the publishers, which it sent `ago_ns` ago.
fn payload(context: &Context, client: u32, sequence: u32, ago_ns: u64) -> Vec<u8> {
    let stamp = Stamp {
        run_tag: context.setup.plan.run_tag,
        stream: StreamId { publication: 0, variant: 0, client },
        sequence,
        intended_ns: NOW_NS - ago_ns,
        sent: SentAt::plain(NOW_NS - ago_ns / 2),
    };
    stamp.to_bytes().to_vec()
}

/// The counts of a context.
fn counts(context: &mut Context) -> (Vec<FlowSnapshot>, Vec<PopulationSnapshot>, u64) {
    let (agent, stage, settled) = (0, None, false);
    let moment = SnapshotHead { agent, stage, settled, now_ns: NOW_NS, ledger_pairs: 0 };
    let snapshot = context.tally.snapshot(&moment);
    (snapshot.flows, snapshot.populations, snapshot.engine.unfollowed_total)
}

#[test]
fn a_plain_delivery_asks_for_nothing_beside_its_payload() {
    let mut context = context("t/+");
    let rest = Rest { topic: "t/0", ..Rest::default() };
    let payloads: Vec<_> = (0..9).map(|n| payload(&context, n % 2, n / 2, 500)).collect();
    let (mut books, ..) = Books::new(&mut context, RECEIVER, u64::MAX);
    for payload in &payloads {
        let message = Received { payload, marks: 0, beside: &rest };
        assert_eq!(books.take(&message), Next::More);
    }
    assert_eq!((books.finish(), rest.asked.get()), (9, 0));
    let (flows, ..) = counts(&mut context);
    assert_eq!(flows[0].counters.received_total, 9);
}

#[test]
fn properties_that_nothing_depends_on_are_not_read() {
    let mut context = context("t/+");
    let carried = Carried { response: Some("r"), ..Carried::default() };
    let rest = Rest { topic: "t/0", carried, ..Rest::default() };
    let payload = payload(&context, 0, 0, 500);
    let message = Received { payload: &payload, marks: BESIDE, beside: &rest };
    let (mut books, ..) = Books::new(&mut context, RECEIVER, 1);
    assert_eq!((books.take(&message), books.finish()), (Next::Pause, 1));
    assert_eq!(rest.asked.get(), 0);
}

#[test]
fn the_first_message_of_a_stream_to_a_group_is_asked_for_its_topic() {
    let mut context = context("$share/g/t/+");
    let rest = Rest { topic: "t/0", ..Rest::default() };
    let payloads: Vec<_> = (0..3).map(|n| payload(&context, 0, n, 500)).collect();
    let (mut books, ..) = Books::new(&mut context, RECEIVER, u64::MAX);
    for payload in &payloads {
        assert_eq!(books.take(&Received { payload, marks: 0, beside: &rest }), Next::More);
    }
    assert_eq!((books.finish(), rest.asked.get()), (3, 1));
}

#[test]
fn messages_from_before_the_return_of_their_receiver_are_queued_ones() {
    const QUEUED: u64 = 4;
    // The first messages of each stream were sent before the client returned; the latter return
    // began a new session.
    for (resumed, queued) in [(true, 2 * QUEUED), (false, 0)] {
        for in_one_read in [true, false] {
            let mut context = context("t/+");
            if let plan::PlannedProtocol::Mqtt(mqtt) =
                &mut context.setup.plan.populations[1].protocol
            {
                mqtt.clean_session = false;
            }
            context.returned = Returned::new(&context.setup);
            context.returned.note_accepted(1, 0, NOW_NS - 500, resumed);
            let rest = Rest::default();
            let payloads: Vec<_> = (0..2)
                .flat_map(|client| (0..9).map(move |n| (client, n)))
                .map(|(client, n)| {
                    let ago_ns = if u64::from(n) < QUEUED { 1_100 } else { 900 };
                    payload(&context, client, n, ago_ns)
                })
                .collect();
            for payloads in payloads.chunks(if in_one_read { payloads.len() } else { 1 }) {
                let (mut books, ..) = Books::new(&mut context, RECEIVER, u64::MAX);
                for payload in payloads {
                    books.take(&Received { payload, marks: 0, beside: &rest });
                }
                books.finish();
            }
            let (flows, ..) = counts(&mut context);
            let (queued_latency, all) = (&flows[0].queued_latency, &flows[0].latency_intended);
            assert_eq!((queued_latency.count(), all.count()), (queued, 18));
            assert_eq!(queued_latency.quantile_ns(1.0), if queued > 0 { 1_100 } else { 0 });
        }
    }
}

#[test]
fn a_message_of_a_flow_counts_under_the_name_that_the_flow_gives_it() {
    let mut context = context("#");
    let plan = &mut context.setup.plan;
    plan.targets = vec![plans::target(1), plans::target(2)];
    plan.populations[1].at.first = 1;
    let to = plans::template("x/{n}");
    plan.flows = vec![plan::PlannedFlow { population: 0, publication: 0, to, at: 1 }];
    let setup = Setup::new(context.setup.plan.clone(), Shard::WHOLE, 0).unwrap();
    let receiver = Receiver { watched: setup.populations[1].watched, ..RECEIVER };
    context = Context::new(setup, Host::machine().unwrap().0);
    for (sequence, topic) in (0..).zip(["x/0", "x/1", "t/0", "y", "x/0"]) {
        let rest = Rest { topic, ..Rest::default() };
        let payload = payload(&context, 0, sequence, 0);
        let (mut books, ..) = Books::new(&mut context, receiver, u64::MAX);
        books.take(&Received { payload: &payload, marks: 0, beside: &rest });
        books.finish();
    }
    let (flows, populations, _) = counts(&mut context);
    assert_eq!(flows[0].counters.received_total, 2);
    let counters = &populations[1].counters;
    assert_eq!((counters.unstamped_total, counters.foreign_total), (1, 2));
}

/// Two clients that send requests, and whose filter has the answers too.
fn requesters() -> Context {
    let mut clients = plans::speaking(plan::MqttVersion::V5, "requesters", 2);
    let publication = publication("r/{a|b}", 0, 1);
    clients.publications = vec![plan::Publication { request: true, ..publication }];
    clients.subscriptions = vec![subscription("$share/g/#", 0), subscription("r/+", 0)];
    let plan = Plan { populations: vec![clients], ..plans::empty(1) };
    let setup = Setup::new(plan, Shard::WHOLE, 0).unwrap();
    let mut context = Context::new(setup, Host::machine().unwrap().0);
    context.now_ns = NOW_NS;
    context
}

proptest! {
    #[test]
    fn a_stamp_that_a_peer_has_made_up_is_counted(
        made_up in prop::collection::vec(
            (prop_oneof![Just(0u16), Just(1 << 15), any::<u16>()], any::<u16>(), 0u32..3,
                any::<u32>(), prop_oneof![Just(0), any::<u64>()], any::<u64>(), any::<bool>()),
            1..30),
    ) {
        let mut context = requesters();
        let receiver = Receiver { population: 0, index: 0, local: 0, watched: BESIDE };
        for &(publication, variant, client, sequence, intended_ns, sent, as_request) in &made_up {
            let stamp = Stamp {
                run_tag: context.setup.plan.run_tag,
                stream: StreamId { publication, variant, client },
                sequence,
                intended_ns,
                sent: SentAt::of_word(sent),
            };
            let data = stamp.to_correlation();
            let correlation = as_request.then_some(&data[..]);
            let rest = Rest {
                topic: "r/a",
                carried: Carried { correlation, ..Carried::default() },
                ..Rest::default()
            };
            let marks = if as_request { BESIDE } else { 0 };
            let payload = stamp.to_bytes();
            let (mut books, ..) = Books::new(&mut context, receiver, u64::MAX);
            books.take(&Received { payload: &payload, marks, beside: &rest });
            prop_assert_eq!(books.finish(), 1);
        }
        counts(&mut context);
    }

    #[test]
    fn a_read_counts_as_its_messages_one_by_one(
        messages in prop::collection::vec(
            (0u32..2, prop_oneof![4 => Just(None), 1 => (0u32..8).prop_map(Some)], 0u64..1000,
                prop_oneof![6 => Just(0), 1 => 0..=7u8]), 0..40),
        is_ordered: bool,
        counts_loss: bool,
    ) {
        let (mut one, mut other) = (context("t/+"), context("t/+"));
        if !counts_loss {
            one.exclude_from_loss(1);
            other.exclude_from_loss(1);
        }
        let (rest, ordered) = (Rest::default(), if is_ordered { ORDERED } else { 0 });
        let mut next = [0; 2];
        let payloads: Vec<_> = messages
            .iter()
            .map(|&(client, place, ago_ns, _)| {
                let next = &mut next[client as usize];
                let sequence = place.unwrap_or(*next);
                *next = sequence + 1;
                payload(&one, client, sequence, ago_ns)
            })
            .collect();
        let received = messages.iter().zip(&payloads).map(|((.., marks), payload)| {
            Received { payload, marks: marks | ordered, beside: &rest }
        });
        let (mut books, ..) = Books::new(&mut one, RECEIVER, u64::MAX);
        received.clone().for_each(|message| {
            books.take(&message);
        });
        prop_assert_eq!(books.finish(), messages.len() as u64);
        received.for_each(|message| {
            let (mut books, ..) = Books::new(&mut other, RECEIVER, u64::MAX);
            books.take(&message);
            books.finish();
        });
        prop_assert_eq!(counts(&mut one), counts(&mut other));
    }
}
