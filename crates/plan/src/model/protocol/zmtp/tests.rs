use super::*;
use crate::fan_out::tests::{plan, population};
use crate::fan_out::{FanOut, MessageOrigin};
use crate::model::flows::{Late, Order, Pace, Payload, Phase, Process, Publication};
use crate::model::protocol::PlannedProtocol;
use crate::model::{Attachment, Choice};

const ZMTP: Zmtp =
    Zmtp { player: Player::Engine, high_water_mark: 1000, io_threads: 1, security: Security::Null };

fn subscribers(clients: u32, first: u64, prefixes: &[&str]) -> Population {
    Population { protocol: PlannedProtocol::Zmtp(ZMTP), ..population(clients, first, prefixes) }
}

fn publisher() -> Population {
    let pace = Pace::Open {
        period_ns: 1,
        spread: 0.0,
        jitter: 0.0,
        phase: Phase::Aligned,
        late: Late::Send,
        burst: 100,
        arrivals: Process::Even,
    };
    let publication = Publication {
        topic: Template::new("").unwrap(),
        order: Order::Turn,
        weights: Vec::new(),
        qos: 0,
        retain: false,
        pace,
        window: 1,
        payload: Payload::Fixed { bytes: 32 },
        properties: Vec::new(),
        topic_alias: false,
        request: false,
    };
    let protocol = PlannedProtocol::Zmtp(Zmtp { player: Player::Libzmq, ..ZMTP });
    Population { protocol, publications: vec![publication], ..subscribers(1, 0, &[]) }
}

fn published(names: Names, target: usize) -> MessageOrigin {
    MessageOrigin { names, target, excluded: None, carried: None }
}

fn deliveries(population: &Population, topic: &str) -> u64 {
    let mut counts = Vec::new();
    let fan_out = FanOut::new(&plan(vec![population.clone()], 1, true));
    fan_out.deliveries(topic, published(Names::Prefixes, 0), &mut counts);
    counts[0]
}

#[test]
fn a_subscriber_receives_a_message_with_matching_prefixes_once() {
    let cases: [(&[&str], &str, u64); 14] = [
        (&[""], "", 100),
        (&[""], "any", 100),
        (&["", "a", "any"], "any", 100),
        (&[], "any", 0),
        (&["a"], "", 0),
        (&["#"], "any", 0),
        (&["a/+"], "a/+/x", 100),
        (&["a/{n}"], "a/17", 1),
        (&["a/{n}"], "a/105", 2),
        (&["a/{n}/"], "a/105/x", 1),
        (&["{n%10}x"], "3xyz", 10),
        (&["{n/50}{red|r}"], "1red", 50),
        (&["s{1..3}", "{n}"], "s3/x", 100),
        (&["é{n}"], "é17ü", 1),
    ];
    for (prefixes, topic, expected) in cases {
        let population = subscribers(100, 10, prefixes);
        assert_eq!(deliveries(&population, topic), expected, "{prefixes:?} for {topic}");
    }
}

#[test]
fn expected_receivers_are_those_with_a_matching_rendered_prefix() {
    let sources = ["a{n}", "a{n%7}", "{n/5}", "a{3..9}", "a", "{n}{n%3}", "{1|12|a1}", "a{n%4}{n}"];
    for first in [0u64, 3, 95] {
        for pair in sources.iter().flat_map(|a| sources.iter().map(move |b| [*a, *b])) {
            let population = subscribers(40, first, &pair);
            let prefixes = pair.map(|source| Template::new(source).unwrap());
            let of = |prefix: &Template, n| -> Vec<String> {
                (0..prefix.variants()).map(|v| prefix.text(n, v)).collect()
            };
            let held: Vec<Vec<String>> = (first..first + 40)
                .map(|n| prefixes.iter().flat_map(|prefix| of(prefix, n)).collect())
                .collect();
            for topic in (0..130).flat_map(|i| [format!("{i}"), format!("a{i}")]) {
                let holds = |held: &&Vec<String>| held.iter().any(|text| topic.starts_with(text));
                let expected = held.iter().filter(holds).count() as u64;
                assert_eq!(deliveries(&population, &topic), expected, "{pair:?} {first} {topic}");
            }
        }
    }
}

#[test]
fn messages_stay_within_their_protocol_and_at_their_publisher() {
    let at = |first, count| Attachment { first, count, choice: Choice::Turn, shift: 0 };
    let mut sockets = subscribers(10, 0, &["a"]);
    sockets.at = at(1, 2);
    let mut clients = population(10, 0, &["#"]);
    clients.at = at(0, 3);
    for joined in [false, true] {
        let fan_out = FanOut::new(&plan(vec![sockets.clone(), clients.clone()], 3, joined));
        let mut counts = Vec::new();
        for (target, expected) in [(0, 0), (1, 5), (2, 5)] {
            fan_out.deliveries("ab", published(Names::Prefixes, target), &mut counts);
            assert_eq!(counts, [expected, 0], "of ZeroMQ at {target}, joined: {joined}");
        }
        fan_out.deliveries("ab", published(Names::Topics, 1), &mut counts);
        assert_eq!(counts, [0, if joined { 10 } else { 3 }], "of MQTT, joined: {joined}");
    }
}

fn set(population: &mut Population, change: fn(&mut Zmtp)) {
    let PlannedProtocol::Zmtp(zmtp) = &mut population.protocol else {
        unreachable!("the population has sockets")
    };
    change(zmtp);
}

#[test]
fn a_population_that_no_program_can_play_is_refused() {
    let check = |population: &Population| {
        population.check("p", 1).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(check(&subscribers(5, 0, &[""])), "");
    assert_eq!(check(&publisher()), "");
    let with = |change: fn(&mut Population), population: Population| {
        let mut population = population;
        change(&mut population);
        check(&population)
    };
    let curve = |p: &mut Population| set(p, |zmtp| zmtp.security = Security::Curve);
    assert_eq!(with(curve, publisher()), "");
    let subscriber = || subscribers(5, 0, &[""]);
    type Change = fn(&mut Population);
    let cases: [(Population, Change, &str); 9] = [
        (subscriber(), curve, "p.protocol.security: found curve"),
        (
            subscriber(),
            |p| set(p, |zmtp| zmtp.security = Security::Plain),
            "p.protocol.security: found plain",
        ),
        (subscriber(), |p| p.subscriptions[0].qos = 1, "p.subscriptions[0].qos: found 1"),
        (
            publisher(),
            |p| set(p, |zmtp| zmtp.player = Player::Engine),
            "p.publications: found 1, allowed are 0",
        ),
        (publisher(), |p| p.publications[0].qos = 1, "p.publications[0].qos: found 1"),
        (publisher(), |p| p.publications[0].retain = true, "p.publications[0].retain: found true"),
        (
            publisher(),
            |p| {
                let Pace::Open { jitter, .. } = &mut p.publications[0].pace else { return };
                *jitter = 0.5;
            },
            "p.publications[0].pace: found",
        ),
        (publisher(), |p| p.clients = 2, "p.at: found"),
        (publisher(), |p| p.publications.push(p.publications[0].clone()), "p: found 2 public"),
    ];
    for (population, change, expected) in cases {
        let found = with(change, population);
        assert!(found.starts_with(expected), "{found}, expected {expected}");
    }
}
