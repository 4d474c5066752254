//! The connection of one simulated client: login, channels, consumers, messages, publications that
//! the broker confirms, and waits that the broker asks for. The session stores no payloads of the
//! client: the token of a publication lets the caller build the same message again. The caller
//! keeps the bytes of an incomplete frame and passes these bytes again, followed by more.

mod event;
mod handle;
mod incoming;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::content::{self, ContentHeader};
use crate::error::AmqpError;
use crate::field::{Table, push_flag, push_inner, push_text};
use crate::frame::{HEARTBEAT, PROTOCOL_HEADER};
use crate::limits::FRAME_MAX;
use crate::method::{AmqpMethod, MULTIPLE, REQUEUE};

pub use event::{AmqpEvent, AmqpMessage, AmqpStep};
use incoming::Incoming;

/// Extensions of the protocol that the client announces: the server then uses them.
const CAPABILITIES: [&[u8]; 5] = [
    b"publisher_confirms",
    b"basic.nack",
    b"consumer_cancel_notify",
    b"connection.blocked",
    b"authentication_failure_close",
];

/// Reply code of a connection that ends by agreement.
const SUCCESS: u16 = 200;

/// The state of one client. `T` is the token of a publication that the broker confirms.
#[derive(Debug)]
pub struct AmqpSession<T> {
    state: AmqpState,
    /// The server accepts no messages now.
    is_blocked: bool,
    /// Largest frame of both sides, in bytes.
    frame_max: u32,
    /// Channels from number 1 on.
    channels: Vec<AmqpChannel<T>>,
    /// Answers that are missing, in the order of their requests: channel and name.
    waiting: VecDeque<(u16, &'static str)>,
    /// The message that came in parts and was handed out last.
    whole: Incoming,
    /// Publications of earlier connections, to be sent again.
    again: VecDeque<T>,
}

#[derive(Debug)]
struct AmqpChannel<T> {
    /// The server accepts no messages on this channel now.
    is_stopped: bool,
    /// The server confirms publications.
    confirms: bool,
    /// Number of the last publication.
    published: u64,
    /// Publications without a confirm, by their numbers; the first one has a token.
    unconfirmed: VecDeque<(u64, Option<T>)>,
    /// A message whose rest has not arrived.
    incoming: Option<Box<Incoming>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AmqpState {
    Lost,
    /// The protocol header is sent.
    Open,
    /// The server has begun, the client has not logged in.
    Greeted,
    LoggingIn,
    /// The server has offered limits.
    Tuned,
    /// The virtual host is chosen.
    Opening,
    Up,
    /// One side has ended the connection.
    Closing,
}

/// Login of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmqpLogin<'a> {
    /// Name of the mechanism.
    pub mechanism: &'a [u8],
    /// First and only message of the mechanism.
    pub response: &'a [u8],
    /// Name of the connection in the lists of the server.
    pub name: &'a [u8],
}

/// Limits that the server offers; 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmqpLimits {
    /// Highest number of a channel.
    pub channel_max: u16,
    /// Largest frame, in bytes.
    pub frame_max: u32,
    /// Time between two heartbeats, in seconds.
    pub heartbeat_s: u16,
}

/// Parts of a connection that the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequiredLimits<'a> {
    /// Number of channels.
    pub channels: u16,
    /// Time between two heartbeats, in seconds; 0: none.
    pub heartbeat_s: u16,
    /// Virtual host, of up to 255 bytes.
    pub virtual_host: &'a [u8],
}

