//! AMQP at the doors of the protocol: bytes of a broker in, bytes of a client out.

use agent::publication::{Sender, publications};
use amqp::content::push_header;
use amqp::frame::decode;
use amqp::method::{MULTIPLE, REDELIVERED};
use plan::{AmqpArgument, AmqpValue, PlannedProtocol, PlannedQueue, Publication, SentAt};
use testkit::plans;

use super::*;
use crate::seam::{FirstBytes, Scratch};

const S: u64 = SECOND_NS;

/// Takes every message, and notes name and payload.
#[derive(Default)]
struct Taken(Vec<String>);

impl Inbox for Taken {
    fn take(&mut self, message: &Received<'_>) -> Next {
        let topic = message.beside.topic().unwrap_or_default();
        self.0.push(format!("{topic} {}", String::from_utf8_lossy(message.payload)));
        Next::More
    }
}

struct Client {
    population: Population,
    setup: AmqpSetup,
    amqp: AmqpClient,
    scratch: Scratch,
    now_ns: u64,
}

fn queue(name: &str, acknowledge: Acknowledge) -> PlannedQueue {
    PlannedQueue {
        name: plans::template(name),
        kind: plan::QueueType::Classic,
        exists: false,
        durable: false,
        exclusive: true,
        auto_delete: false,
        arguments: Vec::new(),
        prefetch: 0,
        acknowledge,
        refused: 0.0,
    }
}

/// A population with these queues of the exchange `e`, and these publications.
fn population(queues: Vec<PlannedQueue>, publications: Vec<Publication>) -> Population {
    let mut population = plans::population("p", 1);
    population.subscriptions =
        queues.iter().map(|_| plans::subscription("v/e/{a|b}.#", 0)).collect();
    population.publications = publications;
    population.keep_alive_s = 10;
    population.protocol = PlannedProtocol::Amqp(Box::new(Amqp {
        connection_name: plans::template("c-{n}"),
        virtual_host: plans::template("v"),
        mechanism: plan::AmqpMechanism::Plain,
        channels: 1,
        exchanges: Vec::new(),
        queues,
        mandatory: Vec::new(),
        persistent: Vec::new(),
    }));
    population
}

fn method(channel: u16, method: &AmqpMethod<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    method.push(channel, &mut bytes);
    bytes
}

fn delivery(number: u64, flags: u8) -> Vec<u8> {
    let (exchange, routing_key) = (&b"e"[..], &b"a.x"[..]);
    let deliver = AmqpMethod::BasicDeliver { tag: b"0", number, flags, exchange, routing_key };
    let mut bytes = method(1, &deliver);
    push_header(1, &ContentHeader { body_bytes: 2, ..ContentHeader::default() }, &mut bytes);
    push_body(1, b"hi", 4096, &mut bytes);
    bytes
}

/// Methods of a client, each as text.
fn methods(mut bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let Ok(Some((frame, len))) = decode(bytes, u32::MAX) {
        if frame.kind == AmqpFrameKind::Method {
            let method = AmqpMethod::decode(frame.payload).unwrap();
            found.push(match method {
                AmqpMethod::BasicAck { number, flags } => format!("ack {number} {flags}"),
                AmqpMethod::BasicNack { number, flags } => format!("nack {number} {flags}"),
                AmqpMethod::QueueBind { exchange, routing_key, .. } => {
                    let [exchange, key] =
                        [exchange, routing_key].map(|text| String::from_utf8_lossy(text));
                    format!("bind {exchange} {key}")
                }
                method => method.name().to_owned(),
            });
        }
        bytes = &bytes[len..];
    }
    found
}

impl Client {
    fn new(population: Population) -> Self {
        let PlannedProtocol::Amqp(options) = &population.protocol else { unreachable!("AMQP") };
        let setup = AmqpSetup::new(&population, options);
        let (amqp, scratch) = (AmqpClient::NEW, Scratch::default());
        Self { population, setup, amqp, scratch, now_ns: S }
    }

    /// A connected client with its queues.
    fn ready(population: Population) -> Self {
        let mut client = Self::new(population);
        client.connect();
        client
    }

