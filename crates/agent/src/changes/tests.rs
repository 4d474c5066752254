//! Changes that overlap, against the plain rule; walks of shards, against the whole.

use super::*;
use plan::Plan;
use proptest::prelude::*;
use serde_json::json;

/// Clients of the population that changes in the property below.
const CLIENTS: u32 = 40;

/// A change, with its instant: adds or removes clients over some time.
type Said = (u64, bool, u32, u64);

/// An instant, a client over all agents, and whether the client joins.
type Seen = (u64, u32, bool);

fn turns(walk: Walk, shard: Shard) -> Vec<(u64, u32)> {
    let walks = std::iter::successors(walk.of_shard(shard), |walk| walk.after(shard));
    walks.map(|walk| (walk.turn_ns(), walk.client())).collect()
}

fn plan() -> Plan {
    let population = json!({
        "name": "p", "clients": CLIENTS, "first": 0,
        "protocol": {"kind": "mqtt", "version": "3.1.1", "client_id": "{n}", "clean_session": true},
        "at": {"first": 0, "count": 1, "choice": "turn"},
        "username": null, "password": null, "tls": null, "keep_alive_s": 60,
        "connect_timeout_ns": 1, "reconnect": null,
        "read_rate_per_s": null, "subscriptions": [], "publications": [],
    });
    let other = json!({"name": "other", "clients": 7});
    let mut others = population.clone();
    others.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    let plan = json!({
        "format": Plan::FORMAT, "name": "test", "run_tag": 1, "seed": 1,
        "targets": [{"host": "127.0.0.1", "port": 1, "tls": false}], "targets_joined": true,
        "bridges": [], "sources": [], "snapshot_interval_ns": 1, "drain_ns": 1,
        "populations": [others, population], "stages": [],
    });
    Plan::from_json(&plan.to_string()).unwrap()
}

/// All turns by the letter: a change gives each client that it covers a turn, in place of the turn
/// that the client still had. Returns the turns of each client in order, and the clients left.
fn naive(mut active: u32, said: &[Said]) -> (Vec<Seen>, u32) {
    let mut turns: Vec<Option<(u64, bool)>> = vec![None; CLIENTS as usize];
    let mut seen = Vec::new();
    let mut take = |turns: &mut Vec<Option<(u64, bool)>>, until_ns: u64| {
        for (client, turn) in (0u32..).zip(turns) {
            if let Some((at_ns, joins)) = turn.take_if(|(at_ns, _)| *at_ns <= until_ns) {
                seen.push((at_ns, client, joins));
            }
        }
    };
    for &(at_ns, joins, clients, over_ns) in said {
        take(&mut turns, at_ns);
        let clients = clients.min(if joins { CLIENTS - active } else { active });
        for position in 0..clients {
            let client = if joins { active + position } else { active - 1 - position };
            let after_ns = over_ns * u64::from(position) / u64::from(clients);
            turns[client as usize] = Some((at_ns + after_ns, joins));
        }
        active = if joins { active + clients } else { active - clients };
    }
    take(&mut turns, u64::MAX);
    (seen, active)
}

/// The steps of one agent that looks at the clock after each of `waits`.
fn played(shard: Shard, mut active: u32, said: &[Said], waits: &[u64]) -> (Vec<Seen>, u32) {
    let plan = plan();
    let mut changes = Changes::default();
    for &(at_ns, joins, clients, over_ns) in said {
        let action = if joins {
            ChangeAction::Add { clients, over_ns }
        } else {
            ChangeAction::Remove { clients, over_ns }
        };
        changes.push(ScheduledChange { at_ns, population: 1, action });
    }
    let (mut now_ns, mut seen, mut all) = (0, Vec::new(), [0, active]);
    for &wait_ns in waits.iter().chain(&[1 << 60]) {
        now_ns += wait_ns;
        let (is_played, active) = (|population| population == 1, &mut all[..]);
        let plan = &plan;
        let mut crowd = Crowd { plan, shard, is_played, active, complete_ns: None, now_ns };
        while let Some(step) = changes.next(&mut crowd) {
            let (local, at_ns, joins) = match step {
                ChangeStep::Join { local, at_ns, .. } => (local, at_ns, true),
                ChangeStep::Leave { local, at_ns, .. } => (local, at_ns, false),
                ChangeStep::Rate { .. } | ChangeStep::Migrate { .. } => panic!("not drawn"),
            };
            assert!(at_ns <= now_ns);
            seen.push((at_ns, shard.global(local), joins));
        }
        assert!(changes.next_ns().is_none_or(|next_ns| next_ns > now_ns));
    }
    assert!(changes.is_empty() && seen.is_sorted_by_key(|&(at_ns, ..)| at_ns));
    [_, active] = all;
    (seen, active)
}

