//! Payloads that a plan carries as they are: a list of byte strings, in JSON each in base64.

use std::sync::Arc;

use data_encoding::{BASE64, DecodeError};
use serde::{Deserialize, Serialize};

/// Payloads, one after the other. Clones share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Records {
    bytes: Arc<[u8]>,
    /// Index in `bytes` at which each record ends.
    ends: Arc<[usize]>,
}

/// Error in the list of records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    /// A list without records.
    #[error("found no records, needed is one")]
    None,
    /// A text that is no base64.
    #[error("record {0}: {1}")]
    Base64(usize, DecodeError),
}

impl Records {
    /// Number of records, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Record at an index below [`Self::count`].
    #[must_use]
    #[inline]
    pub fn at(&self, index: usize) -> &[u8] {
        let from = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[from..self.ends[index]]
    }

    /// All records.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count()).map(|index| self.at(index))
    }

    /// Bytes of the longest record.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.iter().map(<[u8]>::len).max().unwrap_or(0)
    }

    /// Bytes of a record in the mean.
    #[must_use]
    pub fn mean_bytes(&self) -> usize {
        self.bytes.len() / self.count()
    }
}

impl TryFrom<Vec<String>> for Records {
    type Error = RecordsError;

    fn try_from(texts: Vec<String>) -> Result<Self, RecordsError> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(texts.len()));
        for (index, text) in texts.iter().enumerate() {
            let decoded = BASE64.decode(text.as_bytes());
            bytes.extend(decoded.map_err(|error| RecordsError::Base64(index, error))?);
            ends.push(bytes.len());
        }
        if ends.is_empty() {
            return Err(RecordsError::None);
        }
        Ok(Self { bytes: bytes.into(), ends: ends.into() })
    }
}

impl From<Records> for Vec<String> {
    fn from(records: Records) -> Self {
        records.iter().map(|record| BASE64.encode(record)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_are_the_same_after_a_way_through_json(
            written in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..20),
        ) {
            let texts: Vec<String> = written.iter().map(|record| BASE64.encode(record)).collect();
            let json = serde_json::to_string(&texts).unwrap();
            let records: Records = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(records.iter().collect::<Vec<_>>(), written.iter().collect::<Vec<_>>());
            prop_assert_eq!(records.bytes_max(), written.iter().map(Vec::len).max().unwrap());
            prop_assert_eq!(serde_json::to_string(&records).unwrap(), json);
        }
    }

    #[test]
    fn what_is_no_list_of_records_is_refused() {
        let parsed = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            Records::try_from(texts).map_err(|error| error.to_string())
        };
        assert_eq!(parsed(&[]).unwrap_err(), "found no records, needed is one");
        assert!(parsed(&["YQ==", "?"]).unwrap_err().starts_with("record 1: "));
    }
}