    fn connect(&mut self) -> Vec<u8> {
        assert_eq!(self.poll(Request::Open(FirstBytes::default())).1, b"AMQP\0\0\x09\x01");
        let (properties, mechanisms) = (Table::default(), &b"AMQPLAIN PLAIN"[..]);
        let locales = &b"en_US"[..];
        let start =
            AmqpMethod::ConnectionStart { major: 0, minor: 9, properties, mechanisms, locales };
        let (_, replied, out) = self.handle(&method(0, &start));
        assert!(replied == 1 && out.windows(12).any(|part| part == b"\0guest\0guest"));
        let tune = AmqpMethod::ConnectionTune { channel_max: 9, frame_max: 4096, heartbeat_s: 60 };
        let (_, replied, out) = self.handle(&method(0, &tune));
        assert_eq!((replied, methods(&out)[0].as_str()), (2, "connection.tune-ok"));
        let open = method(0, &AmqpMethod::ConnectionOpenOk { reserved_1: b"" });
        assert!(matches!(self.handle(&open).0, Event::Connected(_)));
        let (polled, out) = self.poll(Request::Subscribe);
        let packets = methods(&out).len() as u64;
        let asked = Asked { packets, awaits_answer: true, ..Asked::default() };
        assert_eq!(polled, Polled::Sent(asked));
        let last = methods(&out).len() - 1;
        for (index, name) in methods(&out).iter().enumerate() {
            let answer = match name.split(' ').next().unwrap() {
                "channel.open" => AmqpMethod::ChannelOpenOk { reserved_1: b"" },
                "confirm.select" => AmqpMethod::ConfirmSelectOk {},
                "queue.declare" => {
                    AmqpMethod::QueueDeclareOk { queue: b"q", messages: 0, consumers: 0 }
                }
                "bind" => AmqpMethod::QueueBindOk {},
                "basic.qos" => AmqpMethod::BasicQosOk {},
                "basic.consume" => AmqpMethod::BasicConsumeOk { tag: b"0" },
                other => unreachable!("{other}"),
            };
            let answer = method(1, &answer);
            let event = self.handle(&answer).0;
            match event {
                Event::Subscribed { granted, is_last: true, .. } if index == last => {
                    assert_eq!(granted, self.setup.filters);
                }
                Event::Handled if index < last => {}
                _ => unreachable!("answer {index} of {name}"),
            }
        }
        out
    }

    fn poll(&mut self, request: Request<'_>) -> (Polled, Vec<u8>) {
        let Self { population, setup, amqp, scratch, now_ns } = self;
        let (at, mut out) = (At { setup: &*setup, population, n: 3, now_ns: *now_ns }, Vec::new());
        let polled = amqp.poll(&at, request, Buffers { out: &mut out, scratch });
        (polled, out)
    }

    /// Event of the last packet of a broker, the packets that answer, and their bytes.
    fn handle<'b>(&mut self, bytes: &'b [u8]) -> (Event<'b>, u32, Vec<u8>) {
        let (step, _, out) = self.take(bytes);
        (step.event, step.replied, out)
    }

    fn take<'b>(&mut self, bytes: &'b [u8]) -> (Step<'b>, Vec<String>, Vec<u8>) {
        let Self { population, setup, amqp, now_ns, .. } = self;
        let (at, mut out) = (At { setup: &*setup, population, n: 3, now_ns: *now_ns }, Vec::new());
        let mut taken = Taken::default();
        let step = amqp.handle(&at, bytes, &mut out, &mut taken);
        (step, taken.0, out)
    }

    fn timeout(&mut self, now_ns: u64) -> (Timeout, Vec<String>) {
        let Self { population, setup, amqp, .. } = self;
        let (at, mut out) = (At { setup: &*setup, population, n: 3, now_ns }, Vec::new());
        (amqp.timeout(&at, &mut out), methods(&out))
    }

    fn publish(&mut self) -> (Polled, Vec<u8>) {
        let population = self.population.clone();
        let ready = publications(&population, 1, 0);
        let sender = Sender {
            run_tag: 1,
            since_1970_ns: 0,
            first_sequence: 0,
            client: 0,
            n: 3,
            node_number: 0,
        };
        let outgoing = Outgoing {
            publication: &population.publications[0],
            ready: &ready[0],
            sender: &sender,
        };
        self.poll(Request::Publish(&outgoing, Token::new(0, 0, 1, SentAt::plain(1))))
    }
}

