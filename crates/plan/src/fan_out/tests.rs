use std::collections::BTreeMap;

use super::*;
use crate::model::flows::{PlannedRetainHandling, Subscription};
use crate::model::protocol::{Mqtt, MqttVersion, Nats, PlannedProtocol};
use crate::model::{Attachment, Choice, Population, Target};
use crate::text::template::Template;

pub(crate) fn population(clients: u32, first: u64, filters: &[&str]) -> Population {
    let filter = |f: &&str| Subscription {
        filter: Template::new(f).unwrap(),
        qos: 0,
        no_local: false,
        retain_as_published: false,
        retain_handling: PlannedRetainHandling::default(),
        identifier: None,
    };
    Population {
        whole: None,
        name: "p".into(),
        protocol: PlannedProtocol::Mqtt(Mqtt {
            version: MqttVersion::V311,
            client_id: Template::new("{n}").unwrap(),
            clean_session: true,
            bridge: false,
            will: None,
            properties: Vec::new(),
            authentication: None,
            sparkplug: None,
        }),
        clients,
        first,
        at: Attachment { first: 0, count: 1, choice: Choice::Turn, shift: 0 },
        username: None,
        password: None,
        tls: None,
        proxy_protocol: None,
        headers: Vec::new(),
        keep_alive_s: 60,
        end: crate::End::Disconnect,
        takes_over: None,
        flapping: None,
        connect_timeout_ns: 1,
        reconnect: None,
        read_rate_per_s: None,
        delayed_acks: false,
        link: Vec::new(),
        lifetime: None,
        rows: None,
        subscriptions: filters.iter().map(filter).collect(),
        publications: Vec::new(),
        responds: None,
    }
}

pub(crate) fn plan(populations: Vec<Population>, targets: u16, targets_joined: bool) -> Plan {
    Plan {
        stall_ns: None,
        max_packet_bytes: Plan::MAX_PACKET_BYTES,
        format: Plan::FORMAT,
        name: "test".into(),
        run_tag: 1,
        seed: 1,
        targets: (0..targets)
            .map(|port| Target {
                host: "localhost".into(),
                port,
                tls: false,
                websocket: None,
                quic: false,
                ports: BTreeMap::new(),
                addresses: Vec::new(),
            })
            .collect(),
        targets_joined,
        bridges: Vec::new(),
        flows: Vec::new(),
        sources: Vec::new(),
        addresses: None,
        snapshot_interval_ns: 1,
        drain_ns: 1,
        coalescing_ns: 0,
        populations,
        stages: Vec::new(),
    }
}

fn deliveries(clients: u32, first: u64, filters: &[&str], topic: &str) -> u64 {
    let plan = plan(vec![population(clients, first, filters)], 1, true);
    counts(&FanOut::new(&plan), topic, 0)[0]
}

pub(super) fn counts(fan_out: &FanOut, topic: &str, target: usize) -> Vec<u64> {
    let mut counts = Vec::new();
    let publisher = MessageOrigin { names: Names::Topics, target, excluded: None, carried: None };
    fan_out.deliveries(topic, publisher, &mut counts);
    counts
}

#[test]
fn receivers_are_counted_for_each_kind_of_filter() {
    let cases: [(&[&str], &str, u64); 22] = [
        (&["a/b"], "a/b", 100),
        (&["a/b"], "a/c", 0),
        (&["a/+"], "a/c", 100),
        (&["a/+"], "a/c/d", 0),
        (&["a/#"], "a/c/d", 100),
        (&["a/#"], "a", 100),
        (&["#"], "a/b/c", 100),
        (&["#"], "$SYS/x", 0),
        (&["+/x"], "$SYS/x", 0),
        (&["dev/{n}"], "dev/17", 1),
        (&["dev/{n}"], "dev/9", 0),
        (&["dev/{n}"], "dev/110", 0),
        (&["dev/{n}"], "dev/017", 0),
        (&["dev/{n}"], "dev/x", 0),
        (&["dev/d{n}z/t_{1..20}"], "dev/d17z/t_20", 1),
        (&["dev/d{n}z/t_{1..20}"], "dev/d17z/t_21", 0),
        (&["g/{n%10}"], "g/3", 10),
        (&["g/{n%10}"], "g/10", 0),
        (&["g/{n/7}"], "g/2", 7),
        (&["g/{n%10}/{n%3}"], "g/3/1", 4),
        (&["dev/{n}", "dev/{n%20}"], "dev/12", 5),
        (&["dev/{n}", "dev/#"], "dev/12", 100),
    ];
    for (filters, topic, expected) in cases {
        assert_eq!(deliveries(100, 10, filters, topic), expected, "{filters:?} for {topic}");
    }
}

#[test]
fn a_population_counts_as_many_receivers_as_rendered_filters_match() {
    let sources = ["a/{n}", "a/{n%7}", "a/{n/5}", "a/{3..9}", "+/{n%3}", "a/#", "a/8"];
    for first in [0u64, 3, 50] {
        for pair in sources.iter().flat_map(|a| sources.iter().map(move |b| [*a, *b])) {
            for topic in (0..60).map(|i| format!("a/{i}")) {
                let expected = (first..first + 40).filter(|&n| holds_match(&pair, n, &topic));
                let found = deliveries(40, first, &pair, &topic);
                assert_eq!(found, expected.count() as u64, "{pair:?} {first} {topic}");
            }
        }
    }
}

