//! Edge nodes and a host of Sparkplug B, in virtual time: each gap that the network makes is
//! noticed once, no other is, and births follow each request. The messages on the wire are the
//! measure.

use std::collections::{BTreeMap, HashMap};

use plan::{
    Action, Payload, Plan, PlannedProtocol, PlannedWill, Population, Publication, Sparkplug,
    SparkplugHost, SparkplugNode,
};
use sparkplug::decode_sparkplug;
use testkit::{Broker, Script};

use crate::case::{Case, case};
use crate::course::Run;
use crate::peer::{Manner, Peer};
use crate::totals::Totals;
use crate::weather::{Climate, Fault, MS, S, Weather};
use testkit::plans::{self, publication, stage, subscription, template};

const NODES: u32 = 12;
const DEVICES: u32 = 2;
const METRICS: u32 = 5;

/// Edge nodes whose devices send a message every 50 ms.
fn nodes(device_deaths: f64) -> Population {
    let mut nodes = plans::population("plant", NODES);
    let PlannedProtocol::Mqtt(mqtt) = &mut nodes.protocol else { panic!("they speak MQTT") };
    mqtt.will = Some(Box::new(PlannedWill {
        topic: template("spBv1.0/g/NDEATH/node-{n}"),
        payload: template(""),
        qos: 1,
        retain: false,
        properties: Vec::new(),
    }));
    mqtt.sparkplug = Some(Box::new(Sparkplug::Node(SparkplugNode {
        group: template("g"),
        node: template("node-{n}"),
        devices: Some(template("device-{1..2}")),
        metrics: METRICS,
        device_deaths,
    })));
    nodes.subscriptions = vec![subscription("spBv1.0/g/NCMD/node-{n}", 1)];
    let payload = Payload::Sparkplug { metrics: METRICS, changed: 2, max_bytes: 120 };
    let topic = "spBv1.0/g/DDATA/node-{n}/device-{1..2}";
    nodes.publications = vec![Publication { payload, ..publication(topic, 0, 50 * MS) }];
    nodes
}

fn host() -> Population {
    let mut host = plans::population("scada", 1);
    let PlannedProtocol::Mqtt(mqtt) = &mut host.protocol else { panic!("it speaks MQTT") };
    mqtt.sparkplug = Some(Box::new(Sparkplug::Host(SparkplugHost {
        host: template("scada"),
        ask_again_ns: 2 * S,
    })));
    let filters = ["STATE/scada", "g/NBIRTH/+", "g/NDEATH/+", "g/DBIRTH/+/+", "g/DDATA/+/+"];
    let filters = filters.into_iter().chain(["g/DDEATH/+/+"]);
    host.subscriptions =
        filters.map(|filter| subscription(&format!("spBv1.0/{filter}"), 1)).collect();
    host
}

/// Truth about a node, from the messages that it has written and those that the host has read.
#[derive(Default)]
struct NodeTruth {
    /// Births, deaths and data of a connection without a birth.
    births: u64,
    deaths: u64,
    unborn: u64,
    /// Times that a message came whose predecessor had not, while the host followed the node.
    gaps: u64,
}

/// The truth about all nodes together. A host does not follow a node from a gap, or its death, to
/// the next birth.
fn truth(run: &Run) -> NodeTruth {
    let network = run.network();
    let [written, read] = &network.wire.sparkplug;
    let node_of = |topic: &str| topic.split('/').nth(3).expect("it is a node's").to_owned();
    let mut places: HashMap<(&str, &[u8]), usize> = HashMap::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (_, topic, payload) in written.iter().filter(|(_, topic, _)| is_numbered(topic)) {
        let place = counts.entry(node_of(topic)).or_default();
        let twin = places.insert((topic, payload), *place);
        assert_eq!(twin, None, "{topic} was written twice at place {place}");
        *place += 1;
    }
    let mut truth = NodeTruth::default();
    // Place and sequence number of the next message.
    let mut next: BTreeMap<String, Option<(usize, u64)>> = BTreeMap::new();
    let mut read_to: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let of_host = read.iter().filter(|((_, client), ..)| *client == NODES);
    for (_, topic, payload) in of_host.filter(|(_, topic, _)| !topic.contains("/STATE/")) {
        let node = node_of(topic);
        let decoded = decode_sparkplug(payload).expect("nodes send payloads");
        let (number, seq) = (decoded.bd_seq, decoded.seq.unwrap_or_default());
        if topic.contains("/NDEATH/") {
            truth.deaths += 1;
            let last = read_to.entry(node.clone()).or_default();
            if last.is_none() || *last == number {
                next.remove(&node);
            }
            continue;
        }
        let place = places[&(topic.as_str(), payload.as_slice())];
        if topic.contains("/NBIRTH/") {
            truth.births += 1;
            next.insert(node.clone(), Some((place + 1, 1)));
            read_to.insert(node, number);
            continue;
        }
        truth.births += u64::from(topic.contains("/DBIRTH/"));
        truth.deaths += u64::from(topic.contains("/DDEATH/"));
        match next.get(&node) {
            // The host waits for births.
            Some(None) => {}
            // A birth that was lost may be followed by the very number that the host expects.
            Some(&Some((expected, by_seq))) if expected == place || by_seq == seq => {
                let is_shown = expected == place || !(place - expected).is_multiple_of(256);
                assert!(is_shown, "a gap that no number shows");
                next.insert(node, Some((place + 1, (seq + 1) % 256)));
            }
            Some(Some(_)) => {
                truth.gaps += 1;
                next.insert(node, None);
            }
            None => {
                truth.unborn += 1;
                next.insert(node, None);
            }
        }
    }
    truth
}

