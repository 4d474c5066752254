//! Clients of a NATS server.

use serde::{Deserialize, Serialize};

use super::ProtocolOptions;
use crate::error::{PlanError, require};
use crate::model::Population;
use crate::model::bounds;
use crate::model::capabilities::{Capabilities, Publications, Secures};
use crate::model::names::Names;
use crate::text::template::Template;

const CAPABILITIES: Capabilities = Capabilities {
    names: Names::Subjects,
    joins_targets: true,
    publications: Publications::Any,
    // JetStream stores a message and acknowledges it.
    qos_max: 1,
    retains: false,
    varies_pace: true,
    flaps: true,
    shares: true,
    answers: false,
    has_properties: false,
    secures: Secures::OnRequest,
};

/// Options of NATS clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// Template of the name that the server lists.
    pub client_name: Template,
    /// `true` if the server sends a client its own messages.
    pub echo: bool,
    /// Token with which clients log in.
    #[serde(default)]
    pub token: Option<Template>,
    /// Seed of the nkey with which clients sign.
    #[serde(default)]
    pub seed: Option<Template>,
    /// JSON Web Token of the user with that nkey.
    #[serde(default)]
    pub jwt: Option<Template>,
    /// Streams that each client creates, unless they exist with the same settings.
    #[serde(default)]
    pub streams: Vec<PlannedStream>,
    /// Durable consumers of the subscriptions, one for each in their order; empty: none has one.
    #[serde(default)]
    pub consumers: Vec<PlannedConsumer>,
}

/// A stream of JetStream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedStream {
    /// Name.
    pub name: String,
    /// Subjects whose messages the stream stores.
    pub subjects: Vec<String>,
    /// `true` if the stream is in memory; `false`: in files.
    pub in_memory: bool,
    /// Number of servers that store each message.
    pub replicas: u8,
}

/// Durable consumers of a subscription: one for each filter of a client, or one for all members of
/// a queue group. The server keeps the messages of a client that is away, and expects an
/// acknowledgement of each delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedConsumer {
    /// Name of the stream.
    pub stream: String,
    /// Time after which the server delivers an unacknowledged message again, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub ack_wait_ns: u64,
}

impl ProtocolOptions for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn keeps_session(&self) -> bool {
        !self.consumers.is_empty()
    }

    /// A stream delivers messages of the server.
    fn skips_own_messages(&self) -> bool {
        !self.echo && self.consumers.is_empty()
    }

    fn templates(&self) -> Vec<(String, &Template)> {
        let own = [
            ("client_name", Some(&self.client_name)),
            ("token", self.token.as_ref()),
            ("seed", self.seed.as_ref()),
            ("jwt", self.jwt.as_ref()),
        ];
        own.into_iter().filter_map(|(path, own)| Some((path.to_owned(), own?))).collect()
    }

    /// Checks the login and the consumers, and that headers and subjects fit their lines.
    fn check(&self, population: &Population, path: &str) -> Result<(), PlanError> {
        require(
            self.jwt.is_none() || self.seed.is_some(),
            &format!("{path}.protocol.jwt"),
            || "found one without a seed, needed is the nkey with which the client signs".into(),
        )?;
        let consumers = self.consumers.len();
        let is_whole = consumers == 0 || consumers == population.subscriptions.len();
        let path_of_consumers = format!("{path}.protocol.consumers");
        require(is_whole, &path_of_consumers, || {
            format!("found {consumers}, allowed are none, or one for each subscription")
        })?;
        require(consumers == 0 || population.flapping.is_none(), &path_of_consumers, || {
            "found some of clients that unsubscribe, allowed are none".into()
        })?;
        let mut headers = population.publications.iter().flat_map(|own| &own.properties);
        require(headers.all(|header| header.key.is_some()), path, || {
            "found a header without a name, needed is a key".into()
        })?;
        let subjects = population.publications.iter().map(|own| &own.topic);
        for subject in population.subscriptions.iter().map(|own| &own.filter).chain(subjects) {
            let source = subject.source();
            let is_word = !source.is_empty() && !source.contains(char::is_whitespace);
            require(is_word, path, || {
                format!("found the subject '{source}', allowed is a text without spaces")
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fan_out::tests::population;
    use crate::model::{Flapping, PlannedProtocol};

    #[test]
    fn all_subscriptions_have_a_durable_consumer_or_none() {
        let nats = |consumers: usize| {
            let consumer = PlannedConsumer { stream: "S".into(), ack_wait_ns: 1 };
            let options = Nats {
                client_name: Template::new("n").unwrap(),
                echo: false,
                token: None,
                seed: None,
                jwt: None,
                streams: Vec::new(),
                consumers: vec![consumer; consumers],
            };
            let protocol = PlannedProtocol::Nats(Box::new(options));
            Population { protocol, ..population(1, 0, &["a", "b"]) }
        };
        let check = |own: &Population| own.protocol.options().check(own, "p");
        for (consumers, fits) in [(0, true), (1, false), (2, true), (3, false)] {
            let found = check(&nats(consumers));
            assert_eq!(found.is_ok(), fits, "{consumers}: {found:?}");
        }
        let flapping = Some(Flapping { min_ns: 1, max_ns: 1, unsubscribed_ns: 0 });
        assert!(check(&Population { flapping, ..nats(2) }).is_err());
        assert!(check(&Population { flapping, ..nats(0) }).is_ok());
        assert!(nats(2).keeps_session() && !nats(2).skips_own_messages());
        assert!(!nats(0).keeps_session() && nats(0).skips_own_messages());
    }
}
