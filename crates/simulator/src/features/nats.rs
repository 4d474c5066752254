//! Clients of NATS in simulated runs: draws, the server's script, and checks.

use std::collections::BTreeMap;

use plan::{
    End, Nats, Pace, Payload, PlannedProtocol, PlannedRetainHandling, Population, Property,
    PropertyValue, Publication, Template,
};
use testkit::Rng;
use testkit::plans::{self, template};

use crate::case::Case;
use crate::course::Run;
use crate::features::groups::Sharing;
use crate::nats::{self, Conduct, NatsScript};
use crate::totals::{Totals, flows_from, population_of, publishers, speaks_nats};
use crate::weather::{Climate, MS, S};

/// Password that the server wants.
pub const PASSWORD: &str = "letmein";

/// Draws plans of NATS clients, alone or beside clients of MQTT at one server, apart from the other
/// draws: whatever was drawn before is put into the terms of NATS.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x4a75_0032);
    if !rng.chance(25) {
        return;
    }
    let has_tls = case.plan.targets.iter().any(|target| target.tls);
    let is_mixed = rng.chance(40);
    for population in &mut case.plan.populations {
        population.responds = None;
        if population.takes_over.take().is_some()
            && let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol
        {
            mqtt.client_id = template("untaken-{n}");
        }
        population.publications.iter_mut().for_each(simplify);
        if !is_mixed || rng.chance(50) {
            convert(population, &mut rng);
            population.tls = has_tls.then(plans::unverified);
        }
    }
    case.plan.targets.iter_mut().for_each(as_server);
}

/// Lets a target have a NATS server.
pub fn as_server(target: &mut plan::Target) {
    target.ports.insert("nats".into(), nats::PORT);
    target.websocket = None;
}

/// Clients of NATS with a name.
pub fn protocol(echo: bool) -> PlannedProtocol {
    PlannedProtocol::Nats(Box::new(Nats {
        client_name: template("client-{n}"),
        echo,
        token: None,
        seed: None,
        jwt: None,
        streams: Vec::new(),
        consumers: Vec::new(),
    }))
}

fn convert(population: &mut Population, rng: &mut Rng) {
    population.protocol = protocol(rng.chance(70));
    let password = rng.pick(&[PASSWORD, PASSWORD, PASSWORD, "wrong"]);
    population.username = Some(template("user-{n}"));
    population.password = Some(template(password));
    if population.end == End::DisconnectWithWill {
        population.end = End::Disconnect;
    }
    for own in &mut population.subscriptions {
        (own.filter, own.qos) = (subject(&own.filter), 0);
        (own.no_local, own.retain_as_published, own.identifier) = (false, false, None);
        own.retain_handling = PlannedRetainHandling::default();
    }
    for own in &mut population.publications {
        convert_publication(own, rng);
    }
}

/// Leaves out what messages have beside their payload in MQTT 5 only.
pub fn simplify(own: &mut Publication) {
    own.request = false;
    own.properties.retain(|property| property.name != "response_topic");
    if matches!(own.payload, Payload::Text { .. }) {
        own.payload = Payload::Fixed { bytes: 100 };
    }
}

fn convert_publication(own: &mut Publication, rng: &mut Rng) {
    own.topic = subject(&own.topic);
    own.qos = 0;
    with_header(own, rng);
}

/// Leaves out what only MQTT has, and draws a header.
pub fn with_header(own: &mut Publication, rng: &mut Rng) {
    (own.retain, own.topic_alias) = (false, false);
    own.properties.clear();
    if rng.chance(40) {
        let value = PropertyValue::Text(template("site {n}"));
        own.properties.push(Property { name: "header".into(), key: Some("Site".into()), value });
    }
    if own.pace == Pace::Closed {
        own.pace = plans::even(50 * MS);
    }
}

