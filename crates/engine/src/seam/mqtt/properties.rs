//! Properties of MQTT 5: those that are always the same are encoded once, the texts of clients and
//! messages when their packet is made.

use mqtt::{Alias, Properties, Property, PropertyList, Value};
use plan::{Population, PropertyValue, Publication, STAMP_PROPERTY, Stamp, Template};

/// Properties of a kind of packet.
#[derive(Default)]
pub struct PropertySetup {
    fixed: PropertyList,
    texts: Vec<Text>,
    carrier: Carrier,
    /// Topic alias of the first value of the topic's range; `None`: no aliases.
    first_alias: Option<u32>,
}

/// Property with the stamp of a message.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Carrier {
    /// No property: the stamp is in the payload, or the message has none.
    #[default]
    None,
    /// That of requests.
    CorrelationData,
    /// That of texts of the user's own.
    UserProperty,
}

struct Text {
    property: Property,
    /// Name of a user property.
    key: Option<String>,
    template: Template,
}

impl PropertySetup {
    /// Prepares properties of a plan that has been checked.
    pub fn new(properties: &[plan::Property]) -> Self {
        let mut setup = Self::default();
        for each in properties {
            let Some(property) = each.kind() else { continue };
            let fixed = match &each.value {
                PropertyValue::Number(number) => {
                    setup.fixed.push(property, Value::Number(*number)).is_ok()
                }
                PropertyValue::Text(template) if template.is_fixed() => {
                    let text = template.text(0, 0);
                    push(&mut setup.fixed, property, each.key.as_deref(), &text).is_some()
                }
                PropertyValue::Text(_) => false,
            };
            if let (false, PropertyValue::Text(template)) = (fixed, &each.value) {
                let (key, template) = (each.key.clone(), template.clone());
                setup.texts.push(Text { property, key, template });
            }
        }
        setup
    }

    /// Prepares the properties of the publications of a population. Each topic of a client has its
    /// own alias.
    pub fn of_publications(population: &Population) -> Vec<Self> {
        let mut next_alias = 1;
        let prepare = |publication: &Publication| {
            let first_alias = publication.topic_alias.then_some(next_alias);
            next_alias += first_alias.map_or(0, |_| publication.topic.variants());
            let carrier = match publication.request {
                true => Carrier::CorrelationData,
                false if population.stamps_property(publication) => Carrier::UserProperty,
                false => Carrier::None,
            };
            Self { carrier, first_alias, ..Self::new(&publication.properties) }
        };
        population.publications.iter().map(prepare).collect()
    }

    /// Topic alias for the value of the topic's range that `variant` returns; `None` without
    /// aliases, or beyond the last.
    #[inline]
    pub fn alias(&self, variant: impl FnOnce() -> u32) -> Option<u16> {
        let first = self.first_alias?;
        u16::try_from(first + variant()).ok()
    }

    /// Sets `list` to the properties, with texts that `render` appends to `text`. Returns `None` if
    /// a text is longer than MQTT allows.
    pub fn write(
        &self,
        list: &mut PropertyList,
        text: &mut Vec<u8>,
        render: impl Fn(&Template, &mut Vec<u8>),
    ) -> Option<()> {
        list.clear();
        list.extend(&self.fixed);
        for Text { property, key, template } in &self.texts {
            text.clear();
            render(template, text);
            push(list, *property, key.as_deref(), std::str::from_utf8(text).ok()?)?;
        }
        Some(())
    }

    /// Properties of a message. `list` and `text` are memory for them.
    #[inline]
    pub fn of_message<'a>(
        &'a self,
        (alias, stamp): (Alias, impl FnOnce() -> Stamp),
        list: &'a mut PropertyList,
        text: &mut Vec<u8>,
        render: impl Fn(&Template, &mut Vec<u8>),
    ) -> Option<Properties<'a>> {
        let is_fixed = self.texts.is_empty() && self.carrier == Carrier::None;
        if is_fixed && alias == Alias::Unusable {
            return Some(self.fixed.properties());
        }
        self.write(list, text, render)?;
        match self.carrier {
            Carrier::None => {}
            Carrier::CorrelationData => {
                let stamp = stamp().to_correlation();
                list.push(Property::CorrelationData, Value::Binary(&stamp)).ok()?;
            }
            Carrier::UserProperty => {
                let stamp = stamp().to_text();
                let stamp = std::str::from_utf8(&stamp).ok()?;
                list.push(Property::UserProperty, Value::Pair(STAMP_PROPERTY, stamp)).ok()?;
            }
        }
        if let Alias::New(number) | Alias::Known(number) = alias {
            list.push(Property::TopicAlias, Value::Number(number.into())).ok()?;
        }
        Some(list.properties())
    }
}

/// Appends a text, which is binary data for some properties.
fn push(list: &mut PropertyList, property: Property, key: Option<&str>, text: &str) -> Option<()> {
    let value = match (key, property) {
        (Some(key), _) => Value::Pair(key, text),
        (None, Property::CorrelationData | Property::AuthenticationData) => {
            Value::Binary(text.as_bytes())
        }
        (None, _) => Value::Text(text),
    };
    list.push(property, value).ok()
}
