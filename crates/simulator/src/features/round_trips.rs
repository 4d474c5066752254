//! Requests and answers in simulated runs: draws, checks against the wire, and scenes.

use mqtt::{PacketType, topic};
use plan::{MqttVersion, Plan, PlannedProtocol, Population, Property, PropertyValue, Responds};
use testkit::{Broker, Fate, Rng, Script};

use crate::case::{Case, case};
use crate::course::{Run, played};
use crate::features::groups::Sharing;
use crate::peer::Peer;
use crate::totals::{Totals, population_of, publishers, written};
use crate::weather::{Climate, MS, S, Weather};
use crate::wire::REPLY;
use testkit::plans::{self, publication, subscription, template};

/// Draws a population that answers, and publications whose messages are requests, apart from the
/// other draws. Both speak MQTT 5.
pub fn draw(case: &mut Case, seed: u64) {
    let plan = &mut case.plan;
    let mut rng = Rng::new(seed ^ 0xa5_0e55);
    let is_v5 = |p: &usize| plan.populations[*p].capabilities().answers;
    let able: Vec<usize> = (0..plan.populations.len()).filter(is_v5).collect();
    if able.is_empty() || !rng.chance(60) {
        return;
    }
    let responding = rng.chance(85).then(|| rng.pick(&able));
    for &p in &able {
        let population = &mut plan.populations[p];
        let mut requests = false;
        for publication in &mut population.publications {
            if rng.chance(60) {
                request(publication, p);
                requests = true;
            }
        }
        if !requests {
            continue;
        }
        population.subscriptions.push(subscription(&reply(p), rng.below(3) as u8));
        if let Some(responding) = responding {
            let filter = format!("p{p}/#");
            let filter =
                if rng.chance(40) { format!("$share/g{responding}/{filter}") } else { filter };
            let subscription = subscription(&filter, rng.below(3) as u8);
            plan.populations[responding].subscriptions.push(subscription);
        }
    }
    if let Some(responding) = responding {
        let population = &mut plan.populations[responding];
        let is_acknowledged = population.publications.first().is_none_or(|p| p.qos > 0);
        let qos = if is_acknowledged { 1 + rng.below(2) as u8 } else { 0 };
        population.responds = Some(Responds { qos, bytes: 32 + rng.below(300) as u32 });
    }
}

fn request(publication: &mut plan::Publication, population: usize) {
    (publication.request, publication.retain) = (true, false);
    let value = PropertyValue::Text(template(&reply(population)));
    publication.properties.push(Property { name: "response_topic".into(), key: None, value });
}

fn reply(population: usize) -> String {
    format!("{REPLY}{population}/{{n}}")
}

/// Checks answers against the wire.
pub fn check(run: &Run, totals: &Totals) {
    let plan = run.plan();
    let responding = plan.populations.iter().position(|population| population.responds.is_some());
    let (read, copies) = answers_by_wire(run);
    let requests = requests_by_wire(run, responding);
    for (p, population) in plan.populations.iter().enumerate() {
        let (counters, answers) = (&totals.counters[p], &totals.answers[p]);
        let what = format!("{}: {answers:?}, {} to {} read", population.name, read[p], copies[p]);
        if responding != Some(p) {
            assert_eq!((counters.answers_total, counters.answers_dropped_total), (0, 0), "{what}");
        }
        assert!(answers.answered_total <= copies[p], "{what}");
        assert!(answers.answers_late_total <= answers.answered_total, "{what}");
        let is_slow = |p: usize| plan.populations[p].read_rate_per_s.is_some();
        if run.case.handles_all(p) {
            let counted = answers.answered_total + answers.answers_duplicate_total;
            assert!(answers.answered_total >= read[p] && counted == copies[p], "{what}");
        }
        let sharing = responding.map_or(Sharing::None, |of| Sharing::of(of, plan));
        let involved = [Some(p), responding].into_iter().flatten();
        let is_exact = involved
            .clone()
            .all(|p| run.case.is_static(p) && !run.case.is_excluded(p) && !has_lifetime(plan, p));
        if sharing == Sharing::Several || !is_exact {
            continue;
        }
        let clients = responding.map_or(1, |of| plan.populations[of].clients);
        let unwritten = (counters.sent_total - written(run)[p]).cast_signed();
        let (least, most) = (requests[p], requests[p] + unwritten * i64::from(clients.max(1)));
        let expected = answers.answers_expected_total;
        assert!((least..=most).contains(&expected), "{what}: {least} to {most} expected");
        assert!(answers.answered_total <= expected, "{what}");
        let nothing_goes_wrong =
            run.case.climate == Climate::Fair && !involved.clone().any(is_slow);
        if nothing_goes_wrong && run.overrun.is_empty() && responding.is_some() {
            assert_eq!(answers.answered_total, expected, "{what}");
        }
    }
    let answered: i64 = totals.answers.iter().map(|answers| answers.answered_total).sum();
    assert_eq!(totals.round_trip.count(), answered.cast_unsigned(), "each answer has a round trip");
}

fn has_lifetime(plan: &Plan, population: usize) -> bool {
    plan.populations[population].lifetime.is_some()
}

/// Answers that clients of each population have read to requests of their own: requests with an
/// answer, and copies of answers.
fn answers_by_wire(run: &Run) -> (Vec<i64>, Vec<i64>) {
    let populations = run.plan().populations.len();
    let (mut read, mut copies) = (vec![0; populations], vec![0; populations]);
    let publishers = publishers(run.plan());
    for ((client, (key, _)), count) in &run.network().wire.answers {
        let (from, _) = publishers[(key >> 48) as usize];
        let to = population_of(run, *client);
        if from == to && run.global(*client) == *key as u32 {
            read[to] += 1;
            copies[to] += count.cast_signed();
        }
    }
    (read, copies)
}