impl<T> Default for AmqpSession<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> AmqpSession<T> {
    /// A session that was never connected.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: AmqpState::Lost,
            is_blocked: false,
            frame_max: FRAME_MAX,
            channels: Vec::new(),
            waiting: VecDeque::new(),
            whole: Incoming::NONE,
            again: VecDeque::new(),
        }
    }

    /// Begins a network connection: appends the header of the protocol.
    pub fn open(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PROTOCOL_HEADER);
        self.state = AmqpState::Open;
    }

    /// Logs in. Call this function after [`AmqpEvent::Started`].
    pub fn log_in(&mut self, login: &AmqpLogin<'_>, out: &mut Vec<u8>) {
        debug_assert!(self.state == AmqpState::Greeted, "a login before connection.start");
        let mut properties = Vec::new();
        let text = |name: &[u8], text: &[u8], out: &mut Vec<u8>| {
            push_text(name, out, |out| out.extend_from_slice(text));
        };
        text(b"product", b"Pubstorm", &mut properties);
        text(b"version", env!("CARGO_PKG_VERSION").as_bytes(), &mut properties);
        text(b"connection_name", login.name, &mut properties);
        push_inner(b"capabilities", &mut properties, |out| {
            CAPABILITIES.iter().for_each(|name| push_flag(name, true, out));
        });
        AmqpMethod::ConnectionStartOk {
            properties: Table(&properties),
            mechanism: login.mechanism,
            response: login.response,
            locale: b"en_US",
        }
        .push(0, out);
        self.state = AmqpState::LoggingIn;
    }

    /// Sets the limits, and chooses the virtual host. Call this function after
    /// [`AmqpEvent::Tuned`] with what the server offers.
    ///
    /// # Errors
    /// [`AmqpError`] if the server allows fewer channels.
    pub fn tune(
        &mut self,
        offered: AmqpLimits,
        required: &RequiredLimits<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), AmqpError> {
        debug_assert!(self.state == AmqpState::Tuned, "limits before connection.tune");
        let RequiredLimits { channels, heartbeat_s, virtual_host } = *required;
        if offered.channel_max != 0 && offered.channel_max < channels {
            return Err(AmqpError::TooFewChannels(offered.channel_max, channels));
        }
        let (channel_max, frame_max) = (offered.channel_max, self.frame_max);
        AmqpMethod::ConnectionTuneOk { channel_max, frame_max, heartbeat_s }.push(0, out);
        AmqpMethod::ConnectionOpen { virtual_host, reserved_1: b"", reserved_2: 0 }.push(0, out);
        self.channels = (0..channels).map(|_| AmqpChannel::new()).collect();
        self.state = AmqpState::Opening;
        Ok(())
    }

    /// Returns true from the acceptance of the client until the connection is lost.
    #[must_use]
    #[inline]
    pub const fn is_connected(&self) -> bool {
        matches!(self.state, AmqpState::Up)
    }

    /// Largest frame, in bytes.
    #[must_use]
    #[inline]
    pub const fn frame_max(&self) -> u32 {
        self.frame_max
    }

    /// Appends a method of the client. If the server answers the method, [`AmqpEvent::Answered`]
    /// or [`AmqpEvent::Prepared`] follows. Only while connected, on a channel up to the number of
    /// [`RequiredLimits::channels`].
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn request(&mut self, channel: u16, method: &AmqpMethod<'_>, out: &mut Vec<u8>) {
        debug_assert!(self.is_connected());
        method.push(channel, out);
        if let AmqpMethod::ConfirmSelect { .. } = method {
            self.channels[usize::from(channel) - 1].confirms = true;
        }
        self.waiting.extend(method.answer().map(|answer| (channel, answer)));
    }

    /// Returns true while the server accepts no messages on a channel.
    #[must_use]
    #[inline]
    pub fn is_blocked(&self, channel: u16) -> bool {
        let own = self.channels.get(usize::from(channel).wrapping_sub(1));
        self.is_blocked || own.is_some_and(|own| own.is_stopped)
    }

    /// Returns true while the server accepts no messages on a channel or on any.
    #[must_use]
    pub fn is_blocked_anywhere(&self) -> bool {
        self.is_blocked || self.channels.iter().any(|channel| channel.is_stopped)
    }

    /// Notes a publication that the caller encodes now, on a channel with confirms.
    #[inline]
    pub fn await_confirm(&mut self, channel: u16, token: T) {
        if let Some(own) = self.channels.get_mut(usize::from(channel).wrapping_sub(1)) {
            own.published += 1;
            own.unconfirmed.push_back((own.published, Some(token)));
        }
    }

    /// Number of publications without a confirm, those of earlier connections included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let tokens = |own: &AmqpChannel<T>| {
            own.unconfirmed.iter().filter(|(_, token)| token.is_some()).count()
        };
        self.channels.iter().map(tokens).sum::<usize>() + self.again.len()
    }

    /// Takes the first publication of an earlier connection that is not sent again yet.
    pub fn take_again(&mut self) -> Option<T> {
        self.again.pop_front()
    }

    /// Gives back the memory of the message that was handed out last.
    #[inline]
    pub fn release(&mut self) {
        self.whole.release();
    }

    /// Appends the end of the connection.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        let text = "the client leaves";
        AmqpMethod::ConnectionClose { code: SUCCESS, text, class: 0, method: 0 }.push(0, out);
        self.state = AmqpState::Closing;
    }

    /// Records the loss of the network connection. With `keeps`, the publications without a
    /// confirm are to be sent again; else returns the number of dropped publications.
    pub fn connection_lost(&mut self, keeps: bool) -> usize {
        let channels = std::mem::take(&mut self.channels);
        let lost = channels.into_iter().flat_map(|own| own.unconfirmed);
        let mut again: VecDeque<T> = lost.filter_map(|(_, token)| token).collect();
        again.append(&mut self.again);
        *self = Self::new();
        if keeps {
            self.again = again;
            return 0;
        }
        again.len()
    }
}

