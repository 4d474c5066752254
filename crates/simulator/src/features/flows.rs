//! Flows in simulated runs: how a case draws them with the program that carries their messages, and
//! what the record of the program says about the deliveries.

use std::collections::{BTreeMap, BTreeSet};

use mqtt::QoS;
use plan::{
    Acknowledge, Action, Histogram, Lifetime, MqttVersion, Payload, Plan, PlannedFlow,
    PlannedProtocol, Population, Publication,
};
use testkit::Rng;
use testkit::plans::{self, number, subscription, template};

use crate::carrier::{CarriedMessage, CarrierFate, CarrierProgram, CarrierScript};
use crate::case::Case;
use crate::course::Run;
use crate::features::groups::Sharing;
use crate::features::{amqp, nats};
use crate::spoken::Spoken;
use crate::totals::{StreamName, Totals, flows_from, matches, names_of, population_of, publishers};
use crate::weather::{MS, S};
use crate::wire::StreamPlace;

/// Time from a publication of the program to the delivery, at most.
const DELIVERY_NS: u64 = 50 * MS;

/// Draws flows apart from the other draws, mostly to a population of their own, perhaps at a broker
/// of its own.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xf10e_0057);
    let found = publications(&case.plan);
    if found.is_empty() || !rng.chance(30) {
        return;
    }
    let own = if rng.chance(80) { Some(add_receivers(case, &mut rng)) } else { None };
    for index in 0..1 + rng.below(3) {
        let (population, publication) = rng.pick(&found);
        let at = own.unwrap_or_else(|| rng.below(case.plan.populations.len()));
        let topic = &case.plan.populations[population].publications[publication].topic;
        let variables = ["{n}", "{1..3}"].into_iter().filter(|name| topic.source().contains(name));
        let variables = variables.filter(|_| rng.chance(70)).map(|name| format!("/{name}"));
        let name = format!("f/{}{}", index % 2, variables.collect::<String>());
        let to = in_words_of(&case.plan.populations[at].protocol, &name);
        case.plan.flows.push(PlannedFlow { population, publication, to, at });
    }
}

/// Publications whose messages have a stamp that programs keep: population and index.
fn publications(plan: &Plan) -> Vec<(usize, usize)> {
    let is_stamped = |own: &Publication| match &own.payload {
        Payload::Fixed { bytes } => *bytes as usize >= plan::STAMP_BYTES,
        Payload::Records { stamped, .. } => *stamped,
        payload => matches!(payload, Payload::Gaussian { .. }),
    };
    let of = |(p, population): (usize, &Population)| {
        let own = population.publications.iter().enumerate();
        let own = own.filter(|(_, own)| is_stamped(own) && !own.request);
        own.map(|(index, _)| (p, index)).collect::<Vec<_>>()
    };
    plan.populations.iter().enumerate().flat_map(of).collect()
}

/// A topic or filter of MQTT in the words of a protocol.
fn in_words_of(protocol: &PlannedProtocol, name: &str) -> plan::Template {
    match Spoken::of(protocol) {
        Spoken::Mqtt => template(name),
        Spoken::Nats => nats::subject(&template(name)),
        Spoken::Amqp => amqp::key(&template(name)),
    }
}