/// Answers to be expected to the requests that each population has written, if all clients are
/// active.
fn requests_by_wire(run: &Run, responding: Option<usize>) -> Vec<i64> {
    let plan = run.plan();
    let mut expected = vec![0; plan.populations.len()];
    let publishers = publishers(plan);
    for (key, _) in run.network().wire.sent.keys() {
        let (from, publication) = publishers[(key >> 48) as usize];
        let population = &plan.populations[from];
        let publication = &population.publications[publication];
        if !publication.request {
            continue;
        }
        let n = population.first + u64::from(*key as u32);
        let name = publication.topic.text(n, (key >> 32 & 0xffff) as u32);
        let answers = responding.map_or(0, |of| receivers(plan, of, &name));
        expected[from] += answers.max(1);
    }
    expected
}

/// Clients of a population that receive a message; one for a shared group.
fn receivers(plan: &Plan, of: usize, name: &str) -> i64 {
    let population = &plan.populations[of];
    let receives =
        |client: &u32| {
            let n = population.first + u64::from(*client);
            population.subscriptions.iter().map(|subscription| &subscription.filter).any(|filter| {
                (0..filter.variants()).any(|v| topic::matches(&filter.text(n, v), name))
            })
        };
    let receivers = (0..population.clients).filter(receives).count() as i64;
    if Sharing::of(of, plan) == Sharing::One { receivers.min(1) } else { receivers }
}

fn speaking_mqtt5(name: &str, clients: u32) -> Population {
    let mut population = plans::population(name, clients);
    if let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol {
        mqtt.version = MqttVersion::V5;
    }
    population
}

/// Two clients that send ten requests each, and clients that answer with this QoS.
fn requesting(answering: u32, filter: &str, qos: u8) -> Vec<Population> {
    let mut requesting = speaking_mqtt5("requesting", 2);
    requesting.publications = vec![publication("p0/{n}", qos, 100 * MS)];
    request(&mut requesting.publications[0], 0);
    requesting.subscriptions = vec![subscription(&reply(0), qos)];
    let mut responding = speaking_mqtt5("responding", answering);
    responding.subscriptions = vec![subscription(filter, qos)];
    responding.responds = Some(Responds { qos, bytes: 40 });
    vec![requesting, responding]
}

#[test]
fn each_responding_client_is_expected_to_answer() {
    for (answering, filter, answers) in [
        (1, "p0/#", 20),
        (3, "p0/#", 60),
        (3, "$share/g/p0/#", 20),
        (2, "p0/{n}", 20),
        (1, "elsewhere", 0),
    ] {
        for qos in 0..=2 {
            let run = played(requesting(answering, filter, qos), S, Weather::fair());
            let totals = Totals::of(&run);
            let (counters, answered) = (&totals.counters, &totals.answers[0]);
            let what = format!("{answering} on {filter} with QoS {qos}: {answered:?}");
            assert_eq!(counters[0].requests_total, 20, "{what}");
            assert_eq!(counters[1].answers_total, answers, "{what}");
            // A request without an answering client expects one answer.
            assert_eq!(answered.answers_expected_total, answers.max(20).cast_signed(), "{what}");
            assert_eq!(answered.answered_total, answers.cast_signed(), "{what}");
            assert_eq!(answered.answers_duplicate_total, 0, "{what}");
            assert_eq!(totals.round_trip.count(), answers, "{what}");
            let acked = if qos > 0 { answers } else { 0 };
            assert_eq!(counters[1].acked_total, acked, "{what}");
            // The latency of requests is that of requests alone.
            let request = if answers > 0 { 20 * i64::from(answering) } else { 0 };
            let request =
                if filter.starts_with('$') || filter.contains("{n}") { 20 } else { request };
            assert_eq!(totals.flow(0, 1).received_total, request, "{what}");
        }
    }
}

#[test]
fn answers_to_other_clients_are_counted_apart() {
    let mut populations = requesting(1, "p0/#", 1);
    let mut observers = plans::population("observer", 1);
    observers.subscriptions = vec![subscription("reply/#", 0)];
    populations.push(observers);
    populations[0].subscriptions.push(subscription("reply/#", 0));
    let totals = Totals::of(&played(populations, S, Weather::fair()));
    assert_eq!(totals.answers[0].answered_total, 20);
    let of_others: Vec<u64> = totals.counters.iter().map(|c| c.answers_of_others_total).collect();
    assert_eq!(of_others, [20, 0, 20]);
    assert_eq!(totals.counters[2].foreign_total, 0);
}

#[test]
fn answers_that_wait_are_counted_when_the_connection_ends() {
    // The broker allows five messages in flight, and acknowledges none.
    let case = case(requesting(1, "p0/#", 1), S, Weather::fair());
    let never = |packet| if packet == PacketType::PubAck { Fate::Drop } else { Fate::Send };
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(Script::with_fates(never))));
    let totals = Totals::of(&run);
    assert_eq!(totals.flow(0, 1).received_total, 10);
    let counters = &totals.counters[1];
    assert_eq!((counters.answers_total, counters.answers_dropped_total), (5, 5));
    assert_eq!((counters.sent_total, counters.abandoned_total), (5, 5));
    let answers = &totals.answers[0];
    assert_eq!((answers.answers_expected_total, answers.answered_total), (10, 5));
}
