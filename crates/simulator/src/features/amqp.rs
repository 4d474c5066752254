//! Clients of AMQP in simulated runs: draws, the broker's script, and checks.

use plan::{
    Acknowledge, Amqp, AmqpMechanism, End, PlannedProtocol, PlannedQueue, PlannedRetainHandling,
    Population, Publication, QueueType, Template,
};
use testkit::Rng;
use testkit::plans::{self, template};

use crate::amqp::{self, AmqpConduct, AmqpScript};
use crate::case::Case;
use crate::course::Run;
use crate::features::nats::{simplify, with_header};
use crate::totals::{Totals, speaks_amqp, speaks_nats};
use crate::weather::{Climate, MS};

/// Password that the broker wants.
pub const PASSWORD: &str = "letmein";
/// Exchange of all messages.
const EXCHANGE: &str = "/e/";

/// Draws plans of AMQP clients apart from the other draws: whatever was drawn before is put into
/// the terms of AMQP, but for recordings, which it has not.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xa3c9_0036);
    let plays_files = case.files.is_some();
    if !rng.chance(20) || plays_files || case.plan.populations.iter().any(speaks_nats) {
        return;
    }
    let has_tls = case.plan.targets.iter().any(|target| target.tls);
    for population in &mut case.plan.populations {
        convert(population, &mut rng);
        population.tls = has_tls.then(plans::unverified);
    }
    case.plan.targets.iter_mut().for_each(as_broker);
}

/// Lets a target have a broker of AMQP.
pub fn as_broker(target: &mut plan::Target) {
    target.ports.insert("amqp".into(), amqp::PORT);
    (target.websocket, target.quic) = (None, false);
}

/// A queue that ends with its client.
pub fn queue(name: &str, acknowledge: Acknowledge) -> PlannedQueue {
    PlannedQueue {
        name: template(name),
        kind: QueueType::Classic,
        exists: false,
        durable: false,
        exclusive: true,
        auto_delete: true,
        arguments: Vec::new(),
        prefetch: 0,
        acknowledge,
        refused: 0.0,
    }
}

/// Clients of AMQP with these queues.
pub fn protocol(queues: Vec<PlannedQueue>) -> PlannedProtocol {
    PlannedProtocol::Amqp(Box::new(Amqp {
        connection_name: template("client-{n}"),
        virtual_host: template("/"),
        mechanism: AmqpMechanism::Plain,
        channels: 1,
        exchanges: Vec::new(),
        queues,
        mandatory: Vec::new(),
        persistent: Vec::new(),
    }))
}

fn convert(population: &mut Population, rng: &mut Rng) {
    population.responds = None;
    population.takes_over = None;
    population.flapping = None;
    if population.end == End::DisconnectWithWill {
        population.end = End::Disconnect;
    }
    let password = rng.pick(&[PASSWORD, PASSWORD, PASSWORD, "wrong"]);
    population.username = Some(template("user-{n}"));
    population.password = Some(template(password));
    let acknowledge = rng.pick(&[
        Acknowledge::None,
        Acknowledge::Each,
        Acknowledge::Each,
        Acknowledge::Multiple { every: 7 },
        Acknowledge::Late { delay_ns: 20 * MS },
        Acknowledge::Never,
    ]);
    let queues = population.subscriptions.iter_mut().map(|own| {
        own.filter = key(&own.filter);
        (own.qos, own.no_local, own.retain_as_published) = (0, false, false);
        own.identifier = None;
        own.retain_handling = PlannedRetainHandling::default();
        let mut queue = queue("", acknowledge);
        if matches!(acknowledge, Acknowledge::Each | Acknowledge::Late { .. }) {
            queue.refused = rng.pick(&[0.0, 0.0, 0.3]);
            queue.prefetch = rng.pick(&[0, 1, 5]);
        }
        queue
    });
    population.protocol = protocol(queues.collect());
    for own in &mut population.publications {
        convert_publication(own, rng);
    }
    let level = population.publications.first().map_or(0, |own| own.qos);
    population.publications.iter_mut().for_each(|own| own.qos = level);
}

