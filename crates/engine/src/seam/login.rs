//! SCRAM-SHA-256, client side (RFC 5802, RFC 7677), without channel binding: the messages of an
//! exchange, and the proof of the server.

mod derivation;

use std::borrow::Cow;

use openssl::base64::{decode_block, encode_block};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::memcmp;
use openssl::pkey::PKey;
use openssl::sha::sha256;
use openssl::sign::Signer;
use plan::Reason;
use rustc_hash::FxHashMap;
use stringprep::saslprep;

use super::cause::{Cause, ReasonTexts};
use derivation::{Derivations, UnsaltedPassword};

/// GS2 header: no channel binding, no other identity.
const HEADER: &str = "n,,";
/// Most iterations that a server can request: about 0.3 s of work.
const ITERATIONS_MAX: usize = 1_000_000;
/// Purpose of the random values in nonces.
const NONCE: u64 = 0x5c7a;

type Digest = [u8; 32];

/// User name and password of a client, and its nonce.
#[derive(Clone, Debug)]
pub struct Login {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// Nonce of this exchange.
    pub nonce: String,
}

/// Exchanges of the clients of an agent: those that wait for their salted password, and those that
/// wait for the proof of their server. Only clients that are connecting have one.
pub struct Exchanges {
    /// Challenges of clients that wait for their salted password, by client.
    challenges: FxHashMap<u32, (UnsaltedPassword, String)>,
    /// Expected signature of the server, by client.
    expected: FxHashMap<u32, Digest>,
    /// Salted passwords.
    derivations: Derivations,
}

/// The nonce of a client's attempt to connect: `client` is its population and its number there.
pub fn nonce(seed: u64, client: (usize, u32), attempt: u64) -> String {
    let random = plan::Random::new(seed, NONCE).of(client.0 as u64);
    let random = random.of(u64::from(client.1)).of(attempt);
    format!("{:016x}{:016x}", random.of(0).bits(), random.of(1).bits())
}

impl Login {
    /// A login with its texts normalised by SASLprep (RFC 4013). A text with a character that
    /// SASLprep prohibits stays as it is, and the server decides.
    pub fn new(username: &str, password: &str, nonce: String) -> Self {
        let normalised = |text| saslprep(text).unwrap_or(Cow::Borrowed(text)).into_owned();
        Self { username: normalised(username), password: normalised(password), nonce }
    }

    /// The client's first message.
    pub fn first(&self) -> String {
        format!("{HEADER}{}", self.first_bare())
    }

    /// The first message without its header. A name has neither `=` nor `,`.
    fn first_bare(&self) -> String {
        let name = self.username.replace('=', "=3D").replace(',', "=2C");
        format!("n={name},r={}", self.nonce)
    }
}

impl Exchanges {
    /// No exchanges. `apart`: passwords are salted in a thread of its own.
    pub fn new(apart: bool) -> Self {
        let (challenges, expected) = (FxHashMap::default(), FxHashMap::default());
        Self { challenges, expected, derivations: Derivations::new(apart) }
    }

    /// Answers the server's first message with the client's final message. `None`: the password
    /// must be salted first, and [`Self::take_salted`] names the client then.
    ///
    /// # Errors
    /// [`Reason::AuthenticationInvalid`] if `challenge` is not a first message of a server.
    pub fn answer(
        &mut self,
        client: u32,
        login: &Login,
        challenge: &[u8],
        now_ns: u64,
    ) -> Result<Option<String>, Reason> {
        let invalid = Reason::AuthenticationInvalid;
        if self.expected.contains_key(&client) || self.challenges.contains_key(&client) {
            return Err(invalid);
        }
        let challenge = str::from_utf8(challenge).map_err(|_| invalid)?;
        let Challenge { salt, iterations, .. } =
            Challenge::parse(challenge, &login.nonce).ok_or(invalid)?;
        let key = UnsaltedPassword { password: login.password.clone(), salt, iterations };
        let is_salted = self.derivations.ask(&key, client, now_ns);
        self.challenges.insert(client, (key, challenge.to_owned()));
        if is_salted { self.answer_salted(client, login).map(Some) } else { Ok(None) }
    }

    /// Answers the challenge of a client whose password is salted.
    ///
    /// # Errors
    /// [`Reason::AuthenticationInvalid`] if the password cannot be salted.
    pub fn answer_salted(&mut self, client: u32, login: &Login) -> Result<String, Reason> {
        let invalid = Reason::AuthenticationInvalid;
        let (key, challenge) = self.challenges.remove(&client).ok_or(invalid)?;
        let salted = self.derivations.salted(&key).ok_or(invalid)?;
        let nonce = Challenge::parse(&challenge, &login.nonce).ok_or(invalid)?.nonce;
        let without_proof = format!("c={},r={nonce}", encode_block(HEADER.as_bytes()));
        let message = format!("{},{challenge},{without_proof}", login.first_bare());
        let signed = sign(salted, message.as_bytes()).map_err(|_| invalid)?;
        self.expected.insert(client, signed.of_server);
        Ok(format!("{without_proof},p={}", encode_block(&signed.proof)))
    }

