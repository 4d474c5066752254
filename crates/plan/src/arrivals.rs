//! How many messages are due to one subscriber: the fan-out turned round. For the filters of one
//! client, how many of the publishers there are have a topic that they match, by arithmetic on both
//! templates. Where it cannot be said - over bridges, in shared groups, at targets drawn at random,
//! in closed loops, from clients that come and go by themselves - it counts as nothing, so that
//! never more is said to be due than is. It knows nothing of what was received.

use crate::fan_out::numbers::Numbers;
use crate::model::{Attachment, Choice, Pace, Plan, Population};
use crate::template::{Level, Variable};

/// What is due to any subscriber of a plan.
#[derive(Clone, Debug)]
pub struct Arrivals {
    seed: u64,
    populations: Vec<Ends>,
}

/// What a population publishes and subscribes to.
#[derive(Clone, Debug)]
struct Ends {
    first: u64,
    /// Where its clients are; `None` where it does not matter, since all targets are joined.
    at: Option<Attachment>,
    /// Its clients do not get their own messages back.
    bridge: bool,
    /// Outside of shared groups.
    filters: Vec<Vec<Level>>,
    /// Those of which something can be said.
    streams: Vec<Stream>,
}

/// A publication.
#[derive(Clone, Debug)]
struct Stream {
    topic: Vec<Level>,
    /// Longest time between two messages of a client, in nanoseconds.
    period_ns: f64,
}

/// Publishers of a population while one looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Publishers {
    /// How many there are, over all agents: those with the lowest indices.
    pub clients: u32,
    /// How far their schedule has gone meanwhile, in nanoseconds.
    pub schedule_ns: f64,
}

/// A set of publishers, and which share of their messages is meant.
type Share = (Numbers, f64);

impl Arrivals {
    /// Compiles the topics and filters of a plan that [`Plan::from_json`] has checked.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let populations = plan.populations.iter();
        let ends = populations.map(|population| Ends::new(population, plan.targets_joined));
        Self { seed: plan.seed, populations: ends.collect() }
    }

    /// Whether clients of this population subscribe to anything outside of shared groups.
    #[must_use]
    pub fn has_subscribers(&self, population: usize) -> bool {
        !self.populations[population].filters.is_empty()
    }

    /// How many messages at least, in the mean, are due to client `client` (its index over all
    /// agents) of the population with index `population`, where `publishers` says for each
    /// population who publishes.
    pub fn due(
        &self,
        population: usize,
        client: u32,
        publishers: impl Fn(usize) -> Publishers,
    ) -> f64 {
        let to = &self.populations[population];
        let n = to.first + u64::from(client);
        let target = to.at.map(|at| at.target(self.seed, population, client));
        let mut due = 0.0;
        for (p, from) in self.populations.iter().enumerate() {
            let Publishers { clients, schedule_ns } = publishers(p);
            let Some(there) = from.publishers_at(target, clients) else { continue };
            let own = (p == population && from.bridge).then_some(n);
            for stream in &from.streams {
                let of = |filter: &Vec<Level>| stream.matched_by(filter, n, &there, own);
                // A client gets one copy of what several of its filters match.
                let matched = to.filters.iter().map(of).fold(0.0, f64::max);
                due += matched * schedule_ns / stream.period_ns;
            }
        }
        due
    }
}

impl Ends {
    fn new(population: &Population, targets_joined: bool) -> Self {
        let filters = population.subscriptions.iter().filter_map(|subscription| {
            let levels = subscription.filter.levels().ok()?;
            (levels.first() != Some(&Level::Exact("$share".into()))).then_some(levels)
        });
        let at = (!targets_joined).then_some(population.at);
        let drawn = at.is_some_and(|at| at.choice == Choice::Random && at.count > 1);
        let mut streams = Vec::new();
        if population.lifetime.is_none() && !drawn {
            for publication in &population.publications {
                let Pace::Open { period_ns, spread, .. } = publication.pace else { continue };
                let Ok(topic) = publication.topic.levels() else { continue };
                streams.push(Stream { topic, period_ns: period_ns as f64 * (1.0 + spread) });
            }
        }
        Self {
            first: population.first,
            at,
            bridge: population.bridge,
            filters: filters.collect(),
            streams,
        }
    }

