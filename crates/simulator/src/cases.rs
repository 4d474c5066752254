//! Cases drawn from a seed: a plan, changes beyond it, how many agents play it, and the weather.

use plan::{
    Action, Change, ChangeAction, End, Late, Lifetime, MqttVersion, Order, Pace, Payload, Phase,
    Plan, Population, Process, Property, PropertyValue, Protocol, Publication, RatePoint,
    Reconnect, Subscription, Will,
};
use testkit::Rng;

use super::case::Case;
use super::features::{authentication, expiry, flapping, groups, limits, round_trips};
use super::weather::{Climate, MS, S, Weather};
use testkit::plans::{self, number, stage, template};

/// Draws that cases of earlier seeds did not have, in the order of their introduction.
pub const LATER: [fn(&mut Case, u64); 4] =
    [flapping::draw, authentication::draw, limits::draw, Case::draw_security];

impl Case {
    /// The case of a seed.
    pub fn of(seed: u64) -> Self {
        Self::with_draws(seed, LATER.len())
    }

    /// The case that a seed had when there were `later` of the [`LATER`] draws.
    pub fn with_draws(seed: u64, later: usize) -> Self {
        let mut rng = Rng::new(seed ^ 0xca5e);
        let climate = rng.pick(&[Climate::Fair, Climate::Narrow, Climate::Storm, Climate::Storm]);
        let mut plan = plans::empty(rng.bits() >> 1);
        if rng.chance(20) {
            plan.targets.push(plans::target(1884));
            plan.targets_joined = true;
        }
        plan.stall_ns = rng.chance(30).then_some(S);
        let count = 1 + rng.below(4);
        plan.populations = (0..count).map(|p| population(&mut rng, p, count, climate)).collect();
        let targets = plan.targets.len();
        plan.populations.iter_mut().for_each(|population| population.at.count = targets);
        add_stages(&mut plan, &mut rng);
        let changes = changes_beyond(&plan, &mut rng);
        let mut weather = Weather::of(climate, &mut rng);
        let closed = |publication: &Publication| publication.pace == Pace::Closed;
        if plan.populations.iter().flat_map(|p| &p.publications).any(closed) {
            // A closed loop over no distance has no end of messages.
            weather.latency_max_ns = 20 * MS;
        }
        let agents = 1 + rng.below(3) as u32;
        let mut case = Self { plan, changes, exclusions: Vec::new(), agents, climate, weather };
        case.extend(seed);
        case.draw_transports(seed);
        case.draw_versions(seed);
        round_trips::draw(&mut case.plan, seed);
        case.draw_texts(seed);
        case.draw_retained(seed);
        case.draw_ends(seed);
        case.draw_takeovers(seed);
        groups::draw(&mut case, seed);
        expiry::draw(&mut case, seed);
        LATER[..later].iter().for_each(|draw| draw(&mut case, seed));
        case
    }

