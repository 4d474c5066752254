//! Flows in virtual time: a program carries messages between brokers of MQTT, NATS and AMQP, and
//! errs in one way each.

use mqtt::QoS;
use plan::{
    Acknowledge, Action, FlowCounters, Lifetime, MqttVersion, PlannedFlow, PlannedProtocol,
    Population, Snapshot,
};
use testkit::{Broker, Script};

use crate::carrier::{CarrierFate, CarrierProgram, CarrierScript};
use crate::case::{Case, case};
use crate::checks;
use crate::course::Run;
use crate::features::{amqp, nats};
use crate::peer::Peer;
use crate::spoken::Spoken;
use crate::totals::Totals;
use crate::weather::{Climate, Fault, MS, S, Weather};
use testkit::plans::{self, number, publication, receivers_away, stage, subscription, template};

const PROTOCOLS: [Spoken; 3] = [Spoken::Mqtt, Spoken::Nats, Spoken::Amqp];
/// Publishers, and messages of each in ten seconds.
const PUBLISHERS: u32 = 10;
const MESSAGES: i64 = 100;
const SENT: i64 = PUBLISHERS as i64 * MESSAGES;

/// A topic or filter of MQTT in the words of a protocol; a front of AMQP has a virtual host.
fn named(spoken: Spoken, name: &str) -> String {
    match spoken {
        Spoken::Mqtt => name.into(),
        Spoken::Nats => nats::subject(&template(name)).source().into(),
        Spoken::Amqp => {
            let group = name.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
            let front = group.map_or(String::new(), |(group, _)| format!("$share/{group}/"));
            front + amqp::key(&template(name)).source()
        }
    }
}

/// Clients of a protocol at the broker that speaks it, with filters in the words of MQTT.
fn clients(spoken: Spoken, name: &str, count: u32, filters: &[&str]) -> Population {
    let mut population = plans::population(name, count);
    let filters = filters.iter().map(|filter| named(spoken, filter));
    population.subscriptions = filters.map(|filter| subscription(&filter, 2)).collect();
    match spoken {
        Spoken::Mqtt => return population,
        Spoken::Nats => population.protocol = nats::protocol(true),
        Spoken::Amqp => {
            let queue = |own: &plan::Subscription| {
                let group = own.filter.source().strip_prefix("$share/");
                let name = group.and_then(|rest| Some(rest.split_once('/')?.0));
                let mut queue = amqp::queue(name.unwrap_or(""), Acknowledge::Each);
                queue.exclusive = name.is_none();
                queue
            };
            population.protocol =
                amqp::protocol(population.subscriptions.iter().map(queue).collect());
        }
    }
    population.subscriptions.iter_mut().for_each(|own| own.qos = 0);
    population
}

/// Clients that publish ten messages a second each.
fn publishers(spoken: Spoken, topic: &str) -> Population {
    let qos = if spoken == Spoken::Nats { 0 } else { 1 };
    let publications = vec![publication(&named(spoken, topic), qos, 100 * MS)];
    Population { publications, ..clients(spoken, "publisher", PUBLISHERS, &[]) }
}

/// The flow of the first publication of population 0 to clients of a protocol.
fn flow(spoken: Spoken, to: &str, at: usize) -> PlannedFlow {
    PlannedFlow { population: 0, publication: 0, to: template(&named(spoken, to)), at }
}

/// Publishes for ten seconds. Each protocol has a broker of its own.
fn case_of(populations: Vec<Population>, flows: Vec<PlannedFlow>) -> Case {
    let mut case = case(populations, 10 * S, Weather::fair());
    case.climate = Climate::Fair;
    case.plan.flows = flows;
    with_brokers(&mut case);
    case
}

fn with_brokers(case: &mut Case) {
    case.plan.targets = vec![plans::target(1883); PROTOCOLS.len()];
    nats::as_server(&mut case.plan.targets[1]);
    amqp::as_broker(&mut case.plan.targets[2]);
    for population in &mut case.plan.populations {
        let spoken = Spoken::of(&population.protocol);
        population.at.first = PROTOCOLS.iter().position(|own| *own == spoken).expect("it is one");
    }
}

fn played(case: Case, script: CarrierScript) -> Run {
    let agents = case.agents;
    let mut peer = Peer::new(Broker::new(Script::reliable()));
    peer.carrier = Some(CarrierProgram::new(&case.plan, script));
    Run::play(case, 1, agents, peer)
}

/// The sums of a run that keeps all invariants.
fn totals(case: Case, script: CarrierScript) -> Totals {
    checks::check(&played(case, script))
}

