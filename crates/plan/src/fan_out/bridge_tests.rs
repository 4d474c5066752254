//! The fan-out over bridges, compared with simulated brokers that carry every message from broker
//! to broker.

use std::collections::HashSet;

use super::tests::{counts, plan, population};
use super::*;
use crate::model::{Bridges, Choice, Direction, Population, Route};
use crate::schedule::random::Random;
use crate::text::template::Template;

fn route(filter: &str, direction: Direction, local: &str, remote: &str) -> Route {
    let template = |source| Template::new(source).unwrap();
    Route {
        filter: template(filter),
        direction,
        local_prefix: template(local),
        remote_prefix: template(remote),
    }
}

fn at(mut population: Population, first: usize, count: usize, choice: Choice) -> Population {
    population.at = Attachment { first, count, choice, shift: 0 };
    population
}

#[test]
fn a_thousand_boxes_are_counted_in_both_directions() {
    for choice in [Choice::Turn, Choice::Random] {
        let cloud = at(population(5, 0, &["box/+/up/#", "all/#"]), 0, 1, Choice::Turn);
        let devices = at(population(3000, 0, &["down/#", "all/#", "up/x"]), 1, 1000, choice);
        let some = at(population(20, 0, &["all/#"]), 1, 10, choice);
        let mut plan = plan(vec![cloud, devices, some], 1001, false);
        let routes = vec![
            route("up/#", Direction::Out, "", "box/{n}/"),
            route("down/#", Direction::In, "", "box/{n}/"),
            route("all/#", Direction::Both, "", ""),
        ];
        plan.bridges = vec![Bridges { main: 0, first: 1, count: 1000, routes }];
        let fan_out = FanOut::new(&plan);
        let place = |client| plan.populations[1].at.target(plan.seed, 1, client);
        let at_seventh = (0..3000).filter(|&client| place(client) == 8).count() as u64;
        assert!(choice == Choice::Random || at_seventh == 3);
        assert_eq!(counts(&fan_out, "up/x", 8), [5, at_seventh, 0]);
        assert_eq!(counts(&fan_out, "box/7/down/x", 0), [0, at_seventh, 0]);
        assert_eq!(counts(&fan_out, "box/1000/down/x", 0), [0, 0, 0]);
        for target in [0, 1, 8, 1000] {
            assert_eq!(counts(&fan_out, "all/x", target), [5, 3000, 20]);
        }
    }
}

#[test]
fn a_bridge_does_not_receive_its_own_messages() {
    let at_cloud = at(population(5, 10, &["all/#", "box/{n}/up"]), 0, 1, Choice::Turn);
    let mut plan = plan(vec![at_cloud], 3, false);
    let routes = vec![route("all/#", Direction::Both, "", "")];
    plan.bridges = vec![Bridges { main: 0, first: 1, count: 2, routes }];
    let mut fan_out = FanOut::new(&plan);
    let mut found = Vec::new();
    let mut expected = |fan_out: &FanOut, topic, client| {
        let excluded = Some((0, client));
        let publisher = MessageOrigin { names: Names::Topics, target: 0, excluded, carried: None };
        fan_out.deliveries(topic, publisher, &mut found);
        found[0]
    };
    assert_eq!(expected(&fan_out, "all/x", 3), 4);
    assert_eq!(expected(&fan_out, "box/13/up", 3), 0);
    assert_eq!(expected(&fan_out, "box/13/up", 4), 1);
    fan_out.set_receivers(0, 3);
    assert_eq!(expected(&fan_out, "all/x", 3), 3);
}

const FILTERS: [&str; 5] = ["#", "a/#", "a/+", "{n}/#", "a/{n}"];
const PREFIXES: [&str; 5] = ["", "", "l/", "box/{n}/", "r{n%2}/"];
const SUBSCRIPTIONS: [&str; 9] =
    ["#", "a/#", "+/a/#", "box/{n}/#", "box/+/a/x", "l/#", "+/+/a/{n%2}", "r1/#", "$share/g/#"];
const TOPICS: [&str; 5] = ["a/x", "a/1", "0/y", "1/y", "$a/x"];

