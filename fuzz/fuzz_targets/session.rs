//! Any bytes from a server: a session with messages in flight never panics, answers with
//! well-formed packets only, and never has more in flight than it published. Run with `cargo
//! +nightly fuzz run session`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt::{Connect, Decoded, Event, QoS, Session, Version, decode};

const V: Version = Version::V311;

fuzz_target!(|bytes: &[u8]| {
    let (mut session, mut out) = (Session::<u32>::new(), Vec::new());
    let connect = Connect { client_id: "c", ..Connect::default() };
    session.connect(V, &connect, &mut out).expect("the packet is short");
    out.clear();
    let (mut rest, mut published) = (bytes, 0);
    while let Ok(Decoded::Packet { packet, len }) = decode(V, rest) {
        rest = &rest[len..];
        match session.handle(V, &packet, &mut out) {
            Ok(Event::Connected { .. }) => {
                for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().cycle().take(8) {
                    session.publish(qos, published).expect("packet ids are left");
                    published += 1;
                }
            }
            Ok(Event::Acknowledged(token)) => assert!(token < published),
            Ok(_) => {}
            Err(_) => break,
        }
        assert!(session.in_flight() <= published as usize);
    }
    let mut replies = &out[..];
    while !replies.is_empty() {
        match decode(V, replies) {
            Ok(Decoded::Packet { len, .. }) => replies = &replies[len..],
            other => panic!("{other:?}"),
        }
    }
    session.connection_lost(true);
    let kept = session.in_flight();
    assert_eq!(session.retransmit(V, &mut out, |_, _, _| ()), kept);
    assert_eq!((session.connection_lost(false), session.in_flight()), (kept, 0));
});
