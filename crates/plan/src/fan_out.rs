//! Who ought to receive a message: for a concrete topic, how many clients of each population hold
//! a filter that matches it. Exact and by arithmetic, so that loss at the end of a stream is seen
//! too and no table of a million filters is needed. It knows nothing of what was received.

use crate::model::{Plan, Population};
use crate::template::{Level, Variable};

/// The receivers of a population for every topic.
#[derive(Clone, Debug)]
pub struct FanOut {
    populations: Vec<PopulationFilters>,
    /// Targets between which nothing passes; 1 where all are joined.
    separate_targets: u64,
}

#[derive(Clone, Debug)]
struct PopulationFilters {
    first: u64,
    clients: u64,
    filters: Vec<Vec<Level>>,
    /// Filters of each shared group, one delivery a group [MQTT-4.8.2-4, version 5].
    shared: Vec<(String, Vec<Vec<Level>>)>,
}

/// Clients that ought to receive a message, as conditions on their number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Receivers {
    from: u64,
    to: u64,
    /// `n % k == r` for each `(k, r)`.
    remainders: Vec<(u64, u64)>,
}

impl FanOut {
    /// Compiles the filters of a plan that [`Plan::from_json`] has checked.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let separate = if plan.targets_joined { 1 } else { plan.targets.len() as u64 };
        let populations = plan.populations.iter().map(PopulationFilters::new).collect();
        Self { populations, separate_targets: separate.max(1) }
    }

    /// Number of populations.
    #[must_use]
    pub fn populations(&self) -> usize {
        self.populations.len()
    }

    /// From here on only the first `clients` of a population receive.
    pub fn set_receivers(&mut self, population: usize, clients: u32) {
        self.populations[population].clients = u64::from(clients);
    }

    /// Deliveries to `population` of one message on `topic`, published at target `target`.
    #[must_use]
    pub fn deliveries(&self, population: usize, topic: &str, target: usize) -> u64 {
        let filters = &self.populations[population];
        let own = filters.union(&filters.filters, topic, target as u64, self.separate_targets);
        let shared = filters.shared.iter().filter(|(_, group)| {
            filters.union(group, topic, target as u64, self.separate_targets) > 0
        });
        own + shared.count() as u64
    }
}

impl PopulationFilters {
    fn new(population: &Population) -> Self {
        let mut filters = Vec::new();
        let mut shared: Vec<(String, Vec<Vec<Level>>)> = Vec::new();
        for subscription in &population.subscriptions {
            let mut levels = subscription.filter.levels().unwrap_or_default();
            if levels.first() != Some(&Level::Exact("$share".into())) || levels.len() < 3 {
                filters.push(levels);
                continue;
            }
            let group = format!("{:?}", levels[1]);
            let levels = levels.split_off(2);
            match shared.iter_mut().find(|(name, _)| *name == group) {
                Some((_, filters)) => filters.push(levels),
                None => shared.push((group, vec![levels])),
            }
        }
        let (first, clients) = (population.first, u64::from(population.clients));
        Self { first, clients, filters, shared }
    }

    /// Clients with at least one matching filter. Brokers may send one copy for each matching
    /// filter of a client [MQTT-3.3.5-1]; one is expected, more are duplicates.
    fn union(&self, filters: &[Vec<Level>], topic: &str, target: u64, targets: u64) -> u64 {
        let mut sets: Vec<Receivers> = Vec::new();
        for filter in filters {
            let Some(mut set) = self.matching(filter, topic) else { continue };
            if targets > 1 {
                set.remainders.push((targets, (target + self.first) % targets));
            }
            if set.remainders.len() == usize::from(targets > 1) && set.is_range(self) {
                return set.count();
            }
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
        match sets.as_slice() {
            [] => 0,
            [one] => one.count(),
            many => {
                let fresh = |(i, set): (usize, &Receivers)| {
                    set.numbers().filter(|&n| !many[..i].iter().any(|s| s.contains(n))).count()
                };
                many.iter().enumerate().map(fresh).sum::<usize>() as u64
            }
        }
    }

    fn matching(&self, filter: &[Level], topic: &str) -> Option<Receivers> {
        if self.clients == 0 {
            return None;
        }
        let wild = matches!(filter.first(), Some(Level::Any | Level::Rest));
        if wild && topic.starts_with('$') {
            return None; // [MQTT-4.7.2-1]
        }
        let last = self.first + (self.clients - 1);
        let mut set = Receivers { from: self.first, to: last, remainders: Vec::new() };
        let mut levels = topic.split('/');
        for level in filter {
            if *level == Level::Rest {
                return set.some();
            }
            set.narrow(level, levels.next()?)?;
        }
        if levels.next().is_some() { None } else { set.some() }
    }
}

impl Receivers {
    fn some(self) -> Option<Self> {
        (self.from <= self.to).then_some(self)
    }

    fn is_range(&self, filters: &PopulationFilters) -> bool {
        self.from == filters.first && self.to - self.from + 1 == filters.clients
    }

    /// Adds the condition under which `level` matches `text`; `None`: it never does.
    fn narrow(&mut self, level: &Level, text: &str) -> Option<()> {
        match level {
            Level::Any | Level::Rest => Some(()),
            Level::Exact(exact) => (**exact == *text).then_some(()),
            Level::Variable { prefix, variable, suffix } => {
                let middle = text.strip_prefix(&**prefix)?.strip_suffix(&**suffix)?;
                self.require(*variable, canonical_decimal(middle)?)
            }
        }
    }

    fn require(&mut self, variable: Variable, value: u64) -> Option<()> {
        match variable {
            Variable::Number => self.limit(value, value),
            Variable::Quotient(k) => {
                let from = value.checked_mul(k)?;
                self.limit(from, from.saturating_add(k - 1));
            }
            Variable::Remainder(k) if value < k => self.remainders.push((k, value)),
            Variable::Remainder(_) => return None,
            Variable::Range { from, to } => return (from..=to).contains(&value).then_some(()),
        }
        Some(())
    }

    fn limit(&mut self, from: u64, to: u64) {
        self.from = self.from.max(from);
        self.to = self.to.min(to);
    }

    fn contains(&self, n: u64) -> bool {
        (self.from..=self.to).contains(&n) && self.remainders.iter().all(|&(k, r)| n % k == r)
    }

    fn count(&self) -> u64 {
        match self.remainders.as_slice() {
            _ if self.from > self.to => 0,
            [] => self.to - self.from + 1,
            &[(k, r)] => {
                let below = |end: u64| if end > r { (end - r - 1) / k + 1 } else { 0 };
                below(self.to + 1) - below(self.from)
            }
            _ => self.numbers().count() as u64,
        }
    }

    /// The numbers themselves, walked in steps of the largest remainder condition.
    fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let (k, r) = self.remainders.iter().copied().max().unwrap_or((1, 0));
        let offset = (r + k - self.from % k) % k;
        (self.from + offset..=self.to).step_by(k as usize).filter(|&n| self.contains(n))
    }
}

/// The value of a decimal as a template writes it: digits only, no leading zero.
fn canonical_decimal(text: &str) -> Option<u64> {
    let canonical =
        text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