/// Adds a population that receives; returns its index.
fn add_receivers(case: &mut Case, rng: &mut Rng) -> usize {
    let (index, plan) = (case.plan.populations.len(), &mut case.plan);
    let mut population = plans::population(&format!("c{index}"), 1 + rng.below(4) as u32);
    population.first = rng.below(3) as u64;
    let (spoken, is_apart) = rng.pick(&places(plan));
    population.at.count = plan.targets.len();
    if is_apart {
        let mut target = plan.targets[0].clone();
        (target.quic, target.websocket, target.tls) = (false, None, rng.chance(30));
        plan.targets.push(target);
        (population.at.first, population.at.count) = (1, 1);
    }
    let group = rng.chance(25).then(|| format!("g{index}"));
    let filters = if group.is_some() { 1 } else { 1 + rng.below(2) };
    // A queue that clients share has one key.
    let kinds = if spoken == Spoken::Amqp && group.is_some() { 3 } else { 5 };
    let names = &["#", "f/#", "f/+", "f/0/{n}", "+/+/{n}/#"][..kinds];
    let names: Vec<&str> = (0..filters).map(|_| rng.pick(names)).collect();
    population.protocol = match spoken {
        Spoken::Mqtt => of_mqtt(population.protocol, plan, rng),
        Spoken::Nats => nats::protocol(true),
        Spoken::Amqp => {
            let queue = |_| {
                let mut queue = amqp::queue(group.as_deref().unwrap_or(""), Acknowledge::Each);
                queue.exclusive = group.is_none();
                queue
            };
            amqp::protocol(names.iter().map(queue).collect())
        }
    };
    let own = &mut plan.targets[population.at.first..];
    match spoken {
        Spoken::Mqtt => {}
        Spoken::Nats => own.iter_mut().for_each(nats::as_server),
        Spoken::Amqp => own.iter_mut().for_each(amqp::as_broker),
    }
    population.tls = own.iter().any(|target| target.tls).then(plans::unverified);
    if spoken != Spoken::Mqtt {
        population.username = Some(template("user-{n}"));
        population.password = Some(template(nats::PASSWORD));
    }
    let qos = if spoken == Spoken::Mqtt { rng.below(3) as u8 } else { 0 };
    let filter = |name: &&str| {
        let plain = in_words_of(&population.protocol, name);
        let front = group.as_ref().map_or(String::new(), |group| format!("$share/{group}/"));
        subscription(&format!("{front}{}", plain.source()), qos)
    };
    population.subscriptions = names.iter().map(filter).collect();
    if rng.chance(10) {
        let (min_ns, max_ns, offline_ns) = (S / 5, S, Some(S / 5));
        population.lifetime = Some(Lifetime { min_ns, max_ns, offline_ns, recorded: None });
    } else if rng.chance(10) {
        population.read_rate_per_s = Some(rng.pick(&[20.0, 900.0]));
    }
    join_stages(plan, &population, rng);
    plan.populations.push(population);
    if rng.chance(10) {
        let stage = rng.below(plan.stages.len());
        case.exclusions.push((stage, rng.bits() % S, index));
    }
    index
}

/// Protocols of a further population, and whether it has a broker of its own. Messages with
/// properties are for clients that read them. A target over QUIC is for MQTT only.
fn places(plan: &Plan) -> Vec<(Spoken, bool)> {
    let speaks = |spoken| plan.populations.iter().any(|own| Spoken::of(&own.protocol) == spoken);
    let has_beside = has_beside(plan);
    let over_quic = plan.targets.iter().any(|target| target.quic);
    let mut places = vec![(Spoken::Mqtt, false)];
    if !over_quic {
        places.push((Spoken::Amqp, false));
    }
    if !over_quic && !has_beside {
        places.push((Spoken::Nats, false));
    }
    let all = [Spoken::Mqtt, Spoken::Nats, Spoken::Amqp].into_iter();
    let new = all.filter(|spoken| !plan.targets_joined && !speaks(*spoken));
    places.extend(new.map(|spoken| (spoken, true)));
    places
}

/// Returns `true` if some messages have a part beside their payload that receivers must read.
fn has_beside(plan: &Plan) -> bool {
    let publications = || plan.populations.iter().flat_map(|own| &own.publications);
    plan.populations.iter().any(|own| own.responds.is_some())
        || publications().any(|own| own.request || matches!(own.payload, Payload::Text { .. }))
}

fn of_mqtt(protocol: PlannedProtocol, plan: &Plan, rng: &mut Rng) -> PlannedProtocol {
    let PlannedProtocol::Mqtt(mut mqtt) = protocol else { return protocol };
    mqtt.clean_session = rng.chance(75);
    if has_beside(plan) || rng.chance(40) {
        mqtt.version = MqttVersion::V5;
        if !mqtt.clean_session {
            mqtt.properties = vec![number("session_expiry_interval", u32::MAX)];
        }
    }
    PlannedProtocol::Mqtt(mqtt)
}

/// Lets the last population of a plan connect and leave with the others, and perhaps leave and
/// return between.
fn join_stages(plan: &mut Plan, population: &Population, rng: &mut Rng) {
    let (index, last) = (plan.populations.len(), plan.stages.len() - 1);
    let returns = rng.chance(30);
    for (s, stage) in plan.stages.iter_mut().enumerate() {
        let is_end = s == 0 || s == last;
        match &mut stage.action {
            Action::Connect { clients, .. } if is_end || returns => {
                clients.iter_mut().for_each(|clients| clients.push(population.clients));
            }
            Action::Disconnect { .. } if is_end || returns => {}
            _ => continue,
        }
        stage.populations.push(index);
    }
}

