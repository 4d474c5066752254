//! The fields of the packets that a server sends, for words about malformed ones.

use super::{FixedHeader, PacketType, Properties, Reader, Version};

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

/// Fields in order, without those that take the rest of a packet; and those that may be left out.
const fn fields(packet: PacketType) -> (&'static [Field], &'static [Field]) {
    match packet {
        PacketType::ConnAck => {
            (&[("flags", Format::Byte), ("return code", Format::Byte), PROPERTIES], &[])
        }
        PacketType::Publish => (&[("topic name", Format::Text), ID, PROPERTIES], &[]),
        PacketType::PubAck | PacketType::PubRec | PacketType::PubRel | PacketType::PubComp => {
            (&[ID], &[CODE, PROPERTIES])
        }
        PacketType::SubAck | PacketType::UnsubAck => (&[ID, PROPERTIES], &[]),
        PacketType::Disconnect | PacketType::Auth => (&[], &[CODE, PROPERTIES]),
        _ => (&[], &[]),
    }
}

/// The first field that cannot be read, of the packet at the front of `bytes`; `None` if all can.
#[cold]
pub(crate) fn unreadable_field(version: Version, bytes: &[u8]) -> Option<&'static str> {
    let header = FixedHeader::read(version, bytes).ok().flatten()?;
    let mut body = Reader::new(bytes.get(header.len..header.len + header.remaining)?);
    let packet = header.packet_type;
    let has_no_id = packet == PacketType::Publish && header.flags & 0b0110 == 0;
    let is_unreadable = |format, body: &mut Reader<'_>| match format {
        Format::Byte => body.u8().is_err(),
        Format::PacketId => !has_no_id && body.packet_id().is_err(),
        Format::Text => body.utf8().is_err(),
        Format::Properties => {
            version == Version::V5 && Properties::read(version, packet, body).is_err()
        }
    };
    let (always, optional) = fields(packet);
    for &(name, format) in always {
        if is_unreadable(format, &mut body) {
            return Some(name);
        }
    }
    for &(name, format) in optional {
        if !body.is_empty() && is_unreadable(format, &mut body) {
            return Some(name);
        }
    }
    None
}
