//! Questions about a plan that its fields answer: which packets, which clients and which programs.

use mqtt::Property as Name;

use crate::SECOND_NS;
use crate::model::capabilities::Capabilities;
use crate::model::flows::{Payload, Publication, Subscription};
use crate::model::property::{Property, PropertyValue};
use crate::model::protocol::{Mqtt, PlannedWill, Player};
use crate::model::{Action, Bridges, Change, ChangeAction, Plan, Population, Target};
use crate::schedule::recorded::RecordedContent;
use crate::schedule::tempo::Tempo;
use crate::text::template::Template;

impl Plan {
    /// For each population, the one with the same client identifiers, whose clients take
    /// connections over from those of the population, or have them taken over.
    #[must_use]
    pub fn rivals(&self) -> Vec<Option<usize>> {
        let mut rivals: Vec<_> = self.populations.iter().map(|own| own.takes_over).collect();
        for (taker, population) in self.populations.iter().enumerate() {
            let victim = population.takes_over.and_then(|victim| rivals.get_mut(victim));
            if let Some(rival @ None) = victim {
                *rival = Some(taker);
            }
        }
        rivals
    }
}

impl Population {
    /// Capabilities of its clients.
    #[must_use]
    pub fn capabilities(&self) -> &'static Capabilities {
        self.protocol.options().capabilities()
    }

    /// Port of a target at which its clients connect.
    #[must_use]
    pub fn port_of(&self, target: &Target) -> u16 {
        target.ports.get(self.protocol.options().name()).copied().unwrap_or(target.port)
    }

    /// Options of its MQTT clients; `None` for another protocol.
    #[must_use]
    pub const fn mqtt(&self) -> Option<&Mqtt> {
        self.protocol.mqtt()
    }

    /// The will of its clients, if they have one.
    #[must_use]
    pub fn will(&self) -> Option<&PlannedWill> {
        self.mqtt()?.will.as_deref()
    }

    /// Time from the end of a connection to the publication of its will, in nanoseconds: the Will
    /// Delay Interval, or the rest of the session if that is shorter (3.1.3.2.2 of MQTT 5).
    #[must_use]
    pub fn will_delay_ns(&self) -> u64 {
        let Some((mqtt, will)) = self.mqtt().and_then(|mqtt| Some((mqtt, mqtt.will.as_ref()?)))
        else {
            return 0;
        };
        let seconds = |properties: &[Property], name| {
            let found = properties.iter().find(|property| property.kind() == Some(name));
            found.map_or(0, Property::number)
        };
        let delay_s = seconds(&will.properties, Name::WillDelayInterval);
        let session_s = seconds(&mqtt.properties, Name::SessionExpiryInterval);
        u64::from(delay_s.min(session_s)) * SECOND_NS
    }

    /// Returns `true` if the messages of one of its publications carry their stamp in a user
    /// property: texts of the user's own. Requests have it in the correlation data.
    #[must_use]
    pub fn stamps_property(&self, publication: &Publication) -> bool {
        let is_stampless = match &publication.payload {
            Payload::Text { template, .. } => !template.has_stamp(),
            Payload::Records { stamped, .. } => !stamped,
            Payload::Recorded(recording) => recording.content == RecordedContent::Beside,
            _ => false,
        };
        self.capabilities().has_properties && is_stampless && !publication.request
    }

    /// Returns `true` if its clients receive nothing that they have published themselves: the
    /// options of their protocol say so, or all their subscriptions do.
    #[must_use]
    pub fn skips_own_messages(&self) -> bool {
        let refuses_own = |subscription: &Subscription| subscription.no_local;
        self.protocol.options().skips_own_messages()
            || (!self.subscriptions.is_empty() && self.subscriptions.iter().all(refuses_own))
    }

    /// Returns `true` if the RETAIN flag of a message may be that of its publisher.
    #[must_use]
    pub fn retains_as_published(&self) -> bool {
        self.subscriptions.iter().any(|subscription| subscription.retain_as_published)
    }

    /// Returns `true` if the broker keeps the session of a client that is offline, or a server its
    /// durable consumers.
    #[must_use]
    pub fn keeps_session(&self) -> bool {
        self.protocol.options().keeps_session()
    }

    /// Returns `true` if each client expects the same messages: all have the same filters, at the
    /// same target.
    #[must_use]
    pub fn receives_alike(&self) -> bool {
        let is_same = |subscription: &Subscription| {
            subscription.filter.is_fixed() && !self.is_shared(subscription)
        };
        self.at.count == 1
            && !self.skips_own_messages()
            && !self.subscriptions.is_empty()
            && self.subscriptions.iter().all(is_same)
    }

    /// Returns `true` if its clients are members of one shared group and have no other filter.
    #[must_use]
    pub fn is_one_group(&self) -> bool {
        let [subscription] = self.subscriptions.as_slice() else { return false };
        self.at.count == 1 && subscription.filter.is_fixed() && self.is_shared(subscription)
    }

    /// Returns `true` if one of its subscriptions is to a shared group.
    #[must_use]
    pub fn is_shared(&self, subscription: &Subscription) -> bool {
        self.capabilities().shares && subscription.filter.source().starts_with("$share/")
    }

    /// Returns `true` if the deliveries of its clients can be compared with each other.
    #[must_use]
    pub fn compares_clients(&self) -> bool {
        self.receives_alike() || self.is_one_group()
    }

    /// Returns `true` if engines play its clients, each engine its share.
    #[must_use]
    pub fn is_played_by_engines(&self) -> bool {
        self.protocol.options().player() == Player::Engine
    }

    /// Returns `true` if its messages are externally published: by programs other than engines.
    /// The controller reports the number of these messages when a stage closes.
    #[must_use]
    pub fn is_externally_published(&self) -> bool {
        !self.is_played_by_engines() && !self.publications.is_empty()
    }

    /// Returns `true` if its clients send requests.
    #[must_use]
    pub fn requests(&self) -> bool {
        self.publications.iter().any(|publication| publication.request)
    }
}

