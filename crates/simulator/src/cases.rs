//! Cases drawn from a seed: a plan, changes beyond it, how many agents play it, and the weather.

use plan::{
    Action, Change, ChangeAction, Late, Lifetime, Order, Pace, Payload, Phase, Plan,
    PlannedProtocol, PlannedWill, Population, Process, Publication, RatePoint, Reconnect,
    Subscription,
};
use testkit::Rng;

use super::case::Case;
use super::features::FEATURES;
use super::weather::{Climate, MS, S, Weather};
use testkit::plans::{self, stage, template};

impl Case {
    /// The case of a seed.
    pub fn of(seed: u64) -> Self {
        Self::with_features(seed, FEATURES.len())
    }

    /// The case that a seed had when there were so many [`FEATURES`].
    pub fn with_features(seed: u64, features: usize) -> Self {
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
        let (exclusions, files) = (Vec::new(), None);
        let mut case = Self { plan, changes, exclusions, agents, climate, weather, files };
        FEATURES[..features].iter().for_each(|feature| (feature.draw)(&mut case, seed));
        case
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
    let will = rng.chance(50).then(|| PlannedWill {
        topic: template(&format!("will/{index}/{{n}}")),
        payload: template("gone"),
        qos: rng.below(3) as u8,
        retain: false,
        properties: Vec::new(),
    });
    if let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol {
        (mqtt.clean_session, mqtt.will) = (clean_session, will.map(Box::new));
    }
    if rng.chance(15) {
        let min_ns = 50 * MS + rng.bits() % S;
        let offline_ns = rng.chance(70).then(|| 20 * MS + rng.bits() % S);
        population.lifetime =
            Some(Lifetime { min_ns, max_ns: min_ns + rng.bits() % S, offline_ns, recorded: None });
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
        weights: Vec::new(),
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
            0 => hold(plan, rng),
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
    let changes = changes(plan, rng, duration_ns);
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
    Action::Publish { duration_ns, changes, rate_profile, messages: None }
}

fn hold(plan: &Plan, rng: &mut Rng) -> Action {
    let duration_ns = 1 + rng.bits() % (4 * S);
    let mut changes = changes(plan, rng, duration_ns);
    changes.retain(|change| change.action.moves_clients());
    Action::Hold { duration_ns, changes }
}

fn changes(plan: &Plan, rng: &mut Rng, duration_ns: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    if rng.chance(50) {
        for _ in 0..1 + rng.below(5) {
            let population = rng.below(plan.populations.len());
            let (after_ns, action) = change(rng, duration_ns);
            changes.push(Change { name: "change".into(), after_ns, population, action });
        }
    }
    changes.sort_by_key(|change| change.after_ns);
    changes
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
