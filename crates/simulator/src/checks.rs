//! Checks the invariants of the engine after a simulated run with any faults, against the bytes on
//! the wire.

use std::collections::BTreeMap;

use engine::LEAVE_NS;
use plan::{
    Action, Counters, End, Gauges, Histogram, Outcomes, Pacer, Population, PopulationSnapshot,
    Publication, Reason, Shard, Tempo,
};

use super::course::Run;
use super::features::groups::{self, Sharing};
use super::features::{FEATURES, limits};
use super::features::{counts, flows};
use super::totals::{
    Messages, Totals, deaths, flows_from, matches, messages, population_of, publishers,
    wills_by_wire, written,
};
use super::weather::{Climate, S, Weather};
use super::wire::{self, AgentClient, StreamPlace};

/// Checks all of them.
pub fn check(run: &Run) -> Totals {
    let totals = Totals::of(run);
    snapshots_follow_each_other(run);
    nothing_is_left(run, &totals);
    attempts_add_up(run, &totals);
    messages_add_up(run, &totals);
    the_schedule_is_kept(run, &totals);
    deliveries_add_up(run, &totals);
    FEATURES.iter().for_each(|feature| (feature.check)(run, &totals));
    the_wire_agrees(run, &totals);
    if run.case.climate != Climate::Storm {
        nothing_goes_wrong(run, &totals);
    }
    let backwards = Totals::over(run.plan(), run.snapshots.iter().rev());
    assert!(totals == backwards, "snapshots add up in any order");
    totals
}

/// Checks that agents together publish and expect what one agent alone does, where nothing goes
/// wrong.
pub fn compare(run: &Run, alone: &Run) {
    let (totals, other) = (Totals::of(run), Totals::of(alone));
    if !run.overrun.is_empty() || !alone.overrun.is_empty() {
        return;
    }
    let plan = run.plan();
    let is_static = |p: usize| {
        run.case.is_static(p) && !run.case.is_excluded(p) && !counts::depend_on_time(run, p)
    };
    for (p, population) in plan.populations.iter().enumerate().filter(|(p, _)| is_static(*p)) {
        let of = |totals: &Totals| {
            let counters = &totals.counters[p];
            let messages = counters.sent_total - counters.answers_total + counters.skipped_total;
            (counters.connected_total, messages)
        };
        assert_eq!(of(&totals), of(&other), "{}", population.name);
        let skipped = totals.counters[p].skipped_total + other.counters[p].skipped_total;
        // A will comes to some of those that leave with its client.
        if skipped > 0 || population.end != End::Disconnect {
            continue;
        }
        // The broker chooses the population of a group that several have.
        let is_exact = |&to: &usize| is_static(to) && groups::partners(to, plan).is_empty();
        for to in (0..plan.populations.len()).filter(is_exact) {
            let (flow, other) = (totals.flow(p, to), other.flow(p, to));
            assert_eq!(flow.expected_total, other.expected_total, "flow {p} to {to}");
        }
    }
}

/// Each snapshot begins where the last one of its agent ended, and no gauge is out of range.
fn snapshots_follow_each_other(run: &Run) {
    let agents = run.case.agents;
    let mut last = vec![(0, None); agents as usize];
    for snapshot in &run.snapshots {
        let (sequence, to_ns) = &mut last[snapshot.agent as usize];
        assert_eq!(snapshot.sequence, *sequence, "no snapshot is left out");
        assert!(to_ns.is_none_or(|to_ns| to_ns == snapshot.from_ns), "no time is left out");
        (*sequence, *to_ns) = (snapshot.sequence + 1, Some(snapshot.to_ns));
        let shard = Shard::new(snapshot.agent, agents).expect("it is an agent's");
        for (population, said) in run.plan().populations.iter().zip(&snapshot.populations) {
            let (share, gauges) = (u64::from(shard.share(population.clients)), said.gauges);
            let windows = population.publications.iter().map(|p| u64::from(p.window)).sum::<u64>();
            assert!(gauges.ready <= gauges.connected && gauges.connected <= share, "{gauges:?}");
            assert!(gauges.offline <= share && gauges.stalled <= share, "{gauges:?}");
            let answers = if population.responds.is_some() { u64::from(u16::MAX) } else { 0 };
            // A host of Sparkplug states that it is online.
            let states = u64::from(population.sparkplug().is_some());
            let most = share * (windows + answers + states);
            assert!(gauges.in_flight <= most, "{gauges:?}, windows {windows}");
        }
    }
}