impl Publication {
    /// Time after which the broker may not deliver a message any more, in nanoseconds; `None` if
    /// messages do not expire.
    #[must_use]
    pub fn expiry_ns(&self) -> Option<u64> {
        let is_expiry = |property: &&Property| property.kind() == Some(Name::MessageExpiryInterval);
        let expiry = self.properties.iter().find(is_expiry)?;
        Some(u64::from(expiry.number()) * SECOND_NS)
    }

    /// Template of the topic of answers.
    pub(crate) fn response_topic(&self) -> Option<&Template> {
        let is_it = |property: &&Property| property.kind() == Some(Name::ResponseTopic);
        self.properties.iter().find(is_it).and_then(Property::template)
    }
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
}

impl Action {
    /// Changes of populations during the stage, in the order of time.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        match self {
            Self::Publish { changes, .. } | Self::Hold { changes, .. } => changes,
            Self::Connect { .. } | Self::Disconnect { .. } => &[],
        }
    }
}

impl ChangeAction {
    /// Returns true if clients join or leave.
    #[must_use]
    pub const fn moves_clients(&self) -> bool {
        matches!(self, Self::Add { .. } | Self::Remove { .. })
    }

    /// Returns true for a change of the rate.
    #[must_use]
    pub const fn is_rate(&self) -> bool {
        matches!(self, Self::Rate { .. })
    }

    /// Time over which the change takes effect, in nanoseconds.
    #[must_use]
    pub const fn over_ns(&self) -> u64 {
        match *self {
            Self::Add { over_ns, .. }
            | Self::Remove { over_ns, .. }
            | Self::Migrate { over_ns, .. } => over_ns,
            Self::Rate { .. } => 0,
        }
    }

    /// Returns true if the factor is in range.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        match self {
            Self::Rate { factor } => (0.0..=Tempo::FACTOR_MAX).contains(factor),
            Self::Add { .. } | Self::Remove { .. } | Self::Migrate { .. } => true,
        }
    }
}

impl Bridges {
    /// Targets of the small brokers.
    #[must_use]
    pub const fn small(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.count
    }
}
