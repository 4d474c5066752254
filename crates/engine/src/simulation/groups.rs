//! Shared groups of several populations in simulated runs: draws, the check against the wire, and a
//! scene.

use mqtt::topic;
use plan::Population;
use testkit::{Broker, Rng, Script};

use super::cases::Case;
use super::checks::{Totals, messages, written};
use super::course::Run;
use super::peer::Peer;
use super::plans::{self, publication, subscription, template};
use super::scenes::case;
use super::weather::{MS, S, Weather};

/// Name of the group whose members are the clients of all populations that subscribe.
const JOINT: &str = "$share/joint/";

/// Draws one group for all populations that subscribe, apart from the other draws.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x6007_0135);
    let answers = |population: &Population| population.responds.is_some() || population.requests();
    if !rng.chance(15) || case.plan.populations.iter().any(answers) {
        return;
    }
    let subscribes = |p: &&mut Population| !p.subscriptions.is_empty() && !p.speaks_zmtp();
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
    (0..plan.populations.len()).filter(is_member).collect()
}

/// The members of a joint group are expected to receive each message once, all together.
pub fn check(run: &Run, totals: &Totals) {
    let (plan, members) = (run.plan(), members(run));
    let is_exact = |&p: &usize| run.case.is_static(p) && !run.case.is_excluded(p);
    if members.is_empty() || !members.iter().all(is_exact) {
        return;
    }
    let dies = |p: usize| plan.populations[p].end != plan::End::Disconnect;
    for from in 0..plan.populations.len() {
        let flows = members.iter().map(|&to| totals.flow(from, to));
        let (expected, received) = flows.fold((0, 0), |(expected, received), flow| {
            (expected + flow.expected_total, received + flow.received_total)
        });
        let own = messages(run).into_iter().filter(|message| message.from == from);
        let is_expected = |name: &str| {
            members.iter().any(|&p| {
                let population = &plan.populations[p];
                let filter = &population.subscriptions[0].filter;
                let numbers = population.first..population.first + u64::from(population.clients);
                let mut texts = numbers.flat_map(|n| (0..filter.variants()).map(move |v| (n, v)));
                texts.any(|(n, v)| topic::matches(&filter.text(n, v), name))
            })
        };
        let least: i64 = own.filter(|m| is_expected(&m.topic)).map(|m| m.count).sum();
        let counters = &totals.counters[from];
        let unwritten = counters.sent_total as i64 - written(run)[from] as i64;
        let died = if dies(from) { counters.connected_total } else { 0 };
        let wills = 2 * (counters.disconnected_total + died) as i64;
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
