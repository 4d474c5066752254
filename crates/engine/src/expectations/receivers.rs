//! The fan-out of the plan with its last answer: most clients publish to few topics.

use plan::{FanOut, MessageOrigin, Plan, Ways};

/// The fan-out with its last answer.
pub struct Receivers {
    fan_out: FanOut,
    /// Clients of each population that receive.
    clients: Vec<u32>,
    /// Clients of each population that are active at the start of the stage.
    active: Vec<u32>,
    /// Some receivers are offline.
    some_offline: bool,
    /// Question that `deliveries` and `to_offline` answer.
    topic: String,
    asked: Option<MessageOrigin>,
    deliveries: Vec<u64>,
    /// Those of the deliveries that are to offline clients; empty if there is no such client.
    to_offline: Vec<u64>,
}

impl Receivers {
    pub fn new(fan_out: FanOut) -> Self {
        let clients = vec![0; fan_out.populations()];
        let mut receivers = Self {
            fan_out,
            active: clients.clone(),
            clients,
            some_offline: false,
            topic: String::new(),
            asked: None,
            deliveries: Vec::new(),
            to_offline: Vec::new(),
        };
        (0..receivers.clients.len()).for_each(|p| receivers.set_clients(p, 0));
        receivers
    }

    /// Begins a stage with the active clients; kept sessions of inactive clients receive too.
    pub fn begin_stage(&mut self, plan: &Plan, active: &[u32]) {
        self.active.copy_from_slice(active);
        for (p, population) in plan.populations.iter().enumerate() {
            let kept = if population.keeps_session() { self.clients[p] } else { 0 };
            self.set_clients(p, active[p].max(kept));
        }
        self.some_offline = (0..self.clients.len()).any(|p| self.has_offline(p));
    }

    fn set_clients(&mut self, population: usize, clients: u32) {
        self.clients[population] = clients;
        self.fan_out.set_receivers(population, clients);
        self.asked = None;
    }

    /// Clients of a population that receive.
    pub fn clients(&self, population: usize) -> u32 {
        self.clients[population]
    }

    /// Returns `true` if some receivers are offline: the broker keeps their sessions.
    pub fn has_offline(&self, population: usize) -> bool {
        self.active[population] < self.clients[population]
    }

    /// Deliveries to each population of one message on `topic`.
    pub fn deliveries(&mut self, topic: &str, publisher: MessageOrigin) -> &[u64] {
        self.with_offline(topic, publisher).0
    }

    /// The same, and those of them that are to offline clients; empty if there is no such client.
    pub fn with_offline(&mut self, topic: &str, publisher: MessageOrigin) -> (&[u64], &[u64]) {
        if self.asked != Some(publisher) || self.topic != topic {
            topic.clone_into(&mut self.topic);
            self.asked = Some(publisher);
            self.fan_out.deliveries(topic, publisher, &mut self.deliveries);
            self.to_offline.clear();
            if self.some_offline {
                self.count_offline(publisher);
            }
        }
        (&self.deliveries, &self.to_offline)
    }

    /// Counts the deliveries to offline clients: all, less those to active clients.
    fn count_offline(&mut self, publisher: MessageOrigin) {
        let absent = |p: &usize| self.active[*p] < self.clients[*p];
        let populations: Vec<usize> = (0..self.clients.len()).filter(absent).collect();
        populations.iter().for_each(|&p| self.fan_out.set_receivers(p, self.active[p]));
        self.fan_out.deliveries(&self.topic, publisher, &mut self.to_offline);
        populations.iter().for_each(|&p| self.fan_out.set_receivers(p, self.clients[p]));
        for (offline, all) in self.to_offline.iter_mut().zip(&self.deliveries) {
            *offline = all - *offline;
        }
    }

    /// Number of filters of a client that match a topic, of those whose identifier is meant.
    pub fn filters_of(
        &self,
        (population, client): (usize, u32),
        topic: &str,
        is_meant: impl Fn(Option<u32>) -> bool,
    ) -> usize {
        self.fan_out.filters_of(population, client, topic, is_meant)
    }

    /// The ways in which a client at `target` may receive a message on `topic`.
    pub fn ways(&self, population: usize, client: u32, topic: &str, target: usize) -> Ways {
        let has_groups = self.fan_out.has_groups(population);
        if has_groups { self.fan_out.ways(population, client, topic, target) } else { Ways::ONE }
    }
}