const fn lost(flow: &FlowCounters) -> i64 {
    flow.expected_total - flow.received_total
}

/// Fates of each tenth message of a publisher.
fn each_tenth(fate: CarrierFate) -> CarrierScript {
    CarrierScript::with_fates(move |stamp| match stamp.sequence % 10 {
        9 => fate,
        _ => CarrierFate::Carry,
    })
}

#[test]
fn the_counts_are_those_of_the_program_between_any_two_protocols() {
    let held = CarrierScript::with_fates(|stamp| match stamp.sequence % 11 {
        10 => CarrierFate::Hold,
        _ => CarrierFate::Carry,
    });
    // Lost, duplicate, reordered and unstamped in two subscribers.
    let late = CarrierScript { delay_ns: 300 * MS, ..CarrierScript::plain() };
    for (script, expected) in [
        (late, [0, 0, 0, 0]),
        (each_tenth(CarrierFate::Drop), [200, 0, 0, 0]),
        (each_tenth(CarrierFate::Double), [0, 200, 0, 0]),
        (held, [0, 0, 180, 0]),
        (each_tenth(CarrierFate::Strip), [200, 0, 0, 200]),
        (each_tenth(CarrierFate::Late(250 * MS)), [0, 0, 180, 0]),
    ] {
        let CarrierScript { delay_ns, mut fate, .. } = script;
        let fates: Vec<_> = (0..MESSAGES as u32).map(|sequence| fate(&stamp(sequence))).collect();
        for (from, to) in PROTOCOLS.iter().flat_map(|from| PROTOCOLS.map(|to| (*from, to))) {
            let populations = vec![
                publishers(from, "device/{n}/data"),
                clients(to, "subscriber", 2, &["far/+"]),
                clients(to, "worker", 3, &["$share/workers/far/#"]),
            ];
            let case = case_of(populations, vec![flow(to, "far/{n}", 1)]);
            let fates = fates.clone();
            let script = CarrierScript::with_fates(move |stamp| fates[stamp.sequence as usize]);
            let totals = totals(case, CarrierScript { delay_ns, ..script });
            let what = format!("{from:?} to {to:?}");
            assert_eq!(totals.counters[0].sent_total, SENT as u64, "{what}");
            let [all, group] = [1, 2].map(|to| totals.flow(0, to));
            let unstamped = [1, 2].map(|p| totals.counters[p].unstamped_total.cast_signed());
            let found = [lost(&all), all.duplicate_total, all.reordered_total, unstamped[0]];
            assert_eq!((all.expected_total, found), (2 * SENT, expected), "{what}");
            let found = [lost(&group), group.duplicate_total, unstamped[1]];
            let half = [expected[0], expected[1], expected[3]].map(|count| count / 2);
            assert_eq!((group.expected_total, found), (SENT, half), "{what}");
            let latency = &totals.latency;
            assert!(latency.quantile_ns(0.0) >= delay_ns, "{what}: {delay_ns} ns");
            assert!(latency.quantile_ns(0.5) < delay_ns + 50 * MS, "{what}: {delay_ns} ns");
        }
    }
}

/// A stamp of a message.
fn stamp(sequence: u32) -> plan::Stamp {
    let stream = plan::StreamId { publication: 0, variant: 0, client: 0 };
    let sent = plan::SentAt::plain(0);
    plan::Stamp { run_tag: 0, stream, sequence, intended_ns: 0, sent }
}

#[test]
fn names_have_the_variables_that_the_flow_repeats() {
    for (from, to) in PROTOCOLS.iter().flat_map(|from| PROTOCOLS.map(|to| (*from, to))) {
        for (name, filters, expected) in [
            ("far/{n}/{1..4}", vec!["far/+/+"], 2 * SENT),
            ("far/{n}/{1..4}", vec!["far/{n}/2"], 2 * MESSAGES / 4),
            ("far/{n}/{1..4}", vec!["far/{n}/{1..2}"], 2 * MESSAGES / 2),
            ("far/{1..4}", vec!["far/3"], 2 * SENT / 4),
            ("far/{n}", vec!["far/{n}", "far/7/8"], 2 * MESSAGES),
            ("far", vec!["far"], 2 * SENT),
        ] {
            let populations =
                vec![publishers(from, "device/{n}/{1..4}"), clients(to, "subscriber", 2, &filters)];
            let totals =
                totals(case_of(populations, vec![flow(to, name, 1)]), CarrierScript::plain());
            let flow = totals.flow(0, 1);
            let what = format!("{from:?} to {to:?}, {name} at {filters:?}: {flow:?}");
            assert_eq!((flow.expected_total, flow.received_total), (expected, expected), "{what}");
            assert_eq!((flow.duplicate_total, flow.missing_total), (0, 0), "{what}");
        }
    }
}

