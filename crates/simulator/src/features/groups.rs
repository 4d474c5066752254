//! Shared groups in simulated runs: draws, the checks against the wire, and a scene.

use std::collections::BTreeSet;

use plan::{Plan, Population};
use testkit::{Broker, Rng, Script};

use crate::case::{Case, case};
use crate::course::Run;
use crate::peer::Peer;
use crate::totals::{
    StreamName, Totals, deaths, flows_from, matches, messages, names_of, population_of, publishers,
    speaks_nats, wills_by_wire, written,
};
use crate::weather::{MS, S, Weather};
use crate::wire::StreamPlace;
use testkit::plans::{self, publication, subscription, template};

/// Name of the group whose members are the clients of all populations that subscribe.
const JOINT: &str = "$share/joint/";

/// Draws one group for all populations that subscribe, apart from the other draws.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x6007_0135);
    let answers = |population: &Population| population.responds.is_some() || population.requests();
    if !rng.chance(15) || case.plan.populations.iter().any(answers) {
        return;
    }
    let subscribes = |p: &&mut Population| !p.subscriptions.is_empty() && p.capabilities().shares;
    let mut filter = None;
    for population in case.plan.populations.iter_mut().filter(subscribes) {
        let own = &mut population.subscriptions;
        own.truncate(1);
        own[0].no_local = false;
        let source = own[0].filter.source();
        let of_first = filter.get_or_insert_with(|| {
            let plain = source.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
            template(&format!("{JOINT}{}", plain.map_or(source, |(_, plain)| plain)))
        });
        own[0].filter = of_first.clone();
    }
}

/// Populations of the joint group; none in other cases.
fn members(run: &Run) -> Vec<usize> {
    let plan = run.plan();
    let is_member = |&p: &usize| {
        let filters = &plan.populations[p].subscriptions;
        filters.iter().any(|subscription| subscription.filter.source().starts_with(JOINT))
    };
    let members: Vec<usize> = (0..plan.populations.len()).filter(is_member).collect();
    // Clients of MQTT and of NATS are members of different groups.
    let is_of_nats = |p: &usize| speaks_nats(&plan.populations[*p]);
    let are_alike = members.iter().all(is_of_nats) || !members.iter().any(is_of_nats);
    if are_alike { members } else { Vec::new() }
}

/// The shared groups of a population.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    None,
    /// One group of its own, and nothing else: each message has one delivery.
    One,
    /// Ways that depend on the broker: deliveries are expected as received.
    Several,
}

impl Sharing {
    pub fn of(index: usize, plan: &Plan) -> Self {
        let own = format!("$share/g{index}/");
        let filters: Vec<_> =
            plan.populations[index].subscriptions.iter().map(|s| s.filter.source()).collect();
        match filters[..] {
            _ if !filters.iter().any(|filter| filter.starts_with("$share/")) => Self::None,
            [filter] if filter.starts_with(&own) && partners(index, plan).is_empty() => Self::One,
            _ => Self::Several,
        }
    }
}

/// Other populations of which a client is a member of a group of this one.
pub fn partners(index: usize, plan: &Plan) -> Vec<usize> {
    let groups = |population: &Population| -> BTreeSet<String> {
        let numbers = population.first..population.first + u64::from(population.clients);
        let filters = numbers.flat_map(|n| {
            population.subscriptions.iter().map(move |subscription| subscription.filter.text(n, 0))
        });
        filters
            .filter_map(|filter| Some(filter.strip_prefix("$share/")?.split('/').next()?.into()))
            .collect()
    };
    let own = groups(&plan.populations[index]);
    let is_partner = |&p: &usize| p != index && !groups(&plan.populations[p]).is_disjoint(&own);
    (0..plan.populations.len()).filter(is_partner).collect()
}

/// Returns `true` if members of a group of this population, clients of others, may have left.
pub fn have_left(run: &Run, population: usize) -> bool {
    partners(population, run.plan()).into_iter().any(|p| !run.case.stays_connected(p))
}

/// Messages of `from` for a group of `to` that no member has read.
pub fn unread(run: &Run, from: usize, to: usize) -> i64 {
    let plan = run.plan();
    let members = [vec![to], partners(to, plan)].concat();
    let read = read_by(run, &members);
    let publishers = publishers(plan);
    let population = &plan.populations[to];
    let numbers = population.first..population.first + u64::from(population.clients);
    let is_unread = |place: &&StreamPlace| {
        let (publisher, names) = names_of(place.0, plan, &publishers);
        let is_match =
            |n: u64| names.iter().any(|name| matches(&run.case, population, n, name) > 0);
        publisher == from && !read.contains(place) && numbers.clone().any(is_match)
    };
    run.network().wire.sent.keys().filter(is_unread).count() as i64
}