/// At the end no client is connected, and nothing is open, due or in flight.
fn nothing_is_left(run: &Run, totals: &Totals) {
    let network = run.network();
    for agent in 0..run.case.agents as usize {
        assert_eq!(network.descriptors(agent), 0, "agent {agent} has closed its sockets");
    }
    for (population, gauges) in run.plan().populations.iter().zip(&totals.gauges) {
        let in_flight = if population.keeps_session() { gauges.in_flight } else { 0 };
        assert_eq!(*gauges, Gauges { in_flight, ..Gauges::default() }, "{}", population.name);
    }
    let connected = run.snapshots.iter().rev().find(|snapshot| !snapshot.targets.is_empty());
    let connected = connected.map_or(0, |s| s.targets.iter().map(|t| t.connected).sum::<u64>());
    assert_eq!(connected, 0, "no target has a client");
}

/// Every attempt is accepted or fails, unless its client had to leave meanwhile.
fn attempts_add_up(run: &Run, totals: &Totals) {
    for counters in &totals.counters {
        let ended = counters.connected_total + counters.connect_failed_total;
        assert!(ended <= counters.connect_attempts_total, "{counters:?}");
        assert!(counters.disconnected_total <= counters.connected_total, "{counters:?}");
    }
    phases_add_up(run, totals);
    let by = |of: fn(&Counters) -> u64| totals.counters.iter().map(of).sum::<u64>();
    let targets = || run.snapshots.iter().flat_map(|snapshot| &snapshot.targets);
    assert_eq!(targets().map(|t| t.connected_total).sum::<u64>(), by(|c| c.connected_total));
    let failed = targets().map(|t| t.connect_failed_total).sum::<u64>();
    assert_eq!(failed, by(|c| c.connect_failed_total));
    let refused = by(|c| c.subscribe_failed_total + c.unsubscribe_failed_total + c.rejected_total);
    let failures = by(|c| c.connect_failed_total + c.disconnected_total) + refused;
    let outcomes = totals.outcomes.iter().map(limits::failures).sum::<u64>();
    assert_eq!(outcomes, failures, "every failure has a reason");
}

/// The phases of connecting are its whole time where no attempt has failed.
fn phases_add_up(run: &Run, totals: &Totals) {
    for (p, counters) in totals.counters.iter().enumerate() {
        let sums = |of: fn(&PopulationSnapshot) -> &Histogram| {
            let mut sum = Histogram::default();
            run.snapshots.iter().for_each(|each| sum.add(of(&each.populations[p])));
            let stored = serde_json::to_value(&sum).expect("a histogram is written");
            (sum.count(), stored["sum_ns"].as_u64().expect("a number"))
        };
        let (tcp, tls) = (sums(|p| &p.connect_tcp), sums(|p| &p.connect_tls));
        let (accept, subscribe) = (sums(|p| &p.connect_accept), sums(|p| &p.connect_subscribe));
        let whole = sums(|p| &p.connect_time);
        assert_eq!((accept.0, whole.0), (counters.connected_total, counters.connected_total));
        // A connection over QUIC has no phase of TCP. Either phase may be the first.
        let over_quic = run.plan().targets.iter().filter(|target| target.quic).count();
        let (first, has_tcp) = (tcp.0.max(tls.0), over_quic < run.plan().targets.len());
        assert!(tls.0 <= tcp.0 || over_quic > 0, "{tls:?} {tcp:?}");
        assert!(first <= counters.connect_attempts_total && subscribe.0 <= whole.0);
        if counters.connect_attempts_total == counters.connected_total {
            assert_eq!(tcp.1 + tls.1 + accept.1, whole.1, "{tcp:?} {tls:?} {accept:?}");
            assert!(first == whole.0 || over_quic > 0 && has_tcp, "{tcp:?} {tls:?} {whole:?}");
        }
    }
}

