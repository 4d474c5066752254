//! SUBACK (3.9): what became of each topic filter of a SUBSCRIBE.

use super::wire::{Reader, write_packet, write_packet_id};
use super::{DecodeError, EncodeError, PacketId, PacketType, Version};

/// The server's answer to SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubAck<'a> {
    /// Packet identifier of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// One code per filter, in its order `[MQTT-3.9.3-1]`: the granted QoS, or [`SubAck::FAILURE`].
    pub codes: &'a [u8],
}

impl<'a> SubAck<'a> {
    /// The code of a filter that was not subscribed.
    pub const FAILURE: u8 = 0x80;

    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// [`EncodeError`] without a packet identifier or without a code; `out` is then as it was.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.codes.is_empty() {
            return Err(EncodeError::NoFilters);
        }
        write_packet(PacketType::SubAck, out, |out| {
            write_packet_id(out, self.packet_id)?;
            match version {
                Version::V311 => out.extend_from_slice(self.codes),
            }
            Ok(())
        })
    }

    pub(super) fn decode(version: Version, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let packet_id = body.packet_id()?;
        let codes = body.take_rest();
        if codes.is_empty() {
            return Err(DecodeError::NoFilters);
        }
        let is_known = |code: u8| match version {
            Version::V311 => code <= 2 || code == Self::FAILURE, // [MQTT-3.9.3-2]
        };
        match codes.iter().find(|&&code| !is_known(code)) {
            Some(&code) => Err(DecodeError::BadSubAckCode(code)),
            None => Ok(Self { packet_id, codes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Packet;
    use super::super::tests::{assert_packet, assert_rejected};
    use super::*;

    #[test]
    fn codes_are_in_the_order_of_the_filters() {
        let suback = SubAck { packet_id: 10, codes: &[0, 1, 2, SubAck::FAILURE] };
        assert_packet(&[0x90, 6, 0, 10, 0, 1, 2, 0x80], Packet::SubAck(suback));
    }

    #[test]
    fn unknown_codes_and_an_empty_list_are_rejected() {
        assert_rejected(&[0x90, 3, 0, 10, 3], DecodeError::BadSubAckCode(3));
        assert_rejected(&[0x90, 2, 0, 10], DecodeError::NoFilters);
        assert_rejected(&[0x90, 3, 0, 0, 0], DecodeError::ZeroPacketId);
        let empty = SubAck { packet_id: 1, codes: &[] };
        assert_eq!(empty.encode(Version::V311, &mut Vec::new()), Err(EncodeError::NoFilters));
    }
}
