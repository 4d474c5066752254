//! CONNECT, AUTH, SUBSCRIBE and UNSUBSCRIBE of a client.

use mqtt::{
    Connect, PacketId, Property, PropertyList, RequestError, RetainHandling, SubscriptionOptions,
    Value, encode_auth,
};
use plan::{Authentication, Reason, SCRAM_SHA_256, Subscription};

use super::publish::PropertySetup;
use super::{MqttSetup, TokenSession, qos};
use crate::seam::login::Login;
use crate::seam::protocol::{Asked, At, FirstBytes, OwnMessage};

/// Bytes of a SUBSCRIBE or UNSUBSCRIBE with several filters at most. Many brokers take no larger
/// packets, and do not say so.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Appends CONNECT.
pub fn open(
    session: &mut TokenSession,
    at: &At<'_, MqttSetup>,
    FirstBytes { login, will: own_will }: FirstBytes<'_>,
    out: &mut Vec<u8>,
) -> Result<Asked, Reason> {
    let At { population, n, .. } = *at;
    let Some(options) = population.protocol.mqtt() else { return Err(Reason::CannotEncode) };
    let text = |template: &plan::Template| template.text(n, 0);
    let client_id = text(&options.client_id);
    // With SCRAM, the password is not sent.
    let sent = |name: &Option<plan::Template>| name.as_ref().filter(|_| login.is_none()).map(text);
    let (username, password) = (sent(&population.username), sent(&population.password));
    let list = |properties: &[plan::Property]| {
        let mut list = PropertyList::new();
        let setup = PropertySetup::new(properties);
        let written = setup.write(&mut list, &mut Vec::new(), |template, text| {
            template.render(n, 0, text);
        });
        written.map(|()| list).ok_or(Reason::CannotEncode)
    };
    let mut properties = list(&options.properties)?;
    if let Some(Authentication { method, data }) = &options.authentication {
        let data = login.map(Login::first).or_else(|| data.as_ref().map(text));
        push_step(&mut properties, method, &data.unwrap_or_default())?;
    }
    let will = options.will.as_ref();
    let will_properties = list(will.map_or(&[][..], |will| &will.properties))?;
    let planned = || {
        will.map(|will| OwnMessage {
            topic: text(&will.topic),
            payload: text(&will.payload).into_bytes(),
            qos: will.qos,
            retain: will.retain,
            is_last: true,
        })
    };
    let will = own_will.cloned().or_else(planned);
    let connect = Connect {
        client_id: &client_id,
        username: username.as_deref(),
        password: password.as_deref().map(str::as_bytes),
        will: will.as_ref().map(|will| mqtt::Will {
            topic: &will.topic,
            payload: &will.payload,
            qos: qos(will.qos),
            retain: will.retain,
            properties: will_properties.properties(),
        }),
        keep_alive_s: population.keep_alive_s,
        clean_session: options.clean_session,
        bridge: options.bridge,
        properties: properties.properties(),
    };
    // The controller checks lengths; no packet can hold a longer text.
    let opened = session.connect(at.setup.version, &connect, out);
    opened.map(|_| Asked::ONE).map_err(|_| Reason::CannotEncode)
}

/// Appends AUTH with a step of SCRAM.
pub fn authenticate(data: &str, out: &mut Vec<u8>) -> Result<Asked, Reason> {
    let mut properties = PropertyList::new();
    push_step(&mut properties, SCRAM_SHA_256, data)?;
    encode_auth(properties.properties(), out).map(|()| Asked::ONE).map_err(|_| Reason::CannotEncode)
}

fn push_step(properties: &mut PropertyList, method: &str, data: &str) -> Result<(), Reason> {
    let method = properties.push(Property::AuthenticationMethod, Value::Text(method));
    let data = Value::Binary(data.as_bytes());
    let pushed = method.and_then(|()| properties.push(Property::AuthenticationData, data));
    pushed.map_err(|_| Reason::CannotEncode)
}