/// Every message is acknowledged, given up or in flight; every one of QoS 0 is written.
fn messages_add_up(run: &Run, totals: &Totals) {
    let written = written(run);
    for (p, population) in run.plan().populations.iter().enumerate() {
        let (counters, gauges) = (&totals.counters[p], &totals.gauges[p]);
        let published = population.publications.first().map(|publication| publication.qos);
        let answered = population.responds.map(|responds| responds.qos);
        let mut qos = published.into_iter().chain(answered);
        let sent = counters.sent_total;
        let given_up = counters.abandoned_total + counters.rejected_total + gauges.in_flight;
        if qos.clone().next().is_none() {
            assert_eq!(sent, 0);
        } else if qos.clone().all(|qos| qos == 0) {
            let counted = written[p] + counters.unsent_dropped_total;
            assert_eq!(sent, counted, "{}: written or counted", population.name);
        } else {
            let most = written[p] + answers_resent(run, p) + counters.unsent_dropped_total;
            assert!((written[p]..=most + given_up).contains(&sent), "{counters:?}");
            let acked = counters.acked_total + given_up;
            assert!(qos.any(|qos| qos == 0) || sent == acked, "{counters:?}");
        }
    }
}

/// Answers that a population has written again.
fn answers_resent(run: &Run, population: usize) -> u64 {
    let network = run.network();
    let answers = network.wire.answers_resent.iter();
    let own = answers.filter(|(client, _)| population_of(run, **client) == population);
    own.map(|(_, answers)| answers).sum()
}

/// Every message that was scheduled is sent or skipped, if every client is active all the time.
fn the_schedule_is_kept(run: &Run, totals: &Totals) {
    let plan = run.plan();
    for (p, population) in plan.populations.iter().enumerate() {
        let closed = |pace: &plan::Pace| matches!(pace, plan::Pace::Closed);
        let rated = run.case.changes.iter().any(|change| change.2 == p)
            || plan.stages.iter().any(|s| s.action.changes().iter().any(|c| c.population == p));
        if rated
            || !run.case.stays_connected(p)
            || population.publications.iter().any(|c| closed(&c.pace))
        {
            continue;
        }
        let mut scheduled = 0;
        for stage in &plan.stages {
            let Action::Publish { duration_ns, rate_profile, .. } = &stage.action else { continue };
            let elapsed_ns = Tempo::new(rate_profile).schedule_before(*duration_ns);
            if !stage.populations.contains(&p) {
                continue;
            }
            let pacer = |(at, publication): (usize, &Publication)| {
                let place = publishers(plan).iter().position(|&found| found == (p, at));
                let purpose = place.expect("it is one of the plan's") as u64 * 2;
                let pacer = Pacer::new(&publication.pace, plan.seed, purpose).expect("it is open");
                pacer.of_recorded(publication.payload.recorded())
            };
            let pacers: Vec<_> = population.publications.iter().enumerate().map(pacer).collect();
            for client in 0..population.clients {
                let due = pacers.iter().map(|pacer| pacer.due_before(client, elapsed_ns));
                scheduled += due.sum::<u64>().min(counts::most(run, stage, p, client));
            }
        }
        let counters = &totals.counters[p];
        let found = counters.sent_total - counters.answers_total + counters.skipped_total;
        // A number of messages is made up with later ones for those that were skipped.
        let makes_up = counts::are_counted(run, p) && counters.skipped_total > 0;
        let what = format!("{}: {found} of {scheduled} sent or skipped", population.name);
        assert!(found <= scheduled || makes_up, "{what}");
        // A connect stage that was cut short leaves clients that have no schedule yet.
        let connects = |&index: &usize| matches!(plan.stages[index].action, Action::Connect { .. });
        if !run.overrun.iter().any(connects) {
            assert!(found >= scheduled, "{what}");
        }
    }
}