/// The program of a case; `None` without flows.
pub fn carrier(case: &Case, seed: u64) -> Option<CarrierProgram> {
    let mut rng = Rng::new(seed ^ 0xf10e_5c21);
    let deviates = rng.chance(60);
    let script = CarrierScript {
        delay_ns: rng.pick(&[0, MS, 30 * MS, 300 * MS]),
        qos: rng.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]),
        retain: false,
        again_ns: rng.pick(&[0, S / 10, S]),
        fate: Box::new(move |_| match rng.below(100) {
            _ if !deviates => CarrierFate::Carry,
            0..4 => CarrierFate::Drop,
            4..8 => CarrierFate::Double,
            8..12 => CarrierFate::Hold,
            12..16 => CarrierFate::Late(rng.pick(&[1, 5 * MS, 400 * MS])),
            16..19 => CarrierFate::Strip,
            _ => CarrierFate::Carry,
        }),
    };
    (!case.plan.flows.is_empty()).then(|| CarrierProgram::new(&case.plan, script))
}

/// Copies of a message for a receiver.
#[derive(Default)]
struct ExpectedCopies {
    /// Flows under whose names the receiver expects the message; `None`: the topic.
    ways: Vec<Option<usize>>,
    /// Copies that publishers and the program gave the broker; the least without those that came
    /// as the receiver left.
    least: u64,
    most: u64,
    /// Copies that the receiver has read.
    read: u64,
}

/// By message and receiver. The receivers are clients, by their index over all agents; a group of
/// one population is one.
type FlowRecord = BTreeMap<(StreamPlace, u32), ExpectedCopies>;

/// ExpectedCopies of the messages of `from` at the receivers of `to`.
fn record(run: &Run, from: usize, to: usize) -> FlowRecord {
    let (network, publishers) = (run.network(), publishers(run.plan()));
    let mut by_place: BTreeMap<StreamPlace, Vec<&CarriedMessage>> = BTreeMap::new();
    for own in network.peer.carrier.iter().flat_map(|carrier| &carrier.carried) {
        by_place.entry(own.place).or_default().push(own);
    }
    let end_ns = network.wire.stage_ns - DELIVERY_NS;
    let mut record = FlowRecord::new();
    for (&place, &(sent, _)) in &network.wire.sent {
        let (publisher, names) = names_of(place.0, run.plan(), &publishers);
        for name in names.into_iter().filter(|_| publisher == from) {
            let carried = by_place.get(&place).into_iter().flatten();
            let own: Vec<_> = carried.filter(|own| Some(own.flow) == name.flow).collect();
            own.iter().for_each(|own| assert_eq!(own.name, name.text));
            let before = |until_ns: u64| {
                let own = own.iter().filter(|own| !own.is_stripped() && own.at_ns < until_ns);
                own.count() as u64
            };
            let (least, most) = match name.flow {
                None => (sent, sent),
                Some(_) => (before(end_ns), before(u64::MAX)),
            };
            for (receiver, copies) in receivers(run, (from, place.0 as u32), to, &name) {
                let arrivals = record.entry((place, receiver)).or_default();
                arrivals.ways.push(name.flow);
                arrivals.least += copies * least;
                arrivals.most += copies * most;
            }
        }
    }
    let is_group = Sharing::of(to, run.plan()) == Sharing::One;
    for ((client, place), &read) in &network.wire.received {
        if publishers[(place.0 >> 48) as usize].0 == from && population_of(run, *client) == to {
            let receiver = if is_group { 0 } else { run.global(*client) };
            record.entry((*place, receiver)).or_default().read += read;
        }
    }
    record
}

/// Receivers of a client's message under a name in population `to`, each with its copies.
fn receivers(
    run: &Run,
    publisher: (usize, u32),
    to: usize,
    name: &StreamName,
) -> BTreeMap<u32, u64> {
    let population = &run.plan().populations[to];
    let is_group = Sharing::of(to, run.plan()) == Sharing::One;
    let skips_own = population.skips_own_messages() && name.flow.is_none();
    let clients = (0..population.clients).filter(|&c| !skips_own || publisher != (to, c));
    let copies = clients.map(|client| {
        let n = population.first + u64::from(client);
        (client, matches(&run.case, population, n, name) as u64)
    });
    let copies = copies.filter(|(_, copies)| *copies > 0);
    match population.mqtt() {
        _ if is_group => copies.map(|_| (0, 1)).collect(),
        Some(_) => copies.map(|(client, _)| (client, 1)).collect(),
        None => copies.collect(),
    }
}

/// Deliveries of a flow that are lost in weather without faults because of the program: at least
/// and at most, but for slow readers.
pub fn lost(run: &Run, from: usize, to: usize) -> (i64, i64) {
    if flows_from(run, from) == 0 {
        return (0, 0);
    }
    let (mut least, mut most, mut again) = (0, 0, 0);
    for arrivals in record(run, from, to).into_values() {
        let ways = arrivals.ways.len() as i64;
        least += ways - i64::from(arrivals.most > 0);
        most += ways - i64::from(arrivals.least > 0);
        again += arrivals.most.saturating_sub(1).cast_signed();
    }
    // Each agent counts a message once for a group. What is excluded from loss is not lost.
    match Sharing::of(to, run.plan()) {
        Sharing::None if !run.case.is_excluded(to) => (least, most),
        Sharing::One if !run.case.is_excluded(to) && run.case.agents == 1 => (least, most),
        _ => (-again, most),
    }
}

