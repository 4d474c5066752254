//! Templates of a population: their places, the check of each template, and the values of rows.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::error::{PlanError, require};
use crate::model::flows::Payload;
use crate::model::{Population, property};
use crate::text::rows::Column;
use crate::text::template::{Place, Template, TemplateError};

/// Columns by their names.
pub type Columns = HashMap<String, Arc<Column>>;

impl Population {
    /// Names of the columns in the templates.
    #[must_use]
    pub fn columns(&self) -> BTreeSet<&str> {
        self.templates().into_iter().flat_map(|(_, _, template)| template.columns()).collect()
    }

    /// Names of the columns in topics and filters. All agents need the rows of all clients for
    /// them.
    #[must_use]
    pub fn columns_of_topics(&self) -> BTreeSet<&str> {
        let is_topic = |place| matches!(place, Place::Topic(_) | Place::Filter(_));
        let templates = self.templates().into_iter();
        let in_topics = templates.filter_map(|(_, place, t)| is_topic(place).then_some(t));
        let will = self.will().map(|will| &will.topic);
        in_topics.chain(will).flat_map(Template::columns).collect()
    }

    /// Sets the values of the templates' columns, and checks the templates with these values.
    ///
    /// # Errors
    /// [`PlanError`] names the template with a missing column, or with values that its place does
    /// not allow.
    pub fn bind(&self, columns: &Columns) -> Result<(), PlanError> {
        let templates = self.templates();
        let json = templates.iter().filter(|(_, place, _)| *place == Place::Json);
        let named: BTreeSet<&str> = json.flat_map(|(_, _, template)| template.columns()).collect();
        let in_json = columns.iter().filter(|(name, _)| named.contains(name.as_str()));
        let escape =
            |(name, column): (&String, &Arc<Column>)| (name.clone(), column.escaped_for_json());
        let escaped: Columns = in_json.map(escape).collect();
        for (path, place, template) in templates {
            let columns = if place == Place::Json { &escaped } else { columns };
            template.bind(columns).map_err(|source| PlanError::Template { path, source })?;
        }
        self.check_templates("")
    }

    /// Checks each template at its place.
    pub(crate) fn check_templates(&self, within: &str) -> Result<(), PlanError> {
        for (path, place, template) in self.templates() {
            let rowless = template.columns().next().filter(|_| self.rows.is_none());
            let column = rowless.map_or(Ok(()), |n| Err(TemplateError::Column(n.to_owned())));
            let path = format!("{within}.{path}").trim_start_matches('.').to_owned();
            let (found, most) = (template.bytes_max(), place.bytes_max());
            require(found <= most, &path, || {
                format!("found up to {found} bytes, allowed are {most}")
            })?;
            let checked = column.and_then(|()| template.check(place));
            checked.map_err(|source| PlanError::Template { path, source })?;
        }
        let mut publications = self.publications.iter().enumerate();
        publications.try_for_each(|(p, publication)| {
            let path = format!("{within}.publications[{p}]");
            publication.check_sizes(path.trim_start_matches('.'))
        })
    }

    /// All templates: path in the population, and kind of place.
    fn templates(&self) -> Vec<(String, Place, &Template)> {
        let mut templates = Vec::new();
        let tls = self.tls.as_ref();
        for (path, template) in self.protocol.options().templates() {
            templates.push((format!("protocol.{path}"), Place::Client, template));
        }
        let client = [
            ("username", self.username.as_ref()),
            ("password", self.password.as_ref()),
            ("tls.certificate", tls.and_then(|tls| tls.certificate.as_ref())),
            ("tls.key", tls.and_then(|tls| tls.key.as_ref())),
            ("tls.passphrase", tls.and_then(|tls| tls.passphrase.as_ref())),
            ("tls.server_name", tls.and_then(|tls| tls.server_name.as_ref())),
            ("tls.psk.identity", tls.and_then(|tls| tls.psk.as_ref()).map(|psk| &psk.identity)),
        ];
        for (path, template) in client {
            templates.extend(template.map(|t| (path.to_owned(), Place::Client, t)));
        }
        for (h, header) in self.headers.iter().enumerate() {
            templates.push((format!("headers[{h}].value"), Place::Client, &header.value));
        }
        let names = self.capabilities().names;
        for (s, subscription) in self.subscriptions.iter().enumerate() {
            let path = format!("subscriptions[{s}].filter");
            templates.push((path, Place::Filter(names), &subscription.filter));
        }
        for (p, publication) in self.publications.iter().enumerate() {
            let path = format!("publications[{p}].topic");
            templates.push((path, Place::Topic(names), &publication.topic));
            if let Payload::Text { template, is_json } = &publication.payload {
                let place = if *is_json { Place::Json } else { Place::Payload };
                templates.push((format!("publications[{p}].payload"), place, template));
            }
            let path = format!("publications[{p}].properties");
            let properties = property::templates(&path, &publication.properties);
            templates.extend(properties.map(|(path, own)| (path, Place::Property, own)));
        }
        templates
    }
}