#[test]
fn one_publication_has_flows_to_several_brokers() {
    let mut populations = vec![publishers(Spoken::Mqtt, "device/{n}/data")];
    let far = |spoken| clients(spoken, "subscriber", 2, &["far/+"]);
    populations.extend(PROTOCOLS.map(far));
    populations.push(clients(Spoken::Mqtt, "near", 2, &["device/+/data"]));
    let flows = [1, 2, 3].map(|at| flow(PROTOCOLS[at - 1], "far/{n}", at));
    // The program carries each tenth message to two of the three.
    let mut turn = 0;
    let script = CarrierScript::with_fates(move |stamp| {
        turn += 1;
        let is_dropped = stamp.sequence % 10 == 9 && turn % 3 == 0;
        if is_dropped { CarrierFate::Drop } else { CarrierFate::Carry }
    });
    let case = Case { agents: 2, ..case_of(populations, flows.into()) };
    let totals = totals(case, script);
    let lost = [1, 2, 3, 4].map(|to| lost(&totals.flow(0, to)));
    assert_eq!(lost, [0, 0, 200, 0]);
    assert!((1..=4).all(|to| totals.flow(0, to).expected_total == 2 * SENT));
}

#[test]
fn virtual_hosts_keep_the_messages_of_their_clients_apart() {
    let in_host = |mut population: Population, host: &str| {
        if let PlannedProtocol::Amqp(options) = &mut population.protocol {
            options.virtual_host = template(host);
        }
        let change = |name: &plan::Template| template(&format!("{host}{}", name.source()));
        population.publications.iter_mut().for_each(|own| own.topic = change(&own.topic));
        population.subscriptions.iter_mut().for_each(|own| own.filter = change(&own.filter));
        population
    };
    let tenants = |count| clients(Spoken::Amqp, "tenant", count, &["data"]);
    // From the topics of devices into the virtual hosts of their tenants, and from these to a
    // server without.
    let populations =
        vec![publishers(Spoken::Mqtt, "device/{n}/data"), in_host(tenants(4), "host-{n}")];
    let to = PlannedFlow { to: template("host-{n}/e/data"), ..flow(Spoken::Amqp, "", 1) };
    let flow = totals(case_of(populations, vec![to]), CarrierScript::plain()).flow(0, 1);
    assert_eq!((flow.expected_total, flow.received_total), (4 * MESSAGES, 4 * MESSAGES));
    let populations = vec![
        in_host(publishers(Spoken::Amqp, "data"), "host-{n}"),
        clients(Spoken::Nats, "reader", 2, &["host/{n}"]),
        in_host(tenants(4), "host-{n}"),
    ];
    let to = PlannedFlow { to: template("host.{n}"), ..self::flow(Spoken::Nats, "", 1) };
    let totals = totals(case_of(populations, vec![to]), CarrierScript::plain());
    let flows = [1, 2].map(|to| totals.flow(0, to));
    assert_eq!(flows.map(|flow| flow.expected_total), [2 * MESSAGES, 4 * MESSAGES]);
    assert_eq!(flows.map(|flow| lost(&flow)), [0, 0]);
}

#[test]
fn a_queue_at_the_default_exchange_has_its_name_as_its_key() {
    let mut workers = clients(Spoken::Amqp, "worker", 3, &["$share/jobs/jobs"]);
    workers.subscriptions[0].filter = template("$share/jobs///jobs");
    let to = PlannedFlow { to: template("//jobs"), ..flow(Spoken::Amqp, "", 1) };
    let case = case_of(vec![publishers(Spoken::Nats, "device/{n}/job"), workers], vec![to]);
    let flow = totals(case, CarrierScript::plain()).flow(0, 1);
    assert_eq!((flow.expected_total, flow.received_total), (SENT, SENT));
}

