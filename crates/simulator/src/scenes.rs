//! Scenes with one fault each, in virtual time: cases that seeds reach too rarely or cannot
//! distinguish.

mod amqp;
mod authentication;
mod counts;
mod deaths;
mod delays;
mod flapping;
mod flows;
mod limits;
mod nats;
mod outcomes;
mod replay;
mod retained;
mod sessions;
mod sparkplug;
mod surplus;
mod texts;
mod zeromq;

use engine::UNSENT_MAX;
use plan::{
    Action, ChangeAction, Command, Pace, Payload, Plan, PlannedProtocol, Population, Publication,
    Reason, Snapshot,
};
use testkit::{Broker, Script};

use super::agents::Agents;
use super::case::{Case, case};
use super::checks;
use super::course::{Run, START_NS, played};
use super::network::Network;
use super::peer::{Manner, Peer};
use super::totals::Totals;
use super::weather::{Climate, Fault, MS, S, Weather};
use testkit::plans::{self, publication, stage, subscription};

#[test]
fn an_end_of_stream_is_not_forgotten_while_a_client_pauses() {
    let mut publisher = plans::population("publisher", 1);
    publisher.publications = vec![publication("t", 0, MS)];
    let mut readers = plans::population("reader", 30);
    readers.subscriptions = vec![subscription("t", 0)];
    readers.reconnect = None;
    for rate in [900.0, 1_100.0, 2_500.0] {
        readers.read_rate_per_s = Some(rate);
        let end = |ms: u64, per_cent| (ms * MS, Fault::Hang { per_cent, manner: Manner::End });
        let faults = (1_200..2_000).step_by(7).map(|ms| end(ms, 4)).collect();
        let weather = Weather { faults, ..Weather::fair() };
        let run = played(vec![publisher.clone(), readers.clone()], 10 * S, weather);
        let counters = &Totals::of(&run).counters[1];
        let ended = run.network().peer.ended_total;
        let left = 30 - counters.disconnected_total;
        let publishers = Totals::of(&run).counters[0].disconnected_total;
        assert_eq!(counters.disconnected_total + publishers, ended, "{left} at {rate}/s");
        assert!(counters.disconnected_total > 15);
    }
}

#[test]
fn overdue_timers_are_handled_oldest_first() {
    let mut publishers = plans::population("publisher", 40);
    publishers.publications = vec![publication("t/{n}", 0, 200 * MS)];
    let faults = (12..30).map(|n| (n * 100 * MS, Fault::Standstill { ns: 90 * MS })).collect();
    let run = played(vec![publishers], 3 * S, Weather { faults, ..Weather::fair() });
    let network = run.network();
    let mut together = 0;
    for pair in network.wire.first_of_turn.windows(2) {
        let [(turn, before_ns), (next_turn, intended_ns)] = [pair[0], pair[1]];
        if turn == next_turn {
            together += 1;
            assert!(before_ns <= intended_ns + MS, "{before_ns} before {intended_ns}");
        }
    }
    assert!(together > 100, "{together} messages were overdue together");
}

#[test]
fn a_flood_of_one_peer_does_not_hold_the_loop_up() {
    let mut readers = plans::population("reader", 2);
    readers.subscriptions = vec![subscription("t", 0)];
    let room = (16 << 20, 16 << 20);
    let faults = vec![(2 * S, Fault::Flood { bytes: 8 << 20 })];
    let run = played(vec![readers], 4 * S, Weather { room, faults, ..Weather::fair() });
    let totals = Totals::of(&run);
    assert!(totals.counters[0].bytes_received_total > 2 * (8 << 20));
    assert_eq!(totals.outcomes[0].get(&Reason::ProtocolError), None);
    let most = run.network().read_most;
    assert!(most <= 2 * (256 + 64) * 1024, "{most} bytes in one turn of two clients");
}

