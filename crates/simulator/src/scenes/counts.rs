//! Publish stages with numbers of messages: all agents together send exactly as many, whatever the
//! pace, and end the stage long before its time.

use plan::{Action, Late, Pace, Phase, Process};
use testkit::{Broker, Script, plans};

use crate::case::{Case, case};
use crate::course::{Run, START_NS};
use crate::peer::Peer;
use crate::totals::Totals;
use crate::weather::{MS, S, Weather};

const MESSAGES: [u64; 2] = [1003, 70];
const LIMIT_NS: u64 = 3_600 * S;

fn open(arrivals: Process, (spread, jitter, burst): (f64, f64, u32)) -> Pace {
    let (late, phase) = (Late::Send, Phase::Spread);
    Pace::Open { period_ns: 20 * MS, spread, jitter, phase, late, burst, arrivals }
}

/// Messages of both populations, and the length of the run.
fn played(paces: [Pace; 2], agents: u32) -> ([u64; 2], u64) {
    let mut populations: Vec<_> = [("one", 7, 2), ("two", 5, 1)]
        .into_iter()
        .zip(paces)
        .map(|((name, clients, qos), pace)| {
            let mut population = plans::population(name, clients);
            population.publications = vec![plans::publication("t/{n}", qos, S)];
            population.publications[0].pace = pace;
            population
        })
        .collect();
    let mut receiver = plans::population("receiver", 1);
    receiver.subscriptions = vec![plans::subscription("#", 0)];
    populations.push(receiver);
    let weather = Weather { latency_max_ns: 5 * MS, ..Weather::fair() };
    let mut case = Case { agents, ..case(populations, LIMIT_NS, weather) };
    if let Action::Publish { messages, .. } = &mut case.plan.stages[1].action {
        *messages = Some([MESSAGES[0], MESSAGES[1], 0].into());
    }
    let run = Run::play(case, 1, agents, Peer::new(Broker::new(Script::reliable())));
    let totals = Totals::of(&run);
    assert_eq!(run.overrun, [0; 0]);
    for (from, sent) in MESSAGES.into_iter().enumerate() {
        let flow = totals.flow(from, 2);
        let sent = sent.cast_signed();
        assert_eq!((flow.expected_total, flow.received_total), (sent, sent));
        assert_eq!(totals.counters[from].skipped_total, 0);
    }
    let ended_ns = run.snapshots.iter().map(|snapshot| snapshot.to_ns).max();
    let sent = [0, 1].map(|p| totals.counters[p].sent_total);
    (sent, ended_ns.expect("there are snapshots") - START_NS)
}

#[test]
fn clients_of_all_agents_send_exactly_as_many_messages_at_any_pace() {
    let even = open(Process::Even, (0.0, 0.0, 1));
    let cases = [
        [Pace::Closed, Pace::Closed],
        [open(Process::Poisson, (0.0, 0.0, 1)), even.clone()],
        [open(Process::Even, (0.5, 1.0, 1)), Pace::Closed],
        [open(Process::Even, (0.0, 0.0, 4)), even],
    ];
    for paces in cases {
        for agents in [1, 3, 8] {
            let (sent, length_ns) = played(paces.clone(), agents);
            assert_eq!(sent, MESSAGES, "{paces:?}, {agents} agents");
            assert!(length_ns < 60 * S, "{paces:?}, {agents} agents: {length_ns} ns");
        }
    }
}
