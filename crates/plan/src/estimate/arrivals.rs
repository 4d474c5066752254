//! Messages that one subscriber is expected to receive: the fan-out turned round. By arithmetic on
//! both templates, the module counts the publishers with a topic that a filter of the client
//! matches.
//!
//! The result is a lower bound. Messages without a computable number count as 0: over bridges, in
//! shared groups, at targets drawn at random, in closed loops, from clients with a session
//! lifetime, of filters without levels, and of those with a wildcard for many levels inside.

use std::borrow::Cow;

use crate::fan_out::numbers::Numbers;
use crate::model::flows::{Pace, Process};
use crate::model::{Attachment, Choice, Plan, Population};
use crate::text::template::{Level, Levels, Variable};

/// Share of the mean of Poisson arrivals that counts: a publisher with a mean of 21 messages sends
/// 3 but for one time in 10 million.
const POISSON_SURE: f64 = 1.0 / 7.0;

/// Arrivals at any subscriber of a plan.
#[derive(Clone, Debug)]
pub struct Arrivals {
    seed: u64,
    populations: Vec<Ends>,
}

/// Topics and filters of a population.
#[derive(Clone, Debug)]
struct Ends {
    first: u64,
    /// Targets of its clients; `None` if all targets are joined and the target does not matter.
    at: Option<Attachment>,
    /// True if its clients do not receive their own messages.
    skips_own: bool,
    /// Filters outside of shared groups.
    filters: Vec<Levels>,
    /// Streams with a computable schedule.
    streams: Vec<ScheduledStream>,
    /// Streams that its filters may match.
    sources: Vec<Source>,
}

/// A publication.
#[derive(Clone, Debug)]
struct ScheduledStream {
    topic: Levels,
    /// True if wildcards at the start of a filter may not match the topic.
    hidden: bool,
    /// Longest time between two messages of a client, in nanoseconds.
    period_ns: f64,
}

/// A stream, by its index in its population, and the filters that its topic may match.
#[derive(Clone, Debug)]
struct Source {
    population: usize,
    stream: usize,
    filters: Vec<usize>,
}

/// Active publishers of a population in a time span.
#[derive(Clone, Copy, Debug, Default)]
pub struct Publishers {
    /// Number of active clients over all agents; the clients with the lowest indices.
    pub clients: u32,
    /// Advance of their schedule in the time span, in nanoseconds.
    pub schedule_ns: f64,
}

/// A set of publishers, and the fraction of their messages that counts.
type Share = (Numbers, f64);

/// A level of the filter of one client.
enum Wanted<'a> {
    Any,
    Rest,
    Text(Cow<'a, str>),
    /// All values of a variable.
    Values {
        prefix: &'a str,
        variable: &'a Variable,
        suffix: &'a str,
    },
}

impl Arrivals {
    /// Compiles the topics and filters of a plan that [`Plan::from_json`] has checked.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let populations = plan.populations.iter();
        let ends = populations.map(|population| Ends::new(population, plan.targets_joined));
        let mut populations: Vec<Ends> = ends.collect();
        for to in 0..populations.len() {
            populations[to].sources = sources(&populations, &populations[to].filters);
        }
        Self { seed: plan.seed, populations }
    }

    /// Returns true if clients of this population may receive any messages.
    #[must_use]
    pub fn may_come(&self, population: usize) -> bool {
        !self.populations[population].sources.is_empty()
    }

    /// Mean number of messages that client `client` (its index over all agents) of the population
    /// with index `population` receives at least. `publishers` returns the active publishers of
    /// each population.
    pub fn due(
        &self,
        population: usize,
        client: u32,
        publishers: impl Fn(usize) -> Publishers,
    ) -> f64 {
        let to = &self.populations[population];
        let n = to.first + u64::from(client);
        let target = to.at.map(|at| at.target(self.seed, population, client));
        let filters: Vec<Vec<Wanted<'_>>> = to
            .filters
            .iter()
            .map(|levels| levels.list.iter().map(|level| Wanted::new(level, n)).collect())
            .collect();
        let mut due = 0.0;
        for source in &to.sources {
            let from = &self.populations[source.population];
            let Publishers { clients, schedule_ns } = publishers(source.population);
            let Some(there) = from.publishers_at(target, clients) else { continue };
            let own = (source.population == population && from.skips_own).then_some(n);
            let stream = &from.streams[source.stream];
            let of = |&filter: &usize| stream.matched_by(&filters[filter], &there, own);
            // A client receives one copy of a message that several of its filters match.
            let matched = source.filters.iter().map(of).fold(0.0, f64::max);
            due += matched * schedule_ns / stream.period_ns;
        }
        due
    }
}

impl Ends {
    fn new(population: &Population, targets_joined: bool) -> Self {
        let grammar = population.capabilities().names.grammar();
        let plain = population.subscriptions.iter().filter(|own| !population.is_shared(own));
        let filters = plain.filter_map(|own| own.filter.levels(grammar?).ok());
        let filters = filters.filter(|levels| !levels.has_inner_rest());
        let at = (!targets_joined).then_some(population.at);
        let drawn = at.is_some_and(|at| at.choice == Choice::Random && at.count > 1);
        let mut streams = Vec::new();
        if let Some(grammar) = grammar.filter(|_| population.lifetime.is_none() && !drawn) {
            for publication in &population.publications {
                let Pace::Open { period_ns, spread, arrivals, .. } = publication.pace else {
                    continue;
                };
                if !publication.weights.is_empty() {
                    continue; // Its values have no equal parts, which the arithmetic needs.
                }
                let Ok(topic) = publication.topic.levels(grammar) else { continue };
                let hidden = topic.may_be_hidden();
                let sure = if arrivals == Process::Poisson { POISSON_SURE } else { 1.0 };
                let period_ns = period_ns as f64 * (1.0 + spread) / sure;
                streams.push(ScheduledStream { topic, hidden, period_ns });
            }
        }
        Self {
            first: population.first,
            at,
            skips_own: population.skips_own_messages(),
            filters: filters.collect(),
            streams,
            sources: Vec::new(),
        }
    }