/// Random numbers in the order of use.
struct Draws(Random, u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        self.1 += 1;
        self.0.of(self.1).below(end as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    fn some_of<'a>(&mut self, values: &[&'a str], most: usize) -> Vec<&'a str> {
        (0..self.below(most + 1)).map(|_| self.one_of(values)).collect()
    }

    fn choice(&mut self) -> Choice {
        self.one_of(&[Choice::Turn, Choice::Random])
    }

    fn bridges(&mut self, targets: usize) -> Bridges {
        let directions = [Direction::In, Direction::Out, Direction::Both];
        let first = self.below(targets - 1);
        let count = 1 + self.below(targets - first - 1);
        let others: Vec<usize> =
            (0..targets).filter(|t| !(first..first + count).contains(t)).collect();
        let routes = (0..1 + self.below(3)).map(|_| {
            let (local, remote) = (self.one_of(&PREFIXES), self.one_of(&PREFIXES));
            route(self.one_of(&FILTERS), self.one_of(&directions), local, remote)
        });
        let routes = routes.collect();
        Bridges { main: self.one_of(&others), first, count, routes }
    }

    fn plan(&mut self) -> Plan {
        let targets = 2 + self.below(5);
        let populations = (0..1 + self.below(3)).map(|_| {
            let filters = self.some_of(&SUBSCRIPTIONS, 3);
            let one = population(self.below(12) as u32, self.below(3) as u64, &filters);
            let first = self.below(targets);
            at(one, first, 1 + self.below(targets - first), self.choice())
        });
        let mut plan = plan(populations.collect(), targets as u16, false);
        plan.bridges = (0..self.below(4)).map(|_| self.bridges(targets)).collect();
        plan
    }
}

fn matches(filter: &str, topic: &str) -> bool {
    let (filter, names): (Vec<&str>, Vec<&str>) =
        (filter.split('/').collect(), topic.split('/').collect());
    let wild = filter[0] == "#" || filter[0] == "+";
    let rest = filter.last() == Some(&"#");
    let fixed = filter.len() - usize::from(rest);
    !(wild && topic.starts_with('$'))
        && (names.len() == fixed || rest && names.len() >= fixed)
        && filter[..fixed].iter().zip(&names).all(|(level, name)| *level == "+" || level == name)
}

/// Bridges that a message has crossed: bridges, number of the small broker, true if inwards.
type Path = Vec<(usize, usize, bool)>;

/// Carries a message from broker to broker, and checks every client of each broker.
struct Simulation<'a> {
    plan: &'a Plan,
    /// Active clients of each population.
    there: Vec<u32>,
    counts: Vec<u64>,
}

impl Simulation<'_> {
    fn publish(&mut self, topic: &str, target: usize, bridge: Option<(usize, u32)>) {
        let mut queue = vec![(target, topic.to_owned(), Path::new())];
        let mut visited = HashSet::new();
        while !queue.is_empty() {
            let (target, topic, path) = queue.remove(0);
            if visited.insert((target, topic.clone())) {
                self.deliver(&topic, target, bridge.filter(|_| visited.len() == 1));
                queue.extend(self.carried(target, &topic, &path));
            }
        }
    }

    fn deliver(&mut self, topic: &str, target: usize, not_to: Option<(usize, u32)>) {
        let (mut expecting, mut is_active, mut is_apart) = (None, false, true);
        for (p, population) in self.plan.populations.iter().enumerate() {
            let targets = population.at.first..population.at.first + population.at.count;
            for client in 0..population.clients {
                let n = population.first + u64::from(client);
                let filters = population.subscriptions.iter().map(|s| s.filter.text(n, 0));
                let (shared, own): (Vec<String>, Vec<String>) =
                    filters.partition(|filter| filter.starts_with("$share"));
                let has = |filters: &[String]| filters.iter().any(|f| matches(f, topic));
                let shared: Vec<String> =
                    shared.iter().map(|f| f.replace("$share/g/", "")).collect();
                is_apart &= !(has(&own) && has(&shared) && targets.contains(&target));
                if population.at.target(self.plan.seed, p, client) != target {
                    continue;
                }
                let is_here = client < self.there[p];
                self.counts[p] += u64::from(is_here && has(&own) && not_to != Some((p, client)));
                if has(&shared) {
                    expecting = expecting.or(Some(p));
                    is_active |= is_here;
                }
            }
        }
        if let Some(population) = expecting.filter(|_| is_active && is_apart) {
            self.counts[population] += 1;
        }
    }

    fn carried(&self, target: usize, topic: &str, path: &Path) -> Vec<(usize, String, Path)> {
        let mut found = Vec::new();
        for (b, bridges) in self.plan.bridges.iter().enumerate() {
            let inward = target == bridges.main;
            let other_end = |number| if inward { bridges.first + number } else { bridges.main };
            let here = |number: &usize| inward || target == bridges.first + number;
            let open = |number: &usize| {
                !path.iter().any(|&(over, _, way)| (over, way) == (b, inward))
                    && path.last().is_none_or(|&(over, n, _)| (over, n) != (b, *number))
            };
            let mut arrivals = Vec::new();
            for number in (0..bridges.count).filter(here).filter(open) {
                if let Some((place, topic)) = crossed(bridges, number as u64, topic, inward) {
                    let path = [&path[..], &[(b, number, inward)]].concat();
                    arrivals.push((place, (other_end(number), topic, path)));
                }
            }
            arrivals.sort_by_key(|&(place, _)| place);
            found.extend(arrivals.into_iter().map(|(_, arrival)| arrival));
        }
        found
    }
}

