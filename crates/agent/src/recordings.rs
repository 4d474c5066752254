//! Files of recorded messages and sessions: those of this agent's clients, read once at the start.
//! The controller checks these files before, with more detail.

use std::collections::BTreeSet;
use std::sync::Arc;

use plan::{
    Payload, Plan, Played, Population, Publication, RecordedBuilder, RecordedError, RecordedRow,
    Recording, SessionRow, SessionsBuilder, SessionsError, SessionsRecording, Shard,
};

/// Failure to read the recorded messages or sessions of a population.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read, or a row is none of its kind.
    #[error("{file}: {error}")]
    File {
        /// Path of the file.
        file: String,
        /// Error of the reader.
        error: csv::Error,
    },
    /// A row that cannot be played.
    #[error("{file}, line {line}: {error}")]
    Row {
        /// Path of the file.
        file: String,
        /// Its line.
        line: u64,
        /// Cause.
        error: Box<RecordedError>,
    },
    /// A session that cannot be played.
    #[error("{file}, line {line}: {error}")]
    Session {
        /// Path of the file.
        file: String,
        /// Its line.
        line: u64,
        /// Cause.
        error: SessionsError,
    },
}

/// Reads the recorded messages and sessions of a plan, and gives them to its populations.
///
/// # Errors
/// The index of a population, and what is wrong with its file.
pub fn bind(plan: &Plan, shard: Shard) -> Result<(), (usize, RecordingError)> {
    for (p, population) in plan.populations.iter().enumerate() {
        let files: BTreeSet<&str> = recorded(population).map(|(_, of)| of.file.as_str()).collect();
        for file in files {
            read(file, (population, plan.seed), shard).map_err(|error| (p, error))?;
        }
        let recording =
            population.lifetime.as_ref().and_then(|lifetime| lifetime.recorded.as_ref());
        if let Some(recording) = recording {
            let Population { first, clients, .. } = *population;
            let played = Played { shard, first, clients };
            read_sessions(recording, plan.seed, &played).map_err(|error| (p, error))?;
        }
    }
    Ok(())
}

fn recorded(population: &Population) -> impl Iterator<Item = (&Publication, &Recording)> {
    population.publications.iter().filter_map(|publication| match &publication.payload {
        Payload::Recorded(recording) => Some((publication, recording)),
        _ => None,
    })
}

/// Reads one file for all publications of a population that refer to the file.
fn read(file: &str, of: (&Population, u64), shard: Shard) -> Result<(), RecordingError> {
    let (population, seed) = of;
    let mut builders: Vec<(&Publication, &Recording, RecordedBuilder)> = recorded(population)
        .filter(|(_, recording)| recording.file == file)
        .map(|(publication, recording)| {
            let kind = (publication.qos, publication.retain);
            let Population { first, clients, .. } = *population;
            let played = Played { shard, first, clients };
            (publication, recording, RecordedBuilder::new(recording, kind, seed, &played))
        })
        .collect();
    let failed = |error| RecordingError::File { file: file.to_owned(), error };
    let mut reader = csv::Reader::from_path(file).map_err(failed)?;
    let headings = reader.headers().map_err(failed)?.clone();
    let mut record = csv::StringRecord::new();
    let mut line = 1;
    let refused = |line, error: RecordedError| {
        let error = Box::new(error);
        RecordingError::Row { file: file.to_owned(), line, error }
    };
    while reader.read_record(&mut record).map_err(failed)? {
        let row: RecordedRow<'_> = record.deserialize(Some(&headings)).map_err(failed)?;
        line = record.position().map_or(line, csv::Position::line);
        for (.., builder) in &mut builders {
            builder.push(&row).map_err(|error| refused(line, error))?;
        }
    }
    for (publication, recording, builder) in builders {
        let messages = Arc::new(builder.build().map_err(|error| refused(line, error))?);
        recording.messages.set(&messages);
        publication.topic.bind_recorded(&messages);
    }
    Ok(())
}