/// Expected deliveries follow from the messages sent, received ones from the messages read.
fn deliveries_add_up(run: &Run, totals: &Totals) {
    let wire = &run.network().wire;
    let (expected, received) = (expected_by_wire(run), by_flow(run, &wire.received, |_| 1));
    let copies = by_flow(run, &wire.received, u64::cast_signed);
    let late = by_flow(run, &wire.late, u64::cast_signed);
    let kept = by_flow(run, &wire.kept, u64::cast_signed);
    let as_published = by_flow(run, &wire.as_published, u64::cast_signed);
    let populations = run.plan().populations.len();
    for (from, to) in (0..populations).flat_map(|from| (0..populations).map(move |to| (from, to))) {
        let flow = totals.flow(from, to);
        let wills = wills_by_wire(run, from, to);
        assert!(flow.wills_received_total <= wills, "flow {from} to {to}: {flow:?}");
        let read = received.get(&(from, to)).copied().unwrap_or(0) + wills;
        let receiver = &run.plan().populations[to];
        let sharing = Sharing::of(to, run.plan());
        // A client receives a copy for each of its shared groups.
        let most = match sharing {
            Sharing::None => read,
            _ => copies.get(&(from, to)).copied().unwrap_or(0) + wills,
        };
        // Of messages that cross the SUBSCRIBE of their receiver, the engine can take kept ones for
        // forwarded ones, and forwarded ones for kept ones.
        let crossing = |of: &BTreeMap<(usize, usize), i64>| {
            let may_cross = receiver.retains_as_published()
                && (!run.case.is_static(to) || run.case.climate == Climate::Storm);
            if may_cross { of.get(&(from, to)).copied().unwrap_or(0) } else { 0 }
        };
        let least = groups::received_least(run, from, to).map_or(read, |least| least + wills);
        let (least, most) = (least - crossing(&as_published), most + crossing(&kept));
        let what = format!("flow {from} to {to}: {flow:?}, {least} to {most} read");
        assert!(flow.received_total <= most, "{what}");
        if run.case.handles_all(to) {
            assert!((least..=most).contains(&flow.received_total), "{what}");
        }
        let is_brief = receiver.lifetime.is_some() || receiver.flapping.is_some();
        if is_brief || run.case.is_contested(to) {
            assert_eq!(flow.expected_total, flow.received_total, "{what}");
        } else if run.case.is_static(to) && sharing != Sharing::Several {
            let counters = &totals.counters[from];
            let least = expected.get(&(from, to)).copied().unwrap_or(0);
            let unwritten = counters.sent_total as i64 - written(run)[from] as i64;
            // A will is expected when it is due, and once more if it comes while receivers leave.
            // A broker may also publish the will of a client that has not got its CONNACK.
            let due = deaths(run, totals, from);
            let ways = 1 + flows_from(run, from);
            let most = least + (ways * unwritten + due) * i64::from(receiver.clients) + wills;
            // A delivery that comes behind the drain of its stage, in one that excludes it from
            // loss, is expected twice. Such a stage expects the will of a client without CONNACK.
            let (least, most) = match run.case.is_excluded(to) {
                true => (0, most + wills + late.get(&(from, to)).copied().unwrap_or(0)),
                false => (least, most),
            };
            assert!((least..=most).contains(&flow.expected_total), "{what}, {least} to {most}");
            // A message that is sent again may go to another member of a shared group. What was
            // excluded from loss in one stage may come in a later one. A will makes up for no
            // message.
            if sharing == Sharing::None && !run.case.is_excluded(to) {
                let received = flow.received_total - flow.wills_received_total;
                let expected = flow.expected_total - flow.wills_expected_total;
                assert!(received <= expected, "{what}");
            }
        }
    }
}