impl<T> AmqpChannel<T> {
    const fn new() -> Self {
        Self {
            is_stopped: false,
            confirms: false,
            published: 0,
            unconfirmed: VecDeque::new(),
            incoming: None,
        }
    }

    /// Takes the publication with this number, or the first one up to it. Returns its token, and
    /// true if more are meant; `None` if none is, or if the client has sent none with this number.
    #[inline]
    fn take(&mut self, number: u64, is_multiple: bool) -> Option<(T, bool)> {
        if number > self.published {
            return None;
        }
        // 0 means all publications [4.1.8.3.12 of AMQP 0-9-1].
        let last = if is_multiple && number == 0 { u64::MAX } else { number };
        let place = match self.unconfirmed.front()? {
            (first, _) if is_multiple && *first <= last => 0,
            (first, _) if *first == number => 0,
            _ if is_multiple => return None,
            _ => self.unconfirmed.binary_search_by_key(&number, |(own, _)| *own).ok()?,
        };
        let token = self.unconfirmed.get_mut(place)?.1.take()?;
        while let Some((_, None)) = self.unconfirmed.front() {
            self.unconfirmed.pop_front();
        }
        let more = is_multiple && self.unconfirmed.front().is_some_and(|(own, _)| *own <= last);
        Some((token, more))
    }
}

/// Appends the acknowledgement of a delivery, or of all up to it.
#[inline]
pub fn push_ack(channel: u16, number: u64, is_multiple: bool, out: &mut Vec<u8>) {
    let flags = if is_multiple { MULTIPLE } else { 0 };
    AmqpMethod::BasicAck { number, flags }.push(channel, out);
}

/// Appends the refusal of a delivery, which the broker queues again.
pub fn push_requeue(channel: u16, number: u64, out: &mut Vec<u8>) {
    AmqpMethod::BasicNack { number, flags: REQUEUE }.push(channel, out);
}

/// Appends a heartbeat.
pub fn push_heartbeat(out: &mut Vec<u8>) {
    out.extend_from_slice(HEARTBEAT);
}

/// Appends the front of a message: the method of the publication and its header. The body follows.
#[inline]
pub fn push_publish(
    channel: u16,
    (exchange, routing_key): (&[u8], &[u8]),
    flags: u8,
    header: &ContentHeader<'_>,
    out: &mut Vec<u8>,
) {
    AmqpMethod::BasicPublish { reserved_1: 0, exchange, routing_key, flags }.push(channel, out);
    content::push_header(channel, header, out);
}
