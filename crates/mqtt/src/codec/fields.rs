//! The fields of the packets that a server sends, for words about malformed ones.

use super::wire::Reader;
use super::{FixedHeader, PacketType, Properties, Version};

/// Format of a field.
#[derive(Clone, Copy)]
enum Format {
    Byte,
    PacketId,
    Text,
    Properties,
}

type Field = (&'static str, Format);

const ID: Field = ("packet identifier", Format::PacketId);
const CODE: Field = ("reason code", Format::Byte);
const PROPERTIES: Field = ("properties", Format::Properties);

/// Fields in order, without those that take the rest of a packet.
const fn fields(packet: PacketType) -> &'static [Field] {
    match packet {
        PacketType::ConnAck => {
            &[("flags", Format::Byte), ("return code", Format::Byte), PROPERTIES]
        }
        PacketType::Publish => &[("topic name", Format::Text), ID, PROPERTIES],
        PacketType::PubAck | PacketType::PubRec | PacketType::PubRel | PacketType::PubComp => {
            &[ID, CODE, PROPERTIES]
        }
        PacketType::SubAck | PacketType::UnsubAck => &[ID, PROPERTIES],
        PacketType::Disconnect | PacketType::Auth => &[CODE, PROPERTIES],
        _ => &[],
    }
}

/// The first field that cannot be read, of the packet at the front of `bytes`; `None` if all can.
#[cold]
pub(crate) fn unreadable_field(version: Version, bytes: &[u8]) -> Option<&'static str> {
    let header = FixedHeader::read(version, bytes).ok().flatten()?;
    let mut body = Reader::new(bytes.get(header.len..header.len + header.remaining)?);
    let packet = header.packet_type;
    let has_no_id = packet == PacketType::Publish && header.flags & 0b0110 == 0;
    for &(name, format) in fields(packet) {
        let is_optional = matches!(name, "reason code" | "properties")
            && !matches!(packet, PacketType::Publish | PacketType::ConnAck);
        if is_optional && body.is_empty() {
            return None;
        }
        let read = match format {
            Format::Byte => body.u8().map(drop),
            Format::PacketId if has_no_id => Ok(()),
            Format::PacketId => body.packet_id().map(drop),
            Format::Text => body.utf8().map(drop),
            Format::Properties if version != Version::V5 => Ok(()),
            Format::Properties => Properties::read(version, packet, &mut body).map(drop),
        };
        if read.is_err() {
            return Some(name);
        }
    }
    None
}