    /// Takes a client whose password is salted, or cannot be salted.
    pub fn take_salted(&mut self, now_ns: u64) -> Option<u32> {
        let Self { challenges, derivations, .. } = self;
        let waits = |client: u32, key: &UnsaltedPassword| {
            challenges.get(&client).is_some_and(|(own, _)| own == key)
        };
        derivations.take_client(now_ns, waits)
    }

    /// Instant of the next look for salted passwords, in nanoseconds; `None` if no client waits.
    pub fn next_ns(&self) -> Option<u64> {
        self.derivations.next_ns()
    }

    /// Checks the server's final message, and forgets the exchange.
    ///
    /// # Errors
    /// [`Reason::ServerUnproved`] if the message does not prove that the server has the password.
    pub fn verify<'a>(&mut self, client: u32, last: &'a [u8]) -> Result<(), Cause<'a>> {
        let unproved = Cause::from(Reason::ServerUnproved);
        let expected = self.expected.remove(&client).ok_or(unproved)?;
        let last = str::from_utf8(last).map_err(|_| unproved)?;
        if let Some(error) = last.strip_prefix("e=") {
            let texts = ReasonTexts { reason_string: Some(error), server_reference: None };
            return Err(Cause { texts, ..unproved });
        }
        let signature = last.strip_prefix("v=").and_then(|text| text.split(',').next());
        let found = signature.and_then(|text| decode_block(text).ok()).ok_or(unproved)?;
        let is_equal = found.len() == expected.len() && memcmp::eq(&found, &expected);
        if is_equal { Ok(()) } else { Err(unproved) }
    }

    /// Forgets the exchange of a connection that has ended.
    pub fn forget(&mut self, client: u32) {
        self.expected.remove(&client);
        self.challenges.remove(&client);
    }
}

/// The server's first message.
struct Challenge<'a> {
    /// The client's nonce, continued by the server.
    nonce: &'a str,
    salt: Vec<u8>,
    iterations: usize,
}

impl<'a> Challenge<'a> {
    /// `None` if the text is not a first message that continues the nonce `own`.
    fn parse(text: &'a str, own: &str) -> Option<Self> {
        let mut fields = text.split(',');
        let nonce = fields.next()?.strip_prefix("r=")?;
        let salt = decode_block(fields.next()?.strip_prefix("s=")?).ok()?;
        let iterations = fields.next()?.strip_prefix("i=")?.parse().ok()?;
        let continues = nonce.len() > own.len() && nonce.starts_with(own);
        let is_sound = continues && !salt.is_empty() && (1..=ITERATIONS_MAX).contains(&iterations);
        is_sound.then_some(Self { nonce, salt, iterations })
    }
}

/// Proof of the client and signature of the server.
struct Signed {
    proof: Digest,
    of_server: Digest,
}

fn sign(salted: &Digest, message: &[u8]) -> Result<Signed, ErrorStack> {
    let client_key = hmac(salted, b"Client Key")?;
    let signature = hmac(&sha256(&client_key), message)?;
    let proof = std::array::from_fn(|i| client_key[i] ^ signature[i]);
    Ok(Signed { proof, of_server: hmac(&hmac(salted, b"Server Key")?, message)? })
}

