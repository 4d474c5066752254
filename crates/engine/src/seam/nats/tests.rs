//! JetStream at the doors of the protocol: bytes of a server in, bytes of a client out.

use agent::publication::{Sender, publications};
use plan::{PlannedConsumer, PlannedProtocol, PlannedStream, SentAt};
use testkit::plans;

use super::*;
use crate::seam::Scratch;
use crate::seam::protocol::{FirstBytes, Request};

const GREETING: &[u8] = b"INFO {\"max_payload\":1024,\"headers\":true}\r\n";

/// Takes every message.
struct Taken(usize);

impl Inbox for Taken {
    fn take(&mut self, _: &Received<'_>) -> Next {
        self.0 += 1;
        Next::More
    }
}

struct Client {
    population: Population,
    setup: NatsSetup,
    nats: NatsClient,
    scratch: Scratch,
}

impl Client {
    /// A connected client with two durable consumers, one of them in a group, and a publication.
    fn connected() -> Self {
        let consumer = |stream: &str| PlannedConsumer { stream: stream.into(), ack_wait_ns: 7 };
        let options = plan::Nats {
            client_name: plans::template("p-{n}"),
            echo: true,
            token: None,
            seed: None,
            jwt: None,
            streams: vec![PlannedStream {
                name: "S".into(),
                subjects: vec!["s.>".into()],
                in_memory: true,
                replicas: 1,
            }],
            consumers: vec![consumer("S"), consumer("S")],
        };
        let mut population = plans::population("p", 1);
        population.protocol = PlannedProtocol::Nats(Box::new(options.clone()));
        population.subscriptions =
            vec![plans::subscription("s.{1..2}", 0), plans::subscription("$share/g/s.*", 0)];
        population.publications = vec![plans::publication("s.{n}", 1, 1)];
        let setup = NatsSetup::new(&population, &options);
        let mut client =
            Self { population, setup, nats: NatsClient::NEW, scratch: Scratch::default() };
        client.connect();
        client
    }

    fn connect(&mut self) {
        self.poll(Request::Open(FirstBytes::default()));
        assert!(matches!(self.handle(GREETING).0, Event::Handled));
        assert!(matches!(self.handle(b"PONG\r\n").0, Event::Connected(_)));
    }

    fn poll(&mut self, request: Request<'_>) -> (Polled, String) {
        let Self { population, setup, nats, scratch } = self;
        let (at, mut out) = (At { setup: &*setup, population, n: 3, now_ns: 5 }, Vec::new());
        let polled = nats.poll(&at, request, Buffers { out: &mut out, scratch });
        (polled, String::from_utf8(out).unwrap())
    }

    /// Event of one operation of the server, the operations that answer it, and their bytes.
    fn handle<'b>(&mut self, bytes: &'b [u8]) -> (Event<'b>, u32, String) {
        let Self { population, setup, nats, .. } = self;
        let (at, mut out) = (At { setup: &*setup, population, n: 3, now_ns: 5 }, Vec::new());
        let step = nats.handle(&at, bytes, &mut out, &mut Taken(0));
        assert_eq!(step.len, bytes.len());
        (step.event, step.replied, String::from_utf8(out).unwrap())
    }

    fn subscribed(&mut self) -> String {
        let (polled, out) = self.poll(Request::Subscribe);
        let packets = out.matches("\r\nPUB ").count() + out.matches("\r\nSUB ").count() + 1;
        // The PING follows the answers.
        let asked = Asked { packets: packets as u64 + 1, awaits_answer: true, ..Asked::default() };
        assert_eq!(polled, Polled::Sent(asked), "{out}");
        out
    }
}

fn answer(number: u32, json: &str) -> Vec<u8> {
    format!("MSG _INBOX.p.3.5.{number} 1 {}\r\n{json}\r\n", json.len()).into_bytes()
}

/// Polls for one message, or for messages of an earlier connection.
fn publish(client: &mut Client, again: bool) -> (Polled, String) {
    let population = client.population.clone();
    let ready = publications(&population, 1, 0);
    let sender =
        Sender { run_tag: 1, since_1970_ns: 0, first_sequence: 0, client: 0, n: 3, node_number: 0 };
    let outgoing =
        Outgoing { publication: &population.publications[0], ready: &ready[0], sender: &sender };
    if again {
        let of = |_| Resent::Message(outgoing);
        let mut refused = Vec::new();
        let polled = client.poll(Request::Resend(Resend { of: &of, refused: &mut refused }));
        assert!(refused.is_empty());
        return polled;
    }
    client.poll(Request::Publish(&outgoing, Token::new(0, 0, 1, SentAt::plain(1))))
}

