//! A client that speaks MQTT: its CONNECT and SUBSCRIBE, and what it makes of each packet, with all
//! replies of one read in one write.

use mqtt::{Connect, Decoded, Event, QoS, decode};
use plan::{Population, Reason};

use super::{Client, Message, Phase};
use crate::shared::Shared;

/// What is left to do after a packet.
enum After {
    /// Nothing.
    Go,
    /// A publication that was held up can go on.
    Publish,
    /// The connection is to be given up.
    Lost(Reason),
}

impl Client {
    /// Sends CONNECT.
    pub(super) fn greet(&mut self, shared: &mut Shared) {
        let population = &shared.setup.plan.populations[self.population()];
        let n = population.first + u64::from(self.global(shared));
        let text = |template: &plan::Template| template.text(n, 0);
        let client_id = text(&population.client_id);
        let username = population.username.as_ref().map(text);
        let password = population.password.as_ref().map(text);
        let will = population.will.as_ref();
        let will = will.map(|will| (text(&will.topic), text(&will.payload), will));
        let connect = Connect {
            client_id: &client_id,
            username: username.as_deref(),
            password: password.as_deref().map(str::as_bytes),
            will: will.as_ref().map(|(topic, payload, will)| mqtt::Will {
                topic,
                payload: payload.as_bytes(),
                qos: QoS::try_from(will.qos).expect("the plan's check allows 0, 1 and 2"),
                retain: will.retain,
            }),
            keep_alive_s: population.keep_alive_s,
            clean_session: population.clean_session,
            bridge: population.bridge,
        };
        let version = shared.version(self.population());
        shared.out.clear();
        let Some(session) = self.session.mqtt() else { return };
        if session.connect(version, &connect, &mut shared.out).is_err() {
            // The conductor checks lengths; a longer text cannot be sent at all.
            self.lost(shared, Reason::ProtocolError);
            return;
        }
        self.phase = Phase::Greeting;
        shared.tally.populations[self.population()].counters.packets_sent_total += 1;
        self.flush(shared);
    }

    /// CONNACK 0 has come.
    fn subscribe_all(&mut self, shared: &mut Shared, session_present: bool) {
        self.accepted(shared);
        let population = &shared.setup.plan.populations[self.population()];
        let version = shared.version(self.population());
        // Only a session that was ready in this run surely has this run's filters.
        let kept = session_present && self.free_since_ns > 0;
        if population.subscriptions.is_empty() || kept {
            self.ready(shared);
            return;
        }
        let n = population.first + u64::from(self.global(shared));
        let filters = filters(population, n);
        let requested = filters.iter().map(|(filter, qos)| (filter.as_str(), *qos));
        let Some(session) = self.session.mqtt() else { return };
        if session.subscribe(version, requested, &mut shared.out).is_err() {
            self.lost(shared, Reason::ProtocolError);
            return;
        }
        shared.tally.populations[self.population()].counters.packets_sent_total += 1;
    }

    /// SUBACK has come.
    fn subscribed(&mut self, shared: &mut Shared, codes: &[u8]) {
        let tally = &mut shared.tally.populations[self.population()];
        let refused = codes.iter().filter(|&&code| code == mqtt::SubAck::FAILURE).count();
        tally.counters.subscribed_total += (codes.len() - refused) as u64;
        tally.counters.subscribe_failed_total += refused as u64;
        (0..refused).for_each(|_| tally.outcome(Reason::SubscribeRefused));
        if self.phase == Phase::Subscribing {
            self.ready(shared);
        }
    }

    /// Handles whole packets and writes the replies; returns how many bytes they took.
    pub(super) fn handle_packets(&mut self, shared: &mut Shared, bytes: &[u8]) -> usize {
        let version = shared.version(self.population());
        let most = shared.setup.plan.max_packet_bytes as usize;
        let mut handled = 0;
        let mut publishes = false;
        shared.out.clear();
        while self.stream.is_some() && !self.paused {
            let (packet, len) = match decode(version, &bytes[handled..]) {
                Ok(Decoded::Packet { packet, len }) if len <= most => (packet, len),
                Ok(Decoded::Incomplete { needed }) if needed <= most => break,
                Ok(_) => {
                    self.lost(shared, Reason::PacketTooLarge);
                    break;
                }
                Err(_) => {
                    self.lost(shared, Reason::ProtocolError);
                    break;
                }
            };
            handled += len;
            let tally = &mut shared.tally.populations[usize::from(self.population)];
            tally.counters.packets_received_total += 1;
            let replied = shared.out.len();
            let Some(session) = self.session.mqtt() else { break };
            let after = match session.handle(version, &packet, &mut shared.out) {
                Ok(event) => {
                    let tally = &mut shared.tally.populations[usize::from(self.population)];
                    tally.counters.packets_sent_total += u64::from(shared.out.len() > replied);
                    self.handle_event(shared, event)
                }
                Err(_) => After::Lost(Reason::ProtocolError),
            };
            match after {
                After::Go => {}
                After::Publish => publishes = true,
                After::Lost(reason) => self.lost(shared, reason),
            }
        }
        self.flush(shared);
        if publishes {
            self.publish_due(shared);
        }
        handled
    }

    fn handle_event(&mut self, shared: &mut Shared, event: Event<'_, Message>) -> After {
        match event {
            Event::Delivered(publish) => {
                self.delivered(shared, &publish);
                self.note_read(shared, 1);
            }
            Event::Acknowledged(message) => {
                if self.acknowledged(shared, &message) {
                    return After::Publish;
                }
            }
            Event::Connected { session_present } => self.subscribe_all(shared, session_present),
            Event::Refused { code } => return After::Lost(refusal(code)),
            Event::Subscribed { codes, .. } => self.subscribed(shared, codes),
            Event::Unsubscribed { .. }
            | Event::Redelivered
            | Event::Received
            | Event::Released
            | Event::Pong => {}
            Event::UnknownAck => {
                shared.tally.populations[self.population()].outcome(Reason::UnexpectedAck);
            }
        }
        After::Go
    }
}

fn filters(population: &Population, n: u64) -> Vec<(String, QoS)> {
    let mut filters = Vec::new();
    for subscription in &population.subscriptions {
        let qos = QoS::try_from(subscription.qos).expect("the plan's check allows 0, 1 and 2");
        let texts = (0..subscription.filter.variants()).map(|v| subscription.filter.text(n, v));
        filters.extend(texts.map(|text| (text, qos)));
    }
    filters
}

/// The reason behind a CONNACK code [MQTT-3.2.2.3].
const fn refusal(code: u8) -> Reason {
    match code {
        1 => Reason::BadProtocolVersion,
        2 => Reason::IdentifierRejected,
        3 => Reason::ServerUnavailable,
        4 => Reason::BadCredentials,
        5 => Reason::NotAuthorized,
        _ => Reason::ConnectRejected,
    }
}