/// Returns `true` for the messages of a node that have a sequence number.
fn is_numbered(topic: &str) -> bool {
    ["/NBIRTH/", "/DBIRTH/", "/DDEATH/", "/DDATA/"].iter().any(|kind| topic.contains(kind))
}

/// Plays a case, and compares the host's counts with the truth.
fn checked(case: Case, seed: u64) -> (Run, Totals) {
    let run = Run::play(case, seed, 1, Peer::new(Broker::new(Script::reliable())));
    // The general checks know the topics of drawn plans alone.
    let totals = Totals::of(&run);
    let (truth, host, nodes) = (truth(&run), &totals.counters[1], &totals.counters[0]);
    let what = format!("seed {seed}: {host:?}");
    assert_eq!(host.gaps_total, truth.gaps, "{what}");
    assert_eq!(host.unborn_total, truth.unborn, "{what}");
    assert_eq!(host.births_received_total, truth.births, "{what}");
    assert_eq!(host.deaths_received_total, truth.deaths, "{what}");
    assert_eq!((host.hidden_gaps_total, host.unreadable_total), (0, 0), "{what}");
    assert!(host.rebirths_asked_total >= host.gaps_total + host.unborn_total, "{what}");
    assert!(host.rebirths_received_total <= nodes.rebirths_total, "{what}");
    assert!(nodes.rebirths_total <= host.rebirths_asked_total, "{what}");
    (run, totals)
}

#[test]
fn where_nothing_is_lost_a_host_notices_no_gap() {
    let case = case(vec![nodes(0.0), host()], 20 * S, Weather::fair());
    let (_, totals) = checked(Case { climate: Climate::Fair, ..case }, 1);
    let (nodes, host) = (&totals.counters[0], &totals.counters[1]);
    let born = u64::from(NODES) + nodes.rebirths_total;
    assert_eq!(nodes.births_total, born * u64::from(1 + DEVICES));
    assert_eq!((host.gaps_total, nodes.sent_total), (0, u64::from(NODES) * 400));
    let flow = totals.flow(0, 1);
    assert_eq!(
        (flow.expected_total, flow.received_total),
        (i64::from(NODES) * 400, flow.expected_total)
    );
    // A host that subscribed later than some nodes were born has asked them.
    assert_eq!(host.unborn_total, host.rebirths_received_total);
}

#[test]
fn each_gap_that_a_network_makes_is_noticed_once() {
    let mut gaps = 0;
    for seed in 1..=6 {
        let end = |at: u64, per_cent, manner| (at * MS, Fault::Hang { per_cent, manner });
        let ends = (1..18).map(|at| end(at * 1000 + seed * 37, 20, Manner::End));
        let resets = (1..18).map(|at| end(at * 1000 + 431, 15, Manner::Reset));
        let mut faults: Vec<_> = ends.chain(resets).collect();
        faults.push((9_700 * MS, Fault::Restart { down_ns: 900 * MS, forgets: false }));
        faults.sort_by_key(|(at_ns, _)| *at_ns);
        let weather = Weather { faults, ..Weather::fair() };
        let (_, totals) = checked(case(vec![nodes(0.2), host()], 20 * S, weather), seed);
        let (nodes, host) = (&totals.counters[0], &totals.counters[1]);
        assert!(nodes.births_total > u64::from(NODES * (1 + DEVICES)), "nodes were born again");
        assert!(host.deaths_received_total > 0 && host.rebirths_received_total > 0);
        gaps += host.gaps_total;
    }
    assert!(gaps > 20, "the faults made {gaps} gaps");
}

#[test]
fn a_host_that_comes_late_asks_each_node_once() {
    let connect = |p| {
        let action =
            Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
        stage(action, &[p])
    };
    let publish = Action::Publish {
        duration_ns: 5 * S,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let leave = |p| stage(Action::Disconnect { rate_per_s: None }, &[p]);
    let hold = Action::Hold { duration_ns: S, changes: Vec::new() };
    let stages = vec![
        connect(0),
        connect(1),
        stage(publish, &[0, 1]),
        leave(0),
        stage(hold, &[1]),
        leave(1),
    ];
    let plan = Plan { populations: vec![nodes(0.0), host()], stages, ..plans::empty(1) };
    let (run, totals) = checked(Case::playing(plan, Climate::Fair, Weather::fair()), 1);
    let (nodes, host) = (&totals.counters[0], &totals.counters[1]);
    let all = u64::from(NODES);
    let asked = (host.unborn_total, host.rebirths_asked_total, host.rebirths_received_total);
    assert_eq!(asked, (all, all, all));
    assert_eq!((nodes.rebirths_total, host.gaps_total), (all, 0));
    assert_eq!(nodes.births_total, 2 * all * u64::from(1 + DEVICES));
    // Nodes that leave say so themselves: no will is published.
    assert_eq!(host.deaths_received_total, all);
    let flow = totals.flow(0, 1);
    assert_eq!((flow.wills_expected_total, flow.wills_received_total), (0, 0));
    let times = run.snapshots.iter().map(|each| each.populations[1].rebirth_time.count());
    assert_eq!(times.sum::<u64>(), all);
}