    /// The numbers of the first `clients` that are at this target; `None`: there is none.
    fn publishers_at(&self, target: Option<usize>, clients: u32) -> Option<Numbers> {
        if clients == 0 || self.streams.is_empty() {
            return None;
        }
        let mut numbers = Numbers::range(self.first, u64::from(clients));
        if let (Some(at), Some(target)) = (self.at, target) {
            if !at.has(target) {
                return None;
            }
            let (k, of_index) = (at.count as u64, at.remainder(target) as u64);
            numbers.keep_remainder(k, (of_index + self.first % k) % k);
        }
        Some(numbers)
    }
}

impl Stream {
    /// How many of these publishers' messages a filter of client number `n` matches, each
    /// publisher's as one. `own` is a publisher whose messages do not come back to it.
    fn matched_by(&self, filter: &[Level], n: u64, there: &Numbers, own: Option<u64>) -> f64 {
        let Some((numbers, share)) = self.matching(filter, n, there.clone()) else { return 0.0 };
        let own = own.is_some_and(|own| numbers.contains(own));
        (numbers.count() - u64::from(own)) as f64 * share
    }

    fn matching(&self, filter: &[Level], n: u64, there: Numbers) -> Option<Share> {
        if matches!(filter.first(), Some(Level::Any | Level::Rest)) && self.is_hidden() {
            return None; // [MQTT-4.7.2-1]
        }
        let mut found = (there, 1.0);
        let mut topic = self.topic.iter();
        for level in filter {
            if *level == Level::Rest {
                return Some(found);
            }
            narrow(&mut found, level, topic.next()?, n)?;
        }
        if topic.next().is_some() { None } else { Some(found) }
    }

    /// Whether its topic begins with a dollar sign.
    fn is_hidden(&self) -> bool {
        match self.topic.first() {
            Some(Level::Exact(text)) => text.starts_with('$'),
            Some(Level::Variable { prefix, .. }) => prefix.starts_with('$'),
            _ => false,
        }
    }
}

/// Keeps the publishers, and the share of their messages, for which `topic` reads what `filter`
/// does for the subscriber with number `n`; `None`: there is none, or it cannot be said.
fn narrow((numbers, share): &mut Share, filter: &Level, topic: &Level, n: u64) -> Option<()> {
    let text = match filter {
        Level::Any | Level::Rest => return Some(()),
        Level::Exact(text) => text.to_string(),
        Level::Variable { prefix, variable, suffix } if variable.variants().is_some() => {
            return match topic {
                Level::Exact(text) => numbers.narrow(filter, text),
                Level::Variable { prefix: before, variable: topic, suffix: after } => {
                    let alike = before == prefix && after == suffix;
                    let kept = alike.then(|| keep_values(numbers, topic, variable))??;
                    *share *= kept;
                    Some(())
                }
                Level::Any | Level::Rest => None,
            };
        }
        Level::Variable { prefix, variable, suffix } => {
            format!("{prefix}{}{suffix}", variable.text(n))
        }
    };
    if let Level::Variable { prefix, variable, suffix } = topic {
        let middle = text.strip_prefix(&**prefix)?.strip_suffix(&**suffix)?;
        *share *= share_of(variable, middle);
    }
    numbers.narrow(topic, &text)
}

/// In which share of the messages of its publishers a variable of a topic has a value that it goes
/// through.
fn share_of(variable: &Variable, value: &str) -> f64 {
    match variable {
        Variable::Range { from, to } => 1.0 / (to - from + 1) as f64,
        Variable::Choice(options) => {
            let same = options.iter().filter(|option| ***option == *value).count();
            same as f64 / options.len() as f64
        }
        _ => 1.0,
    }
}

/// Keeps the numbers for which a variable of a topic has a value that one of a filter goes through,
/// and which share of their messages that is; `None`: there is none, or it cannot be said.
fn keep_values(numbers: &mut Numbers, topic: &Variable, filter: &Variable) -> Option<f64> {
    if let Variable::Choice(sent) = topic {
        let both = sent.iter().filter(|option| filter.goes_through(option)).count();
        return (both > 0).then_some(both as f64 / sent.len() as f64);
    }
    let &Variable::Range { from, to } = filter else { return None };
    match *topic {
        Variable::Number => numbers.limit(from, to),
        Variable::Quotient(k) => {
            numbers.limit(from.checked_mul(k)?, to.saturating_mul(k).saturating_add(k - 1));
        }
        Variable::Range { from: first, to: last } => {
            let both = to.min(last).checked_sub(from.max(first))? + 1;
            return Some(both as f64 / (last - first + 1) as f64);
        }
        Variable::Remainder(k) if from == 0 && to >= k - 1 => {}
        _ => return None,
    }
    Some(1.0)
}

#[cfg(test)]
mod tests;