/// A topic or filter of MQTT as a subject; the name of a group stays in front.
pub fn subject(source: &Template) -> Template {
    let source = source.source();
    let group = source.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
    let (front, name) =
        group.map_or((String::new(), source), |(group, name)| (format!("$share/{group}/"), name));
    let tokens = name.split('/').map(|level| match level {
        "+" => "*",
        "#" => ">",
        level => level,
    });
    template(&format!("{front}{}", tokens.collect::<Vec<_>>().join(".")))
}

/// The script of the server in a case.
pub fn script(climate: Climate, seed: u64) -> NatsScript {
    let mut rng = Rng::new(seed ^ 0x4a75_5c21);
    let ping_ns = rng.pick(&[200 * MS, 2 * S, u64::MAX]);
    let script = NatsScript { ping_ns, ..NatsScript::plain() };
    if climate != Climate::Storm {
        return script;
    }
    NatsScript {
        gives_up: true,
        password: rng.chance(30).then_some(PASSWORD),
        payload_max: rng.pick(&[80, 400, 1 << 20, 1 << 20]),
        pending_max: rng.pick(&[3_000, 50_000, usize::MAX]),
        conduct: Box::new(move || conduct(&mut rng)),
        ..script
    }
}

fn conduct(rng: &mut Rng) -> Conduct {
    match rng.below(100) {
        0..3 => Conduct::Mute,
        3..6 => Conduct::NotNats,
        6..9 => Conduct::EndBehindInfo,
        9..12 => Conduct::EndBehindPong,
        12..15 => Conduct::Refuse(rng.pick(&[
            "Authorization Violation",
            "Authentication Timeout",
            "maximum connections exceeded",
            "Something New",
        ])),
        15..18 => Conduct::NoPong,
        18..22 => Conduct::Line(rng.pick(&[
            "MSG\r\n",
            "MSG a 2 x\r\n\r\n",
            "MSG a 2 1\r\nxyz\r\n",
            "HMSG a 2 9 4\r\nNATS\r\n",
            "HMSG a 2 4 4\r\nhttp\r\n",
            "HELLO\r\n",
            "PONG\r\nPONG\r\nPONG\r\nPONG\r\n",
        ])),
        22..27 => Conduct::Verbose,
        27..32 => Conduct::Bytewise,
        32..36 => Conduct::Strict,
        36..38 => Conduct::NeedsTls,
        _ => Conduct::Plain,
    }
}

/// Clients of NATS acknowledge nothing, and receive each message once by each subscription.
pub fn check(run: &Run, totals: &Totals) {
    let plan = run.plan();
    let is_played = |p: usize| speaks_nats(&plan.populations[p]);
    for p in (0..plan.populations.len()).filter(|&p| is_played(p)) {
        let (counters, gauges) = (&totals.counters[p], &totals.gauges[p]);
        assert_eq!((counters.acked_total, gauges.in_flight), (0, 0));
    }
    let copies = copies_by_wire(run);
    for (&(from, to), flow) in totals.flows.iter().filter(|(flow, _)| is_played(flow.1)) {
        // The program of a flow may carry a message twice.
        let is_carried = flows_from(run, from) > 0;
        if Sharing::of(to, plan) != Sharing::None || !is_played(from) || is_carried {
            continue;
        }
        let what = format!("flow {from} to {to}: {flow:?}");
        assert_eq!(flow.duplicate_total, 0, "{what}");
        let read = copies.get(&(from, to)).copied().unwrap_or(0);
        assert!(flow.copies_total <= read, "{what}, {read} copies read");
        if run.case.handles_all(to) {
            assert_eq!((flow.copies_total, flow.reordered_total), (read, 0), "{what}");
        }
    }
}

/// Messages that clients have read again, by flow.
fn copies_by_wire(run: &Run) -> BTreeMap<(usize, usize), i64> {
    let publishers = publishers(run.plan());
    let mut copies = BTreeMap::new();
    for ((client, (key, _)), &read) in &run.network().wire.received {
        let flow = (publishers[(key >> 48) as usize].0, population_of(run, *client));
        *copies.entry(flow).or_default() += read.cast_signed() - 1;
    }
    copies
}
