//! Sessions against a real nats-server over loopback. Reads have a time limit only so that a
//! failure ends the test. Without nats-server the tests do nothing, except in CI, where they fail.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "real sockets")]

use std::{
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nats::{
    FIRST_SID, Headers, NatsEvent, NatsSession, ServerError,
    client::{ConnectOptions, NatsCredentials, NatsPublish, NatsSubscribe},
    headers,
    jetstream::{Acknowledgement, Consumer, MESSAGE_ID, Receipt, Storage, StreamConfig},
    nkey,
};
use openssl::{
    pkey::{Id, PKey, Private},
    sign::Signer,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Seed and public text of a user's nkey: the private key is 32 bytes of 7.
const SEED: &str = "SUAAOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBZ5FE";

/// A nats-server with a configuration. It ends with the value.
struct Server {
    child: Child,
    folder: PathBuf,
    address: String,
}

impl Server {
    /// Starts a server; `None` if there is no program outside of CI.
    fn start(name: &str, configuration: &str) -> Option<Self> {
        let paths = env::var_os("PATH").unwrap_or_default();
        let mut folders =
            env::split_paths(&paths).chain(["/usr/sbin".into(), "/usr/local/bin".into()]);
        let program = folders.find_map(|folder| {
            Some(folder.join("nats-server")).filter(|program| program.is_file())
        });
        let Some(program) = program else {
            assert!(env::var_os("CI").is_none(), "nats-server is missing");
            return None;
        };
        let folder = env::temp_dir().join(format!("pubstorm-nats-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("server.conf");
        let text = format!(
            "listen: \"127.0.0.1:-1\"\nports_file_dir: {folder:?}\n\
             jetstream {{ store_dir: {folder:?} }}\n\
             {configuration}\n"
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new(program);
        command.arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let ports = folder.join(format!("nats-server_{}.ports", child.id()));
        let deadline = Instant::now() + PATIENCE;
        let address = loop {
            let text = fs::read_to_string(&ports).unwrap_or_default();
            let address = text.split("\"nats://").nth(1).and_then(|rest| rest.split_once('"'));
            if let Some((address, _)) = address {
                break address.to_owned();
            }
            assert!(Instant::now() < deadline, "nats-server has not started");
            thread::sleep(Duration::from_millis(10));
        };
        Some(Self { child, folder, address })
    }

    fn client(&self, connect: &ConnectOptions<'_>) -> Client {
        let client = self.try_client(connect, None);
        client.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// Connects. With a key, the client signs the nonce.
    fn try_client(
        &self,
        connect: &ConnectOptions<'_>,
        key: Option<&PKey<Private>>,
    ) -> Result<Client, ServerError> {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { stream, bytes: Vec::new(), session: NatsSession::new() };
        client.session.open();
        let mut nonce = String::new();
        client.until(|event| {
            let NatsEvent::Greeted(info) = event else { panic!("{event:?}") };
            nonce.push_str(info.nonce.unwrap_or_default());
            Some(())
        });
        let signature = key.map(|key| {
            let mut signer = Signer::new_without_digest(key).unwrap();
            nkey::signature_text(&signer.sign_oneshot_to_vec(nonce.as_bytes()).unwrap())
        });
        let login = NatsCredentials { signature: signature.as_deref(), ..connect.login };
        let connect = ConnectOptions { login, ..*connect };
        client.write(|session, out| session.connect(&connect, out));
        client.until(|event| match event {
            NatsEvent::Connected => Some(Ok(())),
            NatsEvent::Refused(error, _) => Some(Err(*error)),
            _ => None,
        })?;
        Ok(client)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A message, owned: subject, reply, value of a header, payload.
type Seen = (String, String, String, String);

struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
    session: NatsSession<u32>,
}

impl Client {
    fn write(&mut self, make: impl FnOnce(&mut NatsSession<u32>, &mut Vec<u8>)) {
        let mut out = Vec::new();
        make(&mut self.session, &mut out);
        self.stream.write_all(&out).unwrap();
    }

    /// Handles what the server sends until `take` returns a value.
    fn until<R>(&mut self, mut take: impl FnMut(&NatsEvent<'_, u32>) -> Option<R>) -> R {
        loop {
            let mut out = Vec::new();
            let handled = self.session.handle(&self.bytes, &mut out).unwrap();
            let len = handled.len;
            let taken = match &handled.event {
                NatsEvent::Incomplete => None,
                event => take(event),
            };
            let is_incomplete = handled.event == NatsEvent::Incomplete;
            self.bytes.drain(..len);
            self.stream.write_all(&out).unwrap();
            if let Some(taken) = taken {
                return taken;
            }
            if is_incomplete {
                let mut buffer = [0; 4096];
                let len = self.stream.read(&mut buffer).unwrap();
                assert!(len > 0, "the server has closed the connection");
                self.bytes.extend_from_slice(&buffer[..len]);
            }
        }
    }

    fn subscribe(&mut self, subject: &str, group: Option<&str>) {
        let (subject, group) = (subject.as_bytes(), group.map(str::as_bytes));
        self.write(|session, out| {
            session.subscribe(&NatsSubscribe { subject, group, sid: FIRST_SID }, out);
            session.confirm(false, out);
        });
        self.until(|event| (*event == NatsEvent::Subscribed(0)).then_some(()));
    }

    fn publish(&mut self, subject: &str, block: &[u8], payload: &str) {
        let headers =
            if block.is_empty() { Headers::NONE } else { Headers::decode(block).unwrap() };
        let (subject, payload) = (subject.as_bytes(), payload.as_bytes());
        let publish = NatsPublish { subject, reply: None, headers, payload };
        self.write(|session, out| session.publish(&publish, out));
    }

    /// Waits until the server has processed everything, and returns the messages on the way.
    fn drain(&mut self) -> Vec<Seen> {
        self.write(NatsSession::heartbeat);
        let mut seen = Vec::new();
        self.until(|event| match event {
            NatsEvent::Pong => Some(()),
            event => {
                seen.extend(message(event));
                None
            }
        });
        seen
    }
}

fn message(event: &NatsEvent<'_, u32>) -> Option<Seen> {
    let NatsEvent::Message(message) = event else { return None };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let header = message.headers.value("Key").unwrap_or_default();
    Some((
        text(message.subject),
        text(message.reply.unwrap_or_default()),
        text(header),
        text(message.payload),
    ))
}

fn block(name: &str, value: &str) -> Vec<u8> {
    let mut block = Vec::new();
    headers::begin(&mut block);
    headers::push(name.as_bytes(), value.as_bytes(), &mut block);
    headers::end(&mut block);
    block
}

#[test]
fn subscribers_receive_by_wildcards_headers_and_queue_groups() {
    let Some(server) = Server::start("core", "") else { return };
    let plain = ConnectOptions { name: "test", echo: true, ..ConnectOptions::default() };
    let mut all = server.client(&plain);
    all.subscribe("a.>", None);
    let mut one = server.client(&plain);
    one.subscribe("a.*", None);
    let mut members = [server.client(&plain), server.client(&plain)];
    for member in &mut members {
        member.subscribe("a.b", Some("group"));
    }
    let mut publisher = server.client(&ConnectOptions { echo: false, ..plain });
    publisher.subscribe(">", None);
    for n in 0..100 {
        publisher.publish("a.b", &block("Key", "v"), &n.to_string());
    }
    publisher.publish("a.b.c", b"", "deep");
    assert_eq!(publisher.drain(), [], "no echo");
    let received = all.drain();
    assert_eq!(received.len(), 101);
    let first = ("a.b".to_owned(), String::new(), "v".to_owned(), "0".to_owned());
    assert_eq!(received[0], first);
    assert_eq!(received[100].0, "a.b.c");
    assert_eq!(one.drain(), received[..100]);
    let shares = members.map(|mut member| member.drain().len());
    assert_eq!(shares.iter().sum::<usize>(), 100);
}

#[test]
fn the_server_accepts_passwords_and_signatures_and_refuses_others() {
    let key = PKey::private_key_from_raw_bytes(&nkey::private_key(SEED).unwrap(), Id::ED25519);
    let key = key.unwrap();
    let public = nkey::public_text(&key.raw_public_key().unwrap().try_into().unwrap());
    let configuration = format!(
        "authorization {{ users = [ \
         {{ user: u, password: p, permissions: {{ publish: \"ok.>\" }} }}, \
         {{ nkey: {public} }} ] }}"
    );
    let Some(server) = Server::start("login", &configuration) else { return };
    let login = |username, password| ConnectOptions {
        login: NatsCredentials {
            username: Some(username),
            password: Some(password),
            ..NatsCredentials::default()
        },
        ..ConnectOptions::default()
    };
    let wrong = server.try_client(&login("u", "guess"), None);
    assert_eq!(wrong.err(), Some(ServerError::AuthorizationViolation));
    let mut client = server.client(&login("u", "p"));
    client.publish("no.x", b"", "");
    let forbidden = client.until(|event| match event {
        NatsEvent::Forbidden(error, _) => Some(*error),
        _ => None,
    });
    assert_eq!(forbidden, ServerError::PublishPermission);
    let login = NatsCredentials { nkey: Some(&public), ..NatsCredentials::default() };
    let connect = ConnectOptions { login, ..ConnectOptions::default() };
    assert!(server.try_client(&connect, Some(&key)).is_ok());
    let unsigned = server.try_client(&connect, None);
    assert_eq!(unsigned.err(), Some(ServerError::AuthorizationViolation));
}

#[test]
fn a_stream_stores_once_and_delivers_again_until_the_acknowledgement() {
    let Some(server) = Server::start("stream", "") else { return };
    let mut client = server.client(&ConnectOptions { echo: true, ..ConnectOptions::default() });
    let stream =
        StreamConfig { name: "S", subjects: &["s.>"], storage: Storage::Memory, replicas: 1 };
    let consumer = Consumer {
        stream: "S",
        durable: "c",
        deliver_subject: "deliver.c",
        group: None,
        filter: Some("s.a"),
        ack_wait_ns: 200_000_000,
        max_ack_pending: 100,
    };
    client.write(|session, out| {
        session.await_answers(b"_INBOX.test", out);
        session.request(&stream.subject(), &stream.body(), out);
        session.request(&consumer.subject(), &consumer.body(), out);
        session.request("$JS.API.STREAM.INFO.NONE", b"", out);
    });
    let mut answers = Vec::new();
    client.until(|event| {
        answers.push(match event {
            NatsEvent::Granted => 0,
            NatsEvent::Denied(refusal) => refusal.err_code,
            other => panic!("{other:?}"),
        });
        (answers.len() == 3).then_some(())
    });
    assert_eq!(answers, [0, 0, 10_059], "a stream, a consumer, and no stream of this name");
    client.subscribe("deliver.c", None);
    let id = block(MESSAGE_ID, "1");
    client.write(|session, out| {
        for (subject, token) in [("s.a", 1), ("s.a", 2), ("t.a", 3)] {
            let headers = Headers::decode(&id).unwrap();
            let (subject, payload) = (subject.as_bytes(), &b"p"[..]);
            let publish = NatsPublish { subject, reply: None, headers, payload };
            session.publish_stored(&publish, token, out);
        }
    });
    let (mut answers, mut replies) = (Vec::new(), Vec::new());
    client.until(|event| {
        match event {
            NatsEvent::Acknowledged(token, is_duplicate) => answers.push((*token, *is_duplicate)),
            NatsEvent::Rejected(token, refusal) => {
                assert_eq!((*token, refusal.code), (3, 503));
            }
            event => replies.extend(message(event).map(|seen| seen.1)),
        }
        (answers.len() == 2 && replies.len() == 2).then_some(())
    });
    assert_eq!(answers, [(1, false), (2, true)]);
    let counts: Vec<_> = replies
        .iter()
        .map(|reply| Receipt::decode(reply.as_bytes()).unwrap())
        .map(|receipt| (receipt.stream, receipt.sequence, receipt.delivered))
        .collect();
    assert_eq!(counts, [("S", 1, 1), ("S", 1, 2)]);
    client.write(|session, out| {
        Acknowledgement::Done.encode(replies[1].as_bytes(), out);
        session.heartbeat(out);
    });
    client.until(|event| (*event == NatsEvent::Pong).then_some(()));
    let _ = client.drain();
    client.write(|session, out| session.request(&consumer.info_subject(), b"", out));
    client.until(|event| (*event == NatsEvent::Granted).then_some(()));
}
