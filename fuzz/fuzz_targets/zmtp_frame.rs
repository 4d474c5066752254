//! Fuzzes the codec of ZMTP with any bytes: the decoders never panic and read only these bytes. An
//! accepted frame, command or greeting encodes to bytes that decode to the same value. Run with
//! `cargo +nightly fuzz run zmtp_frame`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zmtp::{
    command::ZmtpCommand,
    frame::{self, DecodedFrame, Frame, FrameKind},
    greeting::Greeting,
};

fuzz_target!(|bytes: &[u8]| {
    match frame::decode(bytes) {
        Ok(DecodedFrame::Frame { frame: Frame { kind, body }, len }) => {
            assert!(len <= bytes.len());
            let mut again = Vec::new();
            frame::encode(kind, body, &mut again);
            let frame = Frame { kind, body };
            assert_eq!(frame::decode(&again), Ok(DecodedFrame::Frame { frame, len: again.len() }));
            assert_eq!(again.len(), frame::encoded_len(body.len()));
        }
        Ok(DecodedFrame::Incomplete { needed }) => assert!(needed > bytes.len()),
        Err(_) => {}
    }
    if let Ok(command) = ZmtpCommand::decode(bytes)
        && command != ZmtpCommand::Other
    {
        let mut again = Vec::new();
        command.encode(&mut again).expect("a decoded command can be encoded");
        let Ok(DecodedFrame::Frame { frame: Frame { kind: FrameKind::Command, body }, .. }) =
            frame::decode(&again)
        else {
            panic!("{again:02x?}")
        };
        assert_eq!(ZmtpCommand::decode(body), Ok(command));
    }
    if let Ok(Some(greeting)) = Greeting::decode(bytes) {
        let mut again = Vec::new();
        greeting.encode(&mut again);
        assert_eq!(Greeting::decode(&again), Ok(Some(greeting)));
    }
});
