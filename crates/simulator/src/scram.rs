//! The broker's side of SCRAM-SHA-256 (RFC 5802), and exchanges as they are on the wire.

use openssl::base64::{decode_block, encode_block};
use openssl::hash::MessageDigest;
use openssl::pkcs5::pbkdf2_hmac;
use openssl::pkey::PKey;
use openssl::sha::sha256;
use openssl::sign::Signer;
use testkit::{Authenticate, Rng, StepAnswer};

use super::weather::Climate;

/// Reason code of CONNACK: Not authorized.
const NOT_AUTHORIZED: u8 = 0x87;
/// The password of a user is the user name behind these words.
pub const PASSWORD: &str = "secret of ";

/// A broker's answers to the steps of clients. In a storm some of them are wrong.
pub fn server(climate: Climate, seed: u64) -> Authenticate {
    let mut rng = Rng::new(seed ^ 0x5c4a_5e4e);
    Box::new(move |steps| {
        let right = right(steps);
        if climate != Climate::Storm || !rng.chance(15) {
            return right;
        }
        let mut wrong = wrong(steps);
        wrong.swap_remove(rng.below(wrong.len()))
    })
}

/// The answer to the steps of a client.
pub fn right(steps: &[Vec<u8>]) -> StepAnswer {
    match steps {
        [first] => StepAnswer::Continue(challenge(first).into()),
        [first, last] => match ScramKeys::of(first, challenge(first).as_bytes(), last) {
            Some(keys) if keys.is_proved => StepAnswer::Accept(keys.signature().into()),
            _ => StepAnswer::Refuse(NOT_AUTHORIZED),
        },
        _ => panic!("a client answers one challenge: {steps:?}"),
    }
}

/// Answers of brokers that err.
pub fn wrong(steps: &[Vec<u8>]) -> Vec<StepAnswer> {
    let challenge = challenge(&steps[0]);
    let mut answers = vec![StepAnswer::Silence, StepAnswer::Refuse(NOT_AUTHORIZED)];
    answers.extend(["", "v=AAAA", "e=other-error"].map(|last| StepAnswer::Accept(last.into())));
    answers.push(StepAnswer::Continue(match steps.len() {
        1 => challenge.replacen("r=", "r=another", 1).into(),
        _ => challenge.into(),
    }));
    answers
}

/// The first message of the broker, which follows from that of the client.
fn challenge(first: &[u8]) -> String {
    let (name, nonce) = parts(first);
    let salt = &sha256(name.as_bytes())[..1 + name.len()];
    format!("r={nonce}%broker,s={},i={}", encode_block(salt), 1 + name.len() % 4)
}

/// User name and nonce of a client's first message.
fn parts(first: &[u8]) -> (String, &str) {
    let first = str::from_utf8(first).expect("it is text");
    let fields: Vec<&str> = first.split(',').collect();
    let ["n", "", name, nonce] = fields[..] else { panic!("a first message: {first}") };
    let name = name.strip_prefix("n=").expect("it has a name");
    let nonce = nonce.strip_prefix("r=").expect("it has a nonce");
    (name.replace("=2C", ",").replace("=3D", "="), nonce)
}

/// Result of a client's final message.
struct ScramKeys {
    /// The client has the password.
    is_proved: bool,
    of_server: [u8; 32],
}

