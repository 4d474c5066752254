//! Where a message goes over bridges: from a target and a topic to every target that it reaches,
//! and the topic that it has there. It knows no population.
//!
//! The rules are mosquitto's, as two of them (2.0.11) were seen to behave:
//!
//! - A message crosses a bridge once where several routes match it, and is renamed by the first of
//!   these that has a prefix. (A bridge that speaks MQTT 5 sends one copy for each route that
//!   matches, all under that same name: more than the one that is owed are duplicates.)
//! - It never goes back over the bridge by which it came, whatever its name is now, also where
//!   another route would take it. To other bridges it goes on.

use std::ops::Range;

use super::numbers::Numbers;
use crate::model::{Bridges, Direction, Plan, Route};
use crate::template::{Level, Template};

/// All bridges of a plan.
#[derive(Clone, Debug)]
pub struct Crossings(Vec<Crossing>);

#[derive(Clone, Debug)]
struct Crossing {
    main: usize,
    /// The small brokers' targets.
    small: Range<usize>,
    /// Those that rename first.
    routes: Vec<CompiledRoute>,
    /// No other bridge touches its small brokers: what reaches these ends there.
    is_last: bool,
}

#[derive(Clone, Debug)]
struct CompiledRoute {
    direction: Direction,
    local: Vec<Level>,
    remote: Vec<Level>,
    local_prefix: Template,
    remote_prefix: Template,
}

/// Targets at which a message arrives under one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub targets: Targets,
    pub topic: String,
    /// Over which of the bridges it came: their index, and the number of the small broker.
    came: Option<(usize, usize)>,
}

/// Targets from `from` to `to`, both with them, without `except`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    pub from: usize,
    pub to: usize,
    pub except: Option<usize>,
}

impl Crossings {
    /// Compiles the bridges of a plan that has been checked.
    pub fn new(plan: &Plan) -> Self {
        let crossing = |(b, bridges): (usize, &Bridges)| {
            let (main, small) = (bridges.main, bridges.small());
            let touches = |(other, of): (usize, &Bridges)| {
                let overlaps = of.small().start < small.end && small.start < of.small().end;
                other != b && (overlaps || small.contains(&of.main))
            };
            let is_last = !plan.bridges.iter().enumerate().any(touches);
            let compiled = bridges.routes.iter().map(CompiledRoute::new);
            let mut routes: Vec<CompiledRoute> = compiled.collect();
            routes.sort_by_key(|route| !route.renames());
            Crossing { main, small, routes, is_last }
        };
        Self(plan.bridges.iter().enumerate().map(crossing).collect())
    }

    /// Everywhere that a message published at `target` arrives, beginning there. Each target and
    /// topic is visited once, so that rings of bridges end.
    pub fn reached(&self, target: usize, topic: &str) -> Vec<Place> {
        let mut places = vec![Place::one(target, topic.to_owned(), None)];
        let mut next = 0;
        while let Some(place) = places.get(next).cloned() {
            if place.targets.from == place.targets.to {
                self.go_on(&place, &mut places);
            }
            next += 1;
        }
        places
    }

    fn go_on(&self, place: &Place, places: &mut Vec<Place>) {
        let target = place.targets.from;
        for (b, crossing) in self.0.iter().enumerate() {
            let came = place.came.filter(|&(over, _)| over == b).map(|(_, number)| number);
            if target == crossing.main {
                crossing.inward(b, &place.topic, came, places);
            } else if let Some(number) = crossing.number(target).filter(|n| Some(*n) != came) {
                let renamed = crossing.outward(number, &place.topic);
                let arrival = |topic| Place::one(crossing.main, topic, Some((b, number)));
                let fresh = renamed.map(arrival).filter(|one| !places.iter().any(|p| p.has(one)));
                places.extend(fresh);
            }
        }
    }
}

impl Crossing {
    fn number(&self, target: usize) -> Option<usize> {
        self.small.contains(&target).then(|| target - self.small.start)
    }

