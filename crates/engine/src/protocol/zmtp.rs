//! ZMTP: greeting and subscriptions of a SUB socket, frames of the publisher as events.

use plan::{Reason, Security, Template};
use zmtp::{Handled, Mechanism, Session};

use super::received::{Beside, Carried, Inbox, Next, ORDERED, Received};
use super::{Asked, Broken, Cause, Event, Identity, Reading, Refusals, Step, Texts};

/// User name and password.
pub type Credentials = (String, String);

/// Appends the greeting.
pub fn open(session: &mut Session, identity: &Identity<'_>, out: &mut Vec<u8>) {
    session.connect(&mechanism(credentials(identity).as_ref()), out);
}

/// Handles the messages at the front of `bytes`, and the greeting or command after them, and
/// appends the replies.
#[inline]
pub fn handle<'a>(
    session: &mut Session,
    reading: &Reading,
    bytes: &'a [u8],
    out: &mut Vec<u8>,
    inbox: &mut impl Inbox,
) -> Step<'a> {
    let before = out.len();
    let was_connected = session.is_connected();
    let credentials = reading.credentials.as_ref();
    let mut step = Step::new();
    let event = loop {
        let handled = session.handle(&bytes[step.len..], &mechanism(credentials), out);
        let Handled { len, event } = match handled {
            Ok(handled) => handled,
            Err(error) => break Event::Broken(Broken::Zmtp(error)),
        };
        step.len += len;
        let message = match event {
            zmtp::Event::Message(message) => message,
            zmtp::Event::Incomplete => break Event::Incomplete,
            event => {
                step.read += 1;
                break neutral(event, was_connected, credentials);
            }
        };
        step.read += 1;
        let marks = ORDERED;
        if inbox.take(&Received { payload: message.payload(), marks, beside: &message })
            != Next::More
        {
            break Event::Handled;
        }
    };
    Step { replied: u32::from(out.len() > before), event, ..step }
}

/// Events other than messages.
#[cold]
fn neutral<'a>(
    event: zmtp::Event<'a>,
    was_connected: bool,
    credentials: Option<&Credentials>,
) -> Event<'a> {
    match event {
        zmtp::Event::Connected => {
            Event::Connected { resumed: false, dropped: 0, sets_keep_alive: false, proof: &[] }
        }
        // The publisher has taken in all prefixes.
        zmtp::Event::Pong => {
            Event::Subscribed { granted: 0, refused: Refusals::NONE, is_last: true }
        }
        zmtp::Event::Refused(text) => {
            let reason = match credentials {
                _ if was_connected => Reason::ClosedByBroker,
                Some(_) => Reason::BadCredentials,
                None => Reason::ConnectClosed,
            };
            let texts = Texts { reason_string: Some(text), server_reference: None };
            Event::Refused(Cause { reason, texts })
        }
        zmtp::Event::Message(_)
        | zmtp::Event::Incomplete
        | zmtp::Event::Greeted
        | zmtp::Event::Replied => Event::Handled,
    }
}

/// Appends all prefixes, and a PING that the publisher answers once it has read the prefixes. A
/// publisher before ZMTP 3.1 knows no PING and sends no answer.
pub fn subscribe(session: &mut Session, identity: &Identity<'_>, out: &mut Vec<u8>) -> Asked {
    let mut prefixes = 0;
    for subscription in &identity.population.subscriptions {
        let prefix = &subscription.filter;
        for variant in 0..prefix.variants() {
            session.subscribe(prefix.text(identity.n, variant).as_bytes(), out);
            prefixes += 1;
        }
    }
    let awaits_answer = session.ping(out);
    let packets = prefixes + u64::from(awaits_answer);
    Asked { packets, granted: prefixes, left_out: 0, awaits_answer }
}

impl Beside for zmtp::Message<'_> {
    /// The first frame. A message of one frame has the empty topic.
    fn topic(&self) -> Option<&str> {
        let mut frames = self.frames();
        let topic = frames.next().filter(|_| frames.next().is_some()).unwrap_or_default();
        str::from_utf8(topic).ok()
    }

    fn carried(&self) -> Carried<'_> {
        Carried::default()
    }
}

/// User name and password for PLAIN; `None` without PLAIN.
pub fn credentials(identity: &Identity<'_>) -> Option<Credentials> {
    let population = identity.population;
    let plain = population.protocol.zmtp().is_some_and(|zmtp| zmtp.security == Security::Plain);
    let text = |template: &Option<Template>| template.as_ref().map(|t| t.text(identity.n, 0));
    text(&population.username).zip(text(&population.password)).filter(|_| plain)
}

#[inline]
fn mechanism(credentials: Option<&Credentials>) -> Mechanism<'_> {
    credentials.map_or(Mechanism::Null, |(username, password)| Mechanism::Plain {
        username: username.as_bytes(),
        password: password.as_bytes(),
    })
}