#[test]
fn a_subscriber_under_both_names_expects_both_and_the_second_is_a_duplicate() {
    for spoken in PROTOCOLS {
        let populations = vec![
            publishers(spoken, "device/{n}/data"),
            clients(spoken, "both", 2, &["#"]),
            clients(spoken, "far", 2, &["far/#"]),
        ];
        let case = case_of(populations, vec![flow(spoken, "far/{n}", 1)]);
        let totals = totals(case, each_tenth(CarrierFate::Drop));
        let [both, far] = [1, 2].map(|to| totals.flow(0, to));
        assert_eq!((both.expected_total, both.received_total), (4 * SENT, 2 * SENT), "{spoken:?}");
        assert_eq!(both.duplicate_total, 2 * SENT * 9 / 10, "{spoken:?}");
        assert_eq!((lost(&far), far.duplicate_total), (200, 0), "{spoken:?}");
    }
}

#[test]
fn messages_at_the_end_of_a_flow_have_the_twins_of_their_server() {
    for (to, twin) in [(Spoken::Nats, Spoken::Mqtt), (Spoken::Mqtt, Spoken::Nats)] {
        let populations = vec![
            publishers(Spoken::Amqp, "device/{n}/data"),
            clients(to, "subscriber", 2, &["far/+"]),
            clients(twin, "twin", 3, &["far/+"]),
        ];
        let mut case = case_of(populations, vec![flow(to, "far/{n}", 1)]);
        nats::as_server(&mut case.plan.targets[0]);
        case.plan.populations[1..].iter_mut().for_each(|own| own.at.first = 0);
        let totals = totals(case, each_tenth(CarrierFate::Strip));
        for (at, clients) in [(1, 2), (2, 3)] {
            let (flow, unstamped) = (totals.flow(0, at), totals.counters[at].unstamped_total);
            assert_eq!((flow.expected_total, lost(&flow)), (clients * SENT, clients * 100));
            assert_eq!(unstamped.cast_signed(), clients * 100);
        }
    }
}

/// Lets clients of MQTT have sessions without end.
fn keep_session(population: &mut Population) {
    if let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol {
        mqtt.clean_session = false;
        if mqtt.version == MqttVersion::V5 {
            mqtt.properties = vec![number("session_expiry_interval", u32::MAX)];
        }
    }
}

/// A device that publishes ten messages a second while the receivers are connected, away and back.
fn away(receivers: Population, spoken: Spoken) -> (FlowCounters, FlowCounters) {
    let mut device = publishers(Spoken::Mqtt, "device/{n}/data");
    device.clients = 1;
    let populations = vec![device, receivers, clients(spoken, "far", 1, &["far/+"])];
    let mut case = case_of(populations, vec![flow(spoken, "far/{n}", 1)]);
    case.climate = Climate::Storm;
    case.plan.stages = receivers_away(0, 0);
    case.plan.stages[0].populations.push(2);
    let script = CarrierScript { delay_ns: 100 * MS, ..CarrierScript::plain() };
    let totals = totals(case, script);
    (totals.flow(0, 1), totals.flow(0, 2))
}

#[test]
fn clients_that_leave_and_come_back_expect_what_their_broker_has_for_them() {
    for spoken in PROTOCOLS {
        let (flow, far) = away(clients(spoken, "receiver", 3, &["far/+"]), spoken);
        assert_eq!((flow.expected_total, flow.received_total), (3 * 30, 3 * 30), "{spoken:?}");
        assert_eq!((far.expected_total, far.received_total), (70, 70), "{spoken:?}");
    }
    let mut receivers = clients(Spoken::Mqtt, "receiver", 3, &["far/+"]);
    keep_session(&mut receivers);
    let (flow, _) = away(receivers, Spoken::Mqtt);
    assert_eq!((flow.expected_total, flow.received_total), (3 * 70, 3 * 70));
    assert_eq!((flow.queued_total, flow.queued_received_total), (3 * 40, 3 * 40));
}

#[test]
fn clients_with_a_lifetime_expect_what_they_receive() {
    for spoken in PROTOCOLS {
        let mut brief = clients(spoken, "brief", 5, &["far/+"]);
        let (min_ns, max_ns, offline_ns) = (S, 2 * S, Some(S / 2));
        brief.lifetime = Some(Lifetime { min_ns, max_ns, offline_ns, recorded: None });
        let populations = vec![publishers(Spoken::Mqtt, "device/{n}/data"), brief];
        let case = case_of(populations, vec![flow(spoken, "far/{n}", 1)]);
        let flow = totals(case, each_tenth(CarrierFate::Double)).flow(0, 1);
        assert_eq!(flow.expected_total, flow.received_total, "{spoken:?}");
        let most = 5 * SENT;
        assert!((most / 2..most).contains(&flow.received_total), "{spoken:?}: {flow:?}");
        assert!(flow.duplicate_total * 20 > flow.received_total, "{spoken:?}: {flow:?}");
    }
}

