//! Paths of a message over bridges: from a target and a topic to every target that the message
//! reaches, with its topic there.
//!
//! The rules follow mosquitto 2.0.11, as observed with two brokers:
//!
//! - A message that several routes match crosses a bridge once. The first matching route with a
//!   prefix renames the message. (A bridge with MQTT 5 sends one copy for each matching route, all
//!   with the same name; further copies are duplicates.)
//! - A message never returns over the bridge by which it came. Neither a new name nor another route
//!   changes that rule. The message crosses all other bridges.

use std::ops::Range;

use super::numbers::Numbers;
use crate::model::names::TOPICS;
use crate::model::{Bridges, Direction, Plan, Route};
use crate::text::template::{Levels, Template};

/// All bridges of a plan.
#[derive(Clone, Debug)]
pub struct Crossings(Vec<Crossing>);

#[derive(Clone, Debug)]
struct Crossing {
    main: usize,
    /// Targets of the small brokers.
    small: Range<usize>,
    /// Routes of the bridge; routes that rename come first.
    routes: Vec<CompiledRoute>,
    /// True if no other bridge touches its small brokers, so that messages end there.
    is_last: bool,
}

#[derive(Clone, Debug)]
struct CompiledRoute {
    direction: Direction,
    /// Filter on the small broker; `None` if it is no filter.
    local: Option<Levels>,
    /// Filter on the main broker; `None` if it is no filter.
    remote: Option<Levels>,
    local_prefix: Template,
    remote_prefix: Template,
}

/// Targets at which a message arrives with one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedPlace {
    pub targets: Targets,
    pub topic: String,
    /// Bridge over which the message came; `None` at the target of the publisher.
    came: Option<Came>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Came {
    /// Index of the previous place.
    from: usize,
    /// Index of the bridges, and number of the small broker.
    bridge: (usize, usize),
    inward: bool,
}

/// Targets from `from` to `to`, both included, without `except`.
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

    /// Places that a message published at `target` reaches, beginning with `target`. The message
    /// arrives once at each target with each topic. The message crosses the bridges of one name
    /// once in each direction, so that rings end, even rings that lengthen the topic.
    pub fn reached(&self, target: usize, topic: &str) -> Vec<ReachedPlace> {
        let mut places = vec![ReachedPlace::one(target, topic.to_owned(), None)];
        let mut next = 0;
        while next < places.len() {
            if places[next].targets.from == places[next].targets.to {
                self.add_next(next, &mut places);
            }
            next += 1;
        }
        places
    }

    /// Adds the places that the message reaches directly from the place with this index.
    fn add_next(&self, from: usize, places: &mut Vec<ReachedPlace>) {
        let target = places[from].targets.from;
        for (b, crossing) in self.0.iter().enumerate() {
            let inward = target == crossing.main;
            if has_crossed(places, from, b, inward) {
                continue;
            }
            if inward {
                crossing.inward(b, from, places);
            } else if let Some(number) = crossing.number(target) {
                let came = Came { from, bridge: (b, number), inward };
                if places[from].came.is_none_or(|before| before.bridge != came.bridge) {
                    let renamed = crossing.outward(number, &places[from].topic);
                    let arrival = |topic| ReachedPlace::one(crossing.main, topic, Some(came));
                    let one = renamed.map(arrival);
                    places.extend(one.filter(|one| !places.iter().any(|p| p.has(one))));
                }
            }
        }
    }
}

/// Returns true if the message has crossed these bridges in this direction before a place.
fn has_crossed(places: &[ReachedPlace], mut place: usize, bridges: usize, inward: bool) -> bool {
    while let Some(came) = places[place].came {
        if (came.bridge.0, came.inward) == (bridges, inward) {
            return true;
        }
        place = came.from;
    }
    false
}

impl Crossing {
    fn number(&self, target: usize) -> Option<usize> {
        self.small.contains(&target).then(|| target - self.small.start)
    }

    /// Topic at the main broker of a message from a small broker; `None` if no route matches.
    fn outward(&self, number: usize, topic: &str) -> Option<String> {
        let sends = |route: &&CompiledRoute| {
            route.direction != Direction::In
                && route
                    .local
                    .as_ref()
                    .is_some_and(|local| Numbers::has_match(local, topic, number as u64))
        };
        let route = self.routes.iter().find(sends)?;
        route.renamed(&route.local_prefix, &route.remote_prefix, number, topic)
    }

    /// Adds the small brokers that the message reaches from the main broker, the place with this
    /// index. The small broker from which the message came is excluded.
    fn inward(&self, b: usize, from: usize, places: &mut Vec<ReachedPlace>) {
        let (known, topic) = (places.len(), places[from].topic.clone());
        let came = places[from].came.filter(|came| came.bridge.0 == b).map(|came| came.bridge.1);
        let (first, count) = (self.small.start, self.small.len());
        let except = came.map(|number| first + number);
        let all = Targets { from: first, to: first + count - 1, except };
        let mut taken: Vec<Numbers> = Vec::new();
        for route in self.routes.iter().filter(|route| route.direction != Direction::Out) {
            let remote = route.remote.as_ref();
            let matching = remote.and_then(|r| Numbers::matching(r, &topic, 0, count as u64));
            let Some(numbers) = matching else { continue };
            let renamed =
                |n: usize| route.renamed(&route.remote_prefix, &route.local_prefix, n, &topic);
            let over = |number| Came { from, bridge: (b, number), inward: true };
            let alike = self.is_last && count > 1 && taken.is_empty() && route.is_fixed();
            if alike && numbers.is_range(0, count as u64) {
                let bulk = |topic| ReachedPlace { targets: all, topic, came: Some(over(0)) };
                let fresh = |bulk: &ReachedPlace| !places.iter().any(|p| p.meets(bulk));
                if let Some(bulk) = renamed(0).map(bulk).filter(fresh) {
                    places.push(bulk);
                    return;
                }
            }
            let others = numbers.iter().filter(|&n| !taken.iter().any(|t| t.contains(n)));
            for number in others.map(|n| n as usize).filter(|&n| Some(n) != came) {
                let arrival = |topic| ReachedPlace::one(first + number, topic, Some(over(number)));
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
            whole.and_then(|whole| whole.levels(&TOPICS)).ok()
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

    /// Returns true if its topics are the same for all small brokers.
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

impl ReachedPlace {
    const fn one(target: usize, topic: String, came: Option<Came>) -> Self {
        Self { targets: Targets::one(target), topic, came }
    }

    /// Returns true if the message has already arrived at this target with this topic.
    fn has(&self, one: &Self) -> bool {
        self.targets.has(one.targets.from) && self.topic == one.topic
    }

    /// Returns true if the message has already arrived at some target of `bulk`.
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
