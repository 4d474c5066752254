//! SCRAM-SHA-256 in simulated runs: draws, the broker's side (RFC 5802), the check of all exchanges
//! against the wire, and scenes.

use std::collections::{BTreeMap, BTreeSet};

use openssl::base64::{decode_block, encode_block};
use openssl::hash::MessageDigest;
use openssl::pkcs5::pbkdf2_hmac;
use openssl::pkey::PKey;
use openssl::sha::sha256;
use openssl::sign::Signer;
use plan::{
    Authentication, MqttVersion, Outcomes, Population, Protocol, Reason, SCRAM_SHA_256, Will,
};
use testkit::{Answer, Authenticate, Broker, Rng, Script};

use super::cases::Case;
use super::checks::{Totals, check as check_all, population_of};
use super::course::Run;
use super::peer::Peer;
use super::plans::{subscription, template};
use super::scenes::case;
use super::texts::speaking;
use super::weather::{Climate, S, Weather};

/// Reason code of CONNACK: Not authorized.
const NOT_AUTHORIZED: u8 = 0x87;
/// The password of a user is the user name behind these words.
const PASSWORD: &str = "secret of ";

/// Draws populations of MQTT 5 that authenticate themselves, apart from the other draws.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x5c4a_0256);
    for population in case.plan.populations.iter_mut().filter(|p| p.speaks_mqtt5()) {
        if rng.chance(25) {
            let user = rng.pick(&["all", "u{n}", "u={n},"]);
            let password = format!("{PASSWORD}{user}");
            authenticate(population, user, &password);
        }
    }
}

fn authenticate(population: &mut Population, user: &str, password: &str) {
    if let Protocol::Mqtt(mqtt) = &mut population.protocol {
        mqtt.authentication = Some(Authentication { method: SCRAM_SHA_256.into(), data: None });
    }
    population.username = Some(template(user));
    population.password = Some(template(password));
}

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
fn right(steps: &[Vec<u8>]) -> Answer {
    match steps {
        [first] => Answer::Continue(challenge(first).into()),
        [first, last] => match Keys::of(first, challenge(first).as_bytes(), last) {
            Some(keys) if keys.is_proved => Answer::Accept(keys.signature().into()),
            _ => Answer::Refuse(NOT_AUTHORIZED),
        },
        _ => panic!("a client answers one challenge: {steps:?}"),
    }
}

