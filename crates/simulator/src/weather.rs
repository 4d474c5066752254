//! Draws the faults of a simulated network from a seed: outcomes of connection attempts, behaviour
//! of broker and kernel, and faults at an instant. It counts each kind of fault, so that the tests
//! can check that a case was reached.

use std::collections::BTreeMap;

use testkit::Rng;

use super::peer::Manner;

/// One millisecond.
pub const MS: u64 = 1_000_000;
/// One second.
pub const S: u64 = 1_000 * MS;

/// Chances in per cent, sizes in bytes, times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Most descriptors of an agent.
    pub descriptors_max: usize,
    /// Attempts that fail, by kind.
    pub openings: Vec<(OpeningOutcome, usize)>,
    /// Connections on which the broker is none, by kind.
    pub manners: Vec<(Manner, usize)>,
    /// Longest way between client and broker.
    pub latency_max_ns: u64,
    /// Smallest and largest room of a socket for bytes to send or to read.
    pub room: (usize, usize),
    /// Bytes that the broker reads from one client at once, at most; 0: all.
    pub gulp_max: usize,
    /// Time between two reads of the broker.
    pub gulp_ns: u64,
    /// Time between two looks of the broker for silent clients.
    pub keep_alive_check_ns: u64,
    /// Faults of datagrams.
    pub datagrams: DatagramWeather,
    /// Faults, each with its time after the beginning in nanoseconds.
    pub faults: Vec<(u64, Fault)>,
    /// The broker refuses connections before this instant.
    pub refuse_until_ns: u64,
    /// Number of faults by kind.
    pub seen: BTreeMap<&'static str, u64>,
}

/// Faults of datagrams, and limits of a server of QUIC.
#[derive(Clone, Copy, Debug)]
pub struct DatagramWeather {
    /// Chance that a datagram is lost.
    pub lost: usize,
    /// Chance that a datagram arrives twice.
    pub doubled: usize,
    /// Chance that a socket has no room.
    pub full: usize,
    /// Bytes of a stream that the server takes without reading them.
    pub window: u32,
    /// Time without a packet after which the server ends a connection, in seconds; 0: never.
    pub idle_s: u32,
    /// Chance that the server rejects data in 0-RTT.
    pub rejects_early: usize,
}

impl DatagramWeather {
    /// No faults, and room for all bytes.
    pub const FAIR: Self =
        Self { lost: 0, doubled: 0, full: 0, window: 1 << 18, idle_s: 0, rejects_early: 0 };
}

/// Kinds of weather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Climate {
    /// No faults, and room for all bytes.
    Fair,
    /// No faults, but sockets have little room and the broker is slow.
    Narrow,
    /// All kinds of faults.
    Storm,
}

/// Outcome of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpeningOutcome {
    /// The connection is accepted.
    Accepted,
    /// The target has no listener.
    Refused,
    /// No route.
    Unreachable,
    /// The target does not answer.
    Silence,
    /// The kernel has no port left.
    NoPorts,
}

/// A fault at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// The broker ends, and restarts after a time.
    Restart {
        /// Duration of the fault.
        down_ns: u64,
        /// `true` if the broker loses its sessions.
        forgets: bool,
    },
    /// The broker does nothing on some connections for a time.
    Stall {
        /// Percentage of the connections.
        per_cent: usize,
        /// Duration of the fault.
        ns: u64,
    },
    /// The broker ends some connections.
    Hang {
        /// Share of the connections.
        per_cent: usize,
        /// Manner of the end.
        manner: Manner,
    },
    /// Addresses of clients over QUIC change on their way.
    Rebind {
        /// Percentage of the sockets.
        per_cent: usize,
        /// Datagrams for the old address still arrive.
        keeps: bool,
    },
    /// The machine of the agents stands still for a time.
    Standstill {
        /// Duration of the fault.
        ns: u64,
    },
    /// The broker writes packets that need a reply on some connections, and reads nothing there for
    /// a time.
    Deaf {
        /// Bytes to each client.
        bytes: usize,
        /// Duration of the fault.
        ns: u64,
        /// Percentage of the connections.
        per_cent: usize,
    },
    /// The broker writes messages to every client, without end.
    Flood {
        /// Bytes to each client.
        bytes: usize,
    },
}

impl Fault {
    /// Name in the counts.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Restart { forgets: true, .. } => "restart that forgets",
            Self::Restart { .. } => "restart",
            Self::Stall { .. } => "stall",
            Self::Hang { manner: Manner::Reset, .. } => "reset",
            Self::Hang { manner: Manner::Garbage, .. } => "garbage",
            Self::Hang { .. } => "end",
            Self::Rebind { keeps: true, .. } => "second address",
            Self::Rebind { .. } => "new address",
            Self::Standstill { .. } => "standstill",
            Self::Deaf { .. } => "deaf",
            Self::Flood { .. } => "flood",
        }
    }
}

