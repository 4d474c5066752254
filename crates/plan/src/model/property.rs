//! Properties of MQTT 5 as the plan has them: name and value. What a property means is known to the
//! broker and to the session of the client.

use serde::{Deserialize, Serialize};

use crate::text::template::Template;

/// A property of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Property {
    /// Name in the standard, in small letters with `_` for a space.
    pub name: String,
    /// Name of a user property; `None` for other properties.
    #[serde(default)]
    pub key: Option<String>,
    /// Value of the property.
    pub value: PropertyValue,
}

/// Value of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PropertyValue {
    /// A number.
    Number(u32),
    /// Template of a string, or of binary data.
    Text(Template),
}

/// Templates of properties, each with its path: `path` is that of the list.
pub(crate) fn templates<'a>(
    path: &str,
    properties: impl IntoIterator<Item = &'a Property>,
) -> impl Iterator<Item = (String, &'a Template)> {
    properties
        .into_iter()
        .enumerate()
        .filter_map(move |(i, property)| Some((format!("{path}[{i}].value"), property.template()?)))
}