/// Only messages that the program has stripped have no stamp. Receivers read what publishers and
/// the program gave their broker, and the ledger counts the same.
pub fn check(run: &Run, totals: &Totals) {
    let populations = run.plan().populations.len();
    for p in 0..populations {
        let (counters, network) = (&totals.counters[p], run.network());
        let own = network.wire.stripped.iter().filter(|(c, _)| population_of(run, **c) == p);
        let (read, counted) = (own.map(|(_, read)| read).sum::<u64>(), counters.unstamped_total);
        assert!(counted <= read, "{counted} of {read} messages without a stamp");
        assert!(counted == read || !run.case.handles_all(p), "{counted} of {read} without a stamp");
    }
    for from in (0..populations).filter(|&from| flows_from(run, from) > 0) {
        let is_exact = |&to: &usize| {
            run.case.handles_all(to)
                && [from, to].iter().all(|&p| run.case.is_static(p))
                && Sharing::of(to, run.plan()) != Sharing::Several
                && run.overrun.is_empty()
        };
        (0..populations).filter(is_exact).for_each(|to| check_flow(run, totals, (from, to)));
    }
}

fn check_flow(run: &Run, totals: &Totals, (from, to): (usize, usize)) {
    let (record, flow) = (record(run, from, to), totals.flow(from, to));
    let population = &run.plan().populations[to];
    let what = format!("flow {from} to {to}: {flow:?}");
    for (key, ExpectedCopies { least, most, read, .. }) in &record {
        assert!((least..=most).contains(&read), "{what}, {key:?}: {read} of {least} to {most}");
    }
    if population.retains_as_published() {
        return;
    }
    let copies: u64 = record.values().map(|own| own.read.saturating_sub(1)).sum();
    let counted = flow.duplicate_total + flow.copies_total + flow.stale_total;
    // Each agent counts a message once for a group.
    let is_apart = Sharing::of(to, run.plan()) == Sharing::None || run.case.agents == 1;
    assert!(counted <= copies.cast_signed(), "{what}, {copies} copies");
    assert!(counted == copies.cast_signed() || !is_apart, "{what}, {copies} copies");
    let mut arrivals = record.values();
    let is_certain = arrivals.all(|own| own.least == own.most && !own.ways.contains(&None));
    let refuses = |protocol: &PlannedProtocol| match protocol {
        PlannedProtocol::Amqp(options) => options.queues.iter().any(|queue| queue.refused > 0.0),
        _ => false,
    };
    if !is_certain || refuses(&population.protocol) || record.is_empty() {
        return;
    }
    if Sharing::of(to, run.plan()) == Sharing::None {
        assert_eq!(flow.reordered_total, reordered(run, &record), "{what}");
    }
    let mut latency = Histogram::default();
    let flows = run.snapshots.iter().flat_map(|snapshot| &snapshot.flows);
    let own = flows.filter(|flow| (flow.from, flow.to) == (from, to));
    own.for_each(|flow| latency.add(&flow.latency_intended));
    let delay_ns = run.network().peer.carrier.as_ref().map_or(0, CarrierProgram::delay_ns);
    assert!(latency.count() == 0 || latency.quantile_ns(0.0) >= delay_ns, "{what}, {delay_ns} ns");
}

/// Messages that come to their receivers after a later one of their stream, by the record.
fn reordered(run: &Run, record: &FlowRecord) -> i64 {
    let (mut seen, mut last) = (BTreeSet::new(), BTreeMap::<(u32, u64), u32>::new());
    let (network, mut reordered) = (run.network(), 0);
    let carried = network.peer.carrier.iter().flat_map(|carrier| &carrier.carried);
    for own in carried.filter(|own| !own.is_stripped()) {
        let receivers = record.range((own.place, 0)..=(own.place, u32::MAX));
        let receivers = receivers.filter(|(_, arrivals)| arrivals.ways.contains(&Some(own.flow)));
        for (&(place, receiver), _) in receivers {
            if seen.insert((receiver, place)) {
                let last = last.entry((receiver, place.0)).or_insert(place.1);
                reordered += i64::from(place.1 < *last);
                *last = place.1.max(*last);
            }
        }
    }
    reordered
}