fn hmac(key: &Digest, text: &[u8]) -> Result<Digest, ErrorStack> {
    let key = PKey::hmac(key)?;
    let mut digest = Digest::default();
    Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot(&mut digest, text)?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const CHALLENGE: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const LAST: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn login() -> Login {
        Login::new("user", "pencil", "rOprNGfwEbeRWgbNEkqO".into())
    }

    /// Exchanges without a thread.
    fn exchanges() -> Exchanges {
        Exchanges::new(false)
    }

    /// Answers a challenge, once the password is salted.
    fn answered(exchanges: &mut Exchanges, client: u32) -> String {
        let answer = exchanges.answer(client, &login(), CHALLENGE, 0).unwrap();
        answer.unwrap_or_else(|| {
            while exchanges.take_salted(u64::MAX) != Some(client) {}
            exchanges.answer_salted(client, &login()).unwrap()
        })
    }

    #[test]
    fn the_exchange_of_rfc_7677_is_played() {
        assert_eq!(login().first(), FIRST);
        for apart in [false, true] {
            let mut exchanges = Exchanges::new(apart);
            assert_eq!(answered(&mut exchanges, 7), FINAL);
            assert!(exchanges.verify(7, LAST).is_ok());
            assert!(exchanges.verify(7, LAST).is_err(), "the exchange is over");
            // The second exchange has the salted password of the first.
            let second = exchanges.answer(8, &login(), CHALLENGE, 0);
            assert_eq!(second, Ok(Some(FINAL.to_owned())));
            exchanges.forget(8);
            assert!(exchanges.verify(8, LAST).is_err());
        }
    }

    #[test]
    fn a_password_is_salted_once_for_all_clients_that_still_wait() {
        let mut exchanges = exchanges();
        for client in [7, 8, 9] {
            assert_eq!(exchanges.answer(client, &login(), CHALLENGE, 5), Ok(None));
        }
        exchanges.forget(8);
        assert!(exchanges.take_salted(5).is_none(), "not in the turn of the challenge");
        let taken: Vec<u32> = std::iter::from_fn(|| exchanges.take_salted(u64::MAX)).collect();
        assert_eq!(taken, [7, 9]);
        assert_eq!(exchanges.answer_salted(7, &login()), Ok(FINAL.into()));
        assert_eq!(exchanges.next_ns(), None);
        assert!(exchanges.answer_salted(8, &login()).is_err());
    }

    #[test]
    fn a_server_without_the_password_proves_nothing() {
        let lasts: [&[u8]; 5] = [b"", b"v=", b"v=AAAA", b"\xff", b"x=1"];
        for last in lasts {
            let mut exchanges = exchanges();
            answered(&mut exchanges, 7);
            let cause = exchanges.verify(7, last).map_err(|cause| cause.reason);
            assert_eq!(cause, Err(Reason::ServerUnproved), "{last:?}");
        }
        let mut exchanges = exchanges();
        answered(&mut exchanges, 7);
        let cause = exchanges.verify(7, b"e=invalid-proof").unwrap_err();
        assert_eq!(cause.texts.reason_string, Some("invalid-proof"));
    }

    #[test]
    fn other_challenges_are_not_answered() {
        let nonce = "r=rOprNGfwEbeRWgbNEkqO";
        for challenge in [
            String::new(),
            format!("{nonce},s=QSXCR+Q6sek8bf92,i=4096"),
            "r=another,s=QSXCR+Q6sek8bf92,i=4096".into(),
            format!("{nonce}x,s=,i=4096"),
            format!("{nonce}x,s=***,i=4096"),
            format!("{nonce}x,s=QSXCR+Q6sek8bf92,i=0"),
            format!("{nonce}x,s=QSXCR+Q6sek8bf92,i=2000000000"),
            format!("{nonce}x,s=QSXCR+Q6sek8bf92"),
            format!("m=ext,{nonce}x,s=QSXCR+Q6sek8bf92,i=4096"),
        ] {
            let answer = exchanges().answer(7, &login(), challenge.as_bytes(), 0);
            assert_eq!(answer, Err(Reason::AuthenticationInvalid), "{challenge}");
        }
        let mut exchanges = exchanges();
        for answers in [false, true] {
            if answers {
                exchanges.take_salted(u64::MAX).unwrap();
                exchanges.answer_salted(7, &login()).unwrap();
            } else {
                exchanges.answer(7, &login(), CHALLENGE, 0).unwrap();
            }
            let second = exchanges.answer(7, &login(), CHALLENGE, 0);
            assert_eq!(second, Err(Reason::AuthenticationInvalid), "one challenge in an exchange");
        }
    }

    #[test]
    fn texts_are_normalised_unless_they_are_prohibited() {
        // The examples of RFC 4013, section 3.
        let texts = [
            ("I\u{ad}X", "IX"),
            ("user", "user"),
            ("USER", "USER"),
            ("\u{aa}", "a"),
            ("\u{2168}", "IX"),
            ("\u{7}", "\u{7}"),
            ("\u{627}1", "\u{627}1"),
        ];
        for (text, normalised) in texts {
            let login = Login::new(text, text, String::new());
            assert_eq!((&*login.username, &*login.password), (normalised, normalised));
        }
    }

    #[test]
    fn names_are_escaped_and_nonces_differ() {
        let name = Login { username: "a=b,c".into(), ..login() };
        assert_eq!(name.first(), "n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO");
        let nonces = [((0, 1), 5), ((0, 2), 5), ((1, 1), 5), ((0, 1), 6)];
        let nonces = nonces.map(|(client, attempt)| nonce(3, client, attempt));
        assert!(nonces.iter().all(|nonce| nonce.len() == 32));
        assert_eq!(std::collections::BTreeSet::from(nonces.clone()).len(), 4);
        assert_eq!(nonces[0], nonce(3, (0, 1), 5));
    }
}