#[test]
fn a_queue_that_exists_is_consumed_and_not_declared() {
    let existing = PlannedQueue { exists: true, ..queue("q", Acknowledge::Each) };
    let requests = Client::new(population(vec![existing], Vec::new())).connect();
    assert_eq!(methods(&requests), ["channel.open", "basic.consume"]);
}

#[test]
fn a_client_declares_its_queues_and_binds_each_key() {
    let mut own = queue("q-{n}", Acknowledge::Each);
    own.prefetch = 7;
    own.arguments = vec![AmqpArgument { name: "x".into(), value: AmqpValue::Number(1) }];
    let out = Client::new(population(vec![own], Vec::new())).connect();
    let expected = ["channel.open", "queue.declare", "bind e a.#", "bind e b.#", "basic.qos"];
    assert_eq!(methods(&out)[..5], expected);
    assert!(out.windows(3).any(|part| part == b"q-3"));
}

#[test]
fn deliveries_are_acknowledged_as_the_plan_says() {
    let late = Acknowledge::Late { delay_ns: 5 };
    for (acknowledge, expected) in [
        (Acknowledge::None, &[][..]),
        (Acknowledge::Never, &[]),
        (Acknowledge::Each, &["ack 1 0", "ack 2 0", "ack 3 0"]),
        (Acknowledge::Multiple { every: 2 }, &["ack 2 1"]),
        (late, &[]),
    ] {
        let mut client = Client::ready(population(vec![queue("", acknowledge)], Vec::new()));
        let bytes = [delivery(1, 0), delivery(2, 0), delivery(3, REDELIVERED)].concat();
        let (step, taken, out) = client.take(&bytes);
        assert_eq!((step.len, step.read, step.redelivered), (bytes.len(), 3, 1));
        assert_eq!(taken, ["v/e/a.x hi"; 3]);
        assert_eq!(
            (methods(&out), step.replied as usize),
            (expected.iter().map(ToString::to_string).collect(), expected.len())
        );
        assert_eq!(step.retimes, acknowledge == late);
        let due_ns = if acknowledge == late { S + 5 } else { u64::MAX };
        assert_eq!(client.amqp.receipt_ns(), due_ns);
        if acknowledge == late {
            assert_eq!(client.timeout(S + 4), (Timeout::Early, vec![]));
            let all = ["ack 1 0", "ack 2 0", "ack 3 0"].map(ToOwned::to_owned);
            assert_eq!(client.timeout(S + 5), (Timeout::Sent(3), all.into()));
        }
        let left = methods(&client.poll(Request::Leave(super::super::Goodbye::Plain)).1);
        let is_multiple = matches!(acknowledge, Acknowledge::Multiple { .. });
        let expected: &[&str] =
            if is_multiple { &["ack 3 1", "connection.close"] } else { &["connection.close"] };
        assert_eq!(left, expected);
    }
}

#[test]
fn a_share_of_first_deliveries_is_refused_and_taken_when_it_comes_again() {
    let mut own = queue("", Acknowledge::Each);
    own.refused = 0.5;
    let mut client = Client::ready(population(vec![own], Vec::new()));
    let bytes: Vec<u8> = (1..=4).flat_map(|number| delivery(number, 0)).collect();
    let (step, taken, out) = client.take(&bytes);
    assert_eq!((step.requeued, step.read, taken.len()), (2, 4, 2));
    assert_eq!(methods(&out), ["ack 1 0", "nack 2 2", "ack 3 0", "nack 4 2"]);
    let bytes = [delivery(5, REDELIVERED), delivery(6, REDELIVERED)].concat();
    let (step, taken, _) = client.take(&bytes);
    assert_eq!((step.requeued, step.redelivered, taken.len()), (0, 2, 2));
}

