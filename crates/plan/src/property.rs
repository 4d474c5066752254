//! Properties of MQTT 5 as the plan has them: name and value. What a property means is known to the
//! broker and to the session of the client.

use mqtt::Property as Name;
use serde::{Deserialize, Serialize};

use crate::check::{PlanError, require};
use crate::template::Template;

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

impl Property {
    /// The property in the standard; `None` if there is none of this name.
    #[must_use]
    pub fn kind(&self) -> Option<Name> {
        Name::named(&self.name)
    }

    /// Its number; 0 for a property with a text.
    pub(crate) const fn number(&self) -> u32 {
        match &self.value {
            PropertyValue::Number(number) => *number,
            PropertyValue::Text(_) => 0,
        }
    }

    pub(crate) const fn template(&self) -> Option<&Template> {
        match &self.value {
            PropertyValue::Number(_) => None,
            PropertyValue::Text(template) => Some(template),
        }
    }

    pub(crate) fn check(&self, path: &str) -> Result<(), PlanError> {
        let kind = self.kind();
        require(kind.is_some(), path, || {
            format!("found the property '{}', allowed are those of MQTT 5", self.name)
        })?;
        let is_pair = kind == Some(Name::UserProperty);
        require(is_pair == self.key.is_some(), path, || {
            format!("found {} with key {:?}, only user properties have one", self.name, self.key)
        })
    }
}