#[test]
fn a_drain_that_ends_before_a_slow_program_leaves_all_to_the_next_stage() {
    for to in PROTOCOLS {
        let populations =
            vec![publishers(Spoken::Nats, "device/{n}/data"), clients(to, "far", 2, &["far/#"])];
        let mut case = case_of(populations, vec![flow(to, "far/{n}", 1)]);
        let hold = Action::Hold { duration_ns: 20 * S, changes: Vec::new() };
        case.plan.stages.insert(2, stage(hold, &[]));
        case.climate = Climate::Storm;
        let script = CarrierScript { delay_ns: 15 * S, ..CarrierScript::plain() };
        let run = played(case, script);
        let totals = checks::check(&run);
        let of_stage = |index| {
            let snapshots = run.snapshots.iter().filter(|own: &&Snapshot| own.stage == Some(index));
            let flows = snapshots.flat_map(|snapshot| &snapshot.flows);
            let (mut sum, of_receivers) =
                (FlowCounters::default(), flows.filter(|own| own.to == 1));
            of_receivers.for_each(|own| sum.add(&own.counters));
            (sum.expected_total, sum.received_total)
        };
        assert_eq!(of_stage(1), (2 * SENT, 0), "{to:?}");
        assert_eq!(of_stage(2), (0, 2 * SENT), "{to:?}");
        assert_eq!(lost(&totals.flow(0, 1)), 0, "{to:?}");
        assert!(totals.latency.quantile_ns(0.0) >= 15 * S);
    }
}

#[test]
fn what_the_program_carries_again_after_a_restart_is_a_duplicate() {
    let mut populations = vec![
        publishers(Spoken::Mqtt, "device/{n}/data"),
        clients(Spoken::Mqtt, "receiver", 2, &["far/+"]),
    ];
    populations.iter_mut().for_each(keep_session);
    let mut case = case_of(populations, vec![flow(Spoken::Mqtt, "far/{n}", 1)]);
    let restart = Fault::Restart { down_ns: S / 2, forgets: false };
    // No acknowledgement is under way.
    (case.weather.faults, case.weather.latency_max_ns) = (vec![(5 * S + 5 * MS, restart)], 0);
    case.climate = Climate::Storm;
    let script = CarrierScript { again_ns: S, delay_ns: 30 * MS, ..CarrierScript::plain() };
    let run = played(case, script);
    let flow = checks::check(&run).flow(0, 1);
    let network = run.network();
    let carrier = network.peer.carrier.as_ref().expect("the case has one");
    let again = carrier.seen["carried again after a restart"];
    assert!((90..=100).contains(&again), "{again}");
    assert_eq!((lost(&flow), flow.duplicate_total), (0, 2 * again.cast_signed()), "{flow:?}");
}

#[test]
fn the_program_is_not_bound_to_the_expiry_of_a_message() {
    let of_v5 = |mut population: Population| {
        if let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol {
            mqtt.version = MqttVersion::V5;
        }
        population
    };
    let mut devices = of_v5(publishers(Spoken::Mqtt, "device/{n}/data"));
    devices.publications[0].properties = vec![number("message_expiry_interval", 1)];
    devices.publications[0].retain = true;
    let receivers = |name: &str| {
        let mut receivers = of_v5(clients(Spoken::Mqtt, name, 2, &["far/#"]));
        keep_session(&mut receivers);
        receivers
    };
    let populations = vec![devices, receivers("receiver"), receivers("late")];
    let mut case = case_of(populations, vec![flow(Spoken::Mqtt, "far/{n}", 1)]);
    case.climate = Climate::Storm;
    case.plan.stages = receivers_away(0, 3 * S);
    case.plan.stages[5].populations.push(2);
    let qos = QoS::AtLeastOnce;
    let run = played(case, CarrierScript { retain: true, qos, ..CarrierScript::plain() });
    let totals = checks::check(&run);
    let flow = totals.flow(0, 1);
    // The session of the receivers has all messages, and the broker has kept the last ones.
    assert_eq!(flow.received_total, 2 * 7 * i64::from(PUBLISHERS) * 10, "{flow:?}");
    assert_eq!((lost(&flow), flow.expired_received_total), (0, 0), "{flow:?}");
    let counters = &totals.counters[2];
    assert_eq!(counters.retained_total, 2 * u64::from(PUBLISHERS), "{counters:?}");
    assert_eq!((counters.expiries_checked_total, counters.expiry_violations_total), (0, 0));
}
