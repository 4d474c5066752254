//! A client that is a SUB socket of ZeroMQ: its greeting and subscriptions, and what it makes of
//! what a publisher sends. Messages of one stream that lie behind each other in the read buffer are
//! counted together, since that is how they come at a high rate.

use plan::{Reason, Security, Stamp, Template};
use zmtp::{Event, Handled, Mechanism, Message, ZmtpError};

use super::{Client, Phase};
use crate::ledger::Delivery;
use crate::shared::Shared;

/// User name and password.
type Credentials = (String, String);

/// What came of one look at the bytes of a publisher.
type Step<'a> = Result<Handled<'a>, ZmtpError>;

impl Client {
    /// Sends the greeting.
    pub(super) fn greet_publisher(&mut self, shared: &mut Shared) {
        let credentials = self.credentials(shared);
        let Some(session) = self.session.zmtp() else { return };
        shared.out.clear();
        session.connect(&mechanism(credentials.as_ref()), &mut shared.out);
        self.phase = Phase::Greeting;
        shared.tally.populations[self.population()].counters.packets_sent_total += 1;
        self.flush(shared);
    }

    /// Handles what is whole and writes the replies; returns how many bytes that took.
    pub(super) fn handle_frames(&mut self, shared: &mut Shared, bytes: &[u8]) -> usize {
        let greeting = self.phase == Phase::Greeting;
        let credentials = greeting.then(|| self.credentials(shared)).flatten();
        let mechanism = mechanism(credentials.as_ref());
        let mut handled = 0;
        let mut next: Option<Step<'_>> = None;
        shared.out.clear();
        while self.stream.is_some() && !self.paused {
            let Some(session) = self.session.zmtp() else { break };
            let replied = shared.out.len();
            let step = match next.take() {
                Some(step) => step,
                None => session.handle(&bytes[handled..], &mechanism, &mut shared.out),
            };
            let Handled { len, event } = match step {
                Ok(Handled { event: Event::Incomplete, .. }) => break,
                Ok(step) => step,
                Err(_) => {
                    self.lost(shared, Reason::ProtocolError);
                    break;
                }
            };
            handled += len;
            let Event::Message(message) = event else {
                let counters = &mut shared.tally.populations[usize::from(self.population)].counters;
                counters.packets_received_total += 1;
                counters.packets_sent_total += u64::from(shared.out.len() > replied);
                self.handle_command(shared, event);
                continue;
            };
            let (taken, step) = self.take_run(shared, message, &bytes[handled..]);
            handled += taken;
            next = step;
        }
        self.flush(shared);
        handled
    }

    fn handle_command(&mut self, shared: &mut Shared, event: Event<'_>) {
        match event {
            Event::Connected => self.subscribe(shared),
            Event::Pong if self.phase == Phase::Subscribing => self.ready(shared),
            Event::Refused(_) => {
                let plain = self.credentials(shared).is_some();
                self.lost(
                    shared,
                    match self.phase {
                        Phase::Greeting if plain => Reason::BadCredentials,
                        Phase::Greeting => Reason::ConnectClosed,
                        _ => Reason::ClosedByBroker,
                    },
                );
            }
            Event::Incomplete
            | Event::Greeted
            | Event::Message(_)
            | Event::Pong
            | Event::Replied => {}
        }
    }

    /// The handshake is over: asks for all prefixes, and for a PONG, which comes when the publisher
    /// has read them. One that knows no PING says nothing, so that the client is ready at once.
    fn subscribe(&mut self, shared: &mut Shared) {
        self.accepted(shared);
        let population = &shared.setup.plan.populations[self.population()];
        let n = population.first + u64::from(self.global(shared));
        let Some(session) = self.session.zmtp() else { return };
        let counters = &mut shared.tally.populations[usize::from(self.population)].counters;
        for subscription in &population.subscriptions {
            let prefix = &subscription.filter;
            for variant in 0..prefix.variants() {
                session.subscribe(prefix.text(n, variant).as_bytes(), &mut shared.out);
                counters.subscribed_total += 1;
                counters.packets_sent_total += 1;
            }
        }
        if session.ping(shared.now_ns, &mut shared.out) {
            counters.packets_sent_total += 1;
        } else {
            self.ready(shared);
        }
    }

