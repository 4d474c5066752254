//! Acknowledgements of TCP, which the kernel delays if the plan requires a delay.

use serde_json::json;
use testkit::Script;

use super::{connect, hold, publish};
use crate::support::{Agent, Scripted, plan, population, publication};

const SUBSCRIBERS: u32 = 3;
const PERIOD_MS: u64 = 5;

/// Connections to this port, with true if their acknowledgements are delayed. The flag is the
/// lowest bit of the column behind `ato` in `/proc/net/tcp`, see `get_tcp4_sock` of Linux.
fn delayed(port: u16) -> Vec<bool> {
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    let rows = connections.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|fields| fields[2].ends_with(&remote) && fields[3] == "01");
    ours.map(|fields| fields[14].parse::<u32>().unwrap() & 1 == 1).collect()
}

/// Plays a fast stream to subscribers until `count` connections delay their acknowledgements.
fn play(delayed_acks: bool, count: usize) {
    let broker = Scripted::start(Script::reliable);
    let fields = json!({
        "subscriptions": [{"filter": "t", "qos": 0}], "delayed_acks": delayed_acks,
    });
    let populations = [
        population("sub", SUBSCRIBERS, fields),
        population("pub", 1, json!({"publications": [publication("t", 0, PERIOD_MS)]})),
    ];
    // Long enough for the kernel to acknowledge SUBACK by its timer, and to end the delay with it.
    let stages = [connect(&[0, 1]), hold(&[0, 1], 300), publish(&[1], 60_000)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage(1);
    agent.stage_until(2, |_, totals| {
        totals.flow(1, 0).received_total >= 100
            && delayed(broker.port).into_iter().filter(|&is_delayed| is_delayed).count() == count
    });
    agent.stop();
}

#[test]
fn the_kernel_delays_acknowledgements_where_the_plan_says_so_and_nowhere_else() {
    play(true, SUBSCRIBERS as usize);
    play(false, 0);
}
