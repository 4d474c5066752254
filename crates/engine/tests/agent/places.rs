//! Agents that play some populations of a plan only.

use plan::{ChangeAction, Command, Counters};
use serde_json::json;
use testkit::Script;

use super::{connect, publish};
use crate::support::{Agent, Scripted, plan, population, publication};

const MS: u64 = 1_000_000;

#[test]
fn agents_of_some_populations_are_together_the_whole() {
    let broker = Scripted::start(Script::reliable);
    let populations = [
        population("pub", 7, json!({"publications": [publication("t/{n}", 1, 10)]})),
        population("sub", 3, json!({"subscriptions": [{"filter": "t/#", "qos": 1}]})),
    ];
    let plan = plan(broker.port, &populations, &[connect(&[0, 1]), publish(&[0], 100)]);
    let places = [
        "0/2 --agent 0/3 --populations 0",
        "1/2 --agent 1/3 --populations 0",
        "0/1 --agent 2/3 --populations 1",
    ];
    let mut agents = places.map(|place| Agent::start(&plan, place));
    let greeted = agents.each_ref().map(|a| (a.hello.agent, a.hello.agents, &*a.hello.clients));
    assert_eq!(greeted, [(0, 3, &[4, 0][..]), (1, 3, &[3, 0][..]), (2, 3, &[0, 3][..])]);
    agents.iter_mut().for_each(|agent| agent.stage(0));
    let at_ns = Agent::now_ns() + 50 * MS;
    // The last subscriber leaves before the first message: its agent alone disconnects it.
    let action = ChangeAction::Remove { clients: 1, over_ns: 0 };
    for agent in &mut agents {
        agent.send(&Command::Stage { index: 1, at_ns });
        agent.send(&Command::Change { at_ns, population: 1, action });
    }
    for agent in &mut agents {
        agent.read_until(|s, _| s.stage == Some(1) && s.settled);
    }
    agents[2].read_until(|_, totals| totals.flow(0, 1).received_total >= 2 * 70);
    let mut sum = Counters::default();
    for totals in agents.map(Agent::stop) {
        totals.populations.iter().for_each(|(counters, _)| sum.add(counters));
    }
    assert_eq!((sum.connected_total, sum.sent_total), (10, 70));
}

#[test]
fn a_population_that_the_plan_has_not_is_refused() {
    let (said, status) = Agent::output(&format!("{}\n", plan(1, &[], &[])), "0/1 --populations 0");
    assert!(!status.success());
    assert!(said.contains("--populations: found 0, allowed are indices below 0"), "{said}");
    let (said, _) = Agent::output("", "0/1 --populations pub");
    assert!(said.contains("allowed is a whole number"), "{said}");
}