    /// Draws what cases of earlier seeds did not have, apart from their draws.
    fn extend(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0xe87e_9d00);
        for (p, population) in self.plan.populations.iter_mut().enumerate() {
            if rng.chance(15) {
                population.end = End::Abort;
            }
            for subscription in &mut population.subscriptions {
                if rng.chance(15) {
                    let own = format!("g{p}");
                    let group = rng.pick(&[&own, "all", "g{n%2}"]);
                    let filter = format!("$share/{group}/{}", subscription.filter.source());
                    subscription.filter = template(&filter);
                }
            }
        }
        if self.climate == Climate::Storm && rng.chance(5) {
            self.plan.max_packet_bytes = 600;
        }
        for (index, stage) in self.plan.stages.iter().enumerate() {
            let length_ns = match stage.action {
                Action::Publish { duration_ns, .. } => duration_ns,
                _ => S,
            };
            if rng.chance(10) {
                let population = rng.below(self.plan.populations.len());
                self.exclusions.push((index, rng.bits() % length_ns, population));
            }
        }
    }

    /// Draws targets over WebSocket, apart from the other draws.
    fn draw_transports(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x3eb5_0c4e);
        if rng.chance(30) {
            for target in &mut self.plan.targets {
                target.websocket = rng.chance(80).then(|| "/mqtt".into());
            }
        }
    }

    /// Draws targets under TLS, apart from the other draws.
    fn draw_security(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x0715_5ec5);
        if rng.chance(25) {
            self.plan.targets.iter_mut().for_each(|target| target.tls = rng.chance(80));
        }
    }

    /// Draws populations that speak MQTT 5, apart from the other draws.
    fn draw_versions(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x55aa_0005);
        for population in &mut self.plan.populations {
            let Protocol::Mqtt(mqtt) = &mut population.protocol else { continue };
            if !rng.chance(40) {
                continue;
            }
            mqtt.version = MqttVersion::V5;
            if !mqtt.clean_session {
                mqtt.properties.push(number("session_expiry_interval", u32::MAX));
            }
            for (index, subscription) in population.subscriptions.iter_mut().enumerate() {
                subscription.identifier = rng.chance(30).then_some(1 + index as u32);
            }
            for publication in &mut population.publications {
                publication.topic_alias = rng.chance(40);
                if rng.chance(40) {
                    publication.properties = vec![
                        number("message_expiry_interval", 1000),
                        Property {
                            name: "user_property".into(),
                            key: Some("of".into()),
                            value: PropertyValue::Text(template("{n}")),
                        },
                    ];
                }
            }
        }
    }

    /// Draws texts without a stamp, apart from the other draws: MQTT 5 has their stamps in a
    /// property, which clients of older versions do not receive.
    fn draw_texts(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x7e_8700);
        if !self.plan.populations.iter().all(|p| p.capabilities().has_properties) {
            return;
        }
        for publication in self.plan.populations.iter_mut().flat_map(|p| &mut p.publications) {
            if !publication.request && rng.chance(50) {
                let text = rng.pick(&["", "on", "number {seq} of {n}: {hex 40}"]);
                publication.payload = Payload::Text { template: template(text), is_json: false };
            }
        }
    }

    /// Draws retained messages, and subscriptions with their flag as published, apart from the
    /// other draws.
    fn draw_retained(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x4e7a_14ed);
        if !rng.chance(40) {
            return;
        }
        for population in &mut self.plan.populations {
            let is_v5 = population.capabilities().has_properties;
            for subscription in &mut population.subscriptions {
                subscription.retain_as_published = is_v5 && rng.chance(60);
            }
            for publication in population.publications.iter_mut().filter(|p| !p.request) {
                publication.retain |= rng.chance(40);
            }
        }
    }

    /// Draws ends of connections, and delays of wills, apart from the other draws.
    fn draw_ends(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x0dea_d000);
        for population in &mut self.plan.populations {
            let Protocol::Mqtt(mqtt) = &mut population.protocol else { continue };
            let is_v5 = mqtt.version == MqttVersion::V5;
            if rng.chance(20) {
                population.end = match rng.chance(50) && is_v5 {
                    true => End::DisconnectWithWill,
                    false => End::Vanish,
                };
            }
            if let Some(will) = mqtt.will.as_mut().filter(|_| is_v5 && rng.chance(50)) {
                will.properties.push(number("will_delay_interval", rng.below(3) as u32));
            }
        }
    }

    /// Draws a population that takes connections over, apart from the other draws.
    fn draw_takeovers(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x07a6_e0e4);
        let [victim, taker, ..] = &mut self.plan.populations[..] else { return };
        if !rng.chance(10) {
            return;
        }
        let (Protocol::Mqtt(of), Protocol::Mqtt(to)) = (&victim.protocol, &mut taker.protocol)
        else {
            return;
        };
        to.client_id = of.client_id.clone();
        taker.first = victim.first;
        taker.takes_over = Some(0);
    }
}

