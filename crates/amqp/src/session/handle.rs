//! The receiving side of a session: interprets the bytes of a server and appends the answer.

use super::event::{AmqpEvent, AmqpStep};
use super::incoming::{self, Incoming};
use super::{AmqpLimits, AmqpSession, AmqpState};
use crate::error::AmqpError;
use crate::frame::{self, AmqpFrame, AmqpFrameKind, PROTOCOL_HEADER};
use crate::limits::{FRAME_MAX, FRAME_MIN};
use crate::method::{AmqpMethod, MULTIPLE};

/// Answer that a queue gives, and not its channel.
const CONSUMING: &str = "basic.consume-ok";
/// Front of the header of any version.
const ANY_VERSION: &[u8] = b"AMQP";

/// A method of the server on its channel, with the bytes of its frame.
#[derive(Clone, Copy)]
struct MethodFrame<'b> {
    channel: u16,
    method: AmqpMethod<'b>,
    len: usize,
}

impl<T> AmqpSession<T> {
    /// Handles at most one packet at the front of `bytes`, and appends the answer that the
    /// protocol requires. Call this function with the remaining bytes until
    /// [`AmqpEvent::Incomplete`].
    ///
    /// # Errors
    /// [`AmqpError`] if the protocol forbids the bytes. The caller must then close the connection.
    #[inline]
    pub fn handle<'s, 'b: 's>(
        &'s mut self,
        bytes: &'b [u8],
        out: &mut Vec<u8>,
    ) -> Result<AmqpStep<'s, 'b, T>, AmqpError> {
        let is_first = self.state == AmqpState::Open;
        let decoded = match is_first && !begins_a_frame(bytes)? {
            true => None,
            false => frame::decode(bytes, self.frame_max)?,
        };
        let Some((frame, len)) = decoded else {
            let event = AmqpEvent::Incomplete;
            return Ok(AmqpStep { len: 0, packets: 0, replies: 0, event });
        };
        match frame.kind {
            AmqpFrameKind::Method => {
                let method = AmqpMethod::decode(frame.payload)?;
                let is_content = matches!(
                    method,
                    AmqpMethod::BasicDeliver { .. } | AmqpMethod::BasicReturn { .. }
                );
                if self.is_within_message(frame.channel)? {
                    return Err(AmqpError::OutOfPlace("method within a message"));
                }
                if is_content {
                    return self.begin_message(bytes, frame, method, len);
                }
                self.obey(MethodFrame { channel: frame.channel, method, len }, out)
            }
            AmqpFrameKind::Header | AmqpFrameKind::Body => self.continue_message(&frame, len),
            AmqpFrameKind::Heartbeat if frame.channel == 0 && frame.payload.is_empty() => {
                Ok(AmqpStep { len, packets: 1, replies: 0, event: AmqpEvent::Handled })
            }
            AmqpFrameKind::Heartbeat => Err(AmqpError::Malformed("heartbeat")),
        }
    }

    /// Returns true between the method and the last frame of a message.
    #[inline]
    fn is_within_message(&self, channel: u16) -> Result<bool, AmqpError> {
        if channel == 0 {
            return Ok(false);
        }
        let own = self.channels.get(usize::from(channel) - 1);
        let own = own.ok_or(AmqpError::ChannelUnknown(channel))?;
        Ok(own.incoming.is_some())
    }

    /// Handles the method of a message, with the message if it is whole.
    #[inline]
    fn begin_message<'s, 'b: 's>(
        &'s mut self,
        bytes: &'b [u8],
        AmqpFrame { channel, payload, .. }: AmqpFrame<'b>,
        method: AmqpMethod<'b>,
        len: usize,
    ) -> Result<AmqpStep<'s, 'b, T>, AmqpError> {
        if self.state != AmqpState::Up || channel == 0 {
            return Err(AmqpError::OutOfPlace(method.name()));
        }
        if let Some((header, body, more)) = incoming::whole(&bytes[len..], channel, self.frame_max)
        {
            let event = incoming::event(channel, method, header, body)?;
            return Ok(AmqpStep { len: len + more, packets: 1, replies: 0, event });
        }
        self.channels[usize::from(channel) - 1].incoming = Some(Box::new(Incoming::begin(payload)));
        Ok(AmqpStep { len, packets: 0, replies: 0, event: AmqpEvent::Handled })
    }

    /// Handles a further frame of a message.
    fn continue_message<'s, 'b: 's>(
        &'s mut self,
        frame: &AmqpFrame<'b>,
        len: usize,
    ) -> Result<AmqpStep<'s, 'b, T>, AmqpError> {
        if !self.is_within_message(frame.channel)? {
            return Err(AmqpError::OutOfPlace("content without a method"));
        }
        let own = &mut self.channels[usize::from(frame.channel) - 1].incoming;
        let Some(incoming) = own.as_mut() else {
            return Err(AmqpError::OutOfPlace("content without a method"));
        };
        if !incoming.add(frame)? {
            return Ok(AmqpStep { len, packets: 0, replies: 0, event: AmqpEvent::Handled });
        }
        if let Some(whole) = own.take() {
            self.whole = *whole;
        }
        let event = self.whole.event(frame.channel)?;
        Ok(AmqpStep { len, packets: 1, replies: 0, event })
    }

    /// Handles a method that has no content.
    #[inline(never)]
    fn obey<'s, 'b: 's>(
        &mut self,
        frame: MethodFrame<'b>,
        out: &mut Vec<u8>,
    ) -> Result<AmqpStep<'s, 'b, T>, AmqpError> {
        let MethodFrame { channel, method, len } = frame;
        let before = out.len();
        let event = match (channel, self.state) {
            (_, AmqpState::Lost) => return Err(AmqpError::OutOfPlace(method.name())),
            (0, _) => self.obey_connection(method, out)?,
            (_, AmqpState::Up | AmqpState::Closing) => match method {
                AmqpMethod::BasicAck { number, flags } => {
                    return self.confirmed(frame, (number, flags), AmqpEvent::Acknowledged);
                }
                AmqpMethod::BasicNack { number, flags } => {
                    return self.confirmed(frame, (number, flags), AmqpEvent::Rejected);
                }
                method => self.obey_channel(channel, method, out)?,
            },
            _ => return Err(AmqpError::OutOfPlace(method.name())),
        };
        let replies = u32::from(out.len() > before);
        Ok(AmqpStep { len, packets: 1, replies, event })
    }

    /// Handles a method about the whole connection.
    fn obey_connection<'s, 'b: 's>(
        &mut self,
        method: AmqpMethod<'b>,
        out: &mut Vec<u8>,
    ) -> Result<AmqpEvent<'s, 'b, T>, AmqpError> {
        Ok(match (self.state, method) {
            (AmqpState::Open, AmqpMethod::ConnectionStart { major, minor, mechanisms, .. }) => {
                if (major, minor) != (0, 9) {
                    return Err(AmqpError::OtherVersion(major, minor, 0));
                }
                self.state = AmqpState::Greeted;
                let malformed = AmqpError::Malformed("connection.start");
                AmqpEvent::Started(str::from_utf8(mechanisms).map_err(|_| malformed)?)
            }
            (
                AmqpState::LoggingIn,
                AmqpMethod::ConnectionTune { channel_max, frame_max, heartbeat_s },
            ) => {
                if frame_max != 0 && frame_max < FRAME_MIN {
                    return Err(AmqpError::FrameMax(frame_max));
                }
                self.frame_max = if frame_max == 0 { FRAME_MAX } else { frame_max.min(FRAME_MAX) };
                self.state = AmqpState::Tuned;
                AmqpEvent::Tuned(AmqpLimits { channel_max, frame_max, heartbeat_s })
            }
            (AmqpState::Opening, AmqpMethod::ConnectionOpenOk { .. }) => {
                self.state = AmqpState::Up;
                AmqpEvent::Connected
            }
            (state, AmqpMethod::ConnectionClose { code, text, .. }) => {
                AmqpMethod::ConnectionCloseOk {}.push(0, out);
                self.state = AmqpState::Closing;
                match state {
                    AmqpState::Up | AmqpState::Closing => AmqpEvent::Ended(code, text),
                    _ => AmqpEvent::Refused(code, text),
                }
            }
            (AmqpState::Closing, AmqpMethod::ConnectionCloseOk {}) => AmqpEvent::Handled,
            (AmqpState::Up, AmqpMethod::ConnectionBlocked { .. }) => self.block(None, true),
            (AmqpState::Up, AmqpMethod::ConnectionUnblocked {}) => self.block(None, false),
            (_, other) => return Err(AmqpError::OutOfPlace(other.name())),
        })
    }

    /// Handles a method about a channel.
    fn obey_channel<'s, 'b: 's>(
        &mut self,
        channel: u16,
        method: AmqpMethod<'b>,
        out: &mut Vec<u8>,
    ) -> Result<AmqpEvent<'s, 'b, T>, AmqpError> {
        Ok(match method {
            AmqpMethod::ChannelClose { code, text, .. } => {
                AmqpMethod::ChannelCloseOk {}.push(channel, out);
                AmqpEvent::Ended(code, text)
            }
            AmqpMethod::ChannelFlow { active } => {
                AmqpMethod::ChannelFlowOk { active }.push(channel, out);
                self.block(Some(channel), active == 0)
            }
            AmqpMethod::BasicCancel { .. } => AmqpEvent::Cancelled,
            answer => {
                // A queue of RabbitMQ answers for itself that it has a consumer, while its channel
                // may answer later requests first.
                let is_late = |name: &str| name == CONSUMING && name != answer.name();
                let mut own = self.waiting.iter().enumerate();
                let next = own.find(|(_, (own, name))| *own == channel && !is_late(name));
                let place = next.filter(|(_, (_, name))| *name == answer.name()).map(|(at, _)| at);
                if place.is_none() {
                    return Err(AmqpError::OutOfPlace(answer.name()));
                }
                place.and_then(|place| self.waiting.remove(place));
                if self.waiting.is_empty() { AmqpEvent::Prepared } else { AmqpEvent::Answered }
            }
        })
    }

    /// Notes that the server accepts messages on a channel, or on all, or does not.
    fn block<'s, 'b>(&mut self, channel: Option<u16>, is_blocked: bool) -> AmqpEvent<'s, 'b, T> {
        let before = self.is_blocked_anywhere();
        match channel.and_then(|channel| self.channels.get_mut(usize::from(channel) - 1)) {
            Some(own) => own.is_stopped = is_blocked,
            None => self.is_blocked = is_blocked,
        }
        let after = self.is_blocked_anywhere();
        // One channel may continue while another one is still stopped.
        let changes = before != after || !is_blocked;
        if changes { AmqpEvent::Blocked(after) } else { AmqpEvent::Handled }
    }

    /// Handles a confirm of one or of several publications: one a step.
    fn confirmed<'s, 'b: 's>(
        &mut self,
        MethodFrame { channel, method, len }: MethodFrame<'b>,
        (number, flags): (u64, u8),
        event: impl FnOnce(T) -> AmqpEvent<'s, 'b, T>,
    ) -> Result<AmqpStep<'s, 'b, T>, AmqpError> {
        let own = self.channels.get_mut(usize::from(channel) - 1);
        let own = own.filter(|own| own.confirms).ok_or(AmqpError::OutOfPlace(method.name()))?;
        Ok(match own.take(number, flags & MULTIPLE != 0) {
            Some((token, true)) => AmqpStep { len: 0, packets: 0, replies: 0, event: event(token) },
            Some((token, false)) => AmqpStep { len, packets: 1, replies: 0, event: event(token) },
            None => AmqpStep { len, packets: 1, replies: 0, event: AmqpEvent::UnknownConfirm },
        })
    }
}

/// Returns true if the first bytes of a server begin a frame; false if more bytes must say so. A
/// server of another version answers with the header of that version.
fn begins_a_frame(bytes: &[u8]) -> Result<bool, AmqpError> {
    let front = bytes.len().min(ANY_VERSION.len());
    match bytes.first() {
        None => Ok(false),
        Some(&1) => Ok(true),
        Some(_) if bytes[..front] != ANY_VERSION[..front] => Err(AmqpError::NotAmqp),
        // A peer that sends everything back.
        Some(_) if bytes.starts_with(PROTOCOL_HEADER) => Err(AmqpError::NotAmqp),
        Some(_) => match bytes.get(front..PROTOCOL_HEADER.len()) {
            Some(&[_, major, minor, revision]) => {
                Err(AmqpError::OtherVersion(major, minor, revision))
            }
            _ => Ok(false),
        },
    }
}
