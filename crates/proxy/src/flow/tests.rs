use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use super::{ByteFlow, Pumped, SLICE_READS};

const MS: u64 = 1_000_000;

/// A source: the bytes of each read; no bytes are the end.
#[derive(Default)]
struct Source(VecDeque<Vec<u8>>);

/// A target: its room in bytes, and the bytes written.
struct Target {
    room: usize,
    taken: Vec<u8>,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.pop_front().ok_or(ErrorKind::WouldBlock)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.room -= count;
        self.taken.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A flow between a source and a target, with a clock.
struct Bench {
    flow: ByteFlow,
    source: Source,
    target: Target,
    clock_ns: Cell<u64>,
}

impl Bench {
    fn new(reads: &[&[u8]], room: usize) -> Self {
        Self {
            flow: ByteFlow::default(),
            source: Source(reads.iter().map(|bytes| bytes.to_vec()).collect()),
            target: Target { room, taken: Vec::new() },
            clock_ns: Cell::new(MS),
        }
    }

    fn pump(&mut self, delay_ns: u64) -> Pumped {
        let ends = (&mut self.source, &mut self.target);
        self.flow.pump(ends, delay_ns, || self.clock_ns.get(), &mut [0; 4]).unwrap()
    }
}

#[test]
fn bytes_are_forwarded_and_the_end_after_them() {
    let mut bench = Bench::new(&[b"four", b"two", b""], 100);
    assert_eq!(bench.pump(0), Pumped::Waits, "a short read has emptied the source");
    assert_eq!(bench.target.taken, b"fourtwo");
    assert_eq!(bench.pump(0), Pumped::Ended);
    bench.flow.ended();
    assert_eq!(bench.pump(0), Pumped::Waits);
    assert_eq!((bench.flow.bytes_total, bench.flow.next_ns()), (7, None));
}

#[test]
fn an_announced_end_follows_the_last_bytes() {
    let mut bench = Bench::new(&[b"two", b""], 100);
    bench.flow.closing();
    assert_eq!(bench.pump(0), Pumped::Ended);
}

#[test]
fn nothing_more_is_read_while_the_target_takes_nothing() {
    let mut bench = Bench::new(&[b"four", b"five"], 1);
    assert_eq!(bench.pump(0), Pumped::Waits);
    assert!(bench.flow.holds());
    assert_eq!(bench.source.0.len(), 1);
    bench.target.room = 100;
    assert_eq!(bench.pump(0), Pumped::Waits);
    assert_eq!(bench.target.taken, b"fourfive");
    assert!(!bench.flow.holds());
}

#[test]
fn a_delayed_chunk_leaves_after_its_time_and_the_end_too() {
    let mut bench = Bench::new(&[b"two", b""], 100);
    bench.flow.closing();
    assert_eq!(bench.pump(5 * MS), Pumped::Waits);
    assert_eq!(bench.flow.next_ns(), Some(6 * MS));
    bench.clock_ns.set(6 * MS - 1);
    assert_eq!(bench.pump(5 * MS), Pumped::Waits);
    assert_eq!(bench.target.taken, b"");
    bench.clock_ns.set(6 * MS);
    assert_eq!(bench.pump(5 * MS), Pumped::Ended);
    assert_eq!(bench.target.taken, b"two");
}

#[test]
fn bytes_without_delay_wait_for_delayed_bytes() {
    let mut bench = Bench::new(&[b"slow", b"now"], 100);
    bench.source.0.truncate(1);
    assert_eq!(bench.pump(5 * MS), Pumped::Waits);
    bench.source.0.push_back(b"now".to_vec());
    assert_eq!(bench.pump(0), Pumped::Waits);
    bench.clock_ns.set(9 * MS);
    assert_eq!(bench.pump(0), Pumped::Waits);
    assert_eq!(bench.target.taken, b"slownow");
}

#[test]
fn a_source_without_end_does_not_keep_the_others_waiting() {
    let reads = vec![&b"full"[..]; SLICE_READS + 1];
    let mut bench = Bench::new(&reads, 1000);
    assert_eq!(bench.pump(0), Pumped::More);
    assert_eq!(bench.source.0.len(), 1);
    assert_eq!(bench.pump(0), Pumped::Waits);
}

#[test]
fn a_broken_stream_ends_the_flow() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::ConnectionReset.into())
        }
    }
    let mut target = Target { room: 1, taken: Vec::new() };
    let ended = ByteFlow::default().pump((&mut Broken, &mut target), 0, || 0, &mut [0; 4]);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}
