//! The table against the standard, and lists of properties for the properties of all packets.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::table::{AUTH, CONNACK, CONNECT, DISCONNECT, PUBLISH, UNSUBSCRIBE};
use super::*;

/// A value that the row of a property allows.
fn any_value(row: PropertyRow) -> BoxedStrategy<OwnedValue> {
    let text = || "[^\0]{0,20}";
    match row.kind {
        PropertyType::Flag => (0..=1_u32).prop_map(OwnedValue::Number).boxed(),
        PropertyType::Short => (0..=0xffff_u32).prop_map(OwnedValue::Number).boxed(),
        PropertyType::PositiveShort => (1..=0xffff_u32).prop_map(OwnedValue::Number).boxed(),
        PropertyType::Long => any::<u32>().prop_map(OwnedValue::Number).boxed(),
        PropertyType::PositiveLong => (1..=u32::MAX).prop_map(OwnedValue::Number).boxed(),
        PropertyType::PositiveVariable => {
            (1..=268_435_455_u32).prop_map(OwnedValue::Number).boxed()
        }
        PropertyType::Binary => vec(any::<u8>(), 0..200).prop_map(OwnedValue::Binary).boxed(),
        PropertyType::Text => text().prop_map(OwnedValue::Text).boxed(),
        PropertyType::Topic => "[^\0#+]{1,20}".prop_map(OwnedValue::Text).boxed(),
        PropertyType::Pair => (text(), text()).prop_map(|(k, v)| OwnedValue::Pair(k, v)).boxed(),
    }
}

#[derive(Clone, Debug)]
enum OwnedValue {
    Number(u32),
    Binary(Vec<u8>),
    Text(String),
    Pair(String, String),
}

impl OwnedValue {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Number(number) => Value::Number(*number),
            Self::Binary(bytes) => Value::Binary(bytes),
            Self::Text(text) => Value::Text(text),
            Self::Pair(name, value) => Value::Pair(name, value),
        }
    }
}

/// Lists of properties that a packet may carry, in any order; `None` stands for the will.
pub(in crate::codec) fn any_list(packet: Option<PacketType>) -> BoxedStrategy<PropertyList> {
    let carrier = packet.map_or(WILL, bit);
    let rows: Vec<PropertyRow> =
        TABLE.iter().copied().filter(|row| row.packets & carrier != 0).collect();
    let most = rows.len().min(4);
    let chosen = subsequence(rows, 0..=most).prop_shuffle();
    chosen
        .prop_flat_map(|rows| {
            rows.into_iter().map(|row| (Just(row), any_value(row))).collect::<Vec<_>>()
        })
        .prop_map(|pairs| {
            let has = |property| pairs.iter().any(|(row, _)| row.property == property);
            let without_method = !has(Property::AuthenticationMethod);
            let mut list = PropertyList::new();
            for (row, value) in &pairs {
                if row.property == Property::AuthenticationData && without_method {
                    continue;
                }
                let times = if row.property == Property::UserProperty { 2 } else { 1 };
                (0..times).for_each(|_| list.push(row.property, value.value()).unwrap());
            }
            list
        })
        .boxed()
}

impl std::fmt::Debug for PropertyRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[test]
fn every_packet_has_the_properties_of_table_2_4() {
    let names = |packets: Packets| -> Vec<u8> {
        let rows = TABLE.iter().filter(|row| row.packets & packets != 0);
        rows.map(|row| row.property as u8).collect()
    };
    assert_eq!(TABLE.len(), 27);
    assert_eq!(names(CONNECT), [0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27]);
    assert_eq!(
        names(CONNACK),
        [
            0x11, 0x12, 0x13, 0x15, 0x16, 0x1a, 0x1c, 0x1f, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27,
            0x28, 0x29, 0x2a
        ]
    );
    assert_eq!(names(PUBLISH), [1, 2, 3, 8, 9, 0x0b, 0x23, 0x26]);
    assert_eq!(names(WILL), [1, 2, 3, 8, 9, 0x18, 0x26]);
    assert_eq!(names(bit(PacketType::PubAck)), [0x1f, 0x26]);
    assert_eq!(names(SUBSCRIBE), [0x0b, 0x26]);
    assert_eq!(names(UNSUBSCRIBE), [0x26]);
    assert_eq!(names(DISCONNECT), [0x11, 0x1c, 0x1f, 0x26]);
    assert_eq!(names(AUTH), [0x15, 0x16, 0x1f, 0x26]);
    assert_eq!(names(bit(PacketType::PingReq) | bit(PacketType::PingResp)), []);
}

proptest! {
    #[test]
    fn kinds_and_single_values_are_those_of_a_whole_pass(
        list in any_list(Some(PacketType::Publish)),
    ) {
        let properties = list.properties();
        prop_assert!(properties.kinds().eq(properties.iter().map(|(property, _)| property)));
        for row in TABLE {
            let first = properties.iter().find(|(property, _)| *property == row.property);
            prop_assert_eq!(properties.find(row.property), first.map(|(_, value)| value));
        }
    }
}

#[test]
fn a_value_of_another_type_or_range_is_not_written() {
    let mut list = PropertyList::new();
    for (property, value) in [
        (Property::TopicAlias, Value::Number(0)),
        (Property::TopicAlias, Value::Number(65_536)),
        (Property::TopicAlias, Value::Text("1")),
        (Property::MaximumQoS, Value::Number(2)),
        (Property::ContentType, Value::Binary(b"x")),
    ] {
        assert_eq!(list.push(property, value), Err(EncodeError::BadProperty(property)));
    }
    let long = "x".repeat(65_536);
    let pushed = list.push(Property::UserProperty, Value::Pair("name", &long));
    assert_eq!(pushed, Err(EncodeError::FieldTooLong(65_536)));
    assert!(list.properties().is_empty());
}
