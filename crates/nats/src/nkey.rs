//! Nkeys: the texts of Ed25519 keys, and the file with the JSON Web Token and key of a user. The
//! caller signs, so that this crate needs no library of cryptography.

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};

/// First five bits of a seed: the letter S.
const SEED: u8 = 18 << 3;
/// First five bits of the public key of a user, and second five bits of its seed: the letter U.
const USER: u8 = 20 << 3;
/// Bytes of a key.
const KEY: usize = 32;

/// Returns the private key in the text of a user's seed (`SU...`); `None` if the text is none.
#[must_use]
pub fn private_key(seed: &str) -> Option<[u8; KEY]> {
    let bytes = BASE32_NOPAD.decode(seed.trim().as_bytes()).ok()?;
    let (rest, sum) = bytes.split_last_chunk::<2>()?;
    let (&[first, second], key) = rest.split_first_chunk::<2>()?;
    let owner = (first & 0b111) << 5 | second >> 3;
    let is_seed = first & !0b111 == SEED && owner == USER && crc16(rest).to_le_bytes() == *sum;
    key.try_into().ok().filter(|_| is_seed)
}

/// Returns the text of a user's public key (`U...`).
#[must_use]
pub fn public_text(public_key: &[u8; KEY]) -> String {
    let mut bytes = vec![USER];
    bytes.extend_from_slice(public_key);
    bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
    BASE32_NOPAD.encode(&bytes)
}

/// Returns the text of a signature, as CONNECT has it.
#[must_use]
pub fn signature_text(signature: &[u8]) -> String {
    BASE64URL_NOPAD.encode(signature)
}

/// Returns the JSON Web Token and the seed in the text of a user's credentials file; `None` if one
/// of them is missing.
#[must_use]
pub fn credentials(file: &str) -> Option<(&str, &str)> {
    Some((section(file, "NATS USER JWT")?, section(file, "USER NKEY SEED")?))
}

/// Returns the text between the lines BEGIN and END of a section.
fn section<'a>(file: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = file.split_once(&format!("BEGIN {name}"))?;
    let (_, rest) = rest.split_once('\n')?;
    let (text, _) = rest.split_once(&format!("END {name}"))?;
    let text = text.trim_end_matches('-').trim();
    (!text.is_empty() && !text.contains(char::is_whitespace)).then_some(text)
}

/// Check sum of nkeys: CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte) << 8, |sum: u16, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 }
        })
    })
}
#[cfg(test)]
mod tests {
    use super::*;

    /// The seed of one user and the public key of another.
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

    #[test]
    fn the_texts_of_keys_have_a_check_sum() {
        assert!(private_key(SEED).is_some());
        assert_eq!(private_key(&SEED.replace('3', "4")), None);
        assert_eq!(private_key(PUBLIC), None);
        let bytes = BASE32_NOPAD.decode(PUBLIC.as_bytes()).unwrap();
        let key = bytes[1..33].try_into().unwrap();
        assert_eq!(public_text(&key), PUBLIC);
    }

    #[test]
    fn a_credentials_file_has_a_token_and_a_seed() {
        let file = format!(
            "-----BEGIN NATS USER JWT-----\nab.c-d.e-\n------END NATS USER JWT------\n\n\
             * keep it *\n-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
        );
        assert_eq!(credentials(&file), Some(("ab.c-d.e-", SEED)));
        assert_eq!(credentials("-----BEGIN NATS USER JWT-----\nx"), None);
    }
}