fn convert_publication(own: &mut Publication, rng: &mut Rng) {
    own.topic = key(&own.topic);
    own.qos = own.qos.min(1);
    simplify(own);
    with_header(own, rng);
}

/// A topic or filter of MQTT as the name of a key. Members of a group have queues of their own.
pub fn key(source: &Template) -> Template {
    let source = source.source();
    let group = source.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
    let name = group.map_or(source, |(_, name)| name);
    let words = name.split('/').map(|level| if level == "+" { "*" } else { level });
    template(&format!("{EXCHANGE}{}", words.collect::<Vec<_>>().join(".")))
}

/// The script of the broker in a case.
pub fn script(climate: Climate, seed: u64) -> AmqpScript {
    let mut rng = Rng::new(seed ^ 0xa3c9_5c21);
    let script = AmqpScript { part: rng.pick(&[10, 4088]), ..AmqpScript::plain() };
    if climate != Climate::Storm {
        return script;
    }
    AmqpScript {
        gives_up: true,
        password: rng.chance(30).then_some(PASSWORD),
        conduct: Box::new(move || conduct(&mut rng)),
        ..script
    }
}

fn conduct(rng: &mut Rng) -> AmqpConduct {
    match rng.below(100) {
        0..3 => AmqpConduct::Mute,
        3..6 => AmqpConduct::NotAmqp,
        6..9 => AmqpConduct::OtherVersion,
        9..12 => AmqpConduct::EndBehindStart,
        12..15 => AmqpConduct::EndBehindOpen,
        15..18 => AmqpConduct::Refuse(rng.pick(&[
            (403, "ACCESS_REFUSED"),
            (320, "CONNECTION_FORCED"),
            (530, "NOT_ALLOWED"),
        ])),
        18..21 => AmqpConduct::CloseChannel(rng.pick(&[(406, "PRECONDITION_FAILED"), (404, "")])),
        21..25 => AmqpConduct::Bytes(rng.pick(&[
            amqp::GARBAGE,
            b"\x01\0\x01\0\0\0\x04\0\x63\0\x63\xce",
            b"\x03\0\x01\0\0\0\0\xce",
            b"\x01\0\x01\x7f\0\0\0",
            b"\x08\0\0\0\0\0\0\0",
        ])),
        25..30 => AmqpConduct::Pieces(rng.pick(&[9, 50])),
        30..34 => AmqpConduct::Nacks,
        34..40 => AmqpConduct::Blocks,
        40..43 => AmqpConduct::Cancels,
        _ => AmqpConduct::Plain,
    }
}

/// Refusals of the broker are counted, and what a client refuses comes again.
pub fn check(run: &Run, totals: &Totals) {
    let plan = run.plan();
    let peer = &run.network().peer.amqp;
    let seen = |kind| peer.seen.get(kind).copied().unwrap_or(0);
    let all = |of: fn(&plan::Counters) -> u64| -> u64 {
        let own = plan.populations.iter().zip(&totals.counters);
        own.filter(|(population, _)| speaks_amqp(population)).map(|(_, own)| of(own)).sum()
    };
    assert!(all(|own| own.rejected_total) <= seen("refused publication"));
    assert!(all(|own| own.blocked_total) <= seen("blocked connection"));
    assert!(all(|own| own.returned_total) <= seen("returned message"));
    assert!(seen("delivery refused") <= all(|own| own.requeued_total));
    // A delivery that a client of a shared queue has not acknowledged comes again to another one.
    let shares = plan.populations.iter().flat_map(|own| &own.subscriptions);
    let shares = shares.into_iter().any(|own| own.filter.source().starts_with("$share/"));
    assert!(shares || all(|own| own.redelivered_total) <= all(|own| own.requeued_total));
    assert!(all(|own| own.blocked_ns) == 0 || all(|own| own.blocked_total) > 0);
}
