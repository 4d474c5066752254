//! The file of pre-shared keys: lines `identity:key`, the key in hexadecimal. Blank lines and
//! lines that begin with `#` are left out. Every line is checked, and the keys of the identities
//! asked for are kept. It knows no client; it never shows a key.

use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustc_hash::{FxHashMap, FxHashSet};

/// Longest identity that OpenSSL takes, in bytes.
const IDENTITY_BYTES_MAX: usize = 256;
/// Longest key that OpenSSL takes, in bytes.
const KEY_BYTES_MAX: usize = 512;

/// Key of each identity.
pub type Keys = FxHashMap<Box<str>, Box<[u8]>>;

/// Content of a line, without the key, and the allowed content.
type Wrong = (String, String);

/// Why a file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PskError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's word.
        error: io::Error,
    },
    /// A line is not what it should be.
    #[error("{}, line {line}: found {found}, allowed is {allowed}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Content of the line, without the key.
        found: String,
        /// Allowed content.
        allowed: String,
    },
    /// Clients have no key.
    #[error(
        "{}: found no key for {count} of the identities wanted, such as '{identity}'",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The first of them in the order of the alphabet.
        identity: String,
        /// Number of identities.
        count: usize,
    },
}

/// Reads the keys of the identities in `wanted`.
///
/// # Errors
/// [`PskError`] names the file and the line, what was found and what is allowed.
pub fn read(path: &Path, wanted: &FxHashSet<String>) -> Result<Keys, PskError> {
    let text = fs::read(path).map_err(|error| PskError::Read { path: path.into(), error })?;
    let in_file =
        |(line, found, allowed)| PskError::Line { path: path.into(), line, found, allowed };
    let keys = parse(&text, wanted).map_err(in_file)?;
    let missing = || wanted.iter().filter(|identity| !keys.contains_key(identity.as_str()));
    match missing().min() {
        None => Ok(keys),
        Some(identity) => Err(PskError::Missing {
            path: path.into(),
            identity: identity.clone(),
            count: missing().count(),
        }),
    }
}

/// The keys of `wanted` in the text of a file; the error is line, found and allowed.
fn parse(text: &[u8], wanted: &FxHashSet<String>) -> Result<Keys, (usize, String, String)> {
    let mut keys = Keys::default();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            continue;
        }
        let wrong = |(found, allowed)| (index + 1, found, allowed);
        let (identity, key) = entry(line).map_err(wrong)?;
        if !wanted.contains(identity) {
            continue;
        }
        match keys.entry(identity.into()) {
            Entry::Vacant(vacant) => drop(vacant.insert(key)),
            Entry::Occupied(_) => {
                let found = format!("the identity '{identity}' again");
                return Err(wrong((found, "one line for each identity".into())));
            }
        }
    }
    Ok(keys)
}

/// Identity and key of a line.
fn entry(line: &[u8]) -> Result<(&str, Box<[u8]>), Wrong> {
    let line = str::from_utf8(line)
        .map_err(|_| ("bytes that are not UTF-8".into(), "UTF-8".to_owned()))?;
    let (identity, digits) = line
        .split_once(':')
        .ok_or_else(|| ("no colon".into(), "identity:key, the key in hexadecimal".to_owned()))?;
    if !(1..=IDENTITY_BYTES_MAX).contains(&identity.len()) {
        let found = format!("an identity of {} bytes", identity.len());
        return Err((found, format!("1 to {IDENTITY_BYTES_MAX}")));
    }
    let digits = digits.trim_ascii();
    let length = 2..=KEY_BYTES_MAX * 2;
    if !digits.len().is_multiple_of(2) || !length.contains(&digits.len()) {
        let found = format!("a key of {} digits", digits.len());
        return Err((found, format!("an even number from 2 to {}", length.end())));
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| Some((value(pair[0])? << 4 | value(pair[1])?) as u8);
    let key: Option<Box<[u8]>> = digits.as_bytes().chunks_exact(2).map(byte).collect();
    let key = key.ok_or_else(|| {
        (
            "a key with other characters than hexadecimal digits".into(),
            "0-9, a-f and A-F".to_owned(),
        )
    })?;
    Ok((identity, key))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wanted(identities: &[&str]) -> FxHashSet<String> {
        identities.iter().map(|&identity| identity.to_owned()).collect()
    }

    #[test]
    fn only_the_keys_asked_for_are_kept() {
        let text = b"# made for a test\n\na:00ff\r\nb:0A0b\nc d:123456 \n";
        let keys = parse(text, &wanted(&["a", "c d"])).unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!(&*keys["a"], [0x00, 0xff]);
        assert_eq!(&*keys["c d"], [0x12, 0x34, 0x56]);
    }

    #[test]
    fn a_wrong_line_is_named_and_its_key_is_not_shown() {
        let long_identity = format!("{}:00", "i".repeat(257));
        let long_key = format!("a:{}", "0".repeat(1026));
        let cases: [(&[u8], &str); 9] = [
            (b"a 00", "no colon"),
            (b":00", "an identity of 0 bytes"),
            (long_identity.as_bytes(), "an identity of 257 bytes"),
            (b"a:", "a key of 0 digits"),
            (b"a:123", "a key of 3 digits"),
            (long_key.as_bytes(), "a key of 1026 digits"),
            (b"a:0secret0", "a key with other characters than hexadecimal digits"),
            (b"\xff:00", "bytes that are not UTF-8"),
            (b"b:00\nb:11", "the identity 'b' again"),
        ];
        for (lines, expected) in cases {
            let text = [b"fine:01\n".as_slice(), lines].concat();
            let (line, found, allowed) = parse(&text, &wanted(&["b"])).unwrap_err();
            assert_eq!(found, expected);
            assert_eq!(line, if lines.starts_with(b"b") { 3 } else { 2 });
            assert!(!allowed.is_empty() && !found.contains("secret"));
        }
    }

    #[test]
    fn identities_without_a_key_are_counted_and_the_first_is_named() {
        let path = std::env::temp_dir().join(format!("pubstorm-psk-{}", std::process::id()));
        fs::write(&path, "b:00\n").unwrap();
        let error = read(&path, &wanted(&["c", "b", "a"])).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(error.ends_with("found no key for 2 of the identities wanted, such as 'a'"));
        let error = read(&path, &wanted(&[])).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text: Vec<u8>) {
            let _ = parse(&text, &wanted(&["a"]));
        }

        #[test]
        fn what_was_written_is_read(
            entries in prop::collection::hash_map("[^#:\\s][^:\\r\\n]{0,20}",
                prop::collection::vec(any::<u8>(), 1..40), 0..8)
        ) {
            let mut text = String::new();
            for (identity, key) in &entries {
                let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
                text.push_str(&format!("{identity}:{digits}\n"));
            }
            let keys = parse(text.as_bytes(), &entries.keys().cloned().collect()).unwrap();
            prop_assert_eq!(keys.len(), entries.len());
            for (identity, key) in &entries {
                prop_assert_eq!(&*keys[identity.as_str()], key.as_slice());
            }
        }
    }
}
