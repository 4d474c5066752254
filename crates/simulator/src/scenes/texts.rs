//! Payloads of the user's own in simulated runs: the bytes stay as they are, and MQTT 5 has the
//! stamp beside them.

use plan::{MqttVersion, Payload};

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