    /// Numbers of those of the first `clients` that connect to this target; `None` if there are
    /// none.
    fn publishers_at(&self, target: Option<usize>, clients: u32) -> Option<Numbers> {
        if clients == 0 {
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

/// Streams of all populations whose topics these filters may match.
fn sources(populations: &[Ends], filters: &[Levels]) -> Vec<Source> {
    let mut sources = Vec::new();
    for (population, from) in populations.iter().enumerate() {
        for (stream, published) in from.streams.iter().enumerate() {
            let matching = |&f: &usize| filters[f].meets(&published.topic, published.hidden);
            let filters: Vec<usize> = (0..filters.len()).filter(matching).collect();
            if !filters.is_empty() {
                sources.push(Source { population, stream, filters });
            }
        }
    }
    sources
}

impl<'a> Wanted<'a> {
    /// Level of a filter for the client with number `n`.
    fn new(level: &'a Level, n: u64) -> Self {
        match level {
            Level::Any => Self::Any,
            Level::Rest => Self::Rest,
            Level::Exact(text) => Self::Text(Cow::Borrowed(text)),
            Level::Variable { prefix, variable, suffix } if variable.variants().is_some() => {
                Self::Values { prefix, variable, suffix }
            }
            Level::Variable { prefix, variable, suffix } => {
                Self::Text(Cow::Owned(format!("{prefix}{}{suffix}", variable.text(n))))
            }
        }
    }
}

impl ScheduledStream {
    /// Number of publishers whose messages a filter matches, weighted by the fraction that matches.
    /// `own` is a publisher that does not receive its own messages.
    fn matched_by(&self, filter: &[Wanted<'_>], there: &Numbers, own: Option<u64>) -> f64 {
        let Some((numbers, share)) = self.matching(filter, there.clone()) else { return 0.0 };
        let own = own.is_some_and(|own| numbers.contains(own));
        (numbers.count() - u64::from(own)) as f64 * share
    }

    /// Publishers that a filter matches, and the fraction of their messages. The caller has checked
    /// wildcards and the number of levels.
    fn matching(&self, filter: &[Wanted<'_>], there: Numbers) -> Option<Share> {
        let mut found = (there, 1.0);
        for (wanted, topic) in filter.iter().zip(&self.topic.list) {
            match wanted {
                Wanted::Any => {}
                Wanted::Rest => break,
                Wanted::Text(text) => keep_text(&mut found, topic, text)?,
                Wanted::Values { prefix, variable, suffix } => {
                    keep_values(&mut found, topic, (prefix, suffix), variable)?;
                }
            }
        }
        // Walking the rows of a file for each stalled subscriber would take too long.
        (!found.0.is_listed()).then_some(found)
    }
}

/// Keeps the publishers whose topic has `text` at a level; `None` if none is left.
fn keep_text((numbers, share): &mut Share, topic: &Level, text: &str) -> Option<()> {
    if let Level::Variable { prefix, variable, suffix } = topic {
        let middle = text.strip_prefix(&**prefix)?.strip_suffix(&**suffix)?;
        *share *= share_of(variable, middle);
    }
    numbers.narrow(topic, text)
}

/// Fraction of a publisher's messages in which a variable of the topic has this value.
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

/// Keeps the publishers whose topic has a value of `filter` at a level, between the texts `around`.
/// `None` if none is left or the number is not computable.
fn keep_values(
    (numbers, share): &mut Share,
    topic: &Level,
    around: (&str, &str),
    filter: &Variable,
) -> Option<()> {
    let topic = match topic {
        Level::Exact(text) => {
            let value = text.strip_prefix(around.0)?.strip_suffix(around.1)?;
            return filter.goes_through(value).then_some(());
        }
        Level::Variable { prefix, variable, suffix } if around == (&**prefix, &**suffix) => {
            variable
        }
        Level::Variable { .. } | Level::Any | Level::Rest => return None,
    };
    match (topic, filter) {
        (Variable::Choice(sent), _) => {
            let both = sent.iter().filter(|option| filter.goes_through(option)).count();
            *share *= both as f64 / sent.len() as f64;
        }
        (Variable::Number, &Variable::Range { from, to }) => numbers.limit(from, to),
        (Variable::Quotient(k), &Variable::Range { from, to }) => {
            let end = to.saturating_mul(*k).saturating_add(k - 1);
            numbers.limit(from.checked_mul(*k)?, end);
        }
        (&Variable::Range { from: first, to: last }, &Variable::Range { from, to }) => {
            let both = to.min(last).checked_sub(from.max(first))? + 1;
            *share *= both as f64 / (last - first + 1) as f64;
        }
        (Variable::Remainder(k), &Variable::Range { from: 0, to }) if to >= k - 1 => {}
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests;
