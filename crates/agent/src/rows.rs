//! Files of rows: the columns that templates of a plan refer to, read once at the start. The
//! controller checks these files before, with more detail.

use std::collections::BTreeSet;
use std::sync::Arc;

use plan::{Column, Columns, Plan, PlanError, Population, Rows, Shard};

/// Failure to find the values that templates of a population refer to.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The file cannot be read, or its rows differ in length.
    #[error("{file}: {error}")]
    File {
        /// Path of the file.
        file: String,
        /// Error of the reader.
        error: csv::Error,
    },
    /// A column that the file does not have.
    #[error("{file}: found no column {column}")]
    Column {
        /// Path of the file.
        file: String,
        /// The column's name.
        column: String,
    },
    /// Clients without a row.
    #[error(
        "{file}: found {rows} rows for clients with numbers up to {last}, needed is one for each"
    )]
    Few {
        /// Path of the file.
        file: String,
        /// Number of rows.
        rows: usize,
        /// The last client's number.
        last: u64,
    },
    /// Values that cannot stand where they are to.
    #[error(transparent)]
    Values(#[from] PlanError),
}

/// Reads the files of a plan, each once, and gives the templates of its populations their values.
/// A column that only texts of the clients themselves use has the rows of this agent's clients.
///
/// # Errors
/// The index of a population, and what is wrong with its file or its values.
pub fn bind(plan: &Plan, shard: Shard) -> Result<(), (usize, RowsError)> {
    let mut files: Vec<(&Rows, Columns)> = Vec::new();
    for (p, population) in plan.populations.iter().enumerate() {
        let Some(rows) = &population.rows else { continue };
        if !files.iter().any(|(read, _)| *read == rows) {
            let with_file = |other: &&Population| other.rows.as_ref() == Some(rows);
            let alike: Vec<&Population> = plan.populations.iter().filter(with_file).collect();
            files.push((rows, read(rows, &alike, shard).map_err(|error| (p, error))?));
        }
        let columns = files.iter().find(|(read, _)| *read == rows).map(|(_, columns)| columns);
        let bound = columns.map_or(Ok(()), |columns| bind_one(population, rows, columns));
        bound.map_err(|error| (p, error))?;
    }
    Ok(())
}

/// Reads the columns that populations refer to.
fn read(rows: &Rows, populations: &[&Population], shard: Shard) -> Result<Columns, RowsError> {
    let names: BTreeSet<&str> = populations.iter().flat_map(|one| one.columns()).collect();
    let of_topics: BTreeSet<&str> =
        populations.iter().flat_map(|one| one.columns_of_topics()).collect();
    let first = populations.first().map_or(0, |one| one.first);
    let is_alike = !rows.repeat && populations.iter().all(|one| one.first == first);
    let empty = |name| {
        let is_own = is_alike && !of_topics.contains(name);
        if is_own { Column::of_shard(rows, first, shard) } else { Column::new(rows) }
    };
    let failed = |error| RowsError::File { file: rows.file.clone(), error };
    let mut reader = csv::Reader::from_path(&rows.file).map_err(failed)?;
    let headings = reader.headers().map_err(failed)?;
    let mut columns = Vec::new();
    for name in names {
        let missing = || RowsError::Column { file: rows.file.clone(), column: name.to_owned() };
        let place = headings.iter().position(|heading| heading == name).ok_or_else(missing)?;
        columns.push((name, place, empty(name)));
    }
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(failed)? {
        columns.iter_mut().for_each(|(_, place, column)| column.push(&record[*place]));
    }
    let named = columns.into_iter().map(|(name, _, mut column)| {
        column.shrink_to_fit();
        (name.to_owned(), Arc::new(column))
    });
    Ok(named.collect())
}

fn bind_one(population: &Population, rows: &Rows, columns: &Columns) -> Result<(), RowsError> {
    let last = population.first + u64::from(population.clients).saturating_sub(1);
    for count in columns.values().map(|column| column.rows()) {
        let reaches = last.checked_sub(rows.first).is_some_and(|row| row < count as u64);
        if count == 0 || !(rows.repeat || reaches) {
            return Err(RowsError::Few { file: rows.file.clone(), rows: count, last });
        }
    }
    Ok(population.bind(columns)?)
}