fn holds_match(filters: &[&str], n: u64, topic: &str) -> bool {
    filters.iter().any(|source| {
        let template = Template::new(source).unwrap();
        let matches = |filter: String| {
            let level = |(f, t): (&str, &str)| f == "+" || f == t;
            filter.ends_with("/#") || filter.split('/').zip(topic.split('/')).all(level)
        };
        (0..template.variants()).any(|v| matches(template.text(n, v)))
    })
}

#[test]
fn separate_targets_keep_messages_apart() {
    let mut everywhere = population(100, 5, &["a/#", "b/{n}"]);
    everywhere.at.count = 3;
    let separate = FanOut::new(&plan(vec![everywhere.clone()], 3, false));
    let at_each = |topic| (0..3).map(|t| counts(&separate, topic, t)[0]).collect::<Vec<u64>>();
    assert_eq!(at_each("a/x"), [34, 33, 33]);
    assert_eq!(at_each("b/7"), [0, 0, 1]);
    everywhere.at.shift = 2;
    let shifted = FanOut::new(&plan(vec![everywhere.clone()], 3, false));
    let at_each = |topic| (0..3).map(|t| counts(&shifted, topic, t)[0]).collect::<Vec<u64>>();
    assert_eq!(at_each("a/x"), [33, 33, 34]);
    assert_eq!(at_each("b/7"), [0, 1, 0]);
    let joined = FanOut::new(&plan(vec![everywhere], 3, true));
    assert_eq!(counts(&joined, "a/x", 2), [100]);
}

#[test]
fn a_shared_group_receives_one_copy() {
    let filters = ["$share/g/a/#", "$share/g/b", "$share/h/c/+", "a/{n}/x"];
    assert_eq!(deliveries(100, 0, &filters, "a/b"), 1);
    assert_eq!(deliveries(100, 0, &filters, "b"), 1);
    assert_eq!(deliveries(100, 0, &filters, "c/5"), 1);
}

#[test]
fn inactive_clients_receive_nothing() {
    let plan = plan(vec![population(100, 10, &["dev/{n}", "all"])], 1, true);
    let mut fan_out = FanOut::new(&plan);
    for (clients, of_all, of_one) in [(100, 100, 1), (20, 20, 0), (0, 0, 0), (100, 100, 1)] {
        fan_out.set_receivers(0, clients);
        assert_eq!(counts(&fan_out, "all", 0)[0], of_all);
        assert_eq!(counts(&fan_out, "dev/30", 0)[0], of_one);
    }
}

/// Options of NATS clients without echo.
pub(super) fn nats() -> PlannedProtocol {
    PlannedProtocol::Nats(Box::new(Nats {
        client_name: Template::new("n-{n}").unwrap(),
        echo: false,
        token: None,
        seed: None,
        jwt: None,
        streams: Vec::new(),
        consumers: Vec::new(),
    }))
}

/// Populations of MQTT and of NATS, the second without echo.
fn twins(topics: &[&str], subjects: &[&str]) -> Plan {
    let nats = Population { protocol: nats(), ..population(10, 0, subjects) };
    plan(vec![population(10, 0, topics), nats], 1, true)
}

#[test]
fn subjects_have_wildcards_of_their_own() {
    let cases: [(&str, &str, u64); 8] = [
        ("a.b", "a.b", 10),
        ("a.*", "a.b", 10),
        ("a.*", "a.b.c", 0),
        ("a.>", "a.b.c", 10),
        ("a.>", "a", 0),
        (">", "$x.y", 10),
        ("dev.{n}", "dev.7", 1),
        ("$share/g/dev.*", "dev.7", 1),
    ];
    for (filter, subject, expected) in cases {
        let fan_out = FanOut::new(&twins(&["a"], &[filter]));
        let publisher =
            MessageOrigin { names: Names::Subjects, target: 0, excluded: None, carried: None };
        let mut counts = Vec::new();
        fan_out.deliveries(subject, publisher, &mut counts);
        assert_eq!(counts[1], expected, "{filter} {subject}");
    }
}

#[test]
fn the_name_alone_makes_a_group_of_nats() {
    for (own, other, expected) in [
        ("$share/g/dev.>", "$share/g/dev.*", 0),
        ("$share/g/dev.>", "$share/g/dev.{n}", 0),
        ("$share/g/dev.>", "$share/g/other.*", 1),
        ("$share/g/dev.*", "$share/g/dev.*.x", 1),
        ("$share/g/dev.>", "$share/h/dev.*", 2),
    ] {
        let subscribed = [own, other].map(|filter| twins(&["a"], &[filter]).populations.remove(1));
        let fan_out = FanOut::new(&plan(subscribed.into(), 1, true));
        let publisher =
            MessageOrigin { names: Names::Subjects, target: 0, excluded: None, carried: None };
        let mut counts = Vec::new();
        fan_out.deliveries("dev.7", publisher, &mut counts);
        assert_eq!(counts.iter().sum::<u64>(), expected, "{own} and {other}");
    }
}

#[test]
fn one_broker_delivers_messages_of_mqtt_and_nats_under_twin_names() {
    let plan = twins(&["dev/+/out", "#"], &["dev.*.out"]);
    let fan_out = FanOut::new(&plan);
    let mut counts = Vec::new();
    let cases = [
        (0, "dev/7/out", [10, 10]),
        (1, "dev.7.out", [10, 9]),
        // A level of one rule that is none of the other.
        (0, "dev/7.1/out", [10, 0]),
        (0, "dev//out", [10, 0]),
        (1, "dev.a/b.out", [0, 9]),
    ];
    for (from, name, expected) in cases {
        fan_out.deliveries(name, plan.publisher(from, 3), &mut counts);
        assert_eq!(counts, expected, "{name}");
    }
}
