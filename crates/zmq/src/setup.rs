//! The part of a plan that this program plays: its share of the clients of one population. Checks
//! that sockets of libzmq can play the population.

use agent::hint::Hint;
use agent::publication::{PublicationSetup, publications};
use agent::rows::{self, RowsError};
use plan::{Plan, PlannedProtocol, Player, Population, Security, Shard, Target, Zmtp};

/// A plan that sockets of libzmq cannot play.
#[derive(Debug, thiserror::Error)]
pub enum ZmqSetupError {
    /// No such population, or another program's.
    #[error("--population {found}: {why}")]
    Population {
        /// The index on the command line.
        found: usize,
        /// The reason.
        why: String,
    },
    /// A population with a property that its sockets cannot have.
    #[error("population {population}: {why}")]
    Impossible {
        /// Its name.
        population: String,
        /// The property found, and what is allowed.
        why: &'static str,
        /// Advice.
        hint: &'static str,
    },
    /// A population whose templates have no values.
    #[error("population {population}: rows: {error}")]
    Rows {
        /// Its name.
        population: String,
        /// The reason.
        error: RowsError,
    },
    /// An address where it cannot listen.
    #[error("cannot listen at {endpoint}: {error}")]
    Bind {
        /// The address.
        endpoint: String,
        /// libzmq's error.
        error: zmq::Error,
    },
}

/// Failure of a player.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The plan, or its address.
    #[error(transparent)]
    Setup(#[from] ZmqSetupError),
    /// libzmq's error.
    #[error(transparent)]
    Library(#[from] zmq::Error),
    /// The kernel's error.
    #[error(transparent)]
    Kernel(#[from] std::io::Error),
}

/// Result of a player.
pub type Result<T> = std::result::Result<T, PlayError>;

/// A plan made ready for this program.
pub struct ZmqSetup {
    /// The unchanged plan.
    pub plan: Plan,
    /// Index of the population.
    pub population: usize,
    /// Share of its clients.
    pub shard: Shard,
    /// Options of the sockets.
    pub zmq: Zmtp,
    /// Publications of each population of the plan.
    pub publications: Vec<Vec<PublicationSetup>>,
}

impl Hint for PlayError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Setup(error) => error.hint(),
            Self::Kernel(error) => error.hint(),
            Self::Library(_) => None,
        }
    }
}

impl Hint for ZmqSetupError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Population { .. } => "pubstorm starts this program with the right index",
            Self::Impossible { hint, .. } => hint,
            Self::Rows { .. } => "pubstorm check looks at the file on the machine that it runs on",
            Self::Bind { error: zmq::Error::EADDRINUSE, .. } => {
                "another program listens there: end it, or name another port"
            }
            Self::Bind { .. } => "a publisher listens at an address of this machine",
        })
    }
}

impl ZmqSetup {
    /// Makes population `population` of a plan ready.
    ///
    /// # Errors
    /// [`ZmqSetupError`] if sockets of libzmq cannot play the population.
    pub fn new(plan: Plan, population: usize, shard: Shard) -> Result<Self> {
        let count = plan.populations.len();
        let wrong = |why| ZmqSetupError::Population { found: population, why };
        let Some(played) = plan.populations.get(population) else {
            return Err(wrong(format!("allowed are indices below {count}")).into());
        };
        let zmq = match played.protocol {
            PlannedProtocol::Zmtp(zmq) if zmq.player == Player::Libzmq => zmq,
            _ => {
                let why = format!("{} is not played by sockets of libzmq", played.name);
                return Err(wrong(why).into());
            }
        };
        check(played, &zmq, shard)?;
        rows::bind(&plan, shard).map_err(|(p, error)| {
            let population = plan.populations[p].name.clone();
            ZmqSetupError::Rows { population, error }
        })?;
        let mut first_index = 0;
        let mut ready = Vec::new();
        for population in &plan.populations {
            ready.push(publications(population, plan.seed, first_index));
            first_index += population.publications.len();
        }
        Ok(Self { zmq, population, shard, publications: ready, plan })
    }

    /// Returns the population.
    pub fn population(&self) -> &Population {
        &self.plan.populations[self.population]
    }

    /// Returns the number of clients in this agent for each population of the plan.
    pub fn clients(&self) -> Vec<u32> {
        let mut clients = vec![0; self.plan.populations.len()];
        clients[self.population] = self.shard.share(self.population().clients);
        clients
    }

    /// Returns the target of a client, by its index over all agents.
    pub fn target(&self, client: u32) -> &Target {
        &self.plan.targets[self.target_index(client)]
    }

    /// Returns the index of the target of a client.
    pub fn target_index(&self, client: u32) -> usize {
        self.population().at.target(self.plan.seed, self.population, client)
    }

    /// Returns user name and password of a client, by its index over all agents; empty if the
    /// population has none.
    pub fn credentials(&self, client: u32) -> (String, String) {
        let population = self.population();
        let n = population.first + u64::from(client);
        let text = |template: &Option<plan::Template>| {
            template.as_ref().map_or_else(String::new, |template| template.text(n, 0))
        };
        (text(&population.username), text(&population.password))
    }
}

/// Fails if sockets of libzmq cannot play a population.
fn check(
    population: &Population,
    zmq: &Zmtp,
    shard: Shard,
) -> std::result::Result<(), ZmqSetupError> {
    let fail = |why, hint| {
        Err(ZmqSetupError::Impossible { population: population.name.clone(), why, hint })
    };
    if zmq.security == Security::Curve {
        return fail(
            "found security curve, allowed with libzmq are null and plain",
            "this libzmq is built without libsodium: let kind pyzmq play it",
        );
    }
    match (population.publications.len(), population.subscriptions.len()) {
        (1, 0) if shard.share(population.clients) != 1 => {
            fail("a publisher is one process", "pubstorm starts one process for each publisher")
        }
        (1, 0) => Ok(()),
        (0, 1..) if population.read_rate_per_s.is_some() => {
            fail("found a read rate, which sockets of libzmq have not", SIMULATED)
        }
        (0, 1..) if population.lifetime.is_some() => {
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
