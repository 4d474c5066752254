//! Methods of both sides, as far as a client publishes and consumes (1.3 to 1.8 of the XML
//! specification of AMQP 0-9-1, with `basic.nack`, `confirm` and `connection.blocked` of RabbitMQ).

use crate::error::AmqpError;
use crate::field::{FieldReader, Table, push_short};

/// Flag of `exchange.declare` and `queue.declare`: outlasts the broker's process.
pub const DURABLE: u8 = 1 << 1;
/// Flag of `queue.declare`: belongs to its connection.
pub const EXCLUSIVE: u8 = 1 << 2;
/// Flag of `queue.declare`: ends with its last consumer.
pub const AUTO_DELETE: u8 = 1 << 3;
/// Flag of `basic.consume`: deliveries need no acknowledgement.
pub const NO_ACK: u8 = 1 << 1;
/// Flag of `basic.publish`: the broker returns a message that no queue takes.
pub const MANDATORY: u8 = 1;
/// Flag of `basic.deliver`: the broker may have delivered the message before.
pub const REDELIVERED: u8 = 1;
/// Flag of `basic.ack` and `basic.nack`: all up to this number are meant.
pub const MULTIPLE: u8 = 1;
/// Flag of `basic.nack`: the broker queues the message again.
pub const REQUEUE: u8 = 1 << 1;

/// Declares the methods: name, class and number, name in the specification, and fields with the
/// functions that read and write them.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident $class:literal $number:literal $text:literal
        { $($field:ident: $kind:ident $type:ty,)* })*) => {
        /// A method with its fields, which have the names of the specification.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the specification explains the fields")]
        pub enum AmqpMethod<'a> {
            $($(#[$doc])* $name { $($field: $type,)* },)*
        }

        impl<'a> AmqpMethod<'a> {
            /// Decodes the payload of a method frame.
            ///
            /// # Errors
            /// [`AmqpError`] if the bytes are no method of the protocol.
            #[inline]
            pub fn decode(payload: &'a [u8]) -> Result<Self, AmqpError> {
                let mut numbers = FieldReader::new(payload, "method");
                match (numbers.short()?, numbers.short()?) {
                    $(($class, $number) => {
                        #[allow(unused_mut, reason = "a method may have no fields")]
                        let mut fields = FieldReader::new(&payload[4..], $text);
                        let method = Self::$name { $($field: fields.$kind()?,)* };
                        fields.end()?;
                        Ok(method)
                    })*
                    (class, number) => Err(AmqpError::Unknown(class, number)),
                }
            }

            /// Appends the payload of a method frame.
            #[inline]
            pub fn encode(&self, out: &mut Vec<u8>) {
                match *self {
                    $(Self::$name { $($field,)* } => {
                        out.extend_from_slice(&[0, $class, 0, $number]);
                        $(write::$kind($field, out);)*
                    })*
                }
            }

            /// Name in the specification.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$name { .. } => $text,)* }
            }
        }
    };
}