/// Answers of brokers that err.
fn wrong(steps: &[Vec<u8>]) -> Vec<Answer> {
    let challenge = challenge(&steps[0]);
    let mut answers = vec![Answer::Silence, Answer::Refuse(NOT_AUTHORIZED)];
    answers.extend(["", "v=AAAA", "e=other-error"].map(|last| Answer::Accept(last.into())));
    answers.push(Answer::Continue(match steps.len() {
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
struct Keys {
    /// The client has the password.
    is_proved: bool,
    of_server: [u8; 32],
}

impl Keys {
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
#[derive(Default)]
pub struct Exchange {
    /// Data that the client has written.
    written: Vec<Vec<u8>>,
    /// Data that the client has read; with the code of CONNACK, or without one in AUTH.
    read: Vec<(Option<u8>, Vec<u8>)>,
}

/// End of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
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

impl End {
    /// Its name in the counts.
    const fn name(self) -> &'static str {
        match self {
            Self::Proved => "authenticated",
            Self::Unproved => "broker without proof",
            Self::Invalid => "invalid step of an authentication",
            Self::Refused => "authentication refused",
            Self::Open => "authentication without end",
        }
    }
}

impl Exchange {
    /// The client has written a step.
    pub fn write(&mut self, data: &[u8]) {
        self.written.push(data.to_vec());
    }

    /// The client has read AUTH, or CONNACK with a code.
    pub fn read(&mut self, code: Option<u8>, data: &[u8]) {
        self.read.push((code, data.to_vec()));
    }

    fn end(&self) -> End {
        let right = challenge(&self.written[0]).into_bytes();
        let mut challenges = 0;
        for (code, data) in &self.read {
            match code {
                None if challenges == 0 && *data == right => challenges += 1,
                None => return End::Invalid,
                Some(0) => {
                    let keys = self.keys().map(|keys| keys.signature().into_bytes());
                    return if keys.as_ref() == Some(data) { End::Proved } else { End::Unproved };
                }
                Some(_) => return End::Refused,
            }
        }
        End::Open
    }

    fn keys(&self) -> Option<Keys> {
        let [first, last] = &self.written[..] else { return None };
        Keys::of(first, &self.read.first()?.1, last)
    }
}

/// Ends of all exchanges, with the population of each.
fn ends(run: &Run) -> BTreeMap<(usize, End), u64> {
    let mut ends = BTreeMap::new();
    for ((_, client), exchange) in &run.network().wire.exchanges {
        *ends.entry((population_of(run, *client), exchange.end())).or_default() += 1;
    }
    ends
}

/// The names of all ends, with their counts.
pub fn seen(run: &Run) -> impl Iterator<Item = (&'static str, u64)> {
    ends(run).into_iter().map(|((_, end), count)| (end.name(), count))
}

/// Every exchange ends as the client has read, and every proof of a client is right.
pub fn check(run: &Run, totals: &Totals) {
    let network = run.network();
    let mut nonces = BTreeSet::new();
    for exchange in network.wire.exchanges.values() {
        let (_, nonce) = parts(&exchange.written[0]);
        assert!(nonces.insert(nonce), "an attempt has a nonce of its own: {nonce}");
        let is_right = exchange.keys().is_some_and(|keys| keys.is_proved);
        assert!(exchange.written.len() == 1 || is_right, "{:?}", exchange.written);
    }
    let ends = ends(run);
    for (p, population) in run.plan().populations.iter().enumerate() {
        if population.mqtt().is_none_or(|mqtt| mqtt.authentication.is_none()) {
            continue;
        }
        let of = |reason| totals.outcomes[p].get(&reason).copied().unwrap_or(0);
        for (end, counted) in [
            (End::Proved, totals.counters[p].connected_total),
            (End::Unproved, of(Reason::ServerUnproved)),
            (End::Invalid, of(Reason::AuthenticationInvalid)),
            (End::Refused, of(Reason::NotAuthorized)),
        ] {
            let read = ends.get(&(p, end)).copied().unwrap_or(0);
            assert_eq!(counted, read, "{}: {end:?}", population.name);
        }
    }
}

/// A broker's answers.
type Answers = fn(&[Vec<u8>]) -> Answer;

/// Three clients with a password for a second, and a broker with these answers. Returns how many
/// clients the broker accepted, and the outcomes.
fn played(password: &str, answer: Answers) -> (u64, Outcomes) {
    let mut population = speaking(MqttVersion::V5, "device", 3);
    authenticate(&mut population, "u{n}", password);
    population.reconnect = None;
    let script = Script { authenticate: Box::new(answer), ..Script::reliable() };
    let case = case(vec![population], S, Weather::fair());
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(script)));
    let totals = match password.starts_with(PASSWORD) {
        true => check_all(&run),
        false => Totals::of(&run),
    };
    (totals.counters[0].connected_total, totals.outcomes[0].clone())
}

#[test]
fn clients_and_brokers_with_the_password_prove_themselves() {
    assert_eq!(played("secret of u{n}", right), (3, Outcomes::new()));
}

#[test]
fn a_client_with_another_password_is_refused() {
    assert_eq!(played("guessed", right), (0, [(Reason::NotAuthorized, 3)].into()));
}

#[test]
fn the_will_of_a_client_whose_broker_proves_nothing_is_expected() {
    let mut device = speaking(MqttVersion::V5, "device", 3);
    authenticate(&mut device, "u{n}", "secret of u{n}");
    device.reconnect = None;
    if let Protocol::Mqtt(mqtt) = &mut device.protocol {
        mqtt.will = Some(Box::new(Will {
            topic: template("will/0/{n}"),
            payload: template("gone"),
            qos: 1,
            retain: false,
            properties: Vec::new(),
        }));
    }
    let mut watcher = speaking(MqttVersion::V5, "watcher", 1);
    watcher.subscriptions = vec![subscription("will/#", 1)];
    let mut case = case(vec![device, watcher], S, Weather::fair());
    // The watcher connects before the devices.
    case.plan.stages.insert(0, case.plan.stages[0].clone());
    case.plan.stages[0].populations = vec![1];
    let authenticate = Box::new(|_: &[Vec<u8>]| Answer::Accept(Vec::new()));
    let script = Script { authenticate, ..Script::reliable() };
    let totals = check_all(&Run::play(case, 1, 1, Peer::new(Broker::new(script))));
    assert_eq!(totals.outcomes[0], [(Reason::ServerUnproved, 3)].into());
    let flow = totals.flow(0, 1);
    assert_eq!((flow.wills_expected_total, flow.wills_received_total), (3, 3));
}

#[test]
fn every_error_of_a_broker_in_an_authentication_has_its_reason() {
    use Reason::{AuthenticationInvalid, ConnectTimeout, NotAuthorized, ServerUnproved};
    /// Errs in the second step.
    fn late<const ERROR: usize>(steps: &[Vec<u8>]) -> Answer {
        if steps.len() == 1 { right(steps) } else { wrong(steps).swap_remove(ERROR) }
    }
    fn early<const ERROR: usize>(steps: &[Vec<u8>]) -> Answer {
        wrong(steps).swap_remove(ERROR)
    }
    let brokers: [[Answers; 2]; 6] = [
        [early::<0>, late::<0>],
        [early::<1>, late::<1>],
        [early::<2>, late::<2>],
        [early::<3>, late::<3>],
        [early::<4>, late::<4>],
        [early::<5>, late::<5>],
    ];
    let reasons = [
        ConnectTimeout,
        NotAuthorized,
        ServerUnproved,
        ServerUnproved,
        ServerUnproved,
        AuthenticationInvalid,
    ];
    for (error, (brokers, reason)) in brokers.into_iter().zip(reasons).enumerate() {
        for broker in brokers {
            let found = played("secret of u{n}", broker);
            assert_eq!(found, (0, [(reason, 3)].into()), "error {error}");
        }
    }
}
