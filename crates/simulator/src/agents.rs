//! The agents of a simulated run: calls the real loops if they have news or their time has come,
//! and collects their snapshots.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{self, Sender};

use agent::pipes::Input;
use agent::snapshots::{Snapshots, Unread};
use engine::{Client, EventLoop, Host, Setup, SharedHub, UNSENT_MAX};
use plan::{Command, Plan, Shard, Snapshot};

use super::host::AgentMachine;
use super::network::Network;

/// Most bytes of replies that wait for a peer: a read may exceed the bound, and so may answers.
const REPLIES_MAX: usize = 2 * UNSENT_MAX;

/// All agents of a run.
pub struct Agents {
    /// The network that the agents share.
    pub network: Rc<RefCell<Network>>,
    agents: Vec<Agent>,
}

struct Agent {
    /// Loop of the agent; `None` after its end.
    event_loop: Option<EventLoop>,
    /// Its connections over QUIC.
    hub: Option<SharedHub>,
    inputs: Sender<Input>,
    snapshots: Unread,
    /// `false`: the controller reads none of its snapshots.
    is_read: bool,
}

impl Agents {
    /// `count` agents that play a plan together.
    pub fn new(plan: &Plan, count: u32, network: Network) -> Self {
        let network = Rc::new(RefCell::new(network));
        let json = serde_json::to_string(plan).expect("a plan has a JSON form");
        let agent = |index| {
            let shard = Shard::new(index, count).expect("the index is below the count");
            let plan = Plan::from_json(&json).expect("the plan passes the agents' own check");
            let setup = Setup::new(plan, shard, 0).expect("the plan needs no files");
            let machine = AgentMachine::new(Rc::clone(&network), index as usize);
            let (inputs, input_receiver) = mpsc::channel();
            let (snapshot_sender, snapshots) = Snapshots::new();
            let hub = Some(machine.hub());
            let host = Host::Simulated(Box::new(machine));
            let event_loop = EventLoop::new(setup, host, input_receiver, snapshot_sender);
            Agent { event_loop: Some(event_loop), hub, inputs, snapshots, is_read: true }
        };
        let agents = (0..count).map(agent).collect();
        Self { network, agents }
    }

    /// All clients of all agents.
    pub fn clients_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        let loops = self.agents.iter_mut().filter_map(|agent| agent.event_loop.as_mut());
        loops.flat_map(EventLoop::clients_mut)
    }

    /// Current time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.network.borrow().now_ns
    }

    /// Number of agents.
    pub fn count(&self) -> usize {
        self.agents.len()
    }

    /// Sends every agent a command.
    pub fn send(&self, command: &Command) {
        for (index, agent) in self.agents.iter().enumerate() {
            // An agent that has ended receives no commands.
            let _ = agent.inputs.send(Input::Command(command.clone()));
            self.network.borrow_mut().wake(index);
        }
    }

    /// Lets the controller read the snapshots, or not.
    pub fn read(&mut self, is_read: bool) {
        self.agents.iter_mut().for_each(|agent| agent.is_read = is_read);
    }

    /// Returns `true` once all agents have ended.
    pub fn have_ended(&self) -> bool {
        self.agents.iter().all(|agent| agent.event_loop.is_none())
    }

    /// Plays until an agent sends a snapshot, or until `until_ns`. Returns the snapshots.
    pub fn play(&mut self, until_ns: u64) -> Vec<Snapshot> {
        loop {
            let mut next_ns = until_ns;
            for index in 0..self.agents.len() {
                next_ns = next_ns.min(self.turn(index));
            }
            let read = self.agents.iter_mut().filter(|agent| agent.is_read);
            let snapshots: Vec<_> =
                read.flat_map(|agent| std::iter::from_fn(|| agent.snapshots.try_next())).collect();
            if !snapshots.is_empty() || self.now_ns() >= until_ns || self.have_ended() {
                return snapshots;
            }
            self.network.borrow_mut().advance(next_ns);
        }
    }

    /// Turns a loop if it has something to do; returns when it has next.
    fn turn(&mut self, index: usize) -> u64 {
        let agent = &mut self.agents[index];
        let Some(event_loop) = &mut agent.event_loop else { return u64::MAX };
        let has_news = self.network.borrow().has_news(index);
        let now_ns = self.network.borrow().now_ns;
        let hub_ns = |hub: &Option<SharedHub>| {
            hub.as_ref().map_or(u64::MAX, |hub| hub.borrow_mut().begin_wait())
        };
        if has_news || event_loop.wake_ns().min(hub_ns(&agent.hub)) <= now_ns {
            let goes_on = event_loop.turn().expect("the simulated poll does not fail");
            if self.network.borrow().weather.seen.contains_key("deaf") {
                let most = event_loop.clients_mut().iter().map(Client::replies).max();
                assert!(most <= Some(REPLIES_MAX), "{most:?} bytes of replies wait");
            }
            if !goes_on {
                (agent.event_loop, agent.hub) = (None, None);
                return u64::MAX;
            }
        }
        event_loop.wake_ns().min(hub_ns(&agent.hub))
    }
}
