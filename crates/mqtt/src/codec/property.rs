//! Properties of MQTT 5 (2.2.2): the properties of one packet as the bytes on the wire. Packets of
//! older versions have none.

mod table;

use super::header::{Packets, bit};
use super::{DecodeError, EncodeError, PacketType, Reader, Version, write_field, write_variable};
use crate::topic;
use table::{PropertyRow, PropertyType, ROWS, SUBSCRIBE, TABLE, WILL};

pub use table::Property;

/// Letters of a name of the standard in small letters, with `_` for a space.
pub(super) fn snake_case(name: &str) -> impl Iterator<Item = char> {
    name.chars().map(|letter| if letter == ' ' { '_' } else { letter.to_ascii_lowercase() })
}

/// Value of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// One byte, two or four bytes, or a variable byte integer.
    Number(u32),
    /// Binary data.
    Binary(&'a [u8]),
    /// A string.
    Text(&'a str),
    /// Name and value of a user property.
    Pair(&'a str, &'a str),
}

/// The properties of one packet, as the bytes behind their length. The bytes are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    bytes: &'a [u8],
}

/// Properties in their order.
#[derive(Clone, Debug)]
pub struct PropertyIter<'a> {
    rest: Reader<'a>,
}

/// Properties of a packet to send. The memory is kept from packet to packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyList {
    bytes: Vec<u8>,
}

impl Property {
    /// The property with this name of the standard, in small letters with `_` for a space.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let is_it = |row: &&PropertyRow| snake_case(row.name).eq(name.chars());
        TABLE.iter().find(is_it).map(|row| row.property)
    }

    /// Name in the standard.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    fn row(self) -> PropertyRow {
        ROWS[usize::from(self as u8)].expect("the table has a row for each property")
    }
}

impl std::fmt::Display for Property {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl<'a> Properties<'a> {
    /// No properties.
    pub const NONE: Self = Self { bytes: &[] };

    /// Properties in their order.
    #[must_use]
    pub const fn iter(&self) -> PropertyIter<'a> {
        PropertyIter { rest: Reader::new(self.bytes) }
    }

    /// Properties in their order, without their values.
    pub fn kinds(&self) -> impl Iterator<Item = Property> {
        let mut rest = Reader::new(self.bytes);
        std::iter::from_fn(move || {
            let row = row(&mut rest).ok()?;
            row.skip(&mut rest).ok()?;
            Some(row.property)
        })
    }

    /// Value of the first such property.
    #[must_use]
    pub fn find(&self, property: Property) -> Option<Value<'a>> {
        let mut rest = Reader::new(self.bytes);
        loop {
            let row = row(&mut rest).ok()?;
            if row.property == property {
                return row.read(&mut rest).ok();
            }
            row.skip(&mut rest).ok()?;
        }
    }

    /// Value of the first such property, if it is a number.
    #[must_use]
    pub fn number(&self, property: Property) -> Option<u32> {
        match self.find(property) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// Value of the first such property, if it is a string.
    #[must_use]
    pub fn text(&self, property: Property) -> Option<&'a str> {
        match self.find(property) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Value of the first such property, if it is binary data.
    #[must_use]
    pub fn binary(&self, property: Property) -> Option<&'a [u8]> {
        match self.find(property) {
            Some(Value::Binary(data)) => Some(data),
            _ => None,
        }
    }

    /// Returns true if the packet has no properties.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes on the wire, length included.
    #[inline]
    pub(super) const fn encoded_len(&self) -> usize {
        let len = self.bytes.len();
        len + match len {
            0..0x80 => 1,
            0x80..0x4000 => 2,
            0x4000..0x20_0000 => 3,
            _ => 4,
        }
    }

    /// Appends length and properties; nothing before MQTT 5.
    #[inline]
    pub(super) fn write(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version != Version::V5 {
            return Ok(());
        }
        if self.bytes.is_empty() {
            out.push(0);
            return Ok(());
        }
        write_variable(out, self.bytes.len())?;
        out.extend_from_slice(self.bytes);
        Ok(())
    }

    /// Reads the properties of a packet and checks them (2.2.2.2); none before MQTT 5.
    #[inline]
    pub(super) fn read(
        version: Version,
        packet: PacketType,
        body: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        Self::read_checked(version, (packet, bit(packet)), body)
    }

    /// Reads the properties of the will in CONNECT; none before MQTT 5.
    pub(super) fn read_will(version: Version, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Self::read_checked(version, (PacketType::Connect, WILL), body)
    }

    #[inline]
    fn read_checked(
        version: Version,
        (packet, carrier): (PacketType, Packets),
        body: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        if version != Version::V5 {
            return Ok(Self::NONE);
        }
        let len = body.variable()? as usize;
        if len == 0 {
            return Ok(Self::NONE);
        }
        let bytes = body.take(len)?;
        check(packet, carrier, bytes)?;
        Ok(Self { bytes })
    }
}