#[test]
fn a_message_is_in_flight_until_its_confirm() {
    let publications = vec![plans::publication("v/e/k.{n}", 1, 1)];
    let mut client = Client::ready(population(Vec::new(), publications));
    let (polled, out) = client.publish();
    assert_eq!((polled, methods(&out)), (Polled::Sent(Asked::ONE), vec!["basic.publish".into()]));
    assert!(out.windows(6).any(|part| part == b"\x01e\x03k.3"));
    let cut = AmqpClient::cut(&client.setup, &out, usize::MAX);
    assert_eq!((cut.len, cut.acknowledged, cut.unacknowledged), (out.len(), 1, 0));
    assert_eq!(AmqpClient::cut(&client.setup, &out, out.len() - 1).len, 0);
    client.publish();
    let ack = method(1, &AmqpMethod::BasicAck { number: 2, flags: MULTIPLE });
    let (first, ..) = client.take(&ack);
    assert!(first.len == 0 && matches!(first.event, Event::Acknowledged(_)));
    let (second, ..) = client.take(&ack);
    assert!(second.len == ack.len() && matches!(second.event, Event::Acknowledged(_)));
    client.publish();
    let nack = method(1, &AmqpMethod::BasicNack { number: 3, flags: 0 });
    let Event::Rejected(_, cause) = client.handle(&nack).0 else { panic!("not rejected") };
    assert_eq!(cause.reason, Reason::Nacked);
    client.publish();
    assert_eq!(client.amqp.note(Notice::Lost { keeps_session: true }), 0);
    client.connect();
    assert_eq!(client.amqp.note(Notice::Lost { keeps_session: false }), 1);
    assert!(client.amqp.0.is_none(), "an idle client has no box");
}

#[test]
fn a_message_waits_while_the_broker_blocks() {
    let publications = vec![plans::publication("v/e/k", 0, 1)];
    let mut client = Client::ready(population(Vec::new(), publications));
    let blocked = method(0, &AmqpMethod::ConnectionBlocked { reason: "memory" });
    assert!(matches!(client.handle(&blocked).0, Event::Blocked(true)));
    assert_eq!(client.publish().0, Polled::Wait(Hold::Blocked));
    assert_eq!((client.amqp.blocked_ns(S + 7), client.amqp.blocked_ns(S + 9)), (7, 2));
    let unblocked = method(0, &AmqpMethod::ConnectionUnblocked {});
    assert!(matches!(client.handle(&unblocked).0, Event::Blocked(false)));
    assert_eq!((client.amqp.blocked_ns(S + 10), client.amqp.blocked_ns(S + 11)), (1, 0));
    assert_eq!(client.publish().0, Polled::Sent(Asked::ONE));
}

#[test]
fn a_message_comes_back_under_its_name_and_a_refusal_has_its_code() {
    let publications = vec![plans::publication("v/e/k", 0, 1)];
    let mut client = Client::ready(population(Vec::new(), publications));
    let (exchange, routing_key) = (&b"e"[..], &b"k"[..]);
    let returned = AmqpMethod::BasicReturn { code: 312, text: "NO_ROUTE", exchange, routing_key };
    let mut bytes = method(1, &returned);
    push_header(1, &ContentHeader::default(), &mut bytes);
    let Event::Returned(name, reason) = client.handle(&bytes).0 else { panic!("not returned") };
    assert_eq!((name.as_str(), reason), ("v/e/k", Reason::of(Family::Amqp, 312)));
    let text = "PRECONDITION_FAILED";
    let close = method(1, &AmqpMethod::ChannelClose { code: 406, text, class: 50, method: 10 });
    let Event::Ended(cause) = client.handle(&close).0 else { panic!("not ended") };
    assert_eq!(cause.reason, Reason::of(Family::Amqp, 406));
}

#[test]
fn both_sides_show_signs_of_life() {
    let mut client = Client::ready(population(Vec::new(), Vec::new()));
    client.amqp.note(Notice::Sent(S));
    assert_eq!(client.timeout(6 * S - 1).0, Timeout::Early);
    assert_eq!(client.timeout(6 * S).0, Timeout::Sent(1));
    client.amqp.note(Notice::Alive);
    assert_eq!(client.timeout(11 * S).0, Timeout::Sent(1));
    assert_eq!(client.timeout(30 * S).0, Timeout::Sent(1));
    assert_eq!(client.timeout(31 * S).0, Timeout::Dead(Reason::KeepAliveTimeout));
    let at = |client: &Client, side| {
        let Client { population, setup, amqp, .. } = client;
        amqp.deadline(&At { setup, population, n: 3, now_ns: 0 }, side)
    };
    client.population.keep_alive_s = 0;
    assert_eq!((at(&client, Side::Own), at(&client, Side::Peer)), (u64::MAX, u64::MAX));
}
