//! Recorded sessions that clients play again: the instants at which each recorded client connects
//! and disconnects. Client `c` plays recorded client `c % clients`, as with recorded messages.

use serde::{Deserialize, Serialize};

use crate::model::bounds;
use crate::schedule::clones::{Clones, ReadOnce};
use crate::schedule::recorded::{NEVER_NS, Played};

/// A file of recorded sessions, as the plan describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionsRecording {
    /// Path of the file.
    pub file: String,
    /// Client number `{n}` of the first recorded client.
    #[serde(deserialize_with = "bounds::number")]
    pub first: u64,
    /// Number of recorded clients.
    pub clients: u32,
    /// Clients beyond the recorded ones are later by up to this time, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub shift_ns: u64,
    /// The sessions, set when the file is read.
    #[serde(skip)]
    pub sessions: ReadOnce<RecordedSessions>,
}

/// A row of a file of recorded sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct SessionRow {
    /// Recorded client, from 0 on.
    pub client: u32,
    /// Start of the session after the start of the recording, in nanoseconds; 0: the client is
    /// connected when publishing begins.
    pub from_ns: u64,
    /// End of the session, in nanoseconds; `None`: it lasts until the end.
    pub until_ns: Option<u64>,
}

/// Row that cannot be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionsError {
    /// A client beyond those of the plan.
    #[error("found a session of client {0}, allowed are numbers below {1}")]
    Client(u32, u32),
    /// A session that begins before the end of the client's last one.
    #[error("found a session of client {0} from {1} ns, allowed is {2} ns or later")]
    Order(u32, u64, u64),
    /// A session without a length.
    #[error("found a session of client {0} from {1} to {2} ns, allowed is a later end")]
    Empty(u32, u64, u64),
    /// Too many rows.
    #[error("found more than {} sessions, allowed are as many", RecordedSessions::SESSIONS_MAX)]
    Sessions,
}

/// The recorded sessions of a population.
#[derive(Debug)]
pub struct RecordedSessions {
    clones: Clones,
    /// Index of the first session of each recorded client; one more at the end.
    starts: Vec<u32>,
    /// Start and end of the sessions, by client, then by time.
    spans: Vec<(u64, u64)>,
}

impl RecordedSessions {
    /// Most sessions of a file. They take 16 bytes each.
    pub const SESSIONS_MAX: usize = 10_000_000;

    /// The first session of a client (its index over all agents) that ends after `elapsed_ns`:
    /// start and end in nanoseconds after publishing began. The end is `None` if the client stays,
    /// and the session is `None` if there is no further one.
    #[must_use]
    pub fn session(&self, client: u32, elapsed_ns: u64) -> Option<(u64, Option<u64>)> {
        let (own, shift_ns) = (self.clones.own(client), self.clones.shift_ns(client));
        let spans = &self.spans[self.starts[own] as usize..self.starts[own + 1] as usize];
        let later = |until_ns: u64| until_ns.saturating_add(shift_ns);
        let next = spans.partition_point(|&(_, until_ns)| later(until_ns) <= elapsed_ns);
        let &(from_ns, until_ns) = spans.get(next)?;
        // A client that is connected from the start on is so in each clone.
        let from_ns = if from_ns == 0 { 0 } else { later(from_ns) };
        Some((from_ns, (until_ns < NEVER_NS).then(|| later(until_ns))))
    }

    /// Returns `true` if a client is not connected when publishing begins.
    #[must_use]
    pub fn begins_offline(&self, client: u32) -> bool {
        self.session(client, 0).is_none_or(|(from_ns, _)| from_ns > 0)
    }
}

/// Collects the rows of a file.
pub struct SessionsBuilder {
    clones: Clones,
    /// For each recorded client, `true` if a client of this agent plays it.
    kept: Vec<bool>,
    /// End of the last session of each recorded client, in nanoseconds.
    ends_ns: Vec<u64>,
    rows: usize,
    spans: Vec<(u32, (u64, u64))>,
}

impl SessionsBuilder {
    /// Begins with a recording, for the clients of an agent.
    #[must_use]
    pub fn new(recording: &SessionsRecording, seed: u64, played: &Played) -> Self {
        let recorded = (recording.first, recording.clients);
        let clones = Clones::new(recorded, played.first, seed, recording.shift_ns);
        let ends_ns = vec![0; clones.recorded() as usize];
        let kept = clones.kept(played.globals());
        Self { clones, kept, ends_ns, rows: 0, spans: Vec::new() }
    }

    /// Adds the next row of the file. The sessions of a client are in the order of time.
    ///
    /// # Errors
    /// [`SessionsError`] with the value found and the values allowed.
    pub fn push(&mut self, row: &SessionRow) -> Result<(), SessionsError> {
        let SessionRow { client, from_ns, until_ns } = *row;
        self.rows += 1;
        if self.rows > RecordedSessions::SESSIONS_MAX {
            return Err(SessionsError::Sessions);
        }
        let clients = self.clones.recorded();
        let Some(end_ns) = self.ends_ns.get_mut(client as usize) else {
            return Err(SessionsError::Client(client, clients));
        };
        if from_ns < *end_ns || from_ns >= NEVER_NS {
            return Err(SessionsError::Order(client, from_ns, *end_ns));
        }
        let until_ns = until_ns.unwrap_or(NEVER_NS).min(NEVER_NS);
        if until_ns <= from_ns {
            return Err(SessionsError::Empty(client, from_ns, until_ns));
        }
        *end_ns = until_ns;
        if self.kept[client as usize] {
            self.spans.push((client, (from_ns, until_ns)));
        }
        Ok(())
    }