    /// The topic at the main broker of what a small one sends it; `None`: it sends nothing.
    fn outward(&self, number: usize, topic: &str) -> Option<String> {
        let sends = |route: &&CompiledRoute| {
            route.direction != Direction::In
                && Numbers::matching(&route.local, topic, number as u64, 1).is_some()
        };
        let route = self.routes.iter().find(sends)?;
        route.renamed(&route.local_prefix, &route.remote_prefix, number, topic)
    }

    /// Adds where a message goes from the main broker, except to the small one that it came from.
    fn inward(&self, b: usize, topic: &str, came: Option<usize>, places: &mut Vec<Place>) {
        let known = places.len();
        let (first, count) = (self.small.start, self.small.len());
        let except = came.map(|number| first + number);
        let all = Targets { from: first, to: first + count - 1, except };
        let mut taken: Vec<Numbers> = Vec::new();
        for route in self.routes.iter().filter(|route| route.direction != Direction::Out) {
            let matching = Numbers::matching(&route.remote, topic, 0, count as u64);
            let Some(numbers) = matching else { continue };
            let renamed =
                |n: usize| route.renamed(&route.remote_prefix, &route.local_prefix, n, topic);
            if self.is_last && taken.is_empty() && route.is_fixed() && count > 1 {
                let whole = numbers.is_range(0, count as u64);
                let bulk = renamed(0).filter(|_| whole);
                let bulk = bulk.map(|topic| Place { targets: all, topic, came: None });
                if let Some(bulk) = bulk.filter(|bulk| !places.iter().any(|p| p.meets(bulk))) {
                    places.push(bulk);
                    return;
                }
            }
            let others = numbers.iter().filter(|&n| !taken.iter().any(|t| t.contains(n)));
            for number in others.map(|n| n as usize).filter(|&n| Some(n) != came) {
                let arrival = |topic| Place::one(first + number, topic, Some((b, number)));
                let one = renamed(number).map(arrival);
                places.extend(one.filter(|one| !places[..known].iter().any(|p| p.has(one))));
            }
            taken.push(numbers);
        }
    }
}

impl CompiledRoute {
    fn new(route: &Route) -> Self {
        let levels = |prefix: &Template| {
            let whole = prefix.followed_by(&route.filter);
            whole.and_then(|whole| whole.levels()).unwrap_or_default()
        };
        Self {
            direction: route.direction,
            local: levels(&route.local_prefix),
            remote: levels(&route.remote_prefix),
            local_prefix: route.local_prefix.clone(),
            remote_prefix: route.remote_prefix.clone(),
        }
    }

    fn renames(&self) -> bool {
        !(self.local_prefix.source().is_empty() && self.remote_prefix.source().is_empty())
    }

    /// Whether its names are the same for all small brokers.
    fn is_fixed(&self) -> bool {
        self.local_prefix.is_fixed() && self.remote_prefix.is_fixed()
    }

    fn renamed(
        &self,
        from: &Template,
        to: &Template,
        number: usize,
        topic: &str,
    ) -> Option<String> {
        let rest = topic.strip_prefix(&from.text(number as u64, 0))?;
        Some(to.text(number as u64, 0) + rest)
    }
}

impl Targets {
    /// One target.
    pub const fn one(target: usize) -> Self {
        Self { from: target, to: target, except: None }
    }

    fn has(&self, target: usize) -> bool {
        (self.from..=self.to).contains(&target) && self.except != Some(target)
    }
}

impl Place {
    const fn one(target: usize, topic: String, came: Option<(usize, usize)>) -> Self {
        Self { targets: Targets::one(target), topic, came }
    }

    /// Whether the message has arrived here already, under this topic.
    fn has(&self, one: &Self) -> bool {
        self.targets.has(one.targets.from) && self.topic == one.topic
    }

    /// Whether some of `bulk` has arrived here already.
    fn meets(&self, bulk: &Self) -> bool {
        let (ours, theirs) = (&self.targets, &bulk.targets);
        let apart = if ours.from == ours.to {
            !theirs.has(ours.from)
        } else {
            ours.to < theirs.from || theirs.to < ours.from
        };
        !apart && self.topic == bulk.topic
    }
}