impl Weather {
    /// No faults, and room for all bytes.
    pub const fn fair() -> Self {
        Self {
            descriptors_max: usize::MAX,
            openings: Vec::new(),
            manners: Vec::new(),
            latency_max_ns: MS,
            room: (1 << 16, 1 << 16),
            gulp_max: 0,
            gulp_ns: 0,
            keep_alive_check_ns: S,
            datagrams: DatagramWeather::FAIR,
            faults: Vec::new(),
            refuse_until_ns: 0,
            seen: BTreeMap::new(),
        }
    }

    /// Weather of a climate.
    pub fn of(climate: Climate, rng: &mut Rng) -> Self {
        let mut weather = Self::fair();
        weather.latency_max_ns = rng.pick(&[0, 100_000, 5 * MS]);
        if climate == Climate::Narrow || climate == Climate::Storm && rng.chance(50) {
            weather.room = (64, 64 + rng.below(1500));
            weather.gulp_max = 150 + rng.below(400);
            weather.gulp_ns = rng.pick(&[0, 20_000, MS]);
        }
        if climate == Climate::Storm {
            weather.add_trouble(rng);
        }
        weather
    }

    fn add_trouble(&mut self, rng: &mut Rng) {
        if rng.chance(20) {
            self.descriptors_max = 1 + rng.below(12);
        }
        if rng.chance(60) {
            let kinds = [
                OpeningOutcome::Refused,
                OpeningOutcome::Unreachable,
                OpeningOutcome::Silence,
                OpeningOutcome::NoPorts,
            ];
            self.openings = kinds.map(|kind| (kind, rng.below(8))).into();
        }
        if rng.chance(60) {
            let kinds = [
                Manner::Mute,
                Manner::Garbage,
                Manner::End,
                Manner::Reset,
                Manner::EndBehindConnAck,
            ];
            self.manners = kinds.map(|kind| (kind, rng.below(8))).into();
        }
        for _ in 0..rng.below(5) {
            let per_cent = 1 + rng.below(100);
            let hang = |manner| Fault::Hang { per_cent, manner };
            let fault = match rng.below(5) {
                0 => Fault::Restart { down_ns: rng.bits() % (2 * S), forgets: rng.chance(50) },
                1 => Fault::Stall { per_cent, ns: rng.bits() % (6 * S) },
                2 => hang(Manner::End),
                3 => hang(Manner::Reset),
                _ => hang(Manner::Garbage),
            };
            self.faults.push((rng.bits() % (12 * S), fault));
        }
    }

    /// Counts a kind of fault.
    pub fn note(&mut self, kind: &'static str) {
        *self.seen.entry(kind).or_default() += 1;
    }

    /// Draws the outcome of the next attempt.
    pub fn opening(&mut self, now_ns: u64, rng: &mut Rng) -> OpeningOutcome {
        if now_ns < self.refuse_until_ns {
            return OpeningOutcome::Refused;
        }
        for at in 0..self.openings.len() {
            let (opening, per_cent) = self.openings[at];
            if rng.chance(per_cent) {
                self.note(match opening {
                    OpeningOutcome::Accepted => "accepted",
                    OpeningOutcome::Refused => "refused",
                    OpeningOutcome::Unreachable => "unreachable",
                    OpeningOutcome::Silence => "silence",
                    OpeningOutcome::NoPorts => "ports ran out",
                });
                return opening;
            }
        }
        OpeningOutcome::Accepted
    }

    /// Draws the broker's behaviour on the next connection.
    pub fn manner(&mut self, rng: &mut Rng) -> Manner {
        for at in 0..self.manners.len() {
            let (manner, per_cent) = self.manners[at];
            if rng.chance(per_cent) {
                self.note(manner.name());
                return manner;
            }
        }
        Manner::Plain
    }

    /// The latency of a connection.
    pub fn latency_ns(&self, rng: &mut Rng) -> u64 {
        let half_ns = self.latency_max_ns / 2;
        half_ns + rng.bits() % (half_ns + 1)
    }

    /// Room for bytes to send and to read.
    pub fn rooms(&self, rng: &mut Rng) -> (usize, usize) {
        let (least, most) = self.room;
        let mut room = || least + rng.below(most - least + 1);
        (room(), room())
    }

    /// Draws the number of bytes that the broker reads at once.
    pub fn gulp(&self, rng: &mut Rng) -> usize {
        if self.gulp_max == 0 { usize::MAX } else { 1 + rng.below(self.gulp_max) }
    }
}