/// Appends the subscriptions: SUBSCRIBE for the filters without an identifier, and for each
/// identifier, since a packet has only one. Nothing without filters.
pub fn subscribe(
    session: &mut TokenSession,
    at: &At<'_, MqttSetup>,
    out: &mut Vec<u8>,
) -> Result<Asked, Reason> {
    let At { population, n, .. } = *at;
    let mut identifiers: Vec<_> = population.subscriptions.iter().map(|s| s.identifier).collect();
    identifiers.sort_unstable();
    identifiers.dedup();
    let mut asked = Asked::default();
    for identifier in identifiers {
        let mut properties = PropertyList::new();
        if let Some(number) = identifier {
            let pushed = properties.push(Property::SubscriptionIdentifier, Value::Number(number));
            pushed.map_err(|_| Reason::CannotEncode)?;
        }
        let mut filters = Vec::new();
        for subscription in population.subscriptions.iter().filter(|s| s.identifier == identifier) {
            let texts = (0..subscription.filter.variants()).map(|v| subscription.filter.text(n, v));
            filters.extend(texts.map(|text| (text, options(subscription))));
        }
        let (version, properties) = (at.setup.version, properties.properties());
        let append: Append<'_, (String, _)> = &|session, filters, out| {
            let filters = filters.iter().map(|(filter, options)| (filter.as_str(), *options));
            session.subscribe(version, properties, filters, out)
        };
        ask(session, &filters, append, &mut asked, out)?;
    }
    Ok(Asked { awaits_answer: asked.packets > 0, ..asked })
}

/// Appends UNSUBSCRIBE with all filters.
pub fn unsubscribe(
    session: &mut TokenSession,
    at: &At<'_, MqttSetup>,
    out: &mut Vec<u8>,
) -> Result<Asked, Reason> {
    let At { population, n, .. } = *at;
    let filters = population.subscriptions.iter().map(|subscription| &subscription.filter);
    let texts = filters.flat_map(|filter| (0..filter.variants()).map(move |v| filter.text(n, v)));
    let texts: Vec<String> = texts.collect();
    let version = at.setup.version;
    let append: Append<'_, String> = &|session, filters, out| {
        session.unsubscribe(version, filters.iter().map(String::as_str), out)
    };
    let mut asked = Asked::default();
    ask(session, &texts, append, &mut asked, out)?;
    Ok(Asked { awaits_answer: asked.packets > 0, ..asked })
}

/// Appends a SUBSCRIBE or UNSUBSCRIBE with all of some filters.
type Append<'a, F> =
    &'a dyn Fn(&mut TokenSession, &[F], &mut Vec<u8>) -> Result<PacketId, RequestError>;

/// Appends packets with all `filters`, none of them above the Maximum Packet Size of the broker
/// [MQTT5-3.2.2-15], and none with several filters above [`REQUEST_BYTES_MAX`]. Filters that are
/// too large for a packet of their own are left out.
fn ask<F>(
    session: &mut TokenSession,
    filters: &[F],
    append: Append<'_, F>,
    asked: &mut Asked,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let (start, most) = (out.len(), session.limits().packet_bytes_max());
    let packet_id = match append(session, filters, out) {
        Ok(packet_id) => Some(packet_id),
        Err(RequestError::Encode(_)) => None,
        Err(RequestError::NoPacketId) => return Err(Reason::CannotEncode),
    };
    let most = if filters.len() > 1 { most.min(REQUEST_BYTES_MAX) } else { most };
    if packet_id.is_some() && out.len() - start <= most {
        asked.packets += 1;
        return Ok(());
    }
    out.truncate(start);
    packet_id.into_iter().for_each(|packet_id| session.withdraw_request(packet_id));
    let (front, rest) = filters.split_at(filters.len() / 2);
    if front.is_empty() {
        asked.left_out += rest.len() as u64;
        return Ok(());
    }
    ask(session, front, append, asked, out)?;
    ask(session, rest, append, asked, out)
}

fn options(subscription: &Subscription) -> SubscriptionOptions {
    SubscriptionOptions {
        qos: qos(subscription.qos),
        no_local: subscription.no_local,
        retain_as_published: subscription.retain_as_published,
        retain_handling: match subscription.retain_handling {
            plan::PlannedRetainHandling::Send => RetainHandling::Send,
            plan::PlannedRetainHandling::SendIfNew => RetainHandling::SendIfNew,
            plan::PlannedRetainHandling::Never => RetainHandling::Never,
        },
    }
}