#[test]
fn a_client_creates_its_stream_and_a_consumer_for_each_filter() {
    let mut client = Client::connected();
    let out = client.subscribed();
    assert!(out.starts_with("SUB _INBOX.p.3.5.* 1\r\nPUB $JS.API.STREAM.CREATE.S "));
    for name in ["p-3", "p-3_1", "g"] {
        assert!(out.contains(&format!("PUB $JS.API.CONSUMER.DURABLE.CREATE.S.{name} ")), "{out}");
        assert!(out.contains(&format!("\"deliver_subject\":\"_INBOX.S.{name}\"")), "{out}");
    }
    assert!(out.contains("SUB _INBOX.S.p-3 2\r\n") && out.contains("SUB _INBOX.S.g g 4\r\n"));
    assert!(!out.contains("PING"));
    let mut granted = None;
    for number in 0..4 {
        let json = if number == 2 { r#"{"error":{"code":400,"err_code":10093}}"# } else { "{}" };
        let bytes = answer(number, json);
        let (event, replied, out) = client.handle(&bytes);
        if let Event::Subscribed { granted: 0, refused, is_last: false } = event {
            let reasons: Vec<_> = refused.iter().map(|cause| cause.reason).collect();
            assert_eq!(reasons, [Reason::of(plan::Family::Jetstream, 10_093)]);
            granted = Some(number);
        }
        let expected = if number == 3 { "PING\r\n" } else { "" };
        assert_eq!((replied, out.as_str()), (u32::from(number == 3), expected));
    }
    assert_eq!(granted, Some(2), "the refused consumer");
    let (event, ..) = client.handle(b"PONG\r\n");
    assert!(matches!(event, Event::Subscribed { granted: 2, is_last: true, .. }));
}

#[test]
fn each_delivery_of_a_consumer_is_acknowledged() {
    let mut client = Client::connected();
    let bytes = b"MSG s.1 2 $JS.ACK.S.p-3.1.1.1.1.0 1\r\nx\r\nMSG s.1 2 1\r\nx\r\nPING\r\n";
    let (_, replied, out) = client.handle(bytes);
    assert_eq!((replied, out.as_str()), (2, "PUB $JS.ACK.S.p-3.1.1.1.1.0 4\r\n+ACK\r\nPONG\r\n"));
}

#[test]
fn a_message_is_in_flight_until_the_answer_of_the_stream() {
    let mut client = Client::connected();
    client.subscribed();
    let (polled, out) = publish(&mut client, false);
    assert_eq!(polled, Polled::Sent(Asked::ONE));
    assert!(out.starts_with("PUB s.3 _INBOX.p.3.5.4 64\r\n"), "{out}");
    let cut = NatsClient::cut(&client.setup, out.as_bytes(), usize::MAX);
    assert_eq!((cut.len, cut.acknowledged, cut.unacknowledged), (out.len(), 1, 0));
    let own = b"PUB $JS.ACK.S.c.1.1.1.1.0 4\r\n+ACK\r\nPUB s 1\r\nx\r\n";
    let cut = NatsClient::cut(&client.setup, own, usize::MAX);
    assert_eq!((cut.acknowledged, cut.unacknowledged), (0, 1), "a receipt is no message");
    let stored = answer(4, r#"{"stream":"S","seq":1}"#);
    assert!(matches!(client.handle(&stored).0, Event::Acknowledged(_)));
    publish(&mut client, false);
    let none = b"HMSG _INBOX.p.3.5.5 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n";
    let (event, ..) = client.handle(none);
    let Event::Rejected(_, cause) = event else { panic!("not rejected") };
    assert_eq!(cause.reason, Reason::of(plan::Family::Jetstream, 503));
    publish(&mut client, false);
    assert_eq!(client.nats.note(Notice::Lost { keeps_session: true }), 0);
    client.connect();
    client.subscribed();
    let (polled, out) = publish(&mut client, true);
    assert_eq!(polled, Polled::Sent(Asked { packets: 1, ..Asked::default() }));
    assert!(out.starts_with("PUB s.3 _INBOX.p.3.5."), "{out}");
    assert_eq!(client.nats.note(Notice::Lost { keeps_session: false }), 1);
}
