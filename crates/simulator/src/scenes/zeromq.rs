//! Engines as subscribers of a publisher of ZeroMQ: plans, weather and faults of a seed.

use plan::{Action, Command, Plan, PlannedProtocol, Player, Security, Sent, Zmtp};
use testkit::{Broker, Rng, Script, for_each_seed};

use crate::agents::Agents;
use crate::course::START_NS;
use crate::feed::{Feed, topic};
use crate::network::Network;
use crate::peer::{Manner, Peer};
use crate::totals::Totals;
use crate::weather::{Fault, MS, S, Weather};
use testkit::plans::{self, publication, stage, subscription};

/// Seeds of `cargo test`.
const SEEDS: u64 = 100;

fn zmtp(player: Player) -> PlannedProtocol {
    PlannedProtocol::Zmtp(Zmtp {
        player,
        high_water_mark: 0,
        io_threads: 1,
        security: Security::Null,
    })
}

/// A publisher, and subscribers of drawn prefixes.
fn plan(rng: &mut Rng) -> Plan {
    let mut feed = plans::population("feed", 1);
    (feed.protocol, feed.publications) =
        (zmtp(Player::Libzmq), vec![publication("s{1..4}/", 0, MS)]);
    let mut subscribers = plans::population("subscriber", 1 + rng.below(20) as u32);
    subscribers.protocol = zmtp(Player::Engine);
    subscribers.keep_alive_s = rng.below(3) as u16;
    for prefix in ["", "s{1..2}/", "s{n%3}", "s4/", "t"] {
        if rng.chance(40) {
            subscribers.subscriptions.push(subscription(prefix, 0));
        }
    }
    if subscribers.subscriptions.is_empty() {
        subscribers.subscriptions.push(subscription("s", 0));
    }
    let connect =
        Action::Connect { rate_per_s: None, parallelism: Some(3), timeout_ns: S, clients: None };
    let publish = Action::Publish {
        duration_ns: 600 * S,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let stages = vec![stage(connect, &[0, 1]), stage(publish, &[0])];
    Plan { populations: vec![feed, subscribers], stages, ..plans::empty(rng.bits() >> 1) }
}

/// Weather without loss of connections, or with it.
fn weather(rng: &mut Rng, is_rough: bool) -> Weather {
    let narrow = [(1 << 16, 1 << 16), (64, 300), (200, 4000)];
    let mut faults = Vec::new();
    if is_rough {
        let manner = rng.pick(&[Manner::End, Manner::Reset]);
        faults.push((3 * S + rng.bits() % S, Fault::Hang { per_cent: 40, manner }));
        faults.push((3 * S + rng.bits() % S, Fault::Stall { per_cent: 40, ns: 300 * MS }));
    }
    Weather {
        room: rng.pick(&narrow),
        gulp_max: rng.pick(&[0, 7, 100]),
        latency_max_ns: 5 * MS,
        keep_alive_check_ns: 5 * MS,
        faults,
        ..Weather::fair()
    }
}

/// Expected deliveries of this number of messages.
fn expected(plan: &Plan, total: u64) -> i64 {
    let subscribers = &plan.populations[1];
    let wants = |client: u32, topic: &str| {
        let n = subscribers.first + u64::from(client);
        let filters = subscribers.subscriptions.iter().map(|subscription| &subscription.filter);
        let prefixes =
            filters.flat_map(|filter| (0..filter.variants()).map(move |v| filter.text(n, v)));
        prefixes.into_iter().any(|prefix| topic.starts_with(&prefix))
    };
    let receivers = |number| (0..subscribers.clients).filter(|&c| wants(c, &topic(number))).count();
    (0..total).map(|number| receivers(number) as i64).sum()
}

#[test]
fn subscribers_of_zeromq_count_what_they_received_and_what_they_expect() {
    let mut lost_in_all = 0;
    for_each_seed(0..SEEDS, |seed| {
        let mut rng = Rng::new(seed ^ 0x2e40_0017);
        let (plan, is_rough) = (plan(&mut rng), rng.chance(40));
        let mut peer = Peer::new(Broker::new(Script::reliable()));
        peer.feed = Some(Feed::new(plan.run_tag));
        let count = 1 + rng.below(3) as u32;
        let network =
            Network::new(seed, count as usize, START_NS, weather(&mut rng, is_rough), peer);
        let mut agents = Agents::new(&plan, count, network);
        let mut snapshots = Vec::new();
        let mut play = |agents: &mut Agents, ns: u64| {
            let until_ns = agents.now_ns() + ns;
            while agents.now_ns() < until_ns && !agents.have_ended() {
                snapshots.extend(agents.play(until_ns));
            }
        };
        let feed = |agents: &Agents, burst| {
            let mut network = agents.network.borrow_mut();
            let feed = network.peer.feed.as_mut().expect("the peer is a feed");
            feed.burst = burst;
            (feed.total, feed.copies)
        };
        for (index, burst) in [(0, 0), (1, rng.bits() % 20)] {
            agents.send(&Command::Stage { index, at_ns: agents.now_ns() });
            play(&mut agents, 2 * S);
            feed(&agents, burst);
        }
        play(&mut agents, 3 * S);
        let (total, copies) = feed(&agents, 0);
        play(&mut agents, 3 * S);
        let sent = vec![Sent { population: 0, client: 0, total }];
        agents.send(&Command::Close { sent });
        play(&mut agents, 3 * S);
        agents.send(&Command::Stop);
        play(&mut agents, S);
        assert!(agents.have_ended());
        let totals = Totals::over(&plan, snapshots.iter());
        let flow = totals.flows.get(&(0, 1)).copied().unwrap_or_default();
        assert_eq!(flow.expected_total, expected(&plan, total), "expected");
        assert!(flow.received_total <= copies && copies <= flow.expected_total);
        assert_eq!((flow.duplicate_total, flow.reordered_total, flow.stale_total), (0, 0, 0));
        let clients = u64::from(plan.populations[1].clients);
        let connected = totals.counters[1].connected_total;
        if is_rough {
            assert!(connected >= clients);
            lost_in_all += flow.expected_total - flow.received_total;
        } else {
            assert_eq!((connected, flow.received_total), (clients, flow.expected_total));
        }
    });
    assert!(lost_in_all > 0, "some connection ended while messages were published");
}