impl ScramKeys {
    /// `None` if the final message does not answer the challenge.
    fn of(first: &[u8], challenge: &[u8], last: &[u8]) -> Option<Self> {
        let [first, challenge, last] =
            [first, challenge, last].map(|text| str::from_utf8(text).expect("it is text"));
        let (without_proof, proof) = last.split_once(",p=")?;
        let fields: Vec<&str> = challenge.split(',').collect();
        let [nonce, salt, iterations] = fields[..] else { return None };
        if without_proof != format!("c={},{nonce}", encode_block(b"n,,")) {
            return None;
        }
        let (name, _) = parts(first.as_bytes());
        let password = format!("{PASSWORD}{name}");
        let salt = decode_block(salt.strip_prefix("s=")?).ok()?;
        let iterations = iterations.strip_prefix("i=")?.parse().ok()?;
        let mut salted = [0; 32];
        let sha = MessageDigest::sha256();
        pbkdf2_hmac(password.as_bytes(), &salt, iterations, sha, &mut salted).ok()?;
        let stored = sha256(&hmac(&salted, b"Client Key"));
        let message = format!("{},{challenge},{without_proof}", first.strip_prefix("n,,")?);
        let signature = hmac(&stored, message.as_bytes());
        let proof = decode_block(proof).ok().filter(|proof| proof.len() == signature.len())?;
        let client_key: Vec<u8> = proof.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let of_server = hmac(&hmac(&salted, b"Server Key"), message.as_bytes());
        Some(Self { is_proved: sha256(&client_key) == stored, of_server })
    }

    /// The final message of the broker.
    fn signature(&self) -> String {
        format!("v={}", encode_block(&self.of_server))
    }
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let key = PKey::hmac(key).expect("a key of 32 bytes");
    let mut signer = Signer::new(MessageDigest::sha256(), &key).expect("it is a digest");
    let digest = signer.sign_oneshot_to_vec(text).expect("it signs");
    digest.try_into().expect("it has 32 bytes")
}

/// An exchange of a connection, as it was written and read.
#[derive(Debug, Default)]
pub struct ScramExchange {
    /// Data that the client has written.
    written: Vec<Vec<u8>>,
    /// Data that the client has read; with the code of CONNACK, or without one in AUTH.
    read: Vec<(Option<u8>, Vec<u8>)>,
}

/// End of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExchangeEnd {
    /// The broker accepts the client, and proves itself.
    Proved,
    /// The broker accepts the client without proof.
    Unproved,
    /// The broker continues in a way that the method does not allow.
    Invalid,
    /// The broker refuses the client.
    Refused,
    /// The connection ended before.
    Open,
}

impl ExchangeEnd {
    /// Its name in the counts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proved => "authenticated",
            Self::Unproved => "broker without proof",
            Self::Invalid => "invalid step of an authentication",
            Self::Refused => "authentication refused",
            Self::Open => "authentication without end",
        }
    }
}

impl ScramExchange {
    /// The client's nonce.
    pub fn nonce(&self) -> &str {
        parts(&self.written[0]).1
    }

    /// Returns `true` if the client has proved itself, or has not come to that.
    pub fn is_right(&self) -> bool {
        self.written.len() == 1 || self.keys().is_some_and(|keys| keys.is_proved)
    }

    /// The client has written a step.
    pub fn write(&mut self, data: &[u8]) {
        self.written.push(data.to_vec());
    }

    /// The client has read AUTH, or CONNACK with a code.
    pub fn read(&mut self, code: Option<u8>, data: &[u8]) {
        self.read.push((code, data.to_vec()));
    }

    /// The end of the exchange, as the client has read it.
    pub fn end(&self) -> ExchangeEnd {
        let right = challenge(&self.written[0]).into_bytes();
        let mut challenges = 0;
        for (code, data) in &self.read {
            match code {
                None if challenges == 0 && *data == right => challenges += 1,
                None => return ExchangeEnd::Invalid,
                Some(0) => {
                    let keys = self.keys().map(|keys| keys.signature().into_bytes());
                    return if keys.as_ref() == Some(data) {
                        ExchangeEnd::Proved
                    } else {
                        ExchangeEnd::Unproved
                    };
                }
                Some(_) => return ExchangeEnd::Refused,
            }
        }
        ExchangeEnd::Open
    }

    fn keys(&self) -> Option<ScramKeys> {
        let [first, last] = &self.written[..] else { return None };
        ScramKeys::of(first, &self.read.first()?.1, last)
    }
}
