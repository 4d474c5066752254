//! Payloads of the user's own in simulated runs: the bytes stay as they are, and MQTT 5 has the
//! stamp beside them.

use std::collections::HashMap;

use plan::{MqttVersion, Order, Payload, Records};

use crate::course::played;
use crate::totals::Totals;
use crate::weather::{MS, S, Weather};
use testkit::plans::{publication, speaking, subscription, template};

#[test]
fn both_sides_of_mqtt_5_have_the_stamp_and_others_count_by_topic() {
    use MqttVersion::{V5, V31, V311};
    for (publishing, stamped) in [(V5, true), (V311, false)] {
        for (qos, alias) in [(0, false), (1, true), (2, false)] {
            let mut devices = speaking(publishing, "device", 2);
            let mut publication = publication("t/{n}", qos, 100 * MS);
            let text = template("number {seq} of device {n}, longer than a stamp of 32 bytes");
            publication.payload = Payload::Text { template: text, is_json: false };
            publication.topic_alias = alias && stamped;
            devices.publications = vec![publication];
            let mut populations = vec![devices];
            for (name, version) in [("five", V5), ("three", V311), ("old", V31)] {
                let mut receivers = speaking(version, name, 3);
                receivers.subscriptions = vec![subscription("t/#", qos)];
                populations.push(receivers);
            }
            let run = played(populations, S, Weather::fair());
            let totals = Totals::of(&run);
            for to in 1..=3 {
                let flow = totals.flow(0, to);
                assert_eq!((flow.expected_total, flow.received_total), (60, 60), "to {to}");
                assert_eq!(totals.counters[to].foreign_total, 0);
            }
            let followed = if stamped { 60 } else { 0 };
            assert_eq!(totals.latency.count(), followed, "of MQTT 5, from {publishing:?}");
            let network = run.network();
            let mut numbers = [0; 2];
            for message in network.peer.broker.accepted() {
                let n = usize::from(message.topic == "t/1");
                let number = numbers[n];
                let text =
                    format!("number {number} of device {n}, longer than a stamp of 32 bytes");
                assert_eq!(message.payload, text.as_bytes());
                numbers[n] += 1;
            }
            assert_eq!(numbers, [10, 10]);
        }
    }
}

#[test]
fn records_and_weights_leave_expected_deliveries_exact() {
    use MqttVersion::{V5, V311};
    let records = || Records::try_from(["b25l", "", "AP8="].map(str::to_owned).to_vec()).unwrap();
    let contents: [&[u8]; 3] = [b"one", b"", b"\x00\xff"];
    for (version, stamped, order) in [
        (V5, false, Order::Turn),
        (V5, false, Order::Shuffled),
        (V311, true, Order::Turn),
        (V311, false, Order::Shuffled),
    ] {
        let mut devices = speaking(version, "device", 3);
        let mut publication = publication("t/{a/x|b|c}/{n}", 1, 50 * MS);
        publication.payload = Payload::Records { records: records(), order, stamped };
        publication.weights = vec![6, 3, 1];
        devices.publications = vec![publication];
        let mut receivers = speaking(version, "site", 2);
        receivers.subscriptions = vec![subscription("t/a/#", 1), subscription("t/+/1", 1)];
        let run = played(vec![devices, receivers], S, Weather::fair());
        let totals = Totals::of(&run);
        let network = run.network();
        let accepted = || network.peer.broker.accepted();
        let is_expected = |topic: &str| topic.starts_with("t/a/") || topic.ends_with("/1");
        let expected = 2 * accepted().iter().filter(|m| is_expected(&m.topic)).count() as i64;
        let flow = totals.flow(0, 1);
        assert_eq!((flow.expected_total, flow.received_total), (expected, expected));
        let followed = if version == V5 || stamped { expected } else { 0 };
        assert_eq!(totals.latency.count() as i64, followed);
        assert_eq!((flow.duplicate_total, flow.reordered_total), (0, 0));
        let (mut topics, mut payloads) = (HashMap::new(), HashMap::new());
        for message in accepted() {
            let topic = message.topic.rsplit_once('/').map_or("", |(topic, _)| topic).to_owned();
            *topics.entry(topic).or_insert(0) += 1;
            let skipped = if stamped { plan::STAMP_BYTES } else { 0 };
            *payloads.entry(message.payload[skipped..].to_vec()).or_insert(0) += 1;
        }
        // Two rounds of ten messages of each of three clients.
        let weighed = [("t/a/x", 36), ("t/b", 18), ("t/c", 6)];
        assert_eq!(topics, HashMap::from(weighed.map(|(topic, n)| (topic.to_owned(), n))));
        assert_eq!(payloads.len(), 3);
        assert!(contents.iter().all(|&content| (18..=21).contains(&payloads[content])));
    }
}
