//! A subscriber and a publisher of the crate over a simulated link: any split of the two streams of
//! bytes gives the same events. A failing case prints its seed.

use proptest::prelude::*;
use zmtp::{
    Mechanism, ZmtpEvent, ZmtpSession,
    publisher::{self, PublisherSession, encode_message},
};

const NULL: Mechanism<'_> = Mechanism::Null;
const PLAIN: Mechanism<'_> = Mechanism::Plain { username: b"reader", password: b"secret" };
const WRONG: Mechanism<'_> = Mechanism::Plain { username: b"reader", password: b"guess" };

const PREFIXES: [&[u8]; 2] = [b"a", b"b/"];
const TOPICS: [&[u8]; 5] = [b"a", b"b", b"b/1", b"abc", b"c"];

/// Both ends of a connection, and the bytes in transit between them.
struct Exchange {
    subscriber: ZmtpSession,
    publisher: PublisherSession,
    mechanism: Mechanism<'static>,
    up: Vec<u8>,
    down: Vec<u8>,
    /// Bytes that each end has received and not yet handled.
    publisher_inbox: Vec<u8>,
    subscriber_inbox: Vec<u8>,
    seen: Vec<String>,
}

impl Exchange {
    /// Creates an exchange. With PLAIN, the publisher accepts the user of `PLAIN`.
    fn new(mechanism: Mechanism<'static>) -> Self {
        let mut exchange = Self {
            subscriber: ZmtpSession::new(),
            publisher: PublisherSession::new(),
            mechanism,
            up: Vec::new(),
            down: Vec::new(),
            publisher_inbox: Vec::new(),
            subscriber_inbox: Vec::new(),
            seen: Vec::new(),
        };
        exchange.subscriber.connect(&mechanism, &mut exchange.up);
        exchange.publisher.accept(&exchange.known(), &mut exchange.down);
        exchange
    }

    fn known(&self) -> Mechanism<'static> {
        if self.mechanism == NULL { NULL } else { PLAIN }
    }

    /// Delivers the next `len` bytes to the publisher, which sends all topics after the last
    /// subscription.
    fn up(&mut self, len: usize) {
        let known = self.known();
        self.publisher_inbox.extend(self.up.drain(..len));
        loop {
            let inbox = &self.publisher_inbox[..];
            let handled = self.publisher.handle(inbox, &known, &mut self.down).unwrap();
            let last = handled.event == publisher::PublisherEvent::Subscribed(PREFIXES[1]);
            let end = matches!(
                handled.event,
                publisher::PublisherEvent::Incomplete | publisher::PublisherEvent::Refused
            );
            let len = handled.len;
            self.publisher_inbox.drain(..len);
            if last {
                let wanted = TOPICS.iter().filter(|topic| self.publisher.wants(topic));
                wanted.for_each(|topic| encode_message(topic, &[b'.'; 300], &mut self.down));
            }
            if end {
                return;
            }
        }
    }

    /// Delivers the next `len` bytes to the subscriber, which subscribes once it is connected.
    fn down(&mut self, len: usize) {
        self.subscriber_inbox.extend(self.down.drain(..len));
        loop {
            let inbox = &self.subscriber_inbox[..];
            let handled = self.subscriber.handle(inbox, &self.mechanism, &mut self.up).unwrap();
            let (len, event) = (handled.len, handled.event);
            if event == ZmtpEvent::Incomplete {
                return;
            }
            self.seen.push(match event {
                ZmtpEvent::Message(message) => {
                    assert_eq!(message.payload(), [b'.'; 300]);
                    String::from_utf8(message.topic().to_vec()).unwrap()
                }
                other => format!("{other:?}"),
            });
            let (connected, refused) =
                (event == ZmtpEvent::Connected, matches!(event, ZmtpEvent::Refused(_)));
            self.subscriber_inbox.drain(..len);
            if connected {
                PREFIXES.iter().for_each(|prefix| self.subscriber.subscribe(prefix, &mut self.up));
                assert!(self.subscriber.ping(&mut self.up));
            }
            if refused {
                return;
            }
        }
    }

    /// Delivers all bytes in pieces of the sizes that `pieces` returns.
    fn play(mut self, mut pieces: impl FnMut() -> usize) -> Vec<String> {
        while !self.up.is_empty() || !self.down.is_empty() {
            let len = pieces().min(self.up.len());
            self.up(len);
            let len = pieces().min(self.down.len());
            self.down(len);
        }
        self.seen
    }
}

fn expected(mechanism: &Mechanism<'_>) -> Vec<&'static str> {
    match *mechanism {
        Mechanism::Null => vec!["Greeted", "Connected", "a", "b/1", "abc", "Replied", "Pong"],
        known if known == PLAIN => {
            vec!["Greeted", "Replied", "Connected", "a", "b/1", "abc", "Replied", "Pong"]
        }
        _ => vec!["Greeted", "Refused(\"400\")"],
    }
}

#[test]
fn a_direction_that_begins_with_nothing_continues() {
    let mut next = [0, 1, 1].into_iter().cycle();
    assert_eq!(Exchange::new(NULL).play(|| next.next().unwrap()), expected(&NULL));
}

#[test]
fn single_bytes_and_one_piece_give_the_same_events() {
    for mechanism in [NULL, PLAIN, WRONG] {
        for piece in [1, 2, 63, 64, 65, usize::MAX] {
            let seen = Exchange::new(mechanism).play(|| piece);
            assert_eq!(seen, expected(&mechanism), "pieces of {piece}");
        }
    }
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_events(
        pieces in proptest::collection::vec(0..80_usize, 1..60),
        which in 0..3_usize,
    ) {
        let mechanism = [NULL, PLAIN, WRONG][which];
        // Both directions continue, whatever the pieces are.
        let mut next = pieces.iter().copied().chain([1, 1]).cycle();
        let seen = Exchange::new(mechanism).play(|| next.next().unwrap());
        prop_assert_eq!(seen, expected(&mechanism));
    }
}