proptest! {
    /// Changes overlap: clients are added before those that are to leave have left, and removed
    /// before they have joined.
    #[test]
    fn overlapping_changes_give_each_client_the_turn_of_the_last_change_that_covers_it(
        before in 0..=CLIENTS,
        mut said in prop::collection::vec((0u64..300, any::<bool>(), 0..=CLIENTS, 0u64..200), 1..8),
        waits in prop::collection::vec(1u64..100, 0..10),
        count in 1u32..5,
    ) {
        said.sort_by_key(|&(at_ns, ..)| at_ns);
        let (mut expected, active) = naive(before, &said);
        let mut there: Vec<bool> = (0..CLIENTS).map(|client| client < before).collect();
        expected.iter().for_each(|&(_, client, joins)| there[client as usize] = joins);
        let prefix: Vec<bool> = (0..CLIENTS).map(|client| client < active).collect();
        prop_assert_eq!(there, prefix, "the first clients are active in the end");
        let shards = (0..count).map(|index| Shard::new(index, count).unwrap());
        let mut all = Vec::new();
        for shard in shards {
            let (seen, left) = played(shard, before, &said, &waits);
            prop_assert_eq!(left, active);
            prop_assert!(seen.iter().all(|&(_, client, _)| client % count == shard.index()));
            all.extend(seen);
        }
        all.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(all, expected);
    }

    #[test]
    fn shards_walk_together_through_exactly_the_whole(
        joins: bool, from in 0u32..500, clients in 0u32..300, over_ns in 0u64..1_000_000,
        count in 1u32..9,
    ) {
        let first = if joins { from } else { from + clients };
        let at_ns = 7;
        let limit = if joins { u32::MAX } else { 0 };
        let kind = if joins { WalkKind::Join } else { WalkKind::Leave };
        let walk =
            Walk { population: 0, kind, limit, first, clients, position: 0, at_ns, over_ns };
        let whole = turns(walk, Shard::WHOLE);
        prop_assert_eq!(whole.len(), clients as usize);
        let shards = (0..count).map(|index| Shard::new(index, count).unwrap());
        let mut parts: Vec<_> = shards.clone().flat_map(|shard| turns(walk, shard)).collect();
        for shard in shards {
            let own = |&(_, client): &(u64, u32)| client % count == shard.index();
            prop_assert!(turns(walk, shard).iter().all(own));
        }
        parts.sort_by_key(|&(at_ns, client)| (at_ns, if joins { client } else { !client }));
        prop_assert_eq!(parts, whole);
    }
}

#[test]
fn starts_are_spread_over_the_time_and_those_that_leave_come_from_the_end() {
    let walk = Walk {
        population: 0,
        kind: WalkKind::Leave,
        limit: 0,
        first: 9,
        clients: 4,
        position: 0,
        at_ns: 100,
        over_ns: 40,
    };
    assert_eq!(turns(walk, Shard::WHOLE), [(100, 9), (110, 8), (120, 7), (130, 6)]);
    let walk = Walk { kind: WalkKind::Join, over_ns: 0, ..walk };
    assert_eq!(turns(walk, Shard::WHOLE), [(100, 9), (100, 10), (100, 11), (100, 12)]);
}

#[test]
fn changes_come_in_the_order_of_time_and_then_of_saying() {
    let mut changes = Changes::default();
    for (at_ns, clients) in [(5, 1), (3, 2), (5, 3), (4, 4)] {
        let action = ChangeAction::Add { clients, over_ns: 0 };
        changes.push(ScheduledChange { at_ns, population: 0, action });
    }
    assert_eq!(changes.next_ns(), Some(3));
    let order = std::iter::from_fn(|| changes.waiting.pop().map(|waiting| waiting.action));
    let clients = order.map(|action| match action {
        ChangeAction::Add { clients, .. } => clients,
        _ => 0,
    });
    assert_eq!(clients.collect::<Vec<_>>(), [2, 4, 1, 3]);
}

#[test]
fn the_first_active_clients_migrate_and_none_that_leaves_meanwhile() {
    let plan = plan();
    let mut changes = Changes::default();
    for (at_ns, action) in [
        (10, ChangeAction::Migrate { clients: 9, over_ns: 80 }),
        (35, ChangeAction::Remove { clients: 2, over_ns: 0 }),
    ] {
        changes.push(ScheduledChange { at_ns, population: 1, action });
    }
    let mut active = [0, 8];
    let mut seen = Vec::new();
    for now_ns in [34, 35, 1000] {
        let (is_played, complete_ns) = (|_| true, &mut [0, 0][..]);
        let mut crowd = Crowd {
            plan: &plan,
            shard: Shard::WHOLE,
            is_played,
            active: &mut active,
            complete_ns: Some(complete_ns),
            now_ns,
        };
        while let Some(step) = changes.next(&mut crowd) {
            if let ChangeStep::Migrate { local, .. } = step {
                seen.push((now_ns, local));
            }
        }
        let is_complete = complete_ns[1] == 0;
        assert!(is_complete || now_ns == 35, "only clients that leave change this instant");
    }
    assert_eq!(active, [0, 6]);
    assert_eq!(seen, [(34, 0), (34, 1), (34, 2), (1000, 3), (1000, 4), (1000, 5)]);
}
