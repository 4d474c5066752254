use super::*;
use proptest::prelude::*;

const UNSUBSCRIBED_NS: u64 = 20;
const TIMEOUT_NS: u64 = 60;

fn flaps(shard: Shard, clients: u32) -> Flaps {
    let flapping = Flapping { min_ns: 100, max_ns: 900, unsubscribed_ns: UNSUBSCRIBED_NS };
    let clients = vec![Flap::default(); shard.share(clients) as usize];
    let flock = Some(Flock { flapping, timeout_ns: TIMEOUT_NS, clients });
    Flaps::of(vec![None, flock], 5, shard)
}

/// A step of the property below; instants move by the number.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(u32),
    Forget(u32),
    Answer(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u32..4).prop_map(Step::Arrive),
        1 => (0u32..4).prop_map(Step::Forget),
        4 => (0u32..4).prop_map(Step::Answer),
        4 => (0u64..300).prop_map(Step::Wait),
    ]
}

/// A client in the naive model: state, next instant, last request, times drawn.
#[derive(Clone, Copy, Default)]
struct Model {
    state: FlapState,
    turn_ns: Option<u64>,
    asked_ns: u64,
    drawn: u32,
}

impl Model {
    fn stay(&mut self, flapping: &Flapping, local: u32, since_ns: u64, now_ns: u64) {
        let stay_ns = flapping.stay_ns(5, 1, local, self.drawn);
        self.drawn += 1;
        self.state = FlapState::Subscribed;
        self.turn_ns = Some((since_ns + stay_ns).max(now_ns));
    }

    fn act(&mut self, now_ns: u64) -> Act {
        let (act, state) = match self.state {
            FlapState::Subscribed => (Act::Unsubscribe, FlapState::Unsubscribing),
            FlapState::Unsubscribed => (Act::Subscribe, FlapState::Subscribing),
            FlapState::Unsubscribing => (Act::GiveUp(Reason::UnsubscribeTimeout), FlapState::None),
            FlapState::Subscribing => (Act::GiveUp(Reason::SubscribeTimeout), FlapState::None),
            FlapState::None => unreachable!("it has no instant"),
        };
        self.state = state;
        self.asked_ns = now_ns;
        self.turn_ns = (state != FlapState::None).then_some(now_ns + TIMEOUT_NS);
        act
    }
}

proptest! {
    /// Each client has at most one instant to come, and sends requests in turn, each behind the
    /// answer to the last one.
    #[test]
    fn clients_ask_in_turn_and_wait_for_each_answer(
        steps in prop::collection::vec(step(), 1..200)
    ) {
        let mut flaps = flaps(Shard::WHOLE, 4);
        let flapping = flaps.populations[1].as_ref().unwrap().flapping;
        let mut model = [Model::default(); 4];
        let mut now_ns = 1;
        for step in steps {
            match step {
                Step::Arrive(local) => {
                    flaps.arrive(1, local, now_ns);
                    model[local as usize].stay(&flapping, local, now_ns, now_ns);
                }
                Step::Forget(local) => {
                    flaps.forget(1, local);
                    let own = &mut model[local as usize];
                    *own = Model { drawn: own.drawn, ..Model::default() };
                }
                Step::Answer(local) => {
                    let own = &mut model[local as usize];
                    let asked_ns = own.asked_ns;
                    let expected = match own.state {
                        FlapState::Unsubscribing => {
                            own.state = FlapState::Unsubscribed;
                            own.turn_ns = Some((asked_ns + UNSUBSCRIBED_NS).max(now_ns));
                            Some(asked_ns)
                        }
                        FlapState::Subscribing => {
                            own.stay(&flapping, local, asked_ns, now_ns);
                            Some(asked_ns)
                        }
                        _ => None,
                    };
                    prop_assert_eq!(flaps.answered(1, local, now_ns), expected);
                }
                Step::Wait(ns) => now_ns += ns,
            }
            loop {
                let due = |(local, own): (u32, &Model)| own.turn_ns.map(|at_ns| (at_ns, local));
                let turns = (0u32..).zip(&model).filter_map(due);
                let Some((at_ns, local)) = turns.min().filter(|turn| turn.0 <= now_ns) else {
                    break;
                };
                prop_assert!(flaps.next_ns().is_some_and(|next_ns| next_ns <= at_ns));
                let act = model[local as usize].act(now_ns);
                prop_assert_eq!(flaps.next(now_ns), Some(FlapAction { population: 1, local, act }));
                match act {
                    Act::GiveUp(_) => flaps.forget(1, local),
                    _ => flaps.ask(1, local, now_ns),
                }
            }
            prop_assert_eq!(flaps.next(now_ns), None);
            for (local, own) in (0u32..).zip(&model) {
                let is_away = !matches!(own.state, FlapState::None | FlapState::Subscribed);
                prop_assert_eq!(flaps.is_unsubscribed(1, local), is_away);
            }
        }
    }
}

