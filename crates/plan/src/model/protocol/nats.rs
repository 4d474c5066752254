//! Clients of a NATS server.

use serde::{Deserialize, Serialize};

use super::ProtocolOptions;
use crate::error::{PlanError, require};
use crate::model::Population;
use crate::model::capabilities::{Capabilities, Publications, Secures};
use crate::model::names::Names;
use crate::text::template::Template;

const CAPABILITIES: Capabilities = Capabilities {
    names: Names::Subjects,
    joins_targets: true,
    publications: Publications::Any,
    qos_max: 0,
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
}

impl ProtocolOptions for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn skips_own_messages(&self) -> bool {
        !self.echo
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

    /// Checks the login, and that headers and subjects fit their lines.
    fn check(&self, population: &Population, path: &str) -> Result<(), PlanError> {
        require(
            self.jwt.is_none() || self.seed.is_some(),
            &format!("{path}.protocol.jwt"),
            || "found one without a seed, needed is the nkey with which the client signs".into(),
        )?;
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