/// Reads a file of sessions.
fn read_sessions(
    recording: &SessionsRecording,
    seed: u64,
    played: &Played,
) -> Result<(), RecordingError> {
    let file = || recording.file.clone();
    let failed = |error| RecordingError::File { file: file(), error };
    let mut builder = SessionsBuilder::new(recording, seed, played);
    let mut rows = csv::Reader::from_path(&recording.file).map_err(failed)?.into_deserialize();
    while let Some(row) = rows.next() {
        let row: SessionRow = row.map_err(failed)?;
        let line = rows.reader().position().line().saturating_sub(1);
        let refused = |error| RecordingError::Session { file: file(), line, error };
        builder.push(&row).map_err(refused)?;
    }
    recording.sessions.set(&Arc::new(builder.build()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use testkit::plans;

    use super::*;

    fn played(content: &[u8], name: &str) -> Result<Plan, (usize, RecordingError)> {
        let path = std::env::temp_dir().join(format!("{name}-{}.csv", std::process::id()));
        std::fs::File::create(&path).and_then(|mut file| file.write_all(content)).unwrap();
        let payload = serde_json::json!({
            "kind": "recorded", "file": path, "first": 0, "clients": 2, "mean_bytes": 40,
            "max_bytes": 100, "shift_ns": 0,
        });
        let mut population = plans::population("p", 5);
        let payload = serde_json::from_value(payload).unwrap();
        let topic = plans::template("{recorded}");
        population.publications =
            vec![Publication { payload, topic, ..plans::publication("t", 0, 1) }];
        let plan = Plan { populations: vec![population], ..plans::empty(1) };
        bind(&plan, Shard::WHOLE)?;
        std::fs::remove_file(&path).unwrap();
        Ok(plan)
    }

    const HEAD: &str = "after_ns,client,topic,bytes,qos,retain\n";

    #[test]
    fn a_file_gives_each_client_its_messages() {
        let rows = format!("{HEAD}0,0,a/{{n}},50,0,false\n9,1,b,60,0,false\n9,1,c,60,1,true\n");
        let plan = played(rows.as_bytes(), "whole").unwrap();
        let publication = &plan.populations[0].publications[0];
        let recorded = publication.payload.recorded().unwrap();
        let of: Vec<u64> = (0..5).map(|client| recorded.messages_of(client)).collect();
        assert_eq!(of, [1, 1, 1, 1, 1]);
        let topics: Vec<String> = (0..5).map(|n| publication.topic.text(n, 0)).collect();
        assert_eq!(topics, ["a/0", "b", "a/2", "b", "a/4"]);
    }

    /// The sessions of two recorded clients in a file with these rows, played by three clients.
    fn sessions(rows: &str, name: &str) -> Result<Vec<bool>, RecordingError> {
        let path = std::env::temp_dir().join(format!("{name}-{}.csv", std::process::id()));
        std::fs::write(&path, format!("client,from_ns,until_ns\n{rows}")).unwrap();
        let recording = serde_json::json!({"file": path, "first": 0, "clients": 2, "shift_ns": 0});
        let recording: SessionsRecording = serde_json::from_value(recording).unwrap();
        let played = Played { shard: Shard::WHOLE, first: 0, clients: 3 };
        let read = read_sessions(&recording, 1, &played);
        std::fs::remove_file(&path).unwrap();
        read?;
        let sessions = recording.sessions.get().unwrap();
        Ok((0..3).map(|client| sessions.begins_offline(client)).collect())
    }

    #[test]
    fn a_file_of_sessions_says_who_is_there_at_the_start() {
        let found = sessions("0,0,50\n1,7,\n0,90,\n", "sessions").unwrap();
        assert_eq!(found, [false, true, false]);
        let error = sessions("0,0,50\n0,40,60\n", "sessions-wrong").unwrap_err();
        let RecordingError::Session { line: 3, error, .. } = error else {
            panic!("the third line is wrong: {error}")
        };
        assert_eq!(error, SessionsError::Order(0, 40, 50));
    }

    #[test]
    fn a_wrong_row_is_named_with_its_line() {
        let wrong = played(format!("{HEAD}0,0,t,50,0,false\n5,7,t,50,0,false\n").as_bytes(), "row");
        let (0, RecordingError::Row { line: 3, error, .. }) = wrong.unwrap_err() else {
            panic!("the third line is wrong")
        };
        assert_eq!(*error, RecordedError::Client(7, 2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_messages_or_an_error(
            has_head: bool,
            content in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..80),
                "([0-9]{1,3},[0-3],[a-z{}n/]{0,5},[0-9]{1,3},[0-3],(true|false|x)\n){0,5}"
                    .prop_map(String::into_bytes),
            ],
        ) {
            let head = if has_head { HEAD } else { "" };
            let _ = played(&[head.as_bytes(), &content].concat(), "any");
            let _ = sessions(&String::from_utf8_lossy(&content), "any-sessions");
        }
    }
}
