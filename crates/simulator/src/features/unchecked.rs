//! Features that need no check beyond those of all runs.

use plan::{Action, End, MqttVersion, Payload, PlannedProtocol, Property, PropertyValue};
use testkit::Rng;
use testkit::plans::{number, template};

use crate::case::Case;
use crate::weather::{Climate, S};

/// Draws connections that are aborted, shared groups, a small maximum of packets, and exclusions
/// from loss.
pub fn draw_exclusions(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xe87e_9d00);
    for (p, population) in case.plan.populations.iter_mut().enumerate() {
        if rng.chance(15) {
            population.end = End::Abort;
        }
        for subscription in &mut population.subscriptions {
            if rng.chance(15) {
                let own = format!("g{p}");
                let group = rng.pick(&[&own, "all", "g{n%2}"]);
                let filter = format!("$share/{group}/{}", subscription.filter.source());
                subscription.filter = template(&filter);
            }
        }
    }
    if case.climate == Climate::Storm && rng.chance(5) {
        case.plan.max_packet_bytes = 600;
    }
    for (index, stage) in case.plan.stages.iter().enumerate() {
        let length_ns = match stage.action {
            Action::Publish { duration_ns, .. } => duration_ns,
            _ => S,
        };
        if rng.chance(10) {
            let population = rng.below(case.plan.populations.len());
            case.exclusions.push((index, rng.bits() % length_ns, population));
        }
    }
}

/// Draws targets over WebSocket.
pub fn draw_websockets(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x3eb5_0c4e);
    if rng.chance(30) {
        for target in &mut case.plan.targets {
            target.websocket = rng.chance(80).then(|| "/mqtt".into());
        }
    }
}

/// Draws targets under TLS.
pub fn draw_tls(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x0715_5ec5);
    if rng.chance(25) {
        case.plan.targets.iter_mut().for_each(|target| target.tls = rng.chance(80));
    }
}

/// Draws populations that speak MQTT 5.
pub fn draw_versions(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x55aa_0005);
    for population in &mut case.plan.populations {
        let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol else { continue };
        if !rng.chance(40) {
            continue;
        }
        mqtt.version = MqttVersion::V5;
        if !mqtt.clean_session {
            mqtt.properties.push(number("session_expiry_interval", u32::MAX));
        }
        for (index, subscription) in population.subscriptions.iter_mut().enumerate() {
            subscription.identifier = rng.chance(30).then_some(1 + index as u32);
        }
        for publication in &mut population.publications {
            publication.topic_alias = rng.chance(40);
            if rng.chance(40) {
                publication.properties = vec![
                    number("message_expiry_interval", 1000),
                    Property {
                        name: "user_property".into(),
                        key: Some("of".into()),
                        value: PropertyValue::Text(template("{n}")),
                    },
                ];
            }
        }
    }
}

/// Draws texts without a stamp: MQTT 5 has their stamps in a
/// property, which clients of older versions do not receive.
pub fn draw_texts(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x7e_8700);
    if !case.plan.populations.iter().all(|p| p.capabilities().has_properties) {
        return;
    }
    for publication in case.plan.populations.iter_mut().flat_map(|p| &mut p.publications) {
        if !publication.request && rng.chance(50) {
            let text = rng.pick(&["", "on", "number {seq} of {n}: {hex 40}"]);
            publication.payload = Payload::Text { template: template(text), is_json: false };
        }
    }
}

/// Draws retained messages, and subscriptions with their flag as published.
pub fn draw_retained(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x4e7a_14ed);
    if !rng.chance(40) {
        return;
    }
    for population in &mut case.plan.populations {
        let is_v5 = population.capabilities().has_properties;
        for subscription in &mut population.subscriptions {
            subscription.retain_as_published = is_v5 && rng.chance(60);
        }
        for publication in population.publications.iter_mut().filter(|p| !p.request) {
            publication.retain |= rng.chance(40);
        }
    }
}

/// Draws ends of connections, and delays of wills.
pub fn draw_ends(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x0dea_d000);
    for population in &mut case.plan.populations {
        let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol else { continue };
        let is_v5 = mqtt.version == MqttVersion::V5;
        if rng.chance(20) {
            population.end = match rng.chance(50) && is_v5 {
                true => End::DisconnectWithWill,
                false => End::Vanish,
            };
        }
        if let Some(will) = mqtt.will.as_mut().filter(|_| is_v5 && rng.chance(50)) {
            will.properties.push(number("will_delay_interval", rng.below(3) as u32));
        }
    }
}

/// Draws a population that takes connections over.
pub fn draw_takeovers(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x07a6_e0e4);
    let [victim, taker, ..] = &mut case.plan.populations[..] else { return };
    if !rng.chance(10) {
        return;
    }
    let (PlannedProtocol::Mqtt(of), PlannedProtocol::Mqtt(to)) =
        (&victim.protocol, &mut taker.protocol)
    else {
        return;
    };
    to.client_id = of.client_id.clone();
    taker.first = victim.first;
    taker.takes_over = Some(0);
}