/// Messages of `from` that clients of `to` receive at least, if not all that each of them reads
/// once. A session has the filters of all clients that share it, so several of them may receive a
/// message of a group. A program may carry a message to a group twice: to members of two
/// populations. All but the first are duplicates.
pub fn received_least(run: &Run, from: usize, to: usize) -> Option<i64> {
    let is_carried = flows_from(run, from) > 0;
    if Sharing::of(to, run.plan()) == Sharing::None || !is_carried && !run.case.is_contested(to) {
        return None;
    }
    let others = if is_carried { partners(to, run.plan()) } else { Vec::new() };
    let (publishers, others) = (publishers(run.plan()), read_by(run, &others));
    let read = read_by(run, &[to]).into_iter().filter(|place| !others.contains(place));
    Some(read.filter(|(key, _)| publishers[(key >> 48) as usize].0 == from).count() as i64)
}

/// Messages that clients of these populations have read.
fn read_by(run: &Run, populations: &[usize]) -> BTreeSet<StreamPlace> {
    let network = run.network();
    let read = network.wire.received.keys();
    let own = read.filter(|(client, _)| populations.contains(&population_of(run, *client)));
    own.map(|(_, place)| *place).collect()
}

/// The members of a joint group are expected to receive each message once, all together.
pub fn check(run: &Run, totals: &Totals) {
    let (plan, members) = (run.plan(), members(run));
    let is_exact = |&p: &usize| run.case.is_static(p) && !run.case.is_excluded(p);
    if members.is_empty() || !members.iter().all(is_exact) {
        return;
    }
    for from in 0..plan.populations.len() {
        let flows = members.iter().map(|&to| totals.flow(from, to));
        let (expected, received) = flows.fold((0, 0), |(expected, received), flow| {
            (expected + flow.expected_total, received + flow.received_total)
        });
        let own = messages(run).into_iter().filter(|message| message.from == from);
        let is_expected = |name: &StreamName| {
            members.iter().any(|&p| {
                let population = &plan.populations[p];
                let mut numbers =
                    population.first..population.first + u64::from(population.clients);
                numbers.any(|n| matches(&run.case, population, n, name) > 0)
            })
        };
        let least: i64 = own.filter(|m| is_expected(&m.name)).map(|m| m.count).sum();
        let counters = &totals.counters[from];
        let ways = 1 + flows_from(run, from);
        let unwritten = ways * (counters.sent_total as i64 - written(run)[from] as i64);
        let read: i64 = members.iter().map(|&to| wills_by_wire(run, from, to)).sum();
        let wills = 2 * deaths(run, totals, from) + read;
        let most = least + unwritten + wills;
        let what = format!("from {from} to the group: {expected} expected, {received} received");
        assert!((least..=most).contains(&expected), "{what}, {least} to {most}");
        // Two agents may receive copies of one message.
        if run.case.agents == 1 {
            assert!(received <= expected + wills, "{what}, {wills} wills");
        }
    }
}

/// A publisher and two populations of one group.
fn two_populations() -> Vec<Population> {
    let mut publisher = plans::population("publisher", 3);
    publisher.publications = vec![publication("t/{n}", 1, 50 * MS)];
    let mut first = plans::population("first", 2);
    first.subscriptions = vec![subscription("$share/g/t/#", 1)];
    let mut second = plans::population("second", 2);
    second.subscriptions = vec![subscription("$share/g/t/#", 1)];
    vec![publisher, first, second]
}

#[test]
fn a_message_that_two_members_of_a_group_receive_hides_no_loss() {
    let script = Script { doubles_shared: true, ..Script::reliable() };
    let case = case(two_populations(), 10 * S, Weather::fair());
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(script)));
    let totals = Totals::of(&run);
    let (first, second) = (totals.flow(0, 1), totals.flow(0, 2));
    let sent = totals.counters[0].sent_total.cast_signed();
    assert_eq!(first.expected_total + second.expected_total, sent);
    assert_eq!(first.received_total + second.received_total, sent / 2);
    assert_eq!(first.duplicate_total + second.duplicate_total, sent / 2);
}

#[test]
fn each_value_of_a_name_is_a_group_that_expects_each_message() {
    let mut populations = two_populations();
    populations.truncate(2);
    populations[1].clients = 5;
    populations[1].subscriptions = vec![subscription("$share/g{n%3}/t/#", 1)];
    let case = case(populations, 10 * S, Weather::fair());
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(Script::reliable())));
    let totals = Totals::of(&run);
    let (flow, sent) = (totals.flow(0, 1), totals.counters[0].sent_total.cast_signed());
    assert_eq!((flow.expected_total, flow.received_total), (3 * sent, 3 * sent));
    assert_eq!(flow.duplicate_total, 0);
}