    /// Counts a message, and those of its stream behind it as far as the read rate allows. Returns
    /// how many bytes these took, and the step after them if it has been made.
    fn take_run<'a>(
        &mut self,
        shared: &mut Shared,
        message: Message<'a>,
        rest: &'a [u8],
    ) -> (usize, Option<Step<'a>>) {
        shared.stalls.hear(self.index, shared.now_ns);
        let stamp = shared.setup.stamp_of(message.payload());
        let publishers = &shared.setup.publisher_of;
        let from = stamp.and_then(|s| publishers.get(usize::from(s.stream.publication)).copied());
        let (Some(stamp), Some(from)) = (stamp, from) else {
            self.count_unstamped(shared, &message);
            self.note_read(shared, 1);
            return (0, None);
        };
        let allowed = self.allowance(shared);
        let Some(session) = self.session.zmtp() else { return (0, None) };
        let Shared { setup, tally, ledger, judged, now_ns, out, .. } = &mut *shared;
        let to = usize::from(self.population);
        let mut deliveries = tally.deliveries((from, to), judged[to], *now_ns);
        let mut window = ledger.follow(self.index, stamp.stream, stamp.sequence);
        let mut stamp = stamp;
        let (mut taken, mut count) = (0, 0);
        let next = loop {
            count += 1;
            let noted = window.as_mut().map(|window| window.note(stamp.sequence));
            deliveries.note(noted.unwrap_or(Delivery::Unfollowed), &stamp);
            if count >= allowed {
                break None;
            }
            let step = session.handle(&rest[taken..], &Mechanism::Null, out);
            let Ok(Handled { len, event: Event::Message(message) }) = step else {
                break Some(step);
            };
            match Stamp::read(message.payload()) {
                Some(next) if next.run_tag == setup.plan.run_tag && next.stream == stamp.stream => {
                    stamp = next;
                    taken += len;
                }
                _ => break Some(step),
            }
        };
        drop(deliveries);
        tally.populations[to].counters.packets_received_total += count;
        self.note_read(shared, count);
        (taken, next)
    }

    /// A message that carries no stamp of this run: the publisher's at the client's target, or
    /// nobody's.
    fn count_unstamped(&self, shared: &mut Shared, message: &Message<'_>) {
        let to = usize::from(self.population);
        let target = self.target(shared);
        let Shared { setup, tally, judged, .. } = shared;
        // A publication without a topic is a single frame.
        let mut frames = message.frames();
        let topic = frames.next().filter(|_| frames.next().is_some()).unwrap_or_default();
        let topic = str::from_utf8(topic).ok();
        tally.populations[to].counters.packets_received_total += 1;
        match topic.and_then(|topic| setup.unstamped_sender(target, topic)) {
            Some(from) => {
                let counters = &mut tally.flow(from, to).counters;
                counters.received_total += 1;
                counters.expected_total += i64::from(!judged[to]);
            }
            None => tally.populations[to].counters.foreign_total += 1,
        }
    }

    /// What it says of itself with PLAIN; `None` without.
    fn credentials(&self, shared: &Shared) -> Option<Credentials> {
        let population = &shared.setup.plan.populations[self.population()];
        let n = population.first + u64::from(self.global(shared));
        let text = |template: &Option<Template>| template.as_ref().map(|t| t.text(n, 0));
        let plain = population.zmq.is_some_and(|zmq| zmq.security == Security::Plain);
        text(&population.username).zip(text(&population.password)).filter(|_| plain)
    }
}

fn mechanism(credentials: Option<&Credentials>) -> Mechanism<'_> {
    credentials.map_or(Mechanism::Null, |(username, password)| Mechanism::Plain {
        username: username.as_bytes(),
        password: password.as_bytes(),
    })
}