/// Topic of a message behind one bridge, and the place of the route that applies.
fn crossed(
    bridges: &Bridges,
    n: u64,
    topic: &str,
    inward: bool,
) -> Option<((bool, usize), String)> {
    let other = if inward { Direction::Out } else { Direction::In };
    let candidates = bridges.routes.iter().enumerate().filter_map(|(r, route)| {
        let (local, remote) = (route.local_prefix.text(n, 0), route.remote_prefix.text(n, 0));
        let (from, to) = if inward { (&remote, &local) } else { (&local, &remote) };
        let filter = from.clone() + &route.filter.text(n, 0);
        let plain = local.is_empty() && remote.is_empty();
        (route.direction != other && matches(&filter, topic))
            .then(|| ((plain, r), to.clone() + &topic[from.len()..]))
    });
    candidates.min_by_key(|&(place, _)| place)
}

#[test]
fn any_brokers_and_bridges_deliver_the_expected_number() {
    let (mut crossed, mut bulk) = (0, 0);
    for seed in 0..4000 {
        let draws = &mut Draws(Random::new(seed, 0), 0);
        let plan = draws.plan();
        let mut fan_out = FanOut::new(&plan);
        let there: Vec<u32> = plan
            .populations
            .iter()
            .map(|p| {
                if draws.below(3) > 0 {
                    p.clients
                } else {
                    draws.below(12) as u32 % (p.clients + 1)
                }
            })
            .collect();
        there.iter().enumerate().for_each(|(p, &clients)| fan_out.set_receivers(p, clients));
        for _ in 0..6 {
            let prefix = Template::new(draws.one_of(&PREFIXES)).unwrap();
            let topic = prefix.text(draws.below(4) as u64, 0) + draws.one_of(&TOPICS);
            let p = draws.below(plan.populations.len());
            let client = draws.below(there[p] as usize + 1) as u32;
            let target = plan.populations[p].at.target(plan.seed, p, client);
            let bridge = (client < there[p] && draws.below(2) == 0).then_some((p, client));
            let mut simulation =
                Simulation { plan: &plan, there: there.clone(), counts: vec![0; there.len()] };
            simulation.publish(&topic, target, bridge);
            let mut found = Vec::new();
            let publisher =
                MessageOrigin { names: Names::Topics, target, excluded: bridge, carried: None };
            fan_out.deliveries(&topic, publisher, &mut found);
            assert_eq!(
                found,
                simulation.counts,
                "seed {seed}: {topic} at {target} of {}",
                serde_json::to_string(&plan).unwrap()
            );
            let places =
                fan_out.crossings.as_ref().map_or(Vec::new(), |c| c.reached(target, &topic));
            crossed += places.len().saturating_sub(1);
            bulk += places.iter().filter(|p| p.targets.from != p.targets.to).count();
        }
    }
    assert!(crossed > 5000 && bulk > 50, "{crossed} crossed, {bulk} in bulk");
}
