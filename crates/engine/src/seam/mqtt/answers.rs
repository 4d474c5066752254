//! Answers to messages with a Response Topic (section 4.10 of MQTT 5).

use mqtt::{Alias, Property, PublishHeader, Value, Version, encode_publish_header};
use plan::Reason;

use super::{Delivery, Session, begin, qos};
use crate::seam::{Answer, Buffers, Published, Response, Token};

/// Appends an answer.
pub fn answer(
    session: &mut Session,
    answer: &Answer<'_>,
    token: Token,
    mut to: Buffers<'_>,
) -> Published {
    let packet_id = match begin(session, qos(answer.responds.qos), false, token) {
        Ok(packet_id) => packet_id,
        Err(published) => return published,
    };
    let start = to.out.len();
    let delivery = Delivery { packet_id, dup: false, alias: Alias::Unusable };
    let appended = append(answer, delivery, &mut to);
    if appended.is_none() || to.out.len() - start > session.limits().packet_bytes_max() {
        to.out.truncate(start);
        session.withdraw(packet_id, Alias::Unusable);
        return Published::Refused(Reason::MessageTooLarge);
    }
    Published::Sent
}

/// Appends the PUBLISH of an answer. Returns `None` if the packet would be longer than MQTT allows.
pub(super) fn append(
    answer: &Answer<'_>,
    delivery: Delivery,
    Buffers { out, properties, .. }: &mut Buffers<'_>,
) -> Option<()> {
    let Answer { responds, response: Response { topic, correlation }, stamp } = *answer;
    properties.clear();
    if let Some(bytes) = correlation {
        properties.push(Property::CorrelationData, Value::Binary(bytes)).ok()?;
    }
    let header = PublishHeader {
        dup: delivery.dup,
        qos: qos(responds.qos),
        retain: false,
        packet_id: delivery.packet_id,
        properties: properties.properties(),
    };
    let bytes = responds.bytes as usize;
    let encoded = encode_publish_header(Version::V5, &header, topic.len(), bytes, out, |out| {
        out.extend_from_slice(topic.as_bytes());
    });
    encoded.ok()?;
    let end = out.len() + bytes;
    if let Some(stamp) = stamp {
        let stamp = stamp.to_bytes();
        out.extend_from_slice(&stamp[..stamp.len().min(bytes)]);
    }
    out.resize(end, b'.');
    Some(())
}