/// Plays clients that are all ready at instant 0 against a peer that answers after `answer_ns`.
/// Returns instant and global number of each client that unsubscribes (`false`) or subscribes.
fn played(shard: Shard, clients: u32, answer_ns: u64, until_ns: u64) -> Vec<(u64, u32, bool)> {
    let mut flaps = flaps(shard, clients);
    (0..shard.share(clients)).for_each(|local| flaps.arrive(1, local, 0));
    let (mut seen, mut answers) = (Vec::new(), std::collections::BTreeSet::new());
    loop {
        let answer_ns_next = answers.first().map_or(u64::MAX, |&(at_ns, _)| at_ns);
        let now_ns = flaps.next_ns().unwrap_or(u64::MAX).min(answer_ns_next);
        if now_ns > until_ns {
            return seen;
        }
        while let Some((_, local)) = answers.pop_first_if_due(now_ns) {
            flaps.answered(1, local, now_ns).unwrap();
        }
        while let Some(FlapAction { local, act, .. }) = flaps.next(now_ns) {
            seen.push((now_ns, shard.global(local), act == Act::Subscribe));
            assert!(!matches!(act, Act::GiveUp(_)));
            flaps.ask(1, local, now_ns);
            answers.insert((now_ns + answer_ns, local));
        }
    }
}

trait PopDue {
    fn pop_first_if_due(&mut self, now_ns: u64) -> Option<(u64, u32)>;
}

impl PopDue for std::collections::BTreeSet<(u64, u32)> {
    fn pop_first_if_due(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        if self.first()?.0 <= now_ns { self.pop_first() } else { None }
    }
}

#[test]
fn shards_flap_together_exactly_as_the_whole() {
    let whole = played(Shard::WHOLE, 50, 3, 10_000);
    assert!(whole.len() > 50 * 2 * 10 && whole.is_sorted_by_key(|turn| turn.0));
    for count in 2..5 {
        let shards = (0..count).map(|index| Shard::new(index, count).unwrap());
        let mut all: Vec<_> = shards.flat_map(|shard| played(shard, 50, 3, 10_000)).collect();
        all.sort_unstable();
        let mut expected = whole.clone();
        expected.sort_unstable();
        assert_eq!(all, expected, "{count} shards");
    }
}

#[test]
fn answers_within_the_times_do_not_slow_clients_down() {
    let fast = played(Shard::WHOLE, 20, 1, 10_000);
    assert_eq!(fast, played(Shard::WHOLE, 20, UNSUBSCRIBED_NS, 10_000));
    // A later answer delays the next SUBSCRIBE.
    assert!(played(Shard::WHOLE, 20, 2 * UNSUBSCRIBED_NS, 10_000).len() < fast.len());
    let mut since = [0; 20];
    for (at_ns, client, subscribes) in fast {
        let stay_ns = at_ns - std::mem::replace(&mut since[client as usize], at_ns);
        assert!(if subscribes {
            stay_ns == UNSUBSCRIBED_NS
        } else {
            (100..=900).contains(&stay_ns)
        });
    }
}

#[test]
fn a_client_that_waits_on_gives_an_answer_up_later() {
    let mut flaps = flaps(Shard::WHOLE, 1);
    flaps.arrive(1, 0, 0);
    let turn = |act| Some(FlapAction { population: 1, local: 0, act });
    assert_eq!(flaps.next(900), turn(Act::Unsubscribe));
    flaps.ask(1, 0, 900);
    let gives_up = turn(Act::GiveUp(Reason::UnsubscribeTimeout));
    assert_eq!((flaps.next(959), flaps.next(960)), (None, gives_up));
    flaps.wait(1, 0, 960);
    assert_eq!((flaps.next(1_019), flaps.next(1_020)), (None, gives_up));
    assert!(flaps.is_unsubscribed(1, 0));
}

#[test]
fn populations_that_do_not_flap_have_no_instants() {
    let mut flaps = flaps(Shard::WHOLE, 1);
    flaps.arrive(0, 0, 0);
    flaps.ask(0, 0, 0);
    assert_eq!((flaps.answered(0, 0, 1), flaps.next_ns()), (None, None));
    flaps.forget(0, 0);
    assert!(!flaps.is_unsubscribed(0, 0));
}