fn population(rng: &mut Rng, index: usize, count: usize, climate: Climate) -> Population {
    let clients = 1 + rng.below(8) as u32;
    let mut population = plans::population(&format!("c{index}"), clients);
    population.first = rng.below(3) as u64;
    population.keep_alive_s = rng.pick(&[0, 0, 1, 3]);
    let clean_session = rng.chance(75);
    population.connect_timeout_ns = rng.pick(&[300 * MS, S, 3 * S]);
    population.reconnect = rng.chance(85).then_some(Reconnect { min_ns: 20 * MS, max_ns: S });
    let will = rng.chance(50).then(|| Will {
        topic: template(&format!("will/{index}/{{n}}")),
        payload: template("gone"),
        qos: rng.below(3) as u8,
        retain: false,
        properties: Vec::new(),
    });
    if let Protocol::Mqtt(mqtt) = &mut population.protocol {
        (mqtt.clean_session, mqtt.will) = (clean_session, will.map(Box::new));
    }
    if rng.chance(15) {
        let min_ns = 50 * MS + rng.bits() % S;
        let offline_ns = rng.chance(70).then(|| 20 * MS + rng.bits() % S);
        population.lifetime =
            Some(Lifetime { min_ns, max_ns: min_ns + rng.bits() % S, offline_ns });
    }
    if rng.chance(70) {
        for _ in 0..1 + rng.below(2) {
            population.subscriptions.push(subscription(rng, count));
        }
        if rng.chance(20) {
            population.read_rate_per_s = Some(rng.pick(&[20.0, 90.0, 900.0, 3_000.0]));
        }
    }
    if population.subscriptions.is_empty() || rng.chance(60) {
        let qos = rng.below(3) as u8;
        for publication in 0..1 + rng.below(2) {
            let publication = publication_of(rng, (index, publication), qos, climate);
            population.publications.push(publication);
        }
    }
    population
}

fn subscription(rng: &mut Rng, count: usize) -> Subscription {
    let of = rng.below(count);
    let filter = match rng.below(6) {
        0 => "#".into(),
        1 => format!("p{of}/#"),
        2 => format!("p{of}/+"),
        3 => format!("p{of}/0/{{n}}"),
        4 => "+/+/{n}/#".into(),
        _ => format!("p{of}/0/{{n}}/{{1..2}}"),
    };
    plans::subscription(&filter, rng.below(3) as u8)
}

fn publication_of(
    rng: &mut Rng,
    (population, index): (usize, usize),
    qos: u8,
    climate: Climate,
) -> Publication {
    let topic = match rng.below(3) {
        0 => format!("p{population}/{index}"),
        1 => format!("p{population}/{index}/{{n}}"),
        _ => format!("p{population}/{index}/{{n}}/{{1..3}}"),
    };
    let closed = qos > 0 && climate != Climate::Fair && rng.chance(15);
    let pace = if closed {
        Pace::Closed
    } else {
        let arrivals = rng.pick(&[Process::Even, Process::Even, Process::Poisson]);
        let even = arrivals == Process::Even;
        Pace::Open {
            period_ns: (20 + rng.below(400) as u64) * MS,
            spread: rng.pick(&[0.0, 0.3]),
            jitter: if even { rng.pick(&[0.0, 1.0]) } else { 0.0 },
            phase: if even {
                rng.pick(&[Phase::Spread, Phase::Random, Phase::Aligned])
            } else {
                Phase::Spread
            },
            late: rng.pick(&[Late::Send, Late::Send, Late::Skip]),
            burst: rng.pick(&[1, 1, 5]),
            arrivals,
        }
    };
    let payload = match rng.below(3) {
        0 => Payload::Gaussian { mean_bytes: 300, sd_bytes: 20 },
        1 => Payload::Fixed { bytes: 700 },
        _ => Payload::Fixed { bytes: 32 + rng.below(60) as u32 },
    };
    Publication {
        topic: template(&topic),
        order: rng.pick(&[Order::Turn, Order::Shuffled]),
        qos,
        retain: rng.chance(10),
        pace,
        window: 1 + rng.below(10) as u16,
        payload,
        properties: Vec::new(),
        topic_alias: false,
        request: false,
    }
}

