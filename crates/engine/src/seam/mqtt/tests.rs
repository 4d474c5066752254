//! CONNACK at the doors of the protocol.

use plan::PlannedProtocol;
use testkit::plans::{number, speaking};

use super::*;
use crate::seam::{FirstBytes, Scratch};

/// Takes no message.
struct Empty;

impl Inbox for Empty {
    fn take(&mut self, _: &Received<'_>) -> Next {
        unreachable!("CONNACK has no message")
    }
}

/// The acceptance of a client that has asked for a session expiry, by the bytes of a CONNACK;
/// `None`: the client wants a clean session.
fn accepted(version: MqttVersion, expiry_s: Option<u32>, connack: &[u8]) -> (bool, u32) {
    let mut population = speaking(version, "p", 1);
    let PlannedProtocol::Mqtt(options) = &mut population.protocol else { unreachable!() };
    options.clean_session = expiry_s.is_none();
    if let (MqttVersion::V5, Some(expiry_s)) = (version, expiry_s) {
        options.properties = vec![number("session_expiry_interval", expiry_s)];
    }
    let options = options.clone();
    let setup = MqttSetup::new(&population, &options, u32::MAX);
    let at = At { setup: &setup, population: &population, n: 1, now_ns: 0 };
    let (mut client, mut out, mut scratch) = (MqttClient::NEW, Vec::new(), Scratch::default());
    let to = Buffers { out: &mut out, scratch: &mut scratch };
    assert!(matches!(client.poll(&at, Request::Open(FirstBytes::default()), to), Polled::Sent(_)));
    match client.handle(&at, connack, &mut out, &mut Empty).event {
        Event::Connected(Accepted { resumed, kept_s, .. }) => (resumed, kept_s),
        _ => panic!("{connack:?} is no acceptance"),
    }
}

#[test]
fn a_session_is_kept_for_as_long_as_both_sides_say() {
    const FOR_EVER: u32 = u32::MAX;
    let (old, new) = (&[0x20, 2, 0, 0], &[0x20, 3, 0, 0, 0]);
    let replaced = |s: u8| [0x20, 8, 0, 0, 5, 0x11, 0, 0, 0, s];
    for (version, asked_s, connack, kept_s) in [
        (MqttVersion::V31, Some(FOR_EVER), &old[..], 0),
        (MqttVersion::V311, Some(FOR_EVER), &old[..], FOR_EVER),
        (MqttVersion::V311, None, &old[..], 0),
        (MqttVersion::V5, Some(FOR_EVER), &new[..], FOR_EVER),
        (MqttVersion::V5, Some(60), &new[..], 60),
        (MqttVersion::V5, Some(60), &replaced(7)[..], 7),
        (MqttVersion::V5, Some(60), &replaced(0)[..], 0),
        (MqttVersion::V5, None, &replaced(7)[..], 0),
    ] {
        let found = accepted(version, asked_s, connack);
        assert_eq!(found, (false, kept_s), "{version:?}, {asked_s:?}, {connack:?}");
    }
    let present = accepted(MqttVersion::V5, Some(60), &[0x20, 3, 1, 0, 0]);
    assert_eq!(present, (true, 60));
}