#[test]
fn a_flood_to_a_client_that_leaves_does_not_hold_the_loop_up() {
    let mut publisher = plans::population("publisher", 1);
    let payload = Payload::Fixed { bytes: 60_000 };
    publisher.publications = vec![Publication { payload, ..publication("t", 0, 10 * MS) }];
    // The broker reads slowly. The stage waits for messages, and then the client for room for its
    // DISCONNECT: one of the floods comes meanwhile.
    let flood = Fault::Flood { bytes: 2 << 20 };
    let weather = Weather {
        room: (1 << 20, 1 << 20),
        gulp_max: 40,
        gulp_ns: MS,
        faults: (20..30).map(|at| (at * S, flood)).collect(),
        ..Weather::fair()
    };
    let run = played(vec![publisher], S, weather);
    let totals = Totals::of(&run);
    assert_eq!(totals.outcomes[0], [(Reason::DisconnectTimeout, 1)].into());
    let most = run.network().read_most;
    // News of the socket and the rest of the turn before may give a client two time slices.
    assert!(most <= 2 * (256 + 64) * 1024, "{most} bytes in one turn of one client");
}

#[test]
fn a_client_reads_no_further_while_its_replies_wait_for_a_peer_that_does_not_read() {
    const FLOOD: usize = 4 << 20;
    let readers = vec![plans::population("reader", 1)];
    let faults = vec![(2 * S, Fault::Deaf { bytes: FLOOD, ns: 4 * S, per_cent: 100 })];
    let run = played(readers, 10 * S, Weather { faults, ..Weather::fair() });
    let received = |until_ns: u64| -> u64 {
        let snapshots = run.snapshots.iter().filter(|s| s.to_ns <= START_NS + until_ns);
        snapshots.map(|s| s.populations[0].counters.bytes_received_total).sum()
    };
    // Each packet makes a reply of the same length: what was read lies in the memory, in the
    // socket, or has arrived.
    let most = (UNSENT_MAX + 4 * (64 << 10)) as u64;
    assert!((1 << 20..most).contains(&received(5 * S)), "{} bytes", received(5 * S));
    assert!(received(9 * S) >= FLOOD as u64, "{} bytes at last", received(9 * S));
    assert_eq!(Totals::of(&run).counters[0].disconnected_total, 0);
}

#[test]
fn a_client_subscribes_again_after_the_broker_has_lost_its_session() {
    let mut readers = plans::population("reader", 100);
    if let PlannedProtocol::Mqtt(mqtt) = &mut readers.protocol {
        mqtt.clean_session = false;
    }
    readers.subscriptions = vec![subscription("t", 0)];
    // Some connections end between the CONNACK of a new session and its SUBACK.
    let reset = Fault::Hang { per_cent: 50, manner: Manner::Reset };
    let mut faults = vec![(2 * S, Fault::Restart { down_ns: 0, forgets: true })];
    faults.extend((1..100).map(|ms| (2 * S + ms * MS, reset)));
    let run = played(vec![readers], 10 * S, Weather { faults, ..Weather::fair() });
    let broker = &run.network().peer.broker;
    let without = (0..100).filter(|n| broker.filters(&format!("reader-{n}")) != Some(1)).count();
    assert_eq!(without, 0, "readers without their filter");
}

#[test]
fn clients_that_share_a_session_receive_each_message_that_they_read() {
    let mut publisher = plans::population("publisher", 1);
    publisher.publications = vec![publication("t", 2, 5 * MS)];
    let mut device = plans::population("device", 6);
    device.subscriptions = vec![subscription("t", 2)];
    if let PlannedProtocol::Mqtt(mqtt) = &mut device.protocol {
        mqtt.clean_session = false;
    }
    let thief = Population { name: "thief".into(), takes_over: Some(1), ..device.clone() };
    // Connections end between PUBLISH and PUBREL, which the other client gets.
    let case = case(vec![publisher, device, thief], 10 * S, Weather::fair());
    let case = Case { agents: 2, climate: Climate::Fair, ..case };
    let run = Run::play(case, 1, 2, Peer::new(Broker::new(Script::reliable())));
    let totals = checks::check(&run);
    assert!(totals.counters[1].disconnected_total > 100, "{:?}", totals.counters[1]);
}