fn add_stages(plan: &mut Plan, rng: &mut Rng) {
    let all: Vec<usize> = (0..plan.populations.len()).collect();
    let connect = |plan: &Plan, part: &[usize], rng: &mut Rng| {
        let some = |&p: &usize| rng.below(plan.populations[p].clients as usize + 1) as u32;
        let clients: Vec<u32> = part.iter().map(some).collect();
        Action::Connect {
            rate_per_s: rng.chance(50).then(|| 20.0 + rng.below(200) as f64),
            parallelism: rng.chance(30).then(|| 1 + rng.below(4) as u32),
            timeout_ns: S,
            clients: rng.chance(20).then_some(clients),
        }
    };
    let disconnect = |rng: &mut Rng| {
        let rate_per_s = rng.chance(50).then(|| 20.0 + rng.below(200) as f64);
        Action::Disconnect { rate_per_s }
    };
    plan.stages.push(stage(connect(plan, &all, rng), &all));
    for _ in 0..1 + rng.below(3) {
        let some: Vec<usize> = all.iter().copied().filter(|_| rng.chance(70)).collect();
        let part = if some.is_empty() { &all } else { &some };
        let action = match rng.below(6) {
            0 => Action::Hold { duration_ns: rng.bits() % (4 * S) },
            1 => disconnect(rng),
            2 => connect(plan, part, rng),
            _ => publish(plan, rng),
        };
        plan.stages.push(stage(action, part));
    }
    plan.stages.push(stage(publish(plan, rng), &all));
    plan.stages.push(stage(disconnect(rng), &all));
}

fn publish(plan: &Plan, rng: &mut Rng) -> Action {
    let duration_ns = 300 * MS + rng.bits() % (3 * S);
    let mut changes = Vec::new();
    if rng.chance(50) {
        for _ in 0..1 + rng.below(5) {
            let population = rng.below(plan.populations.len());
            let (after_ns, action) = change(rng, duration_ns);
            changes.push(Change { name: "change".into(), after_ns, population, action });
        }
    }
    changes.sort_by_key(|change| change.after_ns);
    let closed = |publication: &Publication| publication.pace == Pace::Closed;
    let open = !plan.populations.iter().flat_map(|p| &p.publications).any(closed);
    let mut rate_profile = Vec::new();
    if open && rng.chance(30) {
        for _ in 0..1 + rng.below(4) {
            let factor = rng.pick(&[0.0, 0.5, 1.0, 3.0]);
            rate_profile.push(RatePoint { after_ns: rng.bits() % duration_ns, factor });
        }
    }
    rate_profile.sort_by_key(|point| point.after_ns);
    Action::Publish { duration_ns, changes, rate_profile }
}

fn change(rng: &mut Rng, duration_ns: u64) -> (u64, ChangeAction) {
    let after_ns = rng.bits() % duration_ns;
    let over_ns = if rng.chance(50) { 0 } else { rng.bits() % (duration_ns - after_ns) };
    let clients = 1 + rng.below(6) as u32;
    let action = match rng.below(3) {
        0 => ChangeAction::Add { clients, over_ns },
        1 => ChangeAction::Remove { clients, over_ns },
        _ => ChangeAction::Rate { factor: rng.pick(&[0.0, 0.5, 1.0, 3.0]) },
    };
    (after_ns, action)
}

fn changes_beyond(plan: &Plan, rng: &mut Rng) -> Vec<(usize, u64, usize, ChangeAction)> {
    let mut changes = Vec::new();
    for (index, stage) in plan.stages.iter().enumerate() {
        if let Action::Publish { duration_ns, .. } = stage.action
            && rng.chance(15)
        {
            let (after_ns, action) = change(rng, duration_ns);
            changes.push((index, after_ns, rng.below(plan.populations.len()), action));
        }
    }
    changes
}