methods! {
    /// The server begins.
    ConnectionStart 10 10 "connection.start" {
        major: octet u8, minor: octet u8, properties: table Table<'a>, mechanisms: longstr &'a [u8],
        locales: longstr &'a [u8],
    }
    /// The client logs in.
    ConnectionStartOk 10 11 "connection.start-ok" {
        properties: table Table<'a>, mechanism: shortstr &'a [u8], response: longstr &'a [u8],
        locale: shortstr &'a [u8],
    }
    /// The server asks for more of the login.
    ConnectionSecure 10 20 "connection.secure" { challenge: longstr &'a [u8], }
    /// The server offers limits.
    ConnectionTune 10 30 "connection.tune" {
        channel_max: short u16, frame_max: long u32, heartbeat_s: short u16,
    }
    /// The client sets the limits.
    ConnectionTuneOk 10 31 "connection.tune-ok" {
        channel_max: short u16, frame_max: long u32, heartbeat_s: short u16,
    }
    /// The client chooses a virtual host.
    ConnectionOpen 10 40 "connection.open" {
        virtual_host: shortstr &'a [u8], reserved_1: shortstr &'a [u8], reserved_2: octet u8,
    }
    /// The server accepts the client.
    ConnectionOpenOk 10 41 "connection.open-ok" { reserved_1: shortstr &'a [u8], }
    /// One side ends the connection.
    ConnectionClose 10 50 "connection.close" {
        code: short u16, text: text &'a str, class: short u16, method: short u16,
    }
    /// The other side agrees.
    ConnectionCloseOk 10 51 "connection.close-ok" {}
    /// The server accepts no messages now.
    ConnectionBlocked 10 60 "connection.blocked" { reason: text &'a str, }
    /// The server accepts messages again.
    ConnectionUnblocked 10 61 "connection.unblocked" {}
    /// The client opens a channel.
    ChannelOpen 20 10 "channel.open" { reserved_1: shortstr &'a [u8], }
    /// The channel is open.
    ChannelOpenOk 20 11 "channel.open-ok" { reserved_1: longstr &'a [u8], }
    /// One side stops or continues the messages of the other.
    ChannelFlow 20 20 "channel.flow" { active: octet u8, }
    /// The other side does so.
    ChannelFlowOk 20 21 "channel.flow-ok" { active: octet u8, }
    /// One side ends a channel.
    ChannelClose 20 40 "channel.close" {
        code: short u16, text: text &'a str, class: short u16, method: short u16,
    }
    /// The other side agrees.
    ChannelCloseOk 20 41 "channel.close-ok" {}
    /// The client declares an exchange.
    ExchangeDeclare 40 10 "exchange.declare" {
        reserved_1: short u16, exchange: shortstr &'a [u8], kind: shortstr &'a [u8],
        flags: octet u8, arguments: table Table<'a>,
    }
    /// The exchange exists.
    ExchangeDeclareOk 40 11 "exchange.declare-ok" {}
    /// The client declares a queue.
    QueueDeclare 50 10 "queue.declare" {
        reserved_1: short u16, queue: shortstr &'a [u8], flags: octet u8,
        arguments: table Table<'a>,
    }
    /// The queue exists.
    QueueDeclareOk 50 11 "queue.declare-ok" {
        queue: shortstr &'a [u8], messages: long u32, consumers: long u32,
    }
    /// The client binds a queue to an exchange.
    QueueBind 50 20 "queue.bind" {
        reserved_1: short u16, queue: shortstr &'a [u8], exchange: shortstr &'a [u8],
        routing_key: shortstr &'a [u8], flags: octet u8, arguments: table Table<'a>,
    }
    /// The binding exists.
    QueueBindOk 50 21 "queue.bind-ok" {}
    /// The client limits deliveries without acknowledgement.
    BasicQos 60 10 "basic.qos" { bytes: long u32, count: short u16, flags: octet u8, }
    /// The limit holds.
    BasicQosOk 60 11 "basic.qos-ok" {}
    /// The client consumes from a queue.
    BasicConsume 60 20 "basic.consume" {
        reserved_1: short u16, queue: shortstr &'a [u8], tag: shortstr &'a [u8], flags: octet u8,
        arguments: table Table<'a>,
    }
    /// The consumer exists.
    BasicConsumeOk 60 21 "basic.consume-ok" { tag: shortstr &'a [u8], }
    /// One side ends a consumer.
    BasicCancel 60 30 "basic.cancel" { tag: shortstr &'a [u8], flags: octet u8, }
    /// The client publishes a message, whose content follows.
    BasicPublish 60 40 "basic.publish" {
        reserved_1: short u16, exchange: shortstr &'a [u8], routing_key: shortstr &'a [u8],
        flags: octet u8,
    }
    /// The server returns a message, whose content follows.
    BasicReturn 60 50 "basic.return" {
        code: short u16, text: text &'a str, exchange: shortstr &'a [u8],
        routing_key: shortstr &'a [u8],
    }
    /// The server delivers a message, whose content follows.
    BasicDeliver 60 60 "basic.deliver" {
        tag: shortstr &'a [u8], number: longlong u64, flags: octet u8,
        exchange: shortstr &'a [u8], routing_key: shortstr &'a [u8],
    }
    /// One side acknowledges messages.
    BasicAck 60 80 "basic.ack" { number: longlong u64, flags: octet u8, }
    /// One side refuses messages.
    BasicNack 60 120 "basic.nack" { number: longlong u64, flags: octet u8, }
    /// The client asks for confirms.
    ConfirmSelect 85 10 "confirm.select" { flags: octet u8, }
    /// The server confirms.
    ConfirmSelectOk 85 11 "confirm.select-ok" {}
}

mod write {
    //! Functions that append fields, by the names of those that read them.

    use super::{Table, push_short};

    pub fn octet(value: u8, out: &mut Vec<u8>) {
        out.push(value);
    }

    pub fn short(value: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    pub fn long(value: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    pub fn longlong(value: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    pub fn shortstr(text: &[u8], out: &mut Vec<u8>) {
        push_short(text, out);
    }

    pub fn text(text: &str, out: &mut Vec<u8>) {
        push_short(text.as_bytes(), out);
    }

    pub fn longstr(text: &[u8], out: &mut Vec<u8>) {
        long(text.len() as u32, out);
        out.extend_from_slice(text);
    }

    pub fn table(Table(fields): Table<'_>, out: &mut Vec<u8>) {
        longstr(fields, out);
    }
}

impl AmqpMethod<'_> {
    /// Appends a frame with this method.
    pub fn push(&self, channel: u16, out: &mut Vec<u8>) {
        use crate::frame::{AmqpFrameKind, push_frame};
        push_frame(AmqpFrameKind::Method, channel, out, |out| self.encode(out));
    }

    /// The method that answers this one of a client; `None` if none does.
    pub(crate) const fn answer(&self) -> Option<&'static str> {
        Some(match self {
            Self::ChannelOpen { .. } => "channel.open-ok",
            Self::ExchangeDeclare { .. } => "exchange.declare-ok",
            Self::QueueDeclare { .. } => "queue.declare-ok",
            Self::QueueBind { .. } => "queue.bind-ok",
            Self::BasicQos { .. } => "basic.qos-ok",
            Self::BasicConsume { .. } => "basic.consume-ok",
            Self::ConfirmSelect { .. } => "confirm.select-ok",
            _ => return None,
        })
    }
}