/// Deliveries that are to be expected by what was written, if all clients are active.
fn expected_by_wire(run: &Run) -> BTreeMap<(usize, usize), i64> {
    let plan = run.plan();
    let mut expected = BTreeMap::new();
    for Messages { from, client: own, name, count } in messages(run) {
        for (to, population) in plan.populations.iter().enumerate() {
            let skips_own = population.skips_own_messages() && name.flow.is_none();
            let is_receiver = |client: &u32| {
                let n = population.first + u64::from(*client);
                let is_own = from == to && *client == own && skips_own;
                !is_own && matches(&run.case, population, n, &name) > 0
            };
            let mut receivers = (0..population.clients).filter(is_receiver).count() as i64;
            if Sharing::of(to, plan) == Sharing::One {
                receivers = receivers.min(1);
            }
            *expected.entry((from, to)).or_default() += count * receivers;
        }
    }
    expected
}

/// Messages that were read, each as often as `count` says of the copies that a client read.
fn by_flow(
    run: &Run,
    read: &BTreeMap<(AgentClient, StreamPlace), u64>,
    count: fn(u64) -> i64,
) -> BTreeMap<(usize, usize), i64> {
    let plan = run.plan();
    let publishers = publishers(plan);
    let mut received = BTreeMap::new();
    for ((client, (key, _)), &copies) in read {
        let (from, _) = publishers[(key >> 48) as usize];
        let to = population_of(run, *client);
        *received.entry((from, to)).or_default() += count(copies);
    }
    received
}

/// Counters of bytes and packets agree with the wire.
fn the_wire_agrees(run: &Run, totals: &Totals) {
    let network = run.network();
    let by = |of: fn(&Counters) -> u64| totals.counters.iter().map(of).sum::<u64>();
    assert_eq!(by(|c| c.bytes_sent_total), network.wire.bytes_sent);
    assert_eq!(by(|c| c.bytes_received_total), network.wire.bytes_received);
    assert!(by(|c| c.packets_received_total) <= network.wire.packets_received);
    assert!(by(|c| c.packets_sent_total) >= network.wire.packets_sent);
    let seconds = (run.snapshots.last().map_or(0, |s| s.to_ns) - super::course::START_NS) / S + 1;
    for agent in 0..run.case.agents as usize {
        let waits = network.waits_total(agent);
        let packets = network.wire.packets_sent + network.wire.packets_received;
        // A server that sends each byte by itself wakes its client for each.
        let most = 20_000 * seconds + 20 * packets + network.pieces_total;
        assert!(waits <= most, "{waits} waits in {seconds} s with {packets} packets");
    }
}

/// Most bytes that a client of these plans has unsent when it leaves, without answers.
const UNSENT_MAX: u64 = 10_000;

/// Most bytes that a client of a population has unsent when it leaves.
fn unsent_max(population: &Population) -> u64 {
    let answers = population.responds.map_or(0, |_| engine::UNSENT_MAX as u64);
    UNSENT_MAX + answers
}

/// Bytes that a client gets through the smallest room in the time that its DISCONNECT has: a room
/// for each round trip, if the broker reads as often.
fn sent_while_leaving(weather: &Weather) -> u64 {
    let turn_ns = (2 * weather.latency_max_ns).max(weather.gulp_ns).max(1);
    weather.room.0 as u64 * (LEAVE_NS / turn_ns)
}

