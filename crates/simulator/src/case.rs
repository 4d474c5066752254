//! A case: a plan, changes beyond it, how many agents play it, and the weather.

use std::sync::Arc;

use plan::{Action, ChangeAction, Command, Plan, Population};

use super::recorded::RecordedFiles;
use super::spoken::Spoken;
use super::weather::{Climate, S, Weather};
use testkit::plans::{self, stage};

/// A plan, and the circumstances in which it is played.
#[derive(Clone)]
pub struct Case {
    /// The plan.
    pub plan: Plan,
    /// Changes beyond the plan: the stage, how long after its start, the population.
    pub changes: Vec<(usize, u64, usize, ChangeAction)>,
    /// Exclusions from loss: the stage, the nanoseconds after its start, the population.
    pub exclusions: Vec<(usize, u64, usize)>,
    /// Number of agents that play the plan.
    pub agents: u32,
    /// Kind of the weather.
    pub climate: Climate,
    /// The weather.
    pub weather: Weather,
    /// Files of the recording that a population plays; `None` without one.
    pub files: Option<Arc<RecordedFiles>>,
}

impl Case {
    /// A plan for one agent, without changes.
    pub fn playing(plan: Plan, climate: Climate, weather: Weather) -> Self {
        let (changes, exclusions) = (Vec::new(), Vec::new());
        Self { plan, changes, exclusions, agents: 1, climate, weather, files: None }
    }

    /// Returns `true` if clients of MQTT and of NATS are at the same server.
    pub fn is_joined(&self) -> bool {
        let at = |spoken: Spoken| {
            let populations = self.plan.populations.iter();
            populations
                .filter(move |own| Spoken::of(&own.protocol) == spoken)
                .map(|own| own.at.first)
        };
        let mut of_mqtt = at(Spoken::Mqtt);
        self.plan.targets_joined || of_mqtt.all(|own| at(Spoken::Nats).all(|other| own == other))
    }

    /// Returns `true` if clients of two populations share identifiers.
    pub fn is_contested(&self, population: usize) -> bool {
        self.plan.rivals()[population].is_some()
    }

    /// Commands in a stage that begins at `start_ns`, each with the instant at which it is sent;
    /// changes take effect `lead_ns` later.
    pub fn commands_in(&self, stage: usize, start_ns: u64, lead_ns: u64) -> Vec<(u64, Command)> {
        let changes = self.changes.iter().filter(|change| change.0 == stage);
        let changes = changes.map(|&(_, after_ns, population, action)| {
            let at_ns = start_ns + after_ns;
            (at_ns, Command::Change { at_ns: at_ns + lead_ns, population, action })
        });
        let exclusions = self.exclusions.iter().filter(|exclusion| exclusion.0 == stage);
        let exclusions = exclusions.map(|&(_, after_ns, population)| {
            (start_ns + after_ns, Command::ExcludeFromLoss { populations: vec![population] })
        });
        let mut commands: Vec<_> = changes.chain(exclusions).collect();
        commands.sort_by_key(|(at_ns, _)| *at_ns);
        commands
    }

    /// Returns `true` if a stage excludes deliveries to a population from loss.
    pub fn is_excluded(&self, population: usize) -> bool {
        self.exclusions.iter().any(|exclusion| exclusion.2 == population)
    }

    /// Returns `true` if the clients of a population handle all that they read before they say
    /// that they leave. A slow reader leaves with packets that it has taken from the socket only.
    /// Other protocols than MQTT end without a word, or with an answer: their clients with a link
    /// discard what they read while their last bytes pass the link.
    pub fn handles_all(&self, population: usize) -> bool {
        let own = &self.plan.populations[population];
        let says_goodbye = own.mqtt().is_some() || own.link.is_empty();
        self.climate == Climate::Fair && own.read_rate_per_s.is_none() && says_goodbye
    }

    /// Returns `true` if all clients of a population stay, and stay subscribed, from its connect
    /// stage on.
    pub fn is_static(&self, population: usize) -> bool {
        self.plan.populations[population].flapping.is_none() && self.stays_connected(population)
    }

    /// Returns `true` if all clients of a population stay from its connect stage on.
    pub fn stays_connected(&self, population: usize) -> bool {
        let beyond = self.changes.iter().any(|c| c.2 == population && c.3.moves_clients());
        let planned = self.plan.stages.iter().any(|stage| match &stage.action {
            Action::Connect { clients, .. } => clients.is_some(),
            action => {
                let mut changes = action.changes().iter();
                changes.any(|c| c.population == population && c.action.moves_clients())
            }
        });
        let ends = |stage: &plan::PlannedStage| matches!(stage.action, Action::Disconnect { .. });
        let last = self.plan.stages.len() - 1;
        let leaves = self.plan.stages[..last].iter().any(ends);
        let lives = self.plan.populations[population].lifetime.is_some();
        !beyond && !planned && !leaves && !lives && !self.is_contested(population)
    }
}

/// Connects all clients, publishes for `duration_ns`, and disconnects.
pub fn case(populations: Vec<Population>, duration_ns: u64, weather: Weather) -> Case {
    let all: Vec<usize> = (0..populations.len()).collect();
    let connect =
        Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
    let publish = Action::Publish {
        duration_ns,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let disconnect = Action::Disconnect { rate_per_s: None };
    let stages = [connect, publish, disconnect].map(|action| stage(action, &all)).into();
    let plan = Plan { populations, stages, ..plans::empty(1) };
    Case::playing(plan, Climate::Storm, weather)
}
