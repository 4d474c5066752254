//! Fuzzes payloads and topics of Sparkplug B with any bytes: the reader never panics, and reads
//! only these bytes. A host that follows them notices gaps of at least one message. Run with
//! `cargo +nightly fuzz run sparkplug`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sparkplug::{
    Followed, SparkplugFollower, SparkplugKind, SparkplugTopic, body_at_end, decode_sparkplug,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(topic) = std::str::from_utf8(bytes) {
        let _ = SparkplugTopic::parse(topic);
    }
    let (mut follower, mut now_ns) = (SparkplugFollower::default(), 0);
    for bytes in bytes.chunks(40) {
        let Ok(payload) = decode_sparkplug(bytes) else { continue };
        assert!(payload.body.len() <= bytes.len() && payload.metrics as usize <= bytes.len());
        if let Some(body) = body_at_end(bytes, 8) {
            assert_eq!(body, &bytes[bytes.len() - 8..]);
        }
        now_ns += 1;
        let kind = match bytes.len() % 4 {
            0 => SparkplugKind::NodeBirth,
            1 => SparkplugKind::NodeDeath,
            2 => SparkplugKind::DeviceDeath,
            _ => SparkplugKind::NodeData,
        };
        let number = payload.timestamp_ms;
        let sent_ns = payload.seq.unwrap_or(now_ns);
        let is_of_dead = bytes.len() % 5 == 0;
        let message = Followed { kind, payload: &payload, number, is_of_dead, sent_ns, now_ns };
        let report = follower.take(&message, 5);
        assert!(report.gap.is_none_or(|gap| gap.missing > 0) && report.asks | report.gap.is_none());
    }
});