/// Checks identifiers, values, packets and repetitions. SUBSCRIBE carries one subscription
/// identifier (3.8.2.1.2), PUBLISH one for each matching subscription.
fn check(packet: PacketType, carrier: Packets, bytes: &[u8]) -> Result<(), DecodeError> {
    let mut seen = 0_u64;
    let mut rest = Reader::new(bytes);
    while !rest.is_empty() {
        let row = row(&mut rest)?;
        let property = row.property;
        if row.packets & carrier == 0 {
            return Err(DecodeError::PropertyNotAllowed { packet, property });
        }
        let repeats =
            row.repeats && (property != Property::SubscriptionIdentifier || carrier != SUBSCRIBE);
        let mark = 1 << property as u8;
        if seen & mark != 0 && !repeats {
            return Err(DecodeError::RepeatedProperty(property));
        }
        seen |= mark;
        row.read(&mut rest)?;
    }
    let has = |property: Property| seen & 1 << property as u8 != 0;
    if has(Property::AuthenticationData) && !has(Property::AuthenticationMethod) {
        return Err(DecodeError::DataWithoutMethod);
    }
    Ok(())
}

fn row(rest: &mut Reader<'_>) -> Result<PropertyRow, DecodeError> {
    let id = rest.u8()?;
    ROWS.get(usize::from(id)).copied().flatten().ok_or(DecodeError::UnknownProperty(id))
}

impl PropertyRow {
    /// Passes over a value, which is valid.
    fn skip(&self, rest: &mut Reader<'_>) -> Result<(), DecodeError> {
        match self.kind {
            PropertyType::Flag => rest.u8().map(drop),
            PropertyType::Short | PropertyType::PositiveShort => rest.u16().map(drop),
            PropertyType::Long | PropertyType::PositiveLong => rest.u32().map(drop),
            PropertyType::PositiveVariable => rest.variable().map(drop),
            PropertyType::Binary | PropertyType::Text | PropertyType::Topic => {
                rest.field().map(drop)
            }
            PropertyType::Pair => rest.field().and_then(|_| rest.field()).map(drop),
        }
    }

    fn read<'a>(&self, rest: &mut Reader<'a>) -> Result<Value<'a>, DecodeError> {
        let number = match self.kind {
            PropertyType::Flag => u32::from(rest.u8()?),
            PropertyType::Short | PropertyType::PositiveShort => u32::from(rest.u16()?),
            PropertyType::Long | PropertyType::PositiveLong => rest.u32()?,
            PropertyType::PositiveVariable => rest.variable()?,
            PropertyType::Binary => return Ok(Value::Binary(rest.field()?)),
            PropertyType::Text => return Ok(Value::Text(rest.text()?)),
            PropertyType::Pair => return Ok(Value::Pair(rest.text()?, rest.text()?)),
            PropertyType::Topic => {
                let topic = rest.utf8()?;
                topic::validate_topic(topic)?;
                return Ok(Value::Text(topic));
            }
        };
        if self.allows(number) {
            Ok(Value::Number(number))
        } else {
            Err(DecodeError::BadPropertyValue { property: self.property, value: number })
        }
    }

    const fn allows(&self, number: u32) -> bool {
        match self.kind {
            PropertyType::Flag => number <= 1,
            PropertyType::PositiveShort
            | PropertyType::PositiveLong
            | PropertyType::PositiveVariable => number > 0,
            _ => true,
        }
    }
}

impl<'a> Iterator for PropertyIter<'a> {
    type Item = (Property, Value<'a>);

    /// Returns `None` only at the end, because the bytes are valid.
    fn next(&mut self) -> Option<Self::Item> {
        let row = row(&mut self.rest).ok()?;
        Some((row.property, row.read(&mut self.rest).ok()?))
    }
}

impl PropertyList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Removes all properties and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends the properties of another list.
    pub fn extend(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// The properties, for a packet.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        Properties { bytes: &self.bytes }
    }

    /// Appends a property. The caller appends a property to packets of its row only, and repeats
    /// only those that may repeat.
    ///
    /// # Errors
    /// [`EncodeError`] if the property does not allow the value, or a string is too long. The list
    /// is then unchanged.
    pub fn push(&mut self, property: Property, value: Value<'_>) -> Result<(), EncodeError> {
        let row = property.row();
        let start = self.bytes.len();
        self.bytes.push(property as u8);
        let written = row.write(value, &mut self.bytes);
        if written.is_err() {
            self.bytes.truncate(start);
        }
        written
    }
}

impl PropertyRow {
    fn write(&self, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let bad = EncodeError::BadProperty(self.property);
        match (self.kind, value) {
            (PropertyType::Binary, Value::Binary(bytes)) => write_field(out, bytes),
            (PropertyType::Text | PropertyType::Topic, Value::Text(text)) => {
                write_field(out, text.as_bytes())
            }
            (PropertyType::Pair, Value::Pair(name, value)) => {
                write_field(out, name.as_bytes())?;
                write_field(out, value.as_bytes())
            }
            (_, Value::Number(number)) if !self.allows(number) => Err(bad),
            (PropertyType::Flag, Value::Number(number)) => {
                out.push(number as u8);
                Ok(())
            }
            (PropertyType::Short | PropertyType::PositiveShort, Value::Number(number)) => {
                let number = u16::try_from(number).map_err(|_| bad)?;
                out.extend_from_slice(&number.to_be_bytes());
                Ok(())
            }
            (PropertyType::Long | PropertyType::PositiveLong, Value::Number(number)) => {
                out.extend_from_slice(&number.to_be_bytes());
                Ok(())
            }
            (PropertyType::PositiveVariable, Value::Number(number)) => {
                write_variable(out, number as usize)
            }
            _ => Err(bad),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