/// If nothing goes wrong, every client connects and leaves in good order, every stage ends and
/// every message arrives.
fn nothing_goes_wrong(run: &Run, totals: &Totals) {
    let is_slow = run.case.climate == Climate::Narrow
        || run.plan().populations.iter().any(|population| population.read_rate_per_s.is_some());
    // Through little room, or behind deliveries read slowly, less may go than is scheduled. Clients
    // that take each other's connections over again and again are perhaps never all ready.
    let is_contested = (0..run.plan().populations.len()).any(|p| run.case.is_contested(p));
    let may = |&index: &usize| match run.plan().stages[index].action {
        Action::Publish { .. } => is_slow,
        Action::Connect { .. } => is_contested,
        _ => false,
    };
    let outcomes = &totals.outcomes;
    assert!(run.overrun.iter().all(may), "every stage ends: {:?}, {outcomes:?}", run.overrun);
    let network = run.network();
    let in_order = |message: &&testkit::BrokerMessage| {
        let of = wire::will_of(&message.topic);
        of.is_some_and(|p| {
            run.plan().populations[p].end == End::Disconnect && !run.case.is_contested(p)
        })
    };
    let cut_off = |outcomes: &Outcomes| {
        let ends =
            [Reason::DisconnectTimeout, Reason::SubscribeTimeout, Reason::UnsubscribeTimeout];
        ends.iter().filter_map(|reason| outcomes.get(reason)).sum::<u64>()
    };
    let cut_off: u64 = totals.outcomes.iter().map(cut_off).sum();
    let wills = network.peer.broker.accepted().iter().filter(in_order).count() as u64;
    let what = || format!("{wills} wills, {cut_off} cut off: {:?}", totals.outcomes);
    assert!(wills <= cut_off, "a client that leaves in good order has no will: {}", what());
    for (p, population) in run.plan().populations.iter().enumerate() {
        let (counters, outcomes) = (&totals.counters[p], &totals.outcomes[p]);
        let of = |reason| outcomes.get(&reason).copied().unwrap_or(0);
        let mut timeouts = of(Reason::ConnectTimeout)
            + of(Reason::SubscribeTimeout)
            + of(Reason::UnsubscribeTimeout);
        if run.case.climate == Climate::Fair {
            assert_eq!(timeouts, 0, "{}: {outcomes:?}", population.name);
        }
        if matches!(population.end, End::Abort | End::Vanish) || run.case.is_contested(p) {
            // Unsent messages are dropped with the connection.
        } else if sent_while_leaving(&run.case.weather) < unsent_max(population) {
            timeouts += of(Reason::DisconnectTimeout);
        } else {
            assert_eq!(counters.unsent_dropped_total, 0);
        }
        if run.case.is_contested(p) {
            continue;
        }
        assert_eq!(limits::failures(outcomes), timeouts, "{}: {outcomes:?}", population.name);
    }
    nothing_is_lost(run, totals, is_slow);
}

/// All that is expected arrives, but for messages that the program of a flow has not carried.
fn nothing_is_lost(run: &Run, totals: &Totals, is_slow: bool) {
    for (from, to) in totals.flows.keys() {
        let flow = totals.flow(*from, *to);
        if !run.case.is_static(*to) || !run.case.is_static(*from) {
            continue;
        }
        let what = format!("flow {from} to {to}: {flow:?}");
        if is_slow && run.left_unread {
            // A drain ends while a slow reader reads nothing but duplicates.
        } else {
            // A drain that expects what it receives is over at once: the rest comes in a stage
            // that expects what was published in it.
            let least = if run.case.is_excluded(*to) && is_slow { i64::MIN } else { 0 };
            // The broker gave messages of the group to members that left without reading them.
            let have_left = groups::have_left(run, *to);
            let most = if have_left { groups::unread(run, *from, *to) } else { 0 };
            let by_program = flows::lost(run, *from, *to);
            let (least, most) = (least.saturating_add(by_program.0), most + by_program.1);
            let lost = flow.expected_total - flow.received_total;
            assert!((least..=most).contains(&lost), "{what}, {lost} of {least} to {most} lost");
        }
    }
}
