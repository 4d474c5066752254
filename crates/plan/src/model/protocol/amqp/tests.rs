use super::*;
use crate::fan_out::tests::{plan, population};
use crate::fan_out::{FanOut, MessageOrigin};
use crate::model::flows::{Late, Order, Pace, Payload, Phase, Process, Publication};
use crate::model::protocol::PlannedProtocol;

const OPTIONS: &str = r#"{"kind": "amqp", "connection_name": "c-{n}", "virtual_host": "/"}"#;

fn options(json: &str) -> Amqp {
    let PlannedProtocol::Amqp(options) = serde_json::from_str(json).unwrap() else {
        unreachable!("the kind is amqp")
    };
    *options
}

fn queue(name: &str) -> PlannedQueue {
    let json = format!(r#"{{"name": "{name}"}}"#);
    serde_json::from_str(&json).unwrap()
}

fn publication(topic: &str, qos: u8) -> Publication {
    Publication {
        topic: Template::new(topic).unwrap(),
        order: Order::Turn,
        weights: Vec::new(),
        qos,
        retain: false,
        pace: Pace::Open {
            period_ns: 1,
            spread: 0.0,
            jitter: 0.0,
            phase: Phase::Aligned,
            late: Late::Send,
            burst: 1,
            arrivals: Process::Even,
        },
        window: 1,
        payload: Payload::Fixed { bytes: 32 },
        properties: Vec::new(),
        topic_alias: false,
        request: false,
    }
}

/// Clients with a queue for each filter.
fn clients(count: u32, queues: &[(&str, &str)]) -> Population {
    let filters: Vec<&str> = queues.iter().map(|(_, filter)| *filter).collect();
    let mut own = options(OPTIONS);
    own.queues = queues.iter().map(|(name, _)| queue(name)).collect();
    let protocol = PlannedProtocol::Amqp(Box::new(own));
    Population { protocol, ..population(count, 0, &filters) }
}

fn with(own: &Population, change: impl FnOnce(&mut Amqp)) -> Population {
    let mut changed = own.clone();
    let PlannedProtocol::Amqp(options) = &mut changed.protocol else { unreachable!("clients") };
    change(options);
    changed
}

fn is_possible(own: &Population) -> bool {
    own.protocol.options().check(own, "p").is_ok() && own.check_templates("p").is_ok()
}

#[test]
fn options_have_defaults_and_unknown_ones_are_errors() {
    let own = options(OPTIONS);
    assert_eq!((own.channels, own.mechanism), (1, AmqpMechanism::Plain));
    let queue = queue("q");
    assert_eq!((queue.kind, queue.acknowledge), (QueueType::Classic, Acknowledge::Each));
    for (json, expected) in [
        (r#"{"kind": "none"}"#, Acknowledge::None),
        (r#"{"kind": "multiple", "every": 10}"#, Acknowledge::Multiple { every: 10 }),
        (r#"{"kind": "late", "delay_ns": 7}"#, Acknowledge::Late { delay_ns: 7 }),
        (r#"{"kind": "never"}"#, Acknowledge::Never),
    ] {
        assert_eq!(serde_json::from_str::<Acknowledge>(json).unwrap(), expected);
    }
    for (json, expected) in [
        ("1000", AmqpValue::Number(1000)),
        ("true", AmqpValue::Flag(true)),
        (r#""reject-publish""#, AmqpValue::Text("reject-publish".into())),
    ] {
        assert_eq!(serde_json::from_str::<AmqpValue>(json).unwrap(), expected);
    }
    let more = OPTIONS.replace("\"kind\"", "\"more\": 1, \"kind\"");
    assert!(serde_json::from_str::<PlannedProtocol>(&more).is_err());
}

#[test]
fn a_filter_has_an_exchange_a_key_and_a_queue() {
    let cases: [(u32, &str, &str, bool); 34] = [
        (9, "q-{n}", "/e/a.b", true),
        (9, "", "/e/a.b", true),
        (9, "q", "/e/a.b", false),
        (1, "q", "/e/a.b", true),
        (9, "", "a.b", false),
        (9, "", "e/a.b", false),
        (9, "", "v/e/a.b", false),
        (9, "", "*/e/a.b", true),
        (9, "", "/e/a/b", false),
        (9, "", "/e/{n/3}", true),
        (9, "", "/e/", true),
        (9, "", "/e/a.{1..3}", true),
        (9, "", "/e/#.a.#.b.#", true),
        (9, "", "/e/#.a.#.b.#.#", false),
        (9, "q", "$share/q//e/a.#", true),
        (9, "q", "$share/q//e/a.{1..3}", true),
        (9, "q", "$share/q//e/a.{n}", false),
        (9, "q", "$share/q//e/a.{n/10}", false),
        (9, "q", "$share/r//e/a.#", false),
        (9, "", "$share///e/a.#", false),
        (9, "q-{n%3}", "$share/q-{n%3}//e/a", true),
        (9, "q-{n%3}", "$share/q-{n%3}//e/a.{n%3}", true),
        (9, "q-{n%3}", "$share/q-{n%3}//e/a.{n%2}", false),
        (9, "q-{n%3}{n%2}", "$share/q-{n%3}{n%2}//e/a.{n%3}", false),
        (9, "q-{n%3}", "$share/q-{n%3}///q-{n%3}", true),
        (9, "q-{n}", "//q-{n}", true),
        (9, "q-{n}", "//q", false),
        (9, "", "//", true),
        (9, "#", "$share/#///#", false),
        (9, "q", "$share/q///q", true),
        (9, "", "/amq.direct/a.*", false),
        (9, "", "/amq.direct/a.b", true),
        (9, "", "/amq.fanout/a", false),
        (9, "", "/amq.fanout/#", true),
    ];
    for (count, name, filter, expected) in cases {
        let own = clients(count, &[(name, filter)]);
        assert_eq!(is_possible(&own), expected, "{count} clients, {name}, {filter}");
    }
    assert!(!is_possible(&clients(9, &[("q-{n}", "/e/a"), ("q-{n}", "/e/b")])));
    assert!(is_possible(&clients(9, &[("", "/e/a"), ("", "/e/b")])));
    for (kind, filter, expected) in [
        (ExchangeType::Direct, "/e/a.#", false),
        (ExchangeType::Fanout, "/e/a", false),
        (ExchangeType::Headers, "/e/a", true),
        (ExchangeType::Topic, "/e/*.a", true),
    ] {
        let (name, arguments) = ("e".into(), Vec::new());
        let exchange = PlannedExchange { name, kind, durable: false, arguments };
        let own = with(&clients(9, &[("", filter)]), |own| own.exchanges = vec![exchange]);
        assert_eq!(is_possible(&own), expected, "{kind:?} {filter}");
    }
}

#[test]
fn lists_have_one_entry_for_each_publication_or_subscription() {
    let mandatory: fn(&mut Amqp) -> &mut Vec<bool> = |own| &mut own.mandatory;
    let persistent: fn(&mut Amqp) -> &mut Vec<bool> = |own| &mut own.persistent;
    let own = clients(9, &[("", "/e/a"), ("", "/e/b")]);
    assert!(is_possible(&own));
    assert!(!is_possible(&with(&own, |own| own.channels = 0)));
    assert!(!is_possible(&with(&own, |own| drop(own.queues.pop()))));
    let publishes = Population { publications: vec![publication("/e/a", 0)], ..own };
    for (flags, expected) in [(vec![], true), (vec![true], true), (vec![true, false], false)] {
        for of in [mandatory, persistent] {
            let own = with(&publishes, |own| flags.clone_into(of(own)));
            assert_eq!(is_possible(&own), expected, "{flags:?}");
        }
    }
}

#[test]
fn acknowledgements_and_confirms_share_a_channel_with_their_like() {
    let own = clients(9, &[("", "/e/a"), ("", "/e/b")]);
    let multiple = |every| Acknowledge::Multiple { every };
    for (channels, kinds, prefetch, expected) in [
        (1, [Acknowledge::Each, Acknowledge::None], 0, true),
        (1, [multiple(5), multiple(5)], 0, true),
        (1, [multiple(5), multiple(5)], 5, true),
        (1, [multiple(5), multiple(5)], 4, false),
        (1, [multiple(5), multiple(6)], 0, false),
        (1, [multiple(5), Acknowledge::Never], 0, false),
        (2, [multiple(5), Acknowledge::Never], 0, true),
        (1, [multiple(0), multiple(0)], 0, false),
    ] {
        let own = with(&own, |own| {
            own.channels = channels;
            for (queue, kind) in own.queues.iter_mut().zip(kinds) {
                (queue.acknowledge, queue.prefetch) = (kind, prefetch);
            }
        });
        assert_eq!(is_possible(&own), expected, "{channels} {kinds:?} {prefetch}");
    }
    for (kind, refused, expected) in [
        (Acknowledge::Each, 1.0, true),
        (Acknowledge::Each, 1.1, false),
        (Acknowledge::Each, -0.1, false),
        (Acknowledge::None, 0.0, true),
        (Acknowledge::None, 0.1, false),
    ] {
        let own = with(&own, |own| {
            own.queues.iter_mut().for_each(|q| (q.acknowledge, q.refused) = (kind, refused));
        });
        assert_eq!(is_possible(&own), expected, "{kind:?} {refused}");
    }
    for (channels, levels, expected) in
        [(1, [0, 0], true), (1, [0, 1], false), (2, [0, 1], true), (2, [1, 0], true)]
    {
        let publications = levels.map(|qos| publication("/e/a", qos)).into();
        let own = Population { publications, ..own.clone() };
        let own = with(&own, |own| own.channels = channels);
        assert_eq!(is_possible(&own), expected, "{channels} {levels:?}");
    }
}

#[test]
fn a_broker_keeps_the_messages_of_queues_that_outlast_their_clients() {
    let own = clients(9, &[("q-{n}", "/e/a")]);
    assert!(own.keeps_session());
    for change in [
        |queue: &mut PlannedQueue| queue.exclusive = true,
        |queue: &mut PlannedQueue| queue.auto_delete = true,
        |queue: &mut PlannedQueue| queue.name = Template::new("").unwrap(),
    ] {
        assert!(!with(&own, |own| change(&mut own.queues[0])).keeps_session());
    }
}

#[test]
fn members_of_one_queue_have_one_filter() {
    let members = |filters: [&str; 2]| {
        let members = filters.map(|filter| clients(3, &[("q", filter)]));
        check_shared(&plan(members.into(), 1, true))
    };
    assert!(members(["$share/q//e/a", "$share/q//e/a"]).is_ok());
    assert!(members(["$share/q//e/a", "$share/r//e/b"]).is_ok());
    assert!(members(["$share/q//e/a", "$share/q//e/#"]).is_err());
}

fn deliveries(populations: Vec<Population>, from: usize, name: &str) -> Vec<u64> {
    let plan = plan(populations, 1, true);
    let names = plan.populations[from].capabilities().names;
    let mut counts = Vec::new();
    let origin = MessageOrigin { names, target: 0, excluded: None, carried: None };
    FanOut::new(&plan).deliveries(name, origin, &mut counts);
    counts
}

#[test]
fn one_broker_delivers_messages_of_mqtt_and_amqp_under_twin_names() {
    let mqtt = || population(10, 0, &["dev/+/out", "#"]);
    let amqp = |filter| clients(5, &[("", filter)]);
    for (from, name, filter, expected) in [
        (0, "dev/7/out", "/amq.topic/dev.*.out", [10, 5]),
        (0, "dev/7/out", "/amq.topic/dev.#", [10, 5]),
        (0, "dev/7/out", "/e/dev.#", [10, 0]),
        (0, "dev/7.1/out", "/amq.topic/#", [10, 0]),
        (0, "dev//out", "/amq.topic/#", [10, 0]),
        (0, "$x", "/amq.topic/#", [0, 5]),
        (1, "/amq.topic/dev.7.out", "/amq.topic/dev.#", [10, 5]),
        (1, "/amq.topic/dev..out", "/amq.topic/dev.#", [0, 5]),
        (1, "/amq.topic/", "/amq.topic/#", [0, 5]),
        (1, "/e/dev.7.out", "/e/dev.#", [0, 5]),
        (1, "//q", "/e/#", [0, 0]),
    ] {
        let found = deliveries(vec![mqtt(), amqp(filter)], from, name);
        assert_eq!(found, expected, "{name} {filter}");
    }
}

#[test]
fn a_shared_queue_receives_one_copy_and_each_other_queue_its_own() {
    let shared = clients(5, &[("q", "$share/q//e/#.{a|b}")]);
    let own = clients(3, &[("", "/e/x.a"), ("", "/e/#")]);
    assert_eq!(deliveries(vec![shared.clone(), own.clone()], 0, "/e/x.a"), [1, 3]);
    assert_eq!(deliveries(vec![shared, own.clone()], 0, "/e/x.c"), [0, 3]);
    let fan_out = FanOut::new(&plan(vec![own], 1, true));
    assert_eq!(fan_out.filters_of(0, 1, "/e/x.a", |_| true), 2);
}
