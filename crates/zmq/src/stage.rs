//! The current stage of one population: its task, the end of the stage, and changes of its rate.

use agent::pipes;
use plan::{Action, ChangeAction, Plan};

/// A stage of the plan that has begun.
pub struct BegunStage {
    /// Its index in the plan.
    pub index: usize,
    /// Start, in nanoseconds.
    pub start_ns: u64,
    /// End, in nanoseconds; `None`: the stage ends when all is done.
    pub end_ns: Option<u64>,
    /// Task of the population.
    pub task: Task,
    /// Populations publish in this stage.
    pub publishes: bool,
    /// A publish stage is over.
    pub closed: bool,
    /// Instants of rate changes, in nanoseconds, and factors of the planned rate; the next change
    /// last.
    rates: Vec<(u64, f64)>,
}

/// Task of a population in a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Task {
    /// Nothing changes.
    Stay,
    /// Clients connect.
    Connect {
        /// Connections started per second; `None`: all at once.
        rate_per_s: Option<f64>,
        /// Clients that should be connected.
        clients: u32,
    },
    /// Clients publish.
    Publish,
    /// Clients disconnect.
    Disconnect,
}

impl BegunStage {
    /// Begins stage `index` of a plan, for a population.
    pub fn new(plan: &Plan, population: usize, index: usize, start_ns: u64) -> Self {
        let stage = &plan.stages[index];
        let place = stage.populations.iter().position(|&p| p == population);
        let task = match (&stage.action, place) {
            (Action::Connect { rate_per_s, clients, .. }, Some(place)) => {
                let all = plan.populations[population].clients;
                let clients = clients.as_ref().map_or(all, |clients| clients[place]);
                Task::Connect { rate_per_s: *rate_per_s, clients }
            }
            (Action::Publish { .. }, Some(_)) => Task::Publish,
            (Action::Disconnect { .. }, Some(_)) => Task::Disconnect,
            (Action::Hold { .. }, _) | (_, None) => Task::Stay,
        };
        let end_ns = match stage.action {
            Action::Publish { duration_ns, .. } | Action::Hold { duration_ns, .. } => {
                Some(start_ns + duration_ns)
            }
            Action::Connect { .. } | Action::Disconnect { .. } => None,
        };
        let publishes = matches!(stage.action, Action::Publish { .. });
        let (closed, rates) = (false, Vec::new());
        let mut new = Self { index, start_ns, end_ns, task, publishes, closed, rates };
        let own = stage.action.changes().iter().filter(|change| change.population == population);
        own.for_each(|change| new.change(start_ns + change.after_ns, change.action));
        new
    }

    /// Takes a change of the population's rate; logs a change that is not possible.
    pub fn change(&mut self, at_ns: u64, action: ChangeAction) {
        let ChangeAction::Rate { factor } = action else { return };
        if self.closed || self.task != Task::Publish || !action.is_possible() {
            return pipes::log("a change was ignored: nothing is published, or out of range");
        }
        self.rates.insert(0, (at_ns, factor));
        self.rates.sort_by_key(|&(at_ns, _)| std::cmp::Reverse(at_ns));
    }

    /// Takes the next change of the rate whose instant has come.
    pub fn next_rate(&mut self, now_ns: u64) -> Option<(u64, f64)> {
        self.rates.pop_if(|&mut (at_ns, _)| at_ns <= now_ns)
    }

    /// Returns the next instant with work, in nanoseconds.
    pub fn next_ns(&self, now_ns: u64) -> u64 {
        let end_ns = self.end_ns.filter(|&end_ns| end_ns > now_ns).unwrap_or(u64::MAX);
        self.rates.last().map_or(end_ns, |&(at_ns, _)| end_ns.min(at_ns))
    }
}
