//! The MQTT client protocol without input or output: bytes in, bytes out, time as an argument.
//!
//! The *codec* turns bytes into [`Packet`]s and back, borrowing every string and payload. The
//! [`MqttSession`] is the protocol state of one simulated client: packet ids, messages in flight.
//! The crate uses no socket, clock, thread or file, so a test plays a whole session in virtual
//! time.
//!
//! The protocol version is data: every function that differs between versions takes a [`Version`].
//! Clause numbers such as `[MQTT-3.3.1-2]` cite the OASIS standard MQTT 3.1.1, those such as
//! `[MQTT5-3.3.2-11]` the one of MQTT 5.
//!
//! ```
//! use mqtt::{
//!     Connect, DecodedPacket, MqttEvent, MqttSession, Packet, Properties, QoS, Version, decode,
//! };
//!
//! let mut session = MqttSession::<u64>::new();
//! let mut out = Vec::new();
//! let connect = Connect { client_id: "c-1", clean_session: true, ..Connect::default() };
//! session.connect(Version::V311, &connect, &mut out).unwrap();
//!
//! // The server accepts: CONNACK, no session present, code 0.
//! let decoded = decode(Version::V311, &[0x20, 2, 0, 0]);
//! let Ok(DecodedPacket::Packet { packet, len: 4 }) = decoded else {
//!     unreachable!()
//! };
//! let event = session.handle(Version::V311, &packet, &mut out).unwrap();
//! let properties = Properties::NONE;
//! assert_eq!(event, MqttEvent::Connected { session_present: false, dropped: 0, properties });
//! assert_eq!(session.publish(QoS::AtLeastOnce, 7), Ok(1));
//! ```

mod breach;
mod codec;
mod session;
pub mod topic;

pub use breach::Breach;
pub use codec::{
    Ack, ConnAck, Connect, DecodeError, DecodedPacket, EncodeError, LEN_MAX, Packet, PacketId,
    PacketType, Properties, Property, PropertyIter, PropertyList, Publish, PublishHeader, QoS,
    ReasonCode, Reasoned, RetainHandling, SubAck, Subscribe, SubscriptionOptions, Unsubscribe,
    Value, Version, Will, decode, encode_auth, encode_publish_header, encode_subscribe,
    encode_unsubscribe,
};
pub use session::{
    Alias, Blocked, Lapse, Lapses, Limits, MqttEvent, MqttSession, ProtocolError, RequestError,
    Unsupported,
};