    /// The sessions by client.
    #[must_use]
    pub fn build(mut self) -> RecordedSessions {
        // A stable sort keeps the order of time.
        self.spans.sort_by_key(|&(client, _)| client);
        let starts = (0..=self.clones.recorded())
            .map(|client| self.spans.partition_point(|&(of, _)| of < client) as u32);
        let starts = starts.collect();
        let spans = self.spans.into_iter().map(|(_, span)| span).collect();
        RecordedSessions { clones: self.clones, starts, spans }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::shard::Shard;
    use proptest::prelude::*;

    fn recording(clients: u32) -> SessionsRecording {
        let (file, sessions) = ("f".into(), ReadOnce::default());
        SessionsRecording { file, first: 5, clients, shift_ns: 1000, sessions }
    }

    fn builder(clients: u32, shard: Shard, all: u32) -> SessionsBuilder {
        let played = Played { shard, first: 5, clients: all };
        SessionsBuilder::new(&recording(clients), 3, &played)
    }

    /// Gap before a session, its length, and its client.
    fn rows(clients: u32) -> impl Strategy<Value = Vec<(u64, u64, u32)>> {
        prop::collection::vec((0u64..50, 1u64..50, 0..clients), 0..60)
    }

    fn built(
        rows: &[(u64, u64, u32)],
        clients: u32,
        (shard, all): (Shard, u32),
    ) -> RecordedSessions {
        let mut builder = builder(clients, shard, all);
        let mut ends_ns = vec![0; clients as usize];
        for &(gap_ns, length_ns, client) in rows {
            let from_ns = ends_ns[client as usize] + gap_ns;
            let until_ns = from_ns + length_ns;
            ends_ns[client as usize] = until_ns;
            builder.push(&SessionRow { client, from_ns, until_ns: Some(until_ns) }).unwrap();
        }
        builder.build()
    }

    proptest! {
        /// Walking from each end to the next session gives the rows of the client, later by one
        /// time, and shards give what the whole gives.
        #[test]
        fn a_client_has_the_sessions_of_the_recorded_client_that_it_plays(
            (clients, rows) in (1u32..5).prop_flat_map(|n| (Just(n), rows(n))),
            agents in 1u32..4,
        ) {
            let all = clients * 3;
            let whole = built(&rows, clients, (Shard::WHOLE, all));
            for index in 0..agents {
                let shard = Shard::new(index, agents).unwrap();
                let part = built(&rows, clients, (shard, all));
                for client in (0..shard.share(all)).map(|local| shard.global(local)) {
                    let (mut elapsed_ns, mut end_ns, mut shift_ns) = (0, 0, None);
                    for &(gap_ns, length_ns, own) in &rows {
                        if own != client % clients { continue; }
                        let (from_ns, until_ns) = (end_ns + gap_ns, end_ns + gap_ns + length_ns);
                        end_ns = until_ns;
                        let session = part.session(client, elapsed_ns).unwrap();
                        prop_assert_eq!(whole.session(client, elapsed_ns), Some(session));
                        let later_ns = session.1.unwrap() - until_ns;
                        prop_assert!(later_ns < 1000 && (client >= clients || later_ns == 0));
                        prop_assert_eq!(*shift_ns.get_or_insert(later_ns), later_ns);
                        let due_ns = if from_ns == 0 { 0 } else { from_ns + later_ns };
                        prop_assert_eq!(session.0, due_ns);
                        elapsed_ns = session.1.unwrap();
                    }
                    prop_assert_eq!(part.session(client, elapsed_ns), None);
                }
            }
        }

        #[test]
        fn any_rows_are_sessions_or_an_error(
            rows in prop::collection::vec((0u32..4, 0u64..100, prop::option::of(0u64..100)), 0..9),
        ) {
            let mut builder = builder(3, Shard::WHOLE, 7);
            let fits = |&(client, from_ns, until_ns): &_| {
                builder.push(&SessionRow { client, from_ns, until_ns }).is_ok()
            };
            if rows.iter().all(fits) {
                let sessions = builder.build();
                let all: Vec<_> = (0..7).filter_map(|client| sessions.session(client, 0)).collect();
                prop_assert!(all.iter().all(|(from, until)| until.is_none_or(|end| *from < end)));
            }
        }
    }

    #[test]
    fn a_session_without_an_end_lasts() {
        let mut builder = builder(2, Shard::WHOLE, 4);
        let row = |client, from_ns| SessionRow { client, from_ns, until_ns: None };
        assert_eq!(builder.push(&row(0, 0)), Ok(()));
        assert_eq!(builder.push(&row(1, 9)), Ok(()));
        assert_eq!(builder.push(&row(1, 10)), Err(SessionsError::Order(1, 10, NEVER_NS)));
        assert_eq!(builder.push(&row(2, 0)), Err(SessionsError::Client(2, 2)));
        let sessions = builder.build();
        assert_eq!(sessions.session(0, u64::MAX >> 3), Some((0, None)));
        assert_eq!(sessions.session(1, 0), Some((9, None)));
        assert_eq!(sessions.session(2, 0), Some((0, None)));
        let begins_offline = [0, 1, 2, 3].map(|client| sessions.begins_offline(client));
        assert_eq!(begins_offline, [false, true, false, true]);
    }
}
