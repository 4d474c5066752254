//! What of a plan this program plays: one population, and its share of the clients. It looks
//! whether sockets of libzmq can do what the plan asks of them, and knows no socket itself.

use agent::publication::{PublicationSetup, publications};
use agent::rows::{self, RowsError};
use plan::{Plan, Player, Population, Security, Shard, Target, Zmq};

/// A plan that sockets of libzmq cannot play.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// No such population, or another program's.
    #[error("--population {found}: {why}")]
    Population {
        /// The index that was given.
        found: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A population with a property that its sockets cannot have.
    #[error("population {population}: {why}")]
    Impossible {
        /// Its name.
        population: String,
        /// What was found, and what is allowed.
        why: &'static str,
        /// What to do about it.
        hint: &'static str,
    },
    /// A population whose templates have no values.
    #[error("population {population}: rows: {error}")]
    Rows {
        /// Its name.
        population: String,
        /// Why.
        error: RowsError,
    },
    /// An address where it cannot listen.
    #[error("cannot listen at {endpoint}: {error}")]
    Bind {
        /// The address.
        endpoint: String,
        /// The kernel's word.
        error: zmq::Error,
    },
}

/// What this program plays.
pub struct Own {
    /// The plan as it came.
    pub plan: Plan,
    /// Index of the population.
    pub population: usize,
    /// Share of its clients.
    pub shard: Shard,
    /// Options of the sockets.
    pub zmq: Zmq,
    /// Publications of each population of the plan.
    pub publications: Vec<Vec<PublicationSetup>>,
}

impl OwnError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Population { .. } => "pubstorm starts this program with the right index",
            Self::Impossible { hint, .. } => hint,
            Self::Rows { .. } => "pubstorm check looks at the file on the machine that it runs on",
            Self::Bind { error: zmq::Error::EADDRINUSE, .. } => {
                "another program listens there: end it, or name another port"
            }
            Self::Bind { .. } => "a publisher listens at an address of this machine",
        }
    }
}

impl Own {
    /// Looks whether sockets of libzmq can play population `population` of a plan.
    ///
    /// # Errors
    /// [`OwnError`] says what they cannot do.
    pub fn new(plan: Plan, population: usize, shard: Shard) -> Result<Self, OwnError> {
        let count = plan.populations.len();
        let wrong = |why| OwnError::Population { found: population, why };
        let Some(own) = plan.populations.get(population) else {
            return Err(wrong(format!("allowed are indices below {count}")));
        };
        let Some(zmq) = own.zmq.filter(|_| own.player == Player::Libzmq) else {
            return Err(wrong(format!("{} is not played by sockets of libzmq", own.name)));
        };
        check(own, &zmq, shard)?;
        rows::bind(&plan).map_err(|(p, error)| {
            let population = plan.populations[p].name.clone();
            OwnError::Rows { population, error }
        })?;
        let mut first_index = 0;
        let mut ready = Vec::new();
        for population in &plan.populations {
            ready.push(publications(population, plan.seed, first_index));
            first_index += population.publications.len();
        }
        Ok(Self { zmq, population, shard, publications: ready, plan })
    }

    /// The population.
    pub fn population(&self) -> &Population {
        &self.plan.populations[self.population]
    }

    /// How many clients of each population of the plan it plays.
    pub fn clients(&self) -> Vec<u32> {
        let mut clients = vec![0; self.plan.populations.len()];
        clients[self.population] = self.shard.share(self.population().clients);
        clients
    }

    /// The target of a client, by its index over all agents.
    pub fn target(&self, client: u32) -> &Target {
        &self.plan.targets[self.target_index(client)]
    }

    /// The index of that target.
    pub fn target_index(&self, client: u32) -> usize {
        self.population().at.target(self.plan.seed, self.population, client)
    }

    /// User name and password of a client, by its index over all agents; empty where there are
    /// none.
    pub fn credentials(&self, client: u32) -> (String, String) {
        let own = self.population();
        let n = own.first + u64::from(client);
        let text = |template: &Option<plan::Template>| {
            template.as_ref().map_or_else(String::new, |template| template.text(n, 0))
        };
        (text(&own.username), text(&own.password))
    }
}

/// Whether a population can be played.
fn check(own: &Population, zmq: &Zmq, shard: Shard) -> Result<(), OwnError> {
    let fail = |why, hint| Err(OwnError::Impossible { population: own.name.clone(), why, hint });
    if zmq.security == Security::Curve {
        return fail(
            "found security curve, allowed with libzmq are null and plain",
            "this libzmq is built without libsodium: let kind pyzmq play it",
        );
    }
    match (own.publications.len(), own.subscriptions.len()) {
        (1, 0) if shard.share(own.clients) != 1 => {
            fail("a publisher is one process", "pubstorm starts one process for each publisher")
        }
        (1, 0) => Ok(()),
        (0, 1..) if own.read_rate_per_s.is_some() => {
            fail("found a read rate, which sockets of libzmq have not", SIMULATED)
        }
        (0, 1..) if own.lifetime.is_some() => {
            fail("found a lifetime, which sockets of libzmq have not", SIMULATED)
        }
        (0, 1..) => Ok(()),
        _ => fail(
            "found several publications, or both publications and subscriptions, or neither",
            "a publisher has one publication, a subscriber has subscriptions only",
        ),
    }
}

const SIMULATED: &str = "simulated subscribers do that: leave `subscriber` out";
