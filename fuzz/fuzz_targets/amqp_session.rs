//! Fuzzes an AMQP session with any bytes, before, in and after the login. The session never
//! panics, answers with well-formed packets only, and gives the same events for every split of the
//! bytes. Run with `cargo +nightly fuzz run amqp_session`.

#![no_main]

use amqp::{
    AmqpError, AmqpEvent, AmqpLogin, AmqpMethod, AmqpSession, RequiredLimits, Table, packet,
};
use libfuzzer_sys::fuzz_target;

const LOGIN: AmqpLogin<'_> = AmqpLogin { mechanism: b"PLAIN", response: b"\0u\0p", name: b"c" };
const REQUIRED: RequiredLimits<'_> =
    RequiredLimits { channels: 2, heartbeat_s: 1, virtual_host: b"/" };

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (state, split, bytes) = input;
    // The fuzzer chooses how far the login has come.
    let mut before = Vec::new();
    let (properties, mechanisms, locales) = (Table::default(), &b"PLAIN"[..], &b"en_US"[..]);
    let steps = [
        AmqpMethod::ConnectionStart { major: 0, minor: 9, properties, mechanisms, locales },
        AmqpMethod::ConnectionTune { channel_max: 0, frame_max: 4096, heartbeat_s: 0 },
        AmqpMethod::ConnectionOpenOk { reserved_1: b"" },
    ];
    for step in steps.iter().take(usize::from(state % 4)) {
        step.push(0, &mut before);
    }
    before.extend_from_slice(bytes);
    let whole = receive(&before, before.len().max(1));
    assert_eq!(whole, receive(&before, usize::from(split) + 1));
    let _ = serve(bytes);
});

/// Events of a session that receives `bytes` in pieces of `piece` bytes.
fn receive(bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), AmqpError>) {
    let (mut session, mut out) = (AmqpSession::<u8>::new(), Vec::new());
    session.open(&mut out);
    let (mut events, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        let step = match session.handle(&bytes[start..end], &mut out) {
            Ok(step) => step,
            Err(error) => break (events, Err(error)),
        };
        start += step.len;
        assert!(start <= end);
        match step.event {
            AmqpEvent::Incomplete if end == bytes.len() => break (events, Ok(())),
            AmqpEvent::Incomplete => end = bytes.len().min(end + piece),
            AmqpEvent::Handled => {}
            event => {
                events.push(format!("{event:?}"));
                match event.apart() {
                    Some(AmqpEvent::Started(_)) => session.log_in(&LOGIN, &mut out),
                    Some(AmqpEvent::Tuned(offered)) => {
                        if let Err(error) = session.tune(offered, &REQUIRED, &mut out) {
                            break (events, Err(error));
                        }
                    }
                    Some(AmqpEvent::Connected) => ask(&mut session, &mut out),
                    _ => {}
                }
            }
        }
        session.release();
        assert!(serve(&out).is_empty(), "a part of a packet");
        out.clear();
    }
}

/// Opens channels and publishes, so that answers fit.
fn ask(session: &mut AmqpSession<u8>, out: &mut Vec<u8>) {
    for channel in 1..=2 {
        session.request(channel, &AmqpMethod::ChannelOpen { reserved_1: b"" }, out);
    }
    session.request(1, &AmqpMethod::ConfirmSelect { flags: 0 }, out);
    (0..3).for_each(|token| session.await_confirm(1, token));
}

/// Decodes packets of a client, and returns the rest.
fn serve(mut bytes: &[u8]) -> &[u8] {
    while let Ok(Some(packet)) = packet::decode_packet(bytes) {
        bytes = &bytes[packet.len..];
    }
    bytes
}