#[test]
fn a_stage_is_closed_over_several_turns_and_settles_with_all_that_is_expected() {
    const TOPICS: u64 = 20_000;
    let mut publishers = plans::population("publisher", 100);
    publishers.publications = vec![publication("t/{n}/{1..200}", 0, 5 * MS)];
    let mut subscriber = plans::population("subscriber", 1);
    subscriber.subscriptions = vec![subscription("t/#", 0)];
    let connect =
        Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
    let publish = Action::Publish {
        duration_ns: S,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let stages = vec![stage(connect, &[0, 1]), stage(publish, &[0])];
    let populations = vec![publishers, subscriber];
    let plan = Plan { populations, stages, ..plans::empty(1) };
    // No delivery turns the loop.
    let script = Script { muted: vec!["subscriber-0".into()], ..Script::reliable() };
    let peer = Peer::new(Broker::new(script));
    let network = Network::new(1, 1, START_NS, Weather::fair(), peer);
    let mut agents = Agents::new(&plan, 1, network);
    let (mut expected, mut turns) = (0, 0);
    for index in 0..2 {
        let at_ns = agents.now_ns() + MS;
        agents.send(&Command::Stage { index, at_ns });
        let mut is_settled = false;
        while !is_settled {
            assert!(agents.now_ns() < at_ns + 5 * S, "the stage settles");
            if agents.now_ns() < at_ns + S {
                turns = agents.network.borrow().waits_total(0);
            }
            for snapshot in agents.play((at_ns + S).max(agents.now_ns() + MS)) {
                assert!(!is_settled, "the stage is settled with its last delivery");
                is_settled = snapshot.stage == Some(index) && snapshot.settled;
                expected += snapshot.flows.iter().map(|f| f.counters.expected_total).sum::<i64>();
            }
        }
    }
    assert_eq!(expected, TOPICS.cast_signed());
    let turns = agents.network.borrow().waits_total(0) - turns;
    assert!(turns > TOPICS / 500, "all topics in {turns} turns");
}

#[test]
fn messages_that_were_due_while_an_agent_stood_still_are_sent_as_the_stage_closes() {
    let mut publishers = plans::population("publisher", 10);
    publishers.publications = vec![publication("t/{n}", 1, 10 * MS)];
    let connect =
        Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
    let publish = Action::Publish {
        duration_ns: 60 * S,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let stages = vec![stage(connect, &[0]), stage(publish, &[0])];
    let plan = Plan { populations: vec![publishers], stages, ..plans::empty(1) };
    let peer = Peer::new(Broker::new(Script::reliable()));
    let mut agents = Agents::new(&plan, 1, Network::new(1, 1, START_NS, Weather::fair(), peer));
    let (mut sent, mut skipped) = (0, 0);
    for index in 0..2 {
        let at_ns = agents.now_ns() + MS;
        agents.send(&Command::Stage { index, at_ns });
        while agents.now_ns() < at_ns + S {
            let snapshots = agents.play(at_ns + S);
            sent += snapshots.iter().map(sent_of).sum::<u64>();
        }
    }
    let before = sent;
    let now_ns = agents.now_ns();
    while agents.now_ns() < now_ns + 45 * MS {
        agents.network.borrow_mut().advance(now_ns + 45 * MS);
    }
    agents.send(&Command::Close { sent: Vec::new() });
    while agents.now_ns() < now_ns + S {
        for snapshot in agents.play(now_ns + S) {
            sent += sent_of(&snapshot);
            skipped += snapshot.populations[0].counters.skipped_total;
        }
    }
    assert_eq!(skipped, 0);
    assert!(sent >= before + 40, "{before} messages, then {sent}");
}

#[test]
fn an_agent_whose_controller_is_silent_keeps_its_counts_and_publishes_nothing_after_a_minute() {
    let mut publishers = plans::population("publisher", 10);
    let paced = publication("t/{n}", 1, 100 * MS);
    let closed = Publication { pace: Pace::Closed, window: 1, ..paced.clone() };
    publishers.publications = vec![paced, closed];
    let connect =
        Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
    let publish = Action::Publish {
        duration_ns: 600 * S,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let stages = vec![stage(connect, &[0]), stage(publish, &[0])];
    let plan = Plan { populations: vec![publishers], stages, ..plans::empty(1) };
    let peer = Peer::new(Broker::new(Script::reliable()));
    let weather = Weather { latency_max_ns: 200 * MS, ..Weather::fair() };
    let mut agents = Agents::new(&plan, 1, Network::new(1, 1, START_NS, weather, peer));
    let play = |agents: &mut Agents, seconds| {
        let (until_ns, mut all) = (agents.now_ns() + seconds * S, Vec::new());
        while agents.now_ns() < until_ns {
            all.extend(agents.play(until_ns));
        }
        all
    };
    for index in 0..2 {
        agents.send(&Command::Stage { index, at_ns: agents.now_ns() + MS });
        play(&mut agents, 2);
    }
    agents.read(false);
    assert!(play(&mut agents, 200).is_empty());
    agents.read(true);
    let silent = play(&mut agents, 1);
    assert!(silent.len() <= 11, "{} snapshots", silent.len());
    let held_ns: u64 = silent.iter().map(|snapshot| snapshot.engine.held_ns).sum();
    assert!((138 * S..=141 * S).contains(&held_ns), "{held_ns} ns");
    let sent: u64 = silent.iter().map(sent_of).sum();
    let after: Vec<_> = play(&mut agents, 60);
    let in_a_minute: u64 = after.iter().map(sent_of).sum();
    assert!(sent.abs_diff(in_a_minute) < in_a_minute / 20, "{sent}, then {in_a_minute}");
    assert_eq!(after.iter().map(|snapshot| snapshot.engine.held_ns).sum::<u64>(), 0);
    agents.send(&Command::Close { sent: Vec::new() });
    let all = silent.iter().chain(&after).map(|snapshot| &snapshot.populations[0].counters);
    let (mut intervals, skipped) = (0, all.map(|counters| counters.skipped_total).sum::<u64>());
    for pair in silent.iter().chain(&after).collect::<Vec<_>>().windows(2) {
        assert_eq!((pair[0].to_ns, pair[0].sequence + 1), (pair[1].from_ns, pair[1].sequence));
        intervals += 1;
    }
    assert!(skipped == 0 && intervals > 60, "{skipped} skipped in {intervals} intervals");
}

fn sent_of(snapshot: &Snapshot) -> u64 {
    snapshot.populations[0].counters.sent_total
}

#[test]
fn a_change_that_comes_with_the_command_to_close_is_made() {
    let mut publishers = plans::population("publisher", 10);
    publishers.publications = vec![publication("t/{n}", 1, 10 * MS)];
    let publish = Action::Publish {
        duration_ns: 60 * S,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let plan = Plan {
        populations: vec![publishers],
        stages: vec![stage(publish, &[0])],
        ..plans::empty(1)
    };
    let peer = Peer::new(Broker::new(Script::reliable()));
    let mut agents = Agents::new(&plan, 1, Network::new(1, 1, START_NS, Weather::fair(), peer));
    let at_ns = agents.now_ns();
    let action = ChangeAction::Add { clients: 10, over_ns: 0 };
    agents.send(&Command::Stage { index: 0, at_ns });
    agents.play(at_ns + MS);
    let at_ns = agents.now_ns();
    agents.send(&Command::Change { at_ns, population: 0, action });
    agents.send(&Command::Close { sent: Vec::new() });
    let mut connected = 0;
    while agents.now_ns() < at_ns + S {
        let snapshots = agents.play(at_ns + S);
        let counters = snapshots.iter().map(|snapshot| &snapshot.populations[0].counters);
        connected += counters.map(|counters| counters.connected_total).sum::<u64>();
    }
    assert_eq!(connected, 10);
}
